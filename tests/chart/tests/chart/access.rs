//! Who may do what in the cluster: the rendered roles are given to a double of one, and both accounts try everything.

use bex_testchart::helm::{self, NAMESPACE};
use bex_testchart::objects::{at, items, of_kind};
use bex_testk8s::{Cluster, Options};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::json;

const OURS: [&str; 2] = ["team-a-sandbox", "team-b-sandbox"];
const OTHERS: [&str; 3] = ["team-c-sandbox", "kube-system", NAMESPACE];

struct Caller<'a> {
    cluster: &'a Cluster,
    token: String,
}

impl Caller<'_> {
    /// Whether the cluster's rules let it through; what becomes of it then does not matter.
    async fn may(&self, method: Method, path: &str) -> bool {
        let client: Client<HttpConnector, Full<bytes::Bytes>> =
            Client::builder(TokioExecutor::new()).build_http();
        let body = if method == Method::POST && !path.contains("/exec") {
            json!({"metadata": {"name": "try"}, "spec": {"containers": []}}).to_string()
        } else {
            String::new()
        };
        let request = Request::builder()
            .method(&method)
            .uri(format!("{}{path}", self.cluster.url()))
            .header("authorization", format!("Bearer {}", self.token))
            .header("content-type", "application/json")
            .body(Full::from(body))
            .unwrap();
        let answer = client.request(request).await.unwrap();
        let status = answer.status();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8_lossy(&body).into_owned();
        assert_ne!(status, StatusCode::UNAUTHORIZED, "{text}");
        status != StatusCode::FORBIDDEN
    }
}

/// Everything that is tried, and who may.
fn attempts(namespace: &str) -> Vec<(Method, String, bool, bool)> {
    let at = |rest: &str| format!("/api/v1/namespaces/{namespace}/{rest}");
    let exec = at("pods/p/exec?command=id&stdout=true");
    // method, path, api, gateway
    vec![
        (Method::GET, at("pods/p"), true, true),
        (Method::GET, at("pods"), true, false),
        (Method::POST, at("pods"), true, false),
        (Method::DELETE, at("pods/p"), true, false),
        (Method::GET, exec.clone(), false, true),
        (Method::POST, exec, false, true),
    ]
}

#[tokio::test]
async fn the_gateway_enters_and_the_api_makes_and_neither_goes_elsewhere() {
    let cluster = Cluster::start(Options::default()).await.unwrap();
    for namespace in OURS.into_iter().chain(OTHERS) {
        cluster.namespace(namespace);
    }
    let objects = helm::render("full", &[]).unwrap();
    let mut given = 0;
    for kind in ["Role", "RoleBinding"] {
        for object in of_kind(&objects, kind) {
            assert!(cluster.apply(object));
            given += 1;
        }
    }
    assert_eq!(given, 2 * 2 * OURS.len());
    let caller = |account: &str| Caller {
        cluster: &cluster,
        token: cluster.token(NAMESPACE, account),
    };
    let (api, gateway) = (caller("transcripts-api"), caller("transcripts-gateway"));
    for namespace in OURS {
        for (method, path, by_api, by_gateway) in attempts(namespace) {
            assert_eq!(
                api.may(method.clone(), &path).await,
                by_api,
                "api: {method} {path}"
            );
            assert_eq!(
                gateway.may(method.clone(), &path).await,
                by_gateway,
                "gateway: {method} {path}"
            );
        }
    }
    for namespace in OTHERS {
        for (method, path, ..) in attempts(namespace) {
            assert!(
                !api.may(method.clone(), &path).await,
                "api: {method} {path}"
            );
            assert!(
                !gateway.may(method.clone(), &path).await,
                "gateway: {method} {path}"
            );
        }
    }
}

#[test]
fn the_rules_are_these_and_hold_in_one_namespace_each() {
    let objects = helm::render("full", &[]).unwrap();
    for kind in ["ClusterRole", "ClusterRoleBinding"] {
        assert_eq!(of_kind(&objects, kind).count(), 0, "{kind}");
    }
    let bound: Vec<_> = of_kind(&objects, "RoleBinding").collect();
    assert_eq!(bound.len(), 4);
    for binding in bound {
        assert!(OURS.contains(&at(binding, "/metadata/namespace")));
        assert_eq!(at(binding, "/roleRef/kind"), "Role");
    }
    let rule = |resource: &str, verbs: &[&str]| json!({"apiGroups": [""], "resources": [resource], "verbs": verbs});
    for role in of_kind(&objects, "Role") {
        let rules = items(&role["rules"]);
        match at(role, "/metadata/name") {
            "transcripts-api" => assert_eq!(
                rules,
                [rule("pods", &["create", "get", "list", "watch", "delete"])]
            ),
            "transcripts-gateway" => {
                assert_eq!(
                    rules,
                    [
                        rule("pods", &["get"]),
                        rule("pods/exec", &["get", "create"])
                    ]
                );
            }
            other => panic!("{other} is nobody's"),
        }
    }
}
