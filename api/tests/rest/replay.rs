//! Replay packages, asked for and fetched over HTTP.

mod answers;
mod content;
mod deleted;
mod executions;
mod foreign;
mod gate;
mod large;
mod objects;
mod s3;
mod tools;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bex_api::metrics::Metrics;
use bex_api::package::{
    Bounds, Builder, BuilderDeps, Credentials, Encryption, LocalObjects, Objects, Packager,
    S3Config, S3Objects, SharedPackager, Shares, TokenSecret, UrlTtl,
};
use bex_proto::SessionId;
use bex_proto::package::{content as naming, schema};
use bex_proto::ticket::KeyRing;
use bex_proto::transcript::sha256_hex;
use bex_redact::{Profile, Redactor, TokenKey};
use bex_store::Db;
use bex_store::settle::SandboxAfter;
use bex_tests3::S3;
use serde_json::Value;

use crate::support::*;

/// What there is when a packager is made.
pub struct Made<'a> {
    pub db: &'a Db,
    pub metrics: &'a Metrics,
    pub address: SocketAddr,
    pub dir: &'a Path,
}

/// How packages are made in a test.
pub struct Place {
    pub bucket: Option<(String, Credentials)>,
    pub redactor: fn(Profile, TokenKey) -> Redactor,
    pub bounds: Bounds,
    pub shares: Shares,
    pub ttl: UrlTtl,
}

impl Place {
    /// A directory.
    pub fn here() -> Self {
        Self {
            bucket: None,
            redactor: Redactor::new,
            bounds: Bounds::default(),
            // a test asks as often as it likes
            shares: Shares {
                burst: 1000,
                ..Shares::default()
            },
            ttl: UrlTtl::default(),
        }
    }

    /// A bucket.
    pub fn of(s3: &S3) -> Self {
        let credentials = Credentials::Fixed {
            key_id: bex_tests3::KEY_ID.into(),
            secret: bex_tests3::SECRET.into(),
            session: None,
        };
        Self {
            bucket: Some((s3.endpoint(), credentials)),
            ..Self::here()
        }
    }

    pub fn packager(self, made: Made<'_>) -> SharedPackager {
        let spool_dir = made.dir.join("spool");
        std::fs::create_dir_all(&spool_dir).unwrap();
        let objects = match self.bucket {
            None => {
                let dir = made.dir.join("objects");
                std::fs::create_dir_all(&dir).unwrap();
                let keys = KeyRing::parse(&format!("u:{}", "ef".repeat(32))).unwrap();
                let url = format!("http://{}", made.address);
                Objects::Local(LocalObjects::open(dir, url, keys).unwrap())
            }
            Some((endpoint, credentials)) => {
                let config = S3Config {
                    bucket: bex_tests3::BUCKET.into(),
                    region: bex_tests3::REGION.into(),
                    endpoint: Some(endpoint),
                    credentials,
                    encryption: Encryption::Aes256,
                };
                Objects::S3(Box::new(S3Objects::new(config).unwrap()))
            }
        };
        let builder = Builder::new(builder_deps(made.db, spool_dir, self.redactor, self.bounds));
        let builder = builder.unwrap();
        let metrics = made.metrics.packages.clone();
        Arc::new(Packager::new(
            builder,
            objects,
            self.ttl,
            self.shares,
            metrics,
        ))
    }
}

pub fn builder_deps(
    db: &Db,
    spool_dir: PathBuf,
    redactor: fn(Profile, TokenKey) -> Redactor,
    bounds: Bounds,
) -> BuilderDeps {
    BuilderDeps {
        db: db.clone(),
        secret: TokenSecret::parse(&"12".repeat(32)).unwrap(),
        profile: Profile::Package,
        redactor,
        spool_dir,
        commit: Some("abc1234".into()),
        bounds,
    }
}

/// A world whose packages are made so.
pub async fn world(place: Place) -> World {
    World::with_packages(|made| Some(place.packager(made))).await
}

/// The three routes' paths.
pub fn by(kind: &str, id: impl std::fmt::Display) -> String {
    format!("/replay/by-{kind}/{id}")
}

/// A package that was asked for and fetched.
pub struct Package {
    /// The answer.
    pub answer: Value,
    /// The object.
    pub bytes: Vec<u8>,
    /// What it says.
    pub envelope: Value,
}

impl Package {
    pub fn sections(&self) -> &Value {
        &self.envelope["sections"]
    }
}

impl World {
    /// Asks for a package, fetches it, and checks what holds of every one.
    pub async fn package(&self, path: &str) -> Package {
        let answer = self.get(VIEWER, path).await;
        assert_eq!(answer.header("cache-control"), "no-store");
        let answer = answer.ok(200);
        let bytes = self.fetch(answer["url"].as_str().unwrap()).await;
        assert_eq!(
            (bytes.status, bytes.header("cache-control")),
            (200, "no-store")
        );
        let bytes = bytes.body.to_vec();
        assert_eq!(answer["sha256"], sha256_hex(&bytes));
        let named = naming::check(&bytes).unwrap();
        assert_eq!(answer["packageId"], named.name.as_str());
        let envelope: Value = serde_json::from_slice(&bytes).unwrap();
        for (version, text) in schema::PUBLISHED {
            let complaints = schema::check(&schema::parse(text), &envelope);
            assert_eq!(complaints, Vec::<String>::new(), "{version}");
        }
        assert_eq!(envelope["schemaVersion"], answer["schemaVersion"]);
        let (kind, id) = path
            .trim_start_matches("/replay/by-")
            .split_once('/')
            .unwrap();
        let id = id.split('?').next().unwrap();
        assert_eq!(
            (
                &answer["query"]["kind"],
                &answer["query"]["id"],
                &answer["query"]["correlationId"]
            ),
            (&kind.into(), &id.into(), &id.into())
        );
        assert_eq!(
            (&envelope["kind"], &envelope["correlationId"]),
            (&kind.into(), &id.into())
        );
        assert_eq!(envelope["sections"]["traceIds"]["correlationId"], id);
        assert!(self.spooled().is_empty(), "no file is left behind");
        Package {
            answer,
            bytes,
            envelope,
        }
    }

    /// GETs a URL as it is, without a token.
    pub async fn fetch(&self, url: &str) -> Answer {
        self.send(
            http::Request::get(url)
                .body(http_body_util::Full::default())
                .unwrap(),
        )
        .await
    }

    /// Files of the spool directory.
    pub fn spooled(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.packages_dir.path().join("spool"));
        entries.unwrap().map(|e| e.unwrap().path()).collect()
    }

    /// Keys of the local store, sorted.
    pub fn stored(&self) -> Vec<String> {
        let root = self.packages_dir.path().join("objects");
        let mut keys = Vec::new();
        let mut open = vec![root.clone()];
        while let Some(dir) = open.pop() {
            for entry in std::fs::read_dir(dir).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    open.push(path);
                } else {
                    keys.push(
                        path.strip_prefix(&root)
                            .unwrap()
                            .to_str()
                            .unwrap()
                            .to_owned(),
                    );
                }
            }
        }
        keys.sort();
        keys
    }

    /// Nothing was stored, nothing is left, nobody was given anything.
    #[track_caller]
    pub fn nothing_stored(&self) {
        assert_eq!(self.stored(), Vec::<String>::new());
        assert_eq!(self.spooled(), Vec::<PathBuf>::new());
        let asked =
            "SELECT count(*) FROM audit_events WHERE action LIKE 'package.%' AND result = 'ok'";
        assert_eq!(self.sql(asked), "0");
    }

    /// A metric's line ends with this value.
    #[track_caller]
    pub fn counted(&self, line: &str, value: u64) {
        let text = self.metrics.text();
        let found = text
            .lines()
            .find(|l| l.starts_with(&format!("bex_api_{line}")));
        assert_eq!(
            found.and_then(|l| l.rsplit(' ').next()),
            Some(value.to_string().as_str()),
            "{line} in {text}"
        );
    }

    /// A session whose first turn said these parts, whole.
    pub async fn spoken(&self, parts: &[&str]) -> SessionId {
        let session = self.running().await;
        self.speak(&session, parts).await;
        let turn = bex_proto::TurnNo(1);
        let generation = bex_proto::Generation(1);
        self.settle(&session, turn, generation, SandboxAfter::Stopping)
            .await;
        session
    }
}

/// A turn with a call of a tool.
pub const PARTS: &[&str] = &[
    r#"{"type":"start"}"#,
    r#"{"type":"text-start","id":"1"}"#,
    r#"{"type":"text-delta","id":"1","delta":"I look. "}"#,
    r#"{"type":"text-end","id":"1"}"#,
    r#"{"type":"tool-input-available","toolCallId":"call-1","toolName":"read","input":{"path":"a.txt"}}"#,
    r#"{"type":"tool-output-available","toolCallId":"call-1","output":{"lines":2}}"#,
    r#"{"type":"text-start","id":"2"}"#,
    r#"{"type":"text-delta","id":"2","delta":"Two lines."}"#,
    r#"{"type":"text-end","id":"2"}"#,
    r#"{"type":"finish"}"#,
];
