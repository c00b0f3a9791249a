//! The two accounts and nothing but their rules: what they may, what they may not, and nothing at all elsewhere.

use bex_testk8s::rights::{self, Rules};
use bex_testk8s::{Cluster, Options};
use serde_json::json;

use crate::raw::{Api, NS, V5, cluster, sh};

const ELSEWHERE: &str = "other-sandbox";
/// What can be asked of pods: verb, method, and whether of one pod.
const CALLS: [(&str, &str, bool); 5] = [
    ("get", "GET", true),
    ("list", "GET", false),
    ("watch", "GET", false),
    ("create", "POST", false),
    ("delete", "DELETE", true),
];

fn account(cluster: &Cluster, name: &str, rules: Rules) -> Api {
    cluster.grant(NS, ("bex", name), rules);
    Api {
        address: cluster.address().to_string(),
        token: Some(cluster.token("bex", name)),
    }
}

fn gives(rules: Rules, resource: &str, verb: &str) -> bool {
    let mut rules = rules.iter();
    rules.any(|(of, verbs)| *of == resource && verbs.contains(&verb))
}

/// Asks for a pod that does not exist, so that nothing is changed by a right; the status, and the message of a 403.
async fn asked(api: &Api, namespace: &str, call: (&str, &str, bool)) -> (u16, Option<String>) {
    let (verb, method, of_one) = call;
    let mut path = format!("/api/v1/namespaces/{namespace}/pods");
    path += match (of_one, verb) {
        (true, _) => "/absent",
        (false, "watch") => "?watch=true&timeoutSeconds=1",
        (false, _) => "",
    };
    let body = (verb == "create").then(|| json!({"metadata": {"name": "Not A Name"}}));
    let answer = api.call(method, &path, body).await;
    let message = (answer.status == 403).then(|| {
        let refused = answer.json();
        assert_eq!(refused["reason"], "Forbidden");
        refused["message"].as_str().expect("a message").to_owned()
    });
    (answer.status, message)
}

#[tokio::test]
async fn each_account_may_what_its_rules_say_and_nothing_else() {
    let (cluster, _) = cluster(Options::default()).await;
    cluster.namespace(ELSEWHERE);
    cluster.create_pod(NS, "run", "pause").expect("made");
    cluster.ready(NS, "run").await;
    for (name, rules) in [("api", rights::API), ("gateway", rights::GATEWAY)] {
        let api = account(&cluster, name, rules);
        for call in CALLS {
            let (status, message) = asked(&api, NS, call).await;
            let expected = match (gives(rules, "pods", call.0), call.0) {
                (false, _) => 403,
                (true, "get" | "delete") => 404,
                (true, "create") => 422,
                (true, _) => 200,
            };
            assert_eq!(status, expected, "{name} {call:?}");
            let who = format!(
                "User \"system:serviceaccount:bex:{name}\" cannot {}",
                call.0
            );
            assert!(message.is_none_or(|m| m.contains(&who)), "{name} {call:?}");
            assert_eq!(asked(&api, ELSEWHERE, call).await.0, 403, "{name} {call:?}");
        }
        let everywhere = api.call("GET", "/api/v1/pods", None).await;
        assert_eq!(everywhere.status, 403, "no rule reaches all namespaces");
        let entered = api.exec("run", &sh("true"), V5).await;
        let may = ["get", "create"].map(|verb| gives(rules, "pods/exec", verb));
        match entered {
            Ok(_) => assert_eq!((name, may), ("gateway", [true; 2])),
            Err(refused) => {
                assert_eq!((name, may, refused.status), ("api", [false; 2], 403));
                let message = refused.json()["message"].to_string();
                assert!(message.contains("cannot get resource"), "{message}");
            }
        }
    }
}
