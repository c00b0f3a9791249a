//! Sections 1, 5 and 8 of the record: what is answered instead of an upgrade, and what each pod state looks like.

use bex_testk8s::{Cluster, Image, Options, Style};
use serde_json::json;

use crate::raw::{Api, NS, V4, V5, cluster, header, sh};

/// Pods in every state that cannot be entered.
async fn states(cluster: &Cluster) {
    cluster.image("missing", Image::missing("ErrImagePull"));
    for name in ["run", "succeeded", "failed", "looping"] {
        cluster.create_pod(NS, name, "pause").expect("made");
        cluster.ready(NS, name).await;
    }
    cluster.finish(NS, "succeeded", 0);
    cluster.finish(NS, "failed", 3);
    cluster.crash_loop(NS, "looping");
    cluster.create_pod(NS, "noimage", "missing").expect("made");
    let elsewhere = json!({"metadata": {"name": "pendnode"}, "spec": {"nodeSelector": {"a": "b"},
        "containers": [{"name": "main", "image": "pause"}]}});
    cluster.create(NS, elsewhere).expect("made");
    cluster
        .eventually(NS, "succeeded", |p| p["status"]["phase"] == "Succeeded")
        .await;
    cluster
        .eventually(NS, "failed", |p| p["status"]["phase"] == "Failed")
        .await;
    let waits = |reason: &'static str| {
        move |p: &serde_json::Value| {
            p["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == reason
        }
    };
    cluster
        .eventually(NS, "looping", waits("CrashLoopBackOff"))
        .await;
    cluster
        .eventually(NS, "noimage", waits("ErrImagePull"))
        .await;
}

#[tokio::test]
async fn a_container_that_does_not_run_is_a_500_or_a_late_error() {
    for style in [Style::V1_36, Style::V1_34] {
        let (cluster, api) = cluster(Options {
            style,
            ..Options::default()
        })
        .await;
        states(&cluster).await;
        for (pod, protocol) in [
            ("noimage", V5),
            ("succeeded", V5),
            ("failed", V5),
            ("looping", V5),
            ("succeeded", V4),
        ] {
            match api.exec(pod, &sh("true"), protocol).await {
                Err(refused) => {
                    assert!(
                        style == Style::V1_36 || protocol == V4,
                        "{pod}: {refused:?}"
                    );
                    assert_eq!(
                        (refused.status, refused.body.as_str()),
                        (500, "container not found (\"main\")")
                    );
                    assert!(
                        header(&refused.head, "content-type")
                            .is_some_and(|t| t.starts_with("text/plain"))
                    );
                }
                Ok(mut exec) => {
                    assert!(style == Style::V1_34 && protocol == V5, "{pod}");
                    let all = exec.all().await;
                    assert_eq!(all.frames[0].payload, [1]);
                    let what = "unable to upgrade connection: container not found (\"main\")";
                    assert_eq!(
                        all.statuses[0]["message"],
                        format!("Internal error occurred: {what}")
                    );
                    assert_eq!(all.closed, [1000]);
                }
            }
        }
    }
}

#[tokio::test]
async fn what_the_api_server_itself_refuses_is_json() {
    let (cluster, api) = cluster(Options::default()).await;
    states(&cluster).await;
    let two = json!({"metadata": {"name": "two"}, "spec": {"containers":
        [{"name": "a", "image": "pause"}, {"name": "b", "image": "pause"}]}});
    cluster.create(NS, two).expect("made");
    cluster.ready(NS, "two").await;
    let nosuch = sh("true") + "&container=nosuch";
    for (pod, query, status, message) in [
        ("absent", sh("true"), 404, "pods \"absent\" not found"),
        (
            "run",
            nosuch,
            400,
            "container nosuch is not valid for pod run",
        ),
        (
            "two",
            sh("true"),
            400,
            "a container name must be specified for pod two, choose one of: [a b]",
        ),
        (
            "pendnode",
            sh("true"),
            400,
            "pod pendnode does not have a host assigned",
        ),
    ] {
        let refused = api.exec(pod, &query, V5).await.err().expect("refused");
        assert_eq!(
            (refused.status, refused.json()["message"].as_str()),
            (status, Some(message))
        );
    }
    let post = api
        .exec_by("POST", "run", &sh("true"), V5)
        .await
        .err()
        .expect("refused");
    assert_eq!((post.status, post.body.as_str()), (405, "bad method\n"));
    let path = format!("/api/v1/namespaces/{NS}/pods/run/exec?{}", sh("true"));
    let plain = api.call("GET", &path, None).await;
    assert_eq!(
        (plain.status, plain.json()["message"].as_str()),
        (400, Some("Upgrade request required"))
    );
    cluster.kubelet_listens(false);
    let down = api
        .exec("run", &sh("true"), V5)
        .await
        .err()
        .expect("refused");
    assert_eq!(down.status, 500);
    assert!(
        down.json()["message"]
            .as_str()
            .is_some_and(|m| m.starts_with("error dialing backend"))
    );
}

#[tokio::test]
async fn exec_needs_get_and_from_1_35_on_create() {
    for (style, verbs, expected) in [
        (Style::V1_36, &["get", "create"][..], None),
        (Style::V1_36, &["get"], Some("pods \"run\" is forbidden: ")),
        (Style::V1_34, &["get"], None),
        (
            Style::V1_34,
            &["create"],
            Some(
                "pods \"run\" is forbidden: User \"system:serviceaccount:bex:some\" cannot get resource \"pods/exec\" in API group \"\" in the namespace \"demo-sandbox\"",
            ),
        ),
    ] {
        let (cluster, _) = cluster(Options {
            style,
            ..Options::default()
        })
        .await;
        cluster.create_pod(NS, "run", "pause").expect("made");
        cluster.ready(NS, "run").await;
        cluster.grant(NS, ("bex", "some"), &[("pods/exec", verbs)]);
        let api = Api {
            address: cluster.address().to_string(),
            token: Some(cluster.token("bex", "some")),
        };
        let got = api.exec("run", &sh("true"), V5).await;
        let message = got.as_ref().err().map(|refused| {
            assert_eq!(refused.status, 403);
            refused.json()["message"]
                .as_str()
                .expect("a message")
                .to_owned()
        });
        assert_eq!(message.as_deref(), expected, "{style:?} {verbs:?}");
        if expected.is_some() {
            let absent = api
                .exec("absent", &sh("true"), V5)
                .await
                .err()
                .expect("refused");
            assert_eq!(absent.status, 403, "asked before existence");
        }
    }
}

#[tokio::test]
async fn strangers_are_told_apart() {
    let (cluster, _) = cluster(Options::default()).await;
    cluster.create_pod(NS, "run", "pause").expect("made");
    let api = |token: Option<&str>| Api {
        address: cluster.address().to_string(),
        token: token.map(str::to_owned),
    };
    let anonymous = api(None)
        .exec("run", &sh("true"), V5)
        .await
        .err()
        .expect("refused");
    assert_eq!(anonymous.status, 403);
    assert!(
        anonymous.json()["message"]
            .as_str()
            .is_some_and(|m| m.contains("system:anonymous"))
    );
    let wrong = api(Some("nonsense"))
        .exec("run", &sh("true"), V5)
        .await
        .err()
        .expect("refused");
    assert_eq!(
        (wrong.status, wrong.json()["reason"].as_str()),
        (401, Some("Unauthorized"))
    );
}
