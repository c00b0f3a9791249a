//! What is counted is what docs/metrics.md says: every metric of the list is shown by a system that has done everything once, nothing else is, and
//! no label has another value than the list gives it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bex_testchart::tables;
use bex_tests::client::{ApiClient, NewSession, Viewer, stream_path};
use bex_tests::eventually;
use bex_tests::scenario::settled;
use bex_tests::stack::{Issuer, SigningKey, WORKSPACE, claims};
use bex_tests::{Stack, StackOptions};
use bytes::Bytes;
use http::Method;
use serde_json::Value;

/// The sweep's first look is at once, a tick and a scrape are seconds: room for a busy machine.
const SHOWN: Duration = Duration::from_secs(60);
/// Shown only where the exec listener speaks TLS: `exec_tls` looks at it by [`as_listed`].
pub const WITH_EXEC_TLS: &str = "bex_gateway_exec_handshakes";

/// A metric of the list.
#[derive(Debug)]
struct Listed {
    kind: String,
    labels: BTreeMap<String, Bound>,
}

/// What a label may be.
#[derive(Debug)]
enum Bound {
    Words(BTreeSet<String>),
    /// A status of HTTP.
    Status,
}

/// A scraped text: type by metric, and samples with their labels.
#[derive(Debug, Default)]
struct Scraped {
    kinds: BTreeMap<String, String>,
    samples: Vec<(String, BTreeMap<String, String>)>,
}

#[tokio::test(flavor = "multi_thread")]
async fn the_list_of_metrics_is_what_is_counted() {
    let key = SigningKey::ec("e1").unwrap();
    let mut issuer = Issuer::new().unwrap();
    issuer.publish(&[&key]).unwrap();
    issuer.listen().await.unwrap();
    let options = StackOptions {
        api_env: issuer.api_env(),
        ..StackOptions::default()
    };
    let stack = Stack::start(options).await.unwrap();
    // a session from end to end, watched, by somebody whom the issuer vouches for
    let token = key
        .token(&claims("user-1", &[WORKSPACE], "operator"))
        .unwrap();
    let api = ApiClient::new(stack.addresses.api, &token, Default::default());
    let new = NewSession::new(WORKSPACE, "demo", "say it parts=40");
    let session = api.create(&new).await.unwrap();
    let mut viewer = stack.watch(&session).await.unwrap();
    viewer.to_end().await.unwrap();
    settled(&api, &session, 1).await.unwrap();
    // and each kind of refusal
    let missing = api
        .call(
            Method::GET,
            "/v1/agent-sessions/ags-aaaaaaaaaaaaaaaaaaaa",
            None,
        )
        .await;
    assert_eq!(missing.unwrap().status.as_u16(), 404);
    let path = stream_path(&session);
    let refused = Viewer::request(
        stack.addresses.attach,
        Method::GET,
        &path,
        &[],
        Bytes::new(),
    );
    assert_eq!(refused.await.unwrap().unwrap_err().status, 401);
    let exec = ApiClient::new(stack.addresses.exec, "none", Default::default());
    let refused = exec.call(Method::POST, "/v1/exec", None).await.unwrap();
    assert_eq!(refused.status.as_u16(), 401);

    let listed = listed();
    let expected: BTreeSet<&str> = listed
        .keys()
        .map(String::as_str)
        .filter(|name| *name != WITH_EXEC_TLS)
        .collect();
    let mut last = Scraped::default();
    let shown = eventually("every metric of the list is shown", SHOWN, async || {
        last = Scraped::default();
        for admin in [stack.addresses.api_admin, stack.addresses.gateway_admin] {
            last.add(&scrape(admin).await);
        }
        let all = expected.iter().all(|name| last.kinds.contains_key(*name));
        all.then_some(())
    })
    .await;
    let found: BTreeSet<&str> = last.kinds.keys().map(String::as_str).collect();
    assert!(
        shown.is_ok(),
        "listed and not shown: {:?}",
        expected.difference(&found).collect::<Vec<_>>()
    );
    let unknown: Vec<_> = found
        .iter()
        .filter(|name| !listed.contains_key(**name))
        .collect();
    assert!(
        unknown.is_empty(),
        "shown and not in docs/metrics.md: {unknown:?}"
    );
    assert!(
        !found.contains(WITH_EXEC_TLS),
        "shown without TLS: it belongs to the others"
    );
    last.is_as(&listed);
    stack.stop().await.unwrap();
}

/// What `admin` shows is as the list says, and `name` is among it.
pub async fn as_listed(admin: SocketAddr, name: &str) {
    let mut scraped = Scraped::default();
    scraped.add(&scrape(admin).await);
    assert!(scraped.kinds.contains_key(name), "{name} is not shown");
    scraped.is_as(&listed());
}

async fn scrape(admin: SocketAddr) -> String {
    let client = ApiClient::new(admin, "none", Default::default());
    let answer = client.call(Method::GET, "/metrics", None).await.unwrap();
    assert_eq!(answer.status.as_u16(), 200);
    String::from_utf8(answer.body.to_vec()).unwrap()
}

impl Scraped {
    /// Kinds, labels and their values are the list's.
    fn is_as(&self, listed: &BTreeMap<String, Listed>) {
        for (name, kind) in &self.kinds {
            let listed = listed
                .get(name)
                .unwrap_or_else(|| panic!("{name} is not in docs/metrics.md"));
            assert_eq!(&listed.kind, kind, "{name}");
        }
        for (sample, labels) in &self.samples {
            let name = metric_of(sample, &self.kinds);
            let bounds = &listed[name].labels;
            let names: Vec<_> = labels.keys().collect();
            assert_eq!(names, bounds.keys().collect::<Vec<_>>(), "{name}");
            for (label, value) in labels {
                assert!(bounds[label].holds(value), "{name}: {label}={value}");
            }
        }
    }

    fn add(&mut self, text: &str) {
        for line in text.lines() {
            if let Some(of) = line.strip_prefix("# TYPE ") {
                let (name, kind) = of.split_once(' ').unwrap();
                self.kinds.insert(name.to_owned(), kind.to_owned());
            } else if !line.starts_with('#') {
                let (sample, _value) = line.rsplit_once(' ').unwrap();
                self.samples.push(parsed(sample));
            }
        }
    }
}

/// Name and labels of a sample; `le` is the histogram's own.
fn parsed(sample: &str) -> (String, BTreeMap<String, String>) {
    let (name, labels) = sample.split_once('{').unwrap_or((sample, ""));
    let labels = labels
        .trim_end_matches('}')
        .split(',')
        .filter(|l| !l.is_empty());
    let pairs = labels.map(|label| {
        let (key, value) = label.split_once('=').unwrap();
        (key.to_owned(), value.trim_matches('"').to_owned())
    });
    (
        name.to_owned(),
        pairs.filter(|(key, _)| key != "le").collect(),
    )
}

fn metric_of<'a>(sample: &'a str, kinds: &BTreeMap<String, String>) -> &'a str {
    let suffixes = ["_total", "_bucket", "_sum", "_count"];
    let bare = suffixes
        .iter()
        .filter_map(|suffix| sample.strip_suffix(suffix));
    bare.into_iter()
        .find(|bare| kinds.contains_key(*bare))
        .unwrap_or(sample)
}

impl Bound {
    fn holds(&self, value: &str) -> bool {
        match self {
            Self::Words(words) => words.contains(value),
            Self::Status => value.len() == 3 && value.bytes().all(|b| b.is_ascii_digit()),
        }
    }
}

fn file(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    std::fs::read_to_string(root.join(path)).unwrap()
}

fn listed() -> BTreeMap<String, Listed> {
    let codes: BTreeSet<String> = tables::rows(&file("docs/errors.md"))
        .iter()
        .flat_map(|row| tables::code(&row[0]))
        .collect();
    let openapi: Value = serde_json::from_str(&file("api/openapi.json")).unwrap();
    let paths = openapi["paths"].as_object().unwrap().keys();
    let paths: BTreeSet<String> = paths.cloned().collect();
    let mut found = BTreeMap::new();
    for row in tables::rows(&file("docs/metrics.md")) {
        let [name, kind, labels, what] = &row[..] else {
            panic!("a row of four cells: {row:?}");
        };
        assert!(!what.is_empty(), "{name}");
        let labels = labels
            .split(';')
            .map(str::trim)
            .filter(|label| *label != "–");
        let labels = labels.map(|label| {
            let (name, bound) = label.split_once(": ").unwrap();
            let words = bound.split_whitespace().map(str::to_owned);
            let bound = match bound {
                "HTTP" => Bound::Status,
                "errors.md" => Bound::Words(codes.clone()),
                "openapi.json" => {
                    Bound::Words(paths.iter().cloned().chain(["none".into()]).collect())
                }
                _ => Bound::Words(words.collect()),
            };
            (name.trim_matches('`').to_owned(), bound)
        });
        let listed = Listed {
            kind: kind.clone(),
            labels: labels.collect(),
        };
        let before = found.insert(name.trim_matches('`').to_owned(), listed);
        assert!(before.is_none(), "{name} is listed twice");
    }
    assert!(found.len() > 40, "{}", found.len());
    found
}
