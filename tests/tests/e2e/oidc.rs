//! Access tokens of an issuer with a key set of its own: who is believed, and what that costs the issuer.

use std::time::{Duration, Instant};

use aws_lc_rs::hmac;
use bex_tests::client::{Answer, ApiClient, NewSession};
use bex_tests::eventually;
use bex_tests::stack::{Issuer, OTHER_WORKSPACE, SigningKey, WORKSPACE, claims, signed, unsigned};
use bex_tests::{Stack, StackOptions};
use http::Method;
use serde_json::{Value, json};

const SESSIONS: &str = "/v1/agent-sessions?workspaceId=demo";
/// Between two reads of the issuer's keys, whoever asks.
const MIN_PAUSE: Duration = Duration::from_secs(10);
/// A read that is due, with room for a busy machine.
const SOON: Duration = Duration::from_secs(60);

async fn stack(issuer: &Issuer) -> Stack {
    let options = StackOptions {
        api_env: issuer.api_env(),
        ..StackOptions::default()
    };
    Stack::start(options).await.unwrap()
}

fn caller(stack: &Stack, token: &str) -> ApiClient {
    ApiClient::new(stack.addresses.api, token, Default::default())
}

async fn listed(stack: &Stack, token: &str) -> Answer {
    let answer = caller(stack, token).call(Method::GET, SESSIONS, None).await;
    answer.unwrap()
}

async fn status(stack: &Stack, token: &str) -> u16 {
    listed(stack, token).await.status.as_u16()
}

async fn until(stack: &Stack, token: &str, wanted: u16) {
    eventually(&format!("{wanted}"), SOON, async || {
        (status(stack, token).await == wanted).then_some(())
    })
    .await
    .unwrap();
}

fn viewer() -> Value {
    claims("user-1", &[WORKSPACE], "viewer")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_believed_for_what_its_issuer_proves() {
    let (rsa, ec) = (
        SigningKey::rsa("r1").unwrap(),
        SigningKey::ec("e1").unwrap(),
    );
    let mut issuer = Issuer::new().unwrap();
    issuer.publish(&[&rsa, &ec]).unwrap();
    issuer.listen().await.unwrap();
    let stack = stack(&issuer).await;

    for key in [&rsa, &ec] {
        let token = key
            .token(&claims("user-1", &[WORKSPACE], "operator"))
            .unwrap();
        let new = NewSession::new(WORKSPACE, "demo", "say little parts=3");
        let session = caller(&stack, &token).create(&new).await.unwrap();
        let shown = caller(&stack, &token).session(&session).await.unwrap();
        assert_eq!(shown["createdBy"], "user-1");
        // a role is what it is, and another workspace's session is none
        let body = json!({"prompt": "more"});
        let reads = key.token(&viewer()).unwrap();
        let path = format!("/v1/agent-sessions/{session}/turns");
        let refused = caller(&stack, &reads)
            .call(Method::POST, &path, Some(&body))
            .await
            .unwrap();
        assert_eq!(
            (refused.status.as_u16(), refused.code().as_str()),
            (403, "forbidden")
        );
        let elsewhere = key
            .token(&claims("user-1", &[OTHER_WORKSPACE], "admin"))
            .unwrap();
        let hidden = caller(&stack, &elsewhere)
            .call(Method::GET, &path, None)
            .await
            .unwrap();
        assert_eq!(
            (hidden.status.as_u16(), hidden.code().as_str()),
            (404, "not_found")
        );
    }

    let with = |name: &str, value: Value| {
        let mut claims = viewer();
        claims[name] = value;
        rsa.token(&claims).unwrap()
    };
    let now = jiff::Timestamp::now().as_second();
    let stranger = SigningKey::rsa("r1").unwrap();
    let none = unsigned(&json!({"alg": "none", "kid": "r1"}), &viewer());
    let shared = unsigned(&json!({"alg": "HS256", "kid": "r1"}), &viewer());
    let secret = hmac::Key::new(hmac::HMAC_SHA256, &rsa.public_der().unwrap());
    let confused = signed(&shared, hmac::sign(&secret, shared.as_bytes()).as_ref());
    let good = rsa.token(&viewer()).unwrap();
    let (head, signature) = good.rsplit_once('.').unwrap();
    let raised = unsigned(&rsa.header(), &claims("user-1", &[WORKSPACE], "admin"));
    for (what, token) in [
        ("another audience", with("aud", json!("another"))),
        (
            "another issuer",
            with("iss", json!("https://issuer.example.org")),
        ),
        ("over", with("exp", json!(now - 60))),
        ("not begun", with("nbf", json!(now + 120))),
        ("a service's subject", with("sub", json!("svc:admin"))),
        ("unsigned", signed(&none, b"")),
        ("no signature", format!("{head}.")),
        ("the public key as a secret", confused),
        ("another's signature", stranger.token(&viewer()).unwrap()),
        ("other claims", format!("{raised}.{signature}")),
        ("nonsense", "a.b.c".to_owned()),
    ] {
        let answer = listed(&stack, &token).await;
        assert_eq!(
            (answer.status.as_u16(), answer.code().as_str()),
            (401, "unauthenticated"),
            "{what}"
        );
        assert_eq!(answer.headers["www-authenticate"], "Bearer", "{what}");
    }
    let rightless = with("role", json!("guest"));
    assert_eq!(status(&stack, &rightless).await, 403);
    assert_eq!(status(&stack, &good).await, 200);
    assert_eq!(
        status(&stack, &stack.tokens.viewer).await,
        200,
        "service tokens go on"
    );
    assert_eq!(issuer.reads(), 1, "known keys need nobody");
    stack.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_come_and_go_without_a_restart() {
    let (old, new) = (
        SigningKey::rsa("old").unwrap(),
        SigningKey::ec("new").unwrap(),
    );
    let (by_old, by_new) = (old.token(&viewer()).unwrap(), new.token(&viewer()).unwrap());
    let mut issuer = Issuer::new().unwrap();
    issuer.publish(&[&old]).unwrap();
    // away at the start: nobody is refused for good, and who needs no issuer is served
    let stack = stack(&issuer).await;
    let answer = listed(&stack, &by_old).await;
    assert_eq!(
        (answer.status.as_u16(), answer.code().as_str()),
        (503, "unavailable")
    );
    assert!(answer.headers.contains_key("retry-after"));
    assert_eq!(status(&stack, &stack.tokens.viewer).await, 200);
    issuer.listen().await.unwrap();
    until(&stack, &by_old, 200).await;

    issuer.publish(&[&new]).unwrap();
    until(&stack, &by_new, 200).await;
    assert_eq!(status(&stack, &by_old).await, 401, "withdrawn");

    issuer.stop().await;
    // known keys go on; of others nobody can say anything once the last read is old
    until(&stack, &by_old, 503).await;
    assert_eq!(status(&stack, &by_new).await, 200);
    issuer.listen().await.unwrap();
    until(&stack, &by_old, 401).await;
    stack.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_unknown_keys_is_none_for_the_issuer() {
    let key = SigningKey::ec("k1").unwrap();
    let good = key.token(&viewer()).unwrap();
    let mut issuer = Issuer::new().unwrap();
    issuer.publish(&[&key]).unwrap();
    issuer.listen().await.unwrap();
    let stack = stack(&issuer).await;
    assert_eq!(status(&stack, &good).await, 200);

    let began = Instant::now();
    let mut asked = 0;
    // long enough for a read to be due in the middle of it
    while began.elapsed() < MIN_PAUSE + MIN_PAUSE / 5 {
        let round = (0..20).map(|n| {
            let header = json!({"alg": "ES256", "kid": format!("unknown-{asked}-{n}")});
            let token = signed(&unsigned(&header, &viewer()), &[7; 64]);
            let caller = caller(&stack, &token);
            async move { caller.call(Method::GET, SESSIONS, None).await.unwrap() }
        });
        for answer in futures::future::join_all(round).await {
            let code = answer.code();
            assert!(
                ["unauthenticated", "unavailable"].contains(&code.as_str()),
                "{code}"
            );
            asked += 1;
        }
        assert_eq!(status(&stack, &good).await, 200, "known keys need nobody");
    }
    let due = 1 + began.elapsed().as_secs() / MIN_PAUSE.as_secs();
    assert!(asked >= 100, "{asked} is no flood");
    assert!(
        issuer.reads() as u64 <= 1 + due,
        "{} reads for {asked} tokens",
        issuer.reads()
    );
    stack.stop().await.unwrap();
}
