//! Section 6 of the record: what happens while an exec runs.

use std::time::Duration;

use bex_testk8s::frames::opcode;
use bex_testk8s::{Cut, ExecPlan, Options, Stall, Style};

use crate::raw::{NS, V4, V5, cluster, eventually, sh};

#[tokio::test]
async fn a_client_that_goes_leaves_its_process_behind_with_its_input_ended() {
    let (cluster, api) = cluster(Options::default()).await;
    let pod = cluster.create_pod(NS, "run", "pause").expect("made");
    cluster.ready(NS, "run").await;
    let query = sh("cat; echo eof > saw-eof; exec yes") + "&stdin=true";
    let exec = api.exec("run", &query, V5).await.expect("upgraded");
    let seen = cluster.execs()[0].clone();
    drop(exec);
    let mark = cluster.pod_dir(&pod).join("saw-eof");
    eventually("its input ended", || mark.exists()).await;
    eventually("the client is noted to be gone", || {
        seen.counts().disconnected
    })
    .await;
    assert_eq!(
        seen.processes().len(),
        1,
        "it goes on, blocked in its output"
    );
    cluster.delete_pod(NS, "run", Some(0));
    eventually("it ends with its container", || seen.processes().is_empty()).await;
}

#[tokio::test]
async fn a_deleted_pod_ends_its_execs_after_the_grace_with_137() {
    let (cluster, api) = cluster(Options::default()).await;
    cluster.create_pod(NS, "run", "pause").expect("made");
    cluster.ready(NS, "run").await;
    let mut exec = api
        .exec("run", &sh("echo up; exec sleep 600"), V5)
        .await
        .expect("upgraded");
    assert_eq!(exec.next_data().await.payload, b"\x01up\n");
    assert!(cluster.delete_pod(NS, "run", Some(1)));
    let pod = cluster.pod(NS, "run").expect("still there");
    assert!(pod["metadata"]["deletionTimestamp"].is_string());
    let during = api
        .exec("run", &sh("echo works"), V5)
        .await
        .expect("upgraded")
        .all()
        .await;
    assert_eq!(during.stdout, b"works\n");
    let all = exec.all().await;
    assert_eq!(all.statuses[0]["details"]["causes"][0]["message"], "137");
    eventually("the pod is gone", || cluster.pod(NS, "run").is_none()).await;
}

#[tokio::test]
async fn restarts_of_the_cluster_lie_or_say_nothing() {
    // (style, what, protocol) → whether Success was said
    for (style, what, protocol, says) in [
        (Style::V1_36, "runtime", V5, true),
        (Style::V1_36, "runtime", V4, false),
        (Style::V1_36, "kubelet", V5, false),
        (Style::V1_34, "kubelet", V5, true),
        (Style::V1_34, "kubelet", V4, false),
        (Style::V1_36, "apiserver", V5, false),
    ] {
        let (cluster, api) = cluster(Options {
            style,
            ..Options::default()
        })
        .await;
        cluster.create_pod(NS, "run", "pause").expect("made");
        cluster.ready(NS, "run").await;
        let mut exec = api
            .exec("run", &sh("echo up; exec sleep 600"), protocol)
            .await
            .expect("upgraded");
        exec.next_data().await;
        match what {
            "runtime" => cluster.restart_runtime(),
            "kubelet" => cluster.restart_kubelet(),
            _ => cluster.restart_api_server(Duration::from_millis(10)).await,
        }
        let all = exec.all().await;
        let said: Vec<_> = all.statuses.iter().map(|s| s["status"].as_str()).collect();
        let expected: &[_] = if says { &[Some("Success")] } else { &[] };
        assert_eq!(said, expected, "{style:?} {what} {protocol}");
        assert_eq!(all.closed.len(), usize::from(says));
        let seen = cluster.execs()[0].clone();
        assert_eq!(
            (seen.processes().len(), seen.counts().exit),
            (1, None),
            "the process goes on"
        );
        assert!(
            api.exec("run", &sh("true"), V5).await.is_ok(),
            "and the cluster serves again"
        );
    }
}

#[tokio::test]
async fn ordered_endings_happen() {
    let (cluster, api) = cluster(Options::default()).await;
    cluster.create_pod(NS, "run", "pause").expect("made");
    cluster.ready(NS, "run").await;
    let script = sh("head -c 1000000 /dev/zero; exit 3");
    for (how, said, closed) in [
        (Cut::Eof, 0, 0),
        (Cut::FalseSuccess, 1, 1),
        (Cut::Close, 0, 1),
    ] {
        cluster.next_exec(ExecPlan::new().cut_after(500_000, how));
        let all = api
            .exec("run", &script, V5)
            .await
            .expect("upgraded")
            .all()
            .await;
        assert_eq!(
            (all.stdout.len(), all.statuses.len(), all.closed.len()),
            (500_000, said, closed),
            "{how:?}"
        );
        assert!(all.statuses.iter().all(|s| s["status"] == "Success"));
    }
    cluster.next_exec(ExecPlan::new().status_before(1000));
    let all = api
        .exec("run", &script, V5)
        .await
        .expect("upgraded")
        .all()
        .await;
    let order: Vec<u8> = all
        .frames
        .iter()
        .rev()
        .take(3)
        .map(|f| f.payload[0])
        .collect();
    assert_eq!(
        (all.stdout.len(), &order[..]),
        (1_000_000, &[3, 1, 3][..]),
        "status, bytes, CLOSE 1000"
    );
    cluster.next_exec(ExecPlan::new().no_status());
    let all = api
        .exec("run", &script, V5)
        .await
        .expect("upgraded")
        .all()
        .await;
    assert_eq!(
        (all.stdout.len(), all.statuses.len(), all.closed.len()),
        (1_000_000, 0, 1)
    );
    cluster.next_exec(ExecPlan::new().says_success());
    let all = api
        .exec("run", &script, V5)
        .await
        .expect("upgraded")
        .all()
        .await;
    assert_eq!(all.statuses[0]["status"], "Success");
    cluster.next_exec(ExecPlan::new().stall_after(10, Stall::Answering));
    let mut exec = api.exec("run", &script, V5).await.expect("upgraded");
    assert_eq!(exec.next_data().await.payload.len(), 11);
    exec.frame(true, opcode::PING, b"x").await;
    assert_eq!(exec.next_data().await.payload, b"x", "nothing but the pong");
}

#[tokio::test]
async fn an_idle_v4_exec_is_cut_and_only_data_keeps_it() {
    let (cluster, api) = cluster(Options {
        stream_idle: Duration::from_millis(300),
        ..Options::default()
    })
    .await;
    cluster.create_pod(NS, "run", "pause").expect("made");
    cluster.ready(NS, "run").await;
    let mut pinged = api
        .exec("run", &sh("sleep 600"), V4)
        .await
        .expect("upgraded");
    let mut kept = api
        .exec("run", &sh("sleep 1; echo done"), V4)
        .await
        .expect("upgraded");
    // the pace of two clients: one pings, one sends empty messages
    let mut pace = tokio::time::interval(Duration::from_millis(100));
    for _ in 0..12 {
        pace.tick().await;
        kept.send(&[]).await;
        if !cluster.execs()[0].counts().disconnected {
            pinged.frame(true, opcode::PING, b"").await;
        }
    }
    let all = pinged.all().await;
    assert!(
        all.statuses.is_empty() && all.closed.is_empty(),
        "the socket just ended"
    );
    assert_eq!(kept.all().await.stdout, b"done\n");
}

#[tokio::test]
async fn sixteen_mebibytes_arrive_whole_many_times() {
    let (cluster, api) = cluster(Options::default()).await;
    cluster.create_pod(NS, "run", "pause").expect("made");
    cluster.ready(NS, "run").await;
    let script = sh("head -c 16777216 /dev/zero");
    let api = &api;
    let script = &script;
    let all = futures::future::join_all((0..4).map(async |_| {
        api.exec("run", script, V5)
            .await
            .expect("upgraded")
            .all()
            .await
    }))
    .await;
    assert!(
        all.iter()
            .all(|all| all.stdout.len() == 16 << 20 && all.statuses.len() == 1)
    );
}
