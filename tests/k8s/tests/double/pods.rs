//! Pods as an API client sees them: create, list, watch, delete; their lives, addresses and files.

use std::time::Duration;

use bex_testk8s::{Image, Options, Refusal};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use crate::raw::{NS, V5, cluster, eventually, sh};

fn pods() -> String {
    format!("/api/v1/namespaces/{NS}/pods")
}

fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "pause"}]}})
}

#[tokio::test]
async fn a_pod_is_made_once_listed_and_deleted_by_its_uid() {
    let (cluster, api) = cluster(Options::default()).await;
    let made = api.call("POST", &pods(), Some(pod("a"))).await;
    assert_eq!(
        (made.status, made.json()["status"]["phase"].as_str()),
        (201, Some("Pending"))
    );
    let again = api.call("POST", &pods(), Some(pod("a"))).await;
    assert_eq!(
        (again.status, again.json()["reason"].as_str()),
        (409, Some("AlreadyExists"))
    );
    let ready = cluster.ready(NS, "a").await;
    assert_eq!(ready["metadata"]["uid"], made.json()["metadata"]["uid"]);
    let running = &ready["status"]["containerStatuses"][0];
    assert!(
        running["containerID"]
            .as_str()
            .is_some_and(|id| id.starts_with("containerd://"))
    );
    cluster.create_pod(NS, "b", "pause").expect("made");
    let list = api
        .call("GET", &format!("{}?labelSelector=app%3Da", pods()), None)
        .await
        .json();
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1));
    let page = api
        .call("GET", &format!("{}?limit=1", pods()), None)
        .await
        .json();
    let next = page["metadata"]["continue"].as_str().expect("more");
    let rest = api
        .call("GET", &format!("{}?limit=1&continue={next}", pods()), None)
        .await
        .json();
    assert_eq!(rest["items"][0]["metadata"]["name"], "b");

    let path = format!("{}/a", pods());
    let wrong = api
        .call(
            "DELETE",
            &path,
            Some(json!({"preconditions": {"uid": "another"}})),
        )
        .await;
    assert_eq!(
        (wrong.status, wrong.json()["reason"].as_str()),
        (409, Some("Conflict"))
    );
    let uid = &made.json()["metadata"]["uid"];
    let right = api
        .call(
            "DELETE",
            &path,
            Some(json!({"gracePeriodSeconds": 1, "preconditions": {"uid": uid}})),
        )
        .await;
    assert_eq!(right.status, 200);
    assert!(right.json()["metadata"]["deletionTimestamp"].is_string());
    eventually("it is gone", || cluster.pod(NS, "a").is_none()).await;
    assert_eq!(api.call("DELETE", &path, None).await.status, 404);
    assert_eq!(
        api.call("PUT", &path, Some(pod("a"))).await.status,
        403,
        "no rule has this verb"
    );
}

#[tokio::test]
async fn what_cannot_be_made_says_why() {
    let (cluster, api) = cluster(Options::default()).await;
    cluster.grant("absent-sandbox", ("bex", "all"), &[("pods", &["create"])]);
    let nowhere = api
        .call(
            "POST",
            "/api/v1/namespaces/absent-sandbox/pods",
            Some(pod("a")),
        )
        .await;
    assert_eq!(
        (nowhere.status, nowhere.json()["message"].as_str()),
        (404, Some("namespaces \"absent-sandbox\" not found"))
    );
    cluster.namespace_with_quota(NS, 1);
    cluster.create_pod(NS, "first", "pause").expect("made");
    let full = api.call("POST", &pods(), Some(pod("second"))).await;
    assert_eq!(full.status, 403);
    assert!(
        full.json()["message"]
            .as_str()
            .is_some_and(|m| m.contains("exceeded quota"))
    );
    let invalid = api
        .call(
            "POST",
            &pods(),
            Some(json!({"metadata": {"name": "Bad_Name"}, "spec": {}})),
        )
        .await;
    assert_eq!(
        (invalid.status, invalid.json()["reason"].as_str()),
        (422, Some("Invalid"))
    );
    cluster.refuse("create", "pods", Refusal::TooManyRequests);
    assert_eq!(api.call("POST", &pods(), Some(pod("x"))).await.status, 429);
    assert_eq!(
        api.call("POST", &pods(), Some(pod("x"))).await.status,
        403,
        "only once"
    );

    let secret = json!({"metadata": {"name": "s"}, "spec": {"containers": [{"name": "main", "image": "pause",
        "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "absent", "key": "k"}}}]}]}});
    cluster.namespace(NS);
    cluster.create(NS, secret).expect("made");
    cluster
        .eventually(NS, "s", |p| {
            p["status"]["containerStatuses"][0]["state"]["waiting"]["reason"]
                == "CreateContainerConfigError"
        })
        .await;
}

/// Watch events as they come, whole lines of a chunked body.
struct Events(TcpStream, String);

impl Events {
    async fn next(&mut self) -> Value {
        loop {
            let found = self
                .1
                .lines()
                .enumerate()
                .find(|(_, line)| line.starts_with('{') && line.ends_with("}}"));
            if let Some((at, line)) = found {
                let event = serde_json::from_str(line).expect("JSON");
                self.1 = self.1.lines().skip(at + 1).collect::<Vec<_>>().join("\n");
                return event;
            }
            let mut more = [0; 8 * 1024];
            let read = tokio::time::timeout(Duration::from_secs(20), self.0.read(&mut more));
            let n = read.await.expect("in time").expect("bytes");
            assert_ne!(n, 0, "the watch ended: {}", self.1);
            self.1.push_str(&String::from_utf8_lossy(&more[..n]));
        }
    }

    async fn until(&mut self, level: impl Fn(&Value) -> bool) -> Value {
        loop {
            let event = self.next().await;
            if level(&event) {
                return event;
            }
        }
    }
}

#[tokio::test]
async fn a_watch_tells_every_change_and_expires() {
    let (cluster, api) = cluster(Options::default()).await;
    // version 0 would mean any
    cluster.create_pod(NS, "first", "pause").expect("made");
    let version = api.call("GET", &pods(), None).await.json()["metadata"]["resourceVersion"]
        .as_str()
        .expect("a version")
        .to_owned();
    let mut events = Events(
        api.watch(&format!("{}?watch=true&resourceVersion={version}", pods()))
            .await,
        String::new(),
    );
    cluster.create_pod(NS, "a", "pause").expect("made");
    let added = events
        .until(|e| e["object"]["metadata"]["name"] != "first")
        .await;
    assert_eq!(
        (&added["type"], &added["object"]["metadata"]["name"]),
        (&json!("ADDED"), &json!("a"))
    );
    events
        .until(|e| e["type"] == "MODIFIED" && e["object"]["status"]["phase"] == "Running")
        .await;
    cluster.delete_pod(NS, "a", Some(0));
    let deleted = events.until(|e| e["type"] == "DELETED").await;
    assert_eq!(deleted["object"]["metadata"]["name"], "a");
    cluster.expire_watches();
    let mut late = Events(
        api.watch(&format!("{}?watch=true&resourceVersion={version}", pods()))
            .await,
        String::new(),
    );
    let error = late.next().await;
    assert_eq!(
        (&error["type"], &error["object"]["code"]),
        (&json!("ERROR"), &json!(410))
    );
}

#[tokio::test]
async fn an_address_outlives_its_pod_and_is_used_again() {
    let (cluster, _) = cluster(Options::default()).await;
    cluster.create_pod(NS, "old", "pause").expect("made");
    let old = cluster.ready(NS, "old").await;
    cluster.finish(NS, "old", 0);
    let old = cluster
        .eventually(NS, "old", |p| {
            p["status"]["phase"] == "Succeeded" && p["metadata"]["uid"] == old["metadata"]["uid"]
        })
        .await;
    let ip = old["status"]["podIP"].clone();
    assert!(ip.is_string(), "kept");
    let mut again = pod("new");
    again["metadata"]["annotations"] = json!({bex_testk8s::Cluster::IP_ANNOTATION: ip});
    cluster.create(NS, again).expect("made");
    assert_eq!(cluster.ready(NS, "new").await["status"]["podIP"], ip);
}

#[tokio::test]
async fn a_restarted_container_differs_in_nothing_but_its_id() {
    let (cluster, api) = cluster(Options::default()).await;
    cluster.create_pod(NS, "run", "pause").expect("made");
    let before = cluster.ready(NS, "run").await;
    let mut exec = api
        .exec("run", &sh("echo up; exec sleep 600"), V5)
        .await
        .expect("upgraded");
    exec.next_data().await;
    cluster.restart_container(NS, "run");
    assert_eq!(
        exec.all().await.statuses[0]["details"]["causes"][0]["message"],
        "137"
    );
    let after = cluster
        .eventually(NS, "run", |p| {
            p["status"]["containerStatuses"][0]["restartCount"] == 1
        })
        .await;
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(after["status"]["podIP"], before["status"]["podIP"]);
    let id = |p: &Value| p["status"]["containerStatuses"][0]["containerID"].clone();
    assert_ne!(id(&after), id(&before));
    assert_eq!(
        after["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"],
        137
    );
}

#[tokio::test]
async fn containers_see_their_files_addresses_and_secrets() {
    let (cluster, api) = cluster(Options::default()).await;
    cluster.image("box", Image::pause().file("/opt/tool", "/bin/cat"));
    cluster.apply(&json!({"kind": "Secret", "metadata": {"name": "s", "namespace": NS}, "stringData": {"k": "v"}}));
    let pod = json!({"metadata": {"name": "p", "annotations": {"bex/launch": "{\"dir\":\"/data/d\",\"listen\":\"0.0.0.0:8787\"}"}},
        "spec": {"restartPolicy": "Never",
            "volumes": [{"name": "data", "emptyDir": {}}, {"name": "info", "downwardAPI": {"items":
                [{"path": "launch.json", "fieldRef": {"fieldPath": "metadata.annotations['bex/launch']"}}]}}],
            "containers": [{"name": "main", "image": "box",
                "command": ["/bin/sh", "-c", "echo $A > /data/started; exec sleep 600"],
                "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
                "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "info", "mountPath": "/info"}]}]}});
    cluster.create(NS, pod).expect("made");
    let ready = cluster.ready(NS, "p").await;
    let ip = ready["status"]["podIP"].as_str().expect("an address");
    let data = cluster.pod_dir(&ready).join("volumes/data");
    eventually("it ran", || {
        std::fs::read_to_string(data.join("started")).is_ok_and(|t| t == "v\n")
    })
    .await;
    let all = api
        .exec(
            "p",
            "command=/opt/tool&command=/info/launch.json&stdout=true",
            V5,
        )
        .await
        .expect("upgraded")
        .all()
        .await;
    let launch: Value = serde_json::from_slice(&all.stdout).expect("JSON");
    assert_eq!(launch["listen"], format!("{ip}:8787"));
    assert_eq!(launch["dir"], data.join("d").display().to_string());
}

#[tokio::test]
async fn a_probe_makes_ready_and_a_deadline_fails_late() {
    let (cluster, _) = cluster(Options {
        status_lag: Duration::from_millis(300),
        ..Options::default()
    })
    .await;
    let mut probed = pod("p");
    probed["spec"]["activeDeadlineSeconds"] = json!(1);
    probed["spec"]["containers"][0]["readinessProbe"] = json!({"tcpSocket": {"port": 8787}});
    cluster.create(NS, probed).expect("made");
    let running = cluster
        .eventually(NS, "p", |p| p["status"]["phase"] == "Running")
        .await;
    assert_eq!(running["status"]["containerStatuses"][0]["ready"], false);
    let ip = running["status"]["podIP"].as_str().expect("an address");
    let _listener = tokio::net::TcpListener::bind((ip, 8787))
        .await
        .expect("the pod's own port");
    cluster.ready(NS, "p").await;
    let failed = cluster
        .eventually(NS, "p", |p| p["status"]["phase"] == "Failed")
        .await;
    assert_eq!(
        (&failed["status"]["reason"], &failed["status"]["podIP"]),
        (&json!("DeadlineExceeded"), &json!(ip))
    );
}
