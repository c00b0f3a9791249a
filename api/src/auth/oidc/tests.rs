use std::sync::Arc;

use async_trait::async_trait;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bex_proto::problem::Code;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, encode};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::auth::{Role, Workspaces};
use crate::metrics::Metrics;

const ISSUER: &str = "https://issuer.example";

struct Issuer {
    key: EncodingKey,
    public: Value,
}

struct Set(Vec<u8>);

#[async_trait]
impl JwksSource for Set {
    async fn fetch(&self) -> Result<KeySet, FetchFault> {
        Ok(KeySet::parse(&self.0)?)
    }
}

impl Issuer {
    fn new(kid: &str) -> Self {
        let pair =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &SystemRandom::new());
        let key = EncodingKey::from_ec_der(pair.expect("a key").as_ref());
        let jwk = Jwk::from_encoding_key(&key, Algorithm::ES256).expect("its public half");
        let mut public = serde_json::to_value(jwk).expect("plain data");
        public["kid"] = json!(kid);
        Self { key, public }
    }

    fn sign(&self, header: &Header, claims: &Value) -> String {
        encode(header, claims, &self.key).expect("signed")
    }
}

fn header(kid: &str) -> Header {
    Header {
        kid: Some(kid.to_owned()),
        ..Header::new(Algorithm::ES256)
    }
}

fn claims() -> Value {
    let now = jiff::Timestamp::now().as_second();
    json!({"iss": ISSUER, "aud": ["other", "bex"], "sub": "u1", "exp": now + 60, "nbf": now - 60,
        "workspaces": ["team-a"], "role": "operator"})
}

fn verifier(issuer: &Issuer) -> (Oidc, Metrics) {
    let set = json!({"keys": [issuer.public]}).to_string().into_bytes();
    let metrics = Metrics::default();
    let (keys, refresher) = key_cache(Box::new(Set(set)), metrics.oidc.clone());
    tokio::spawn(refresher.run(CancellationToken::new()));
    let rules = OidcRules {
        issuer: ISSUER.into(),
        audiences: vec!["bex".into(), "bex-2".into()],
        claims: ClaimNames {
            workspaces: "workspaces".into(),
            role: "role".into(),
        },
        reserved: BTreeSet::from(["svc:ci".to_owned()]),
    };
    (Oidc::new(rules, keys, metrics.oidc.clone()), metrics)
}

#[tokio::test]
async fn a_good_token_is_its_subject_with_its_rights() {
    let issuer = Issuer::new("k1");
    let (oidc, metrics) = verifier(&issuer);
    for kind in [
        None,
        Some("JWT"),
        Some("at+jwt"),
        Some("application/AT+JWT"),
    ] {
        let header = Header {
            typ: kind.map(str::to_owned),
            ..header("k1")
        };
        let token = issuer.sign(&header, &claims());
        let caller = oidc.caller(token.as_bytes()).await;
        let caller = caller.expect("accepted").expect("a caller");
        assert_eq!(
            (caller.subject.as_str(), caller.role),
            ("u1", Role::Operator)
        );
        let workspace = "team-a".parse().expect("an id");
        assert_eq!(caller.workspaces, Workspaces::Some([workspace].into()));
    }
    assert!(
        metrics
            .text()
            .contains(r#"oidc_tokens_total{result="accepted"} 4"#)
    );
    assert_eq!(oidc.caller(b"an-opaque-token").await, Ok(None));
}

#[tokio::test]
async fn every_other_token_is_refused_for_its_reason() {
    let (issuer, stranger) = (Issuer::new("k1"), Issuer::new("k1"));
    let (oidc, _) = verifier(&issuer);
    let now = jiff::Timestamp::now().as_second();
    let with = |name: &str, value: Value| {
        let mut claims = claims();
        claims[name] = value;
        issuer.sign(&header("k1"), &claims)
    };
    let without = |name: &str| {
        let mut claims = claims();
        claims.as_object_mut().expect("claims").remove(name);
        issuer.sign(&header("k1"), &claims)
    };
    let headed = |header: Header| issuer.sign(&header, &claims());
    let good = headed(header("k1"));
    let (head, rest) = good.split_once('.').expect("a header");
    let unsigned = |head: Value| {
        let claims = URL_SAFE_NO_PAD.encode(claims().to_string());
        format!("{}.{claims}.", URL_SAFE_NO_PAD.encode(head.to_string()))
    };
    let shared = Header {
        kid: Some("k1".into()),
        ..Header::new(Algorithm::HS256)
    };
    let public = URL_SAFE_NO_PAD
        .decode(issuer.public["x"].as_str().expect("x"))
        .expect("bytes");
    let secret = EncodingKey::from_secret(&public).expect("a secret");
    let confused = encode(&shared, &claims(), &secret).expect("signed");
    let (body, signature) = rest.split_once('.').expect("claims");
    let other = URL_SAFE_NO_PAD.encode(claims().to_string().replace("u1", "u2"));
    let brought = Header {
        jwk: serde_json::from_value(stranger.public.clone()).ok(),
        ..header("k1")
    };
    let cases = [
        (
            "unsigned",
            unsigned(json!({"alg": "none", "kid": "k1"})),
            Refusal::Malformed,
        ),
        (
            "unsigned, of a good kind",
            unsigned(json!({"alg": "ES256", "kid": "k1"})),
            Refusal::Signature,
        ),
        ("the public key as a secret", confused, Refusal::Algorithm),
        (
            "another's key",
            stranger.sign(&header("k1"), &claims()),
            Refusal::Signature,
        ),
        (
            "a key it brings along",
            stranger.sign(&brought, &claims()),
            Refusal::Signature,
        ),
        ("an unknown key", headed(header("k2")), Refusal::UnknownKey),
        (
            "no key id",
            headed(Header::new(Algorithm::ES256)),
            Refusal::Malformed,
        ),
        (
            "another kind",
            headed(Header {
                typ: Some("logout+jwt".into()),
                ..header("k1")
            }),
            Refusal::Malformed,
        ),
        (
            "a must it does not know",
            headed(Header {
                crit: Some(vec!["exp".into()]),
                ..header("k1")
            }),
            Refusal::Malformed,
        ),
        (
            "other claims",
            format!("{head}.{other}.{signature}"),
            Refusal::Signature,
        ),
        (
            "no signature",
            format!("{head}.{body}."),
            Refusal::Signature,
        ),
        (
            "too long",
            with("x", json!("x".repeat(TOKEN_BYTES))),
            Refusal::Malformed,
        ),
        (
            "another issuer",
            with("iss", json!("https://issuer.example/")),
            Refusal::Issuer,
        ),
        (
            "two issuers",
            with("iss", json!([ISSUER, "x"])),
            Refusal::Malformed,
        ),
        (
            "another audience",
            with("aud", json!("bex2")),
            Refusal::Audience,
        ),
        ("no audience", without("aud"), Refusal::Malformed),
        ("no issuer", without("iss"), Refusal::Malformed),
        ("no subject", without("sub"), Refusal::Malformed),
        ("no end", without("exp"), Refusal::Malformed),
        (
            "an odd end",
            with("exp", json!("tomorrow")),
            Refusal::Malformed,
        ),
        (
            "an odd beginning",
            with("nbf", json!("now")),
            Refusal::Malformed,
        ),
        ("over", with("exp", json!(now - 31)), Refusal::Expired),
        ("not begun", with("nbf", json!(now + 40)), Refusal::NotYet),
        (
            "a service's subject",
            with("sub", json!("svc:ci")),
            Refusal::Subject,
        ),
        (
            "our own subject",
            with("sub", json!(bex_proto::ticket::COMPLETER_SUBJECT)),
            Refusal::Subject,
        ),
        ("no role", without("role"), Refusal::NoRights),
        ("no workspace", without("workspaces"), Refusal::NoRights),
    ];
    for (what, token, refusal) in cases {
        assert_eq!(oidc.judge(token.as_bytes()).await, Err(refusal), "{what}");
    }
    // clocks may differ a little
    assert!(
        oidc.judge(with("exp", json!(now - 20)).as_bytes())
            .await
            .is_ok()
    );
    assert!(
        oidc.judge(with("nbf", json!(now + 20)).as_bytes())
            .await
            .is_ok()
    );
}

#[tokio::test]
async fn refusals_tell_who_can_help() {
    let issuer = Issuer::new("k1");
    let (oidc, _) = verifier(&issuer);
    let mut rightless = claims();
    rightless["role"] = json!("none");
    let rightless = issuer.sign(&header("k1"), &rightless);
    assert_eq!(
        oidc.caller(rightless.as_bytes()).await,
        Err(Code::Forbidden)
    );
    assert_eq!(oidc.caller(b"a.b.c").await, Err(Code::Unauthenticated));

    struct Away;
    #[async_trait]
    impl JwksSource for Arc<Away> {
        async fn fetch(&self) -> Result<KeySet, FetchFault> {
            Err(FetchFault::Timeout)
        }
    }
    let metrics = Metrics::default().oidc;
    let (keys, refresher) = key_cache(Box::new(Arc::new(Away)), metrics.clone());
    tokio::spawn(refresher.run(CancellationToken::new()));
    let away = Oidc::new(oidc.rules.clone(), keys, metrics);
    let good = issuer.sign(&header("k1"), &claims());
    assert_eq!(away.caller(good.as_bytes()).await, Err(Code::Unavailable));
}
