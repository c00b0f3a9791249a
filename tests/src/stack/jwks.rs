//! An issuer of access tokens: it signs them, and publishes its keys over HTTP on a loopback port that it keeps.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, anyhow};
use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair, RSA_PKCS1_SHA256, RsaKeyPair,
};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use super::ports;

/// What tokens name as their issuer.
pub const ISSUER: &str = "https://issuer.example";
/// Whom they are for.
pub const AUDIENCE: &str = "bex";

enum Pair {
    Rsa(RsaKeyPair),
    Ec(EcdsaKeyPair),
}

/// A key that signs.
pub struct SigningKey {
    kid: String,
    pair: Pair,
}

/// An issuer, listening until it is stopped or dropped.
pub struct Issuer {
    address: SocketAddr,
    published: Arc<Published>,
    listening: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Published {
    set: Mutex<Bytes>,
    reads: AtomicUsize,
}

impl SigningKey {
    /// A fresh RSA key of 2048 bits.
    ///
    /// # Errors
    /// When there is no randomness.
    pub fn rsa(kid: &str) -> anyhow::Result<Self> {
        let pair = RsaKeyPair::generate(aws_lc_rs::rsa::KeySize::Rsa2048)?;
        Ok(Self {
            kid: kid.to_owned(),
            pair: Pair::Rsa(pair),
        })
    }

    /// A fresh key on P-256.
    ///
    /// # Errors
    /// When there is no randomness.
    pub fn ec(kid: &str) -> anyhow::Result<Self> {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING)?;
        Ok(Self {
            kid: kid.to_owned(),
            pair: Pair::Ec(pair),
        })
    }

    /// The header of its tokens.
    pub fn header(&self) -> Value {
        let alg = match self.pair {
            Pair::Rsa(_) => "RS256",
            Pair::Ec(_) => "ES256",
        };
        json!({"alg": alg, "kid": self.kid, "typ": "at+jwt"})
    }

    /// A token of these claims.
    ///
    /// # Errors
    /// When signing fails.
    pub fn token(&self, claims: &Value) -> anyhow::Result<String> {
        let message = unsigned(&self.header(), claims);
        let random = SystemRandom::new();
        let signature = match &self.pair {
            Pair::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(
                    &RSA_PKCS1_SHA256,
                    &random,
                    message.as_bytes(),
                    &mut signature,
                )?;
                signature
            }
            Pair::Ec(pair) => pair.sign(&random, message.as_bytes())?.as_ref().to_vec(),
        };
        Ok(signed(&message, &signature))
    }

    /// Its public half as DER: what an attacker has.
    ///
    /// # Errors
    /// Never of a key made here.
    pub fn public_der(&self) -> anyhow::Result<Vec<u8>> {
        let der: PublicKeyX509Der<'_> = match &self.pair {
            Pair::Rsa(pair) => pair.public_key().as_der()?,
            Pair::Ec(pair) => pair.public_key().as_der()?,
        };
        Ok(der.as_ref().to_vec())
    }

    fn published(&self) -> anyhow::Result<Value> {
        let mut jwk = match &self.pair {
            Pair::Rsa(pair) => {
                let public = pair.public_key();
                let (n, e) = (public.modulus(), public.exponent());
                json!({"kty": "RSA", "alg": "RS256", "n": text(n.big_endian_without_leading_zero()),
                    "e": text(e.big_endian_without_leading_zero())})
            }
            Pair::Ec(pair) => {
                // 0x04, then both coordinates
                let point = pair.public_key().as_ref();
                let (x, y) = point
                    .get(1..)
                    .and_then(|xy| xy.split_at_checked(32))
                    .context("an uncompressed point")?;
                json!({"kty": "EC", "crv": "P-256", "x": text(x), "y": text(y)})
            }
        };
        jwk["kid"] = json!(self.kid);
        jwk["use"] = json!("sig");
        Ok(jwk)
    }
}

/// The signed part of a token.
pub fn unsigned(header: &Value, claims: &Value) -> String {
    format!(
        "{}.{}",
        text(header.to_string().as_bytes()),
        text(claims.to_string().as_bytes())
    )
}

/// A token from its signed part and a signature, whatever that is worth.
pub fn signed(message: &str, signature: &[u8]) -> String {
    format!("{message}.{}", text(signature))
}

fn text(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Good claims of a person: valid for five minutes, in these workspaces.
pub fn claims(subject: &str, workspaces: &[&str], role: &str) -> Value {
    let now = Timestamp::now().as_second();
    json!({"iss": ISSUER, "aud": [AUDIENCE], "sub": subject, "iat": now, "nbf": now - 1, "exp": now + 300,
        "workspaces": workspaces, "role": role})
}

impl Issuer {
    /// An issuer that publishes nothing yet and does not listen.
    ///
    /// # Errors
    /// When there is no free port.
    pub fn new() -> anyhow::Result<Self> {
        Ok(Self {
            address: ports::pick()?.api,
            published: Arc::default(),
            listening: None,
        })
    }

    /// The api's settings that make it believe this issuer.
    pub fn api_env(&self) -> Vec<(String, String)> {
        [
            ("BEX_OIDC_ISSUER", ISSUER.to_owned()),
            ("BEX_OIDC_AUDIENCE", AUDIENCE.to_owned()),
            ("BEX_OIDC_JWKS_URL", format!("http://{}/keys", self.address)),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    /// Publishes these keys and no others.
    ///
    /// # Errors
    /// Never of keys made here.
    pub fn publish(&self, keys: &[&SigningKey]) -> anyhow::Result<()> {
        let keys: Vec<_> = keys
            .iter()
            .map(|key| key.published())
            .collect::<anyhow::Result<_>>()?;
        let set = Bytes::from(json!({"keys": keys}).to_string());
        *self.published.lock() = set;
        Ok(())
    }

    /// How often its keys were read.
    pub fn reads(&self) -> usize {
        self.published.reads.load(Ordering::SeqCst)
    }

    /// Listens, on the same port each time.
    ///
    /// # Errors
    /// When somebody took the port meanwhile.
    pub async fn listen(&mut self) -> anyhow::Result<()> {
        let listener = TcpListener::bind(self.address)
            .await
            .map_err(|error| anyhow!("the issuer cannot listen on {}: {error}", self.address))?;
        let published = Arc::clone(&self.published);
        self.listening = Some(tokio::spawn(serve(listener, published)));
        Ok(())
    }

    /// Ends listening and every connection: it is refused from now on.
    pub async fn stop(&mut self) {
        if let Some(listening) = self.listening.take() {
            listening.abort();
            // its end is an abort
            let _ = listening.await;
        }
    }
}

impl Drop for Issuer {
    fn drop(&mut self) {
        if let Some(listening) = self.listening.take() {
            listening.abort();
        }
    }
}

impl Published {
    fn lock(&self) -> std::sync::MutexGuard<'_, Bytes> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let found = request.uri().path() == "/keys";
        let body = if found {
            self.reads.fetch_add(1, Ordering::SeqCst);
            self.lock().clone()
        } else {
            Bytes::new()
        };
        let mut answer = Response::new(Full::new(body));
        if !found {
            *answer.status_mut() = http::StatusCode::NOT_FOUND;
        }
        answer
    }
}

async fn serve(listener: TcpListener, published: Arc<Published>) {
    // aborted with this task
    let mut connections = JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        let published = Arc::clone(&published);
        connections.spawn(async move {
            let service = service_fn(|request| {
                let answer = published.answer(&request);
                async move { Ok::<_, std::convert::Infallible>(answer) }
            });
            let io = TokioIo::new(socket);
            let _ = http1::Builder::new().serve_connection(io, service).await;
        });
        while connections.try_join_next().is_some() {}
    }
}
