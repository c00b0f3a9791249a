//! Section 6 of the record: what happens while an exec runs.

use std::time::Duration;

use bex_testk8s::frames::opcode;
use bex_testk8s::{Cut, ExecPlan, Options, Stall, Style};

use crate::raw::{NS, V4, V5, eventually, sh, with_pod};

#[tokio::test]
async fn a_client_that_goes_leaves_its_process_behind_with_its_input_ended() {
    let (cluster, api) = with_pod(Options::default()).await;
    let pod = cluster.pod(NS, "run").expect("it runs");
    let query = sh("cat; echo eof > saw-eof; exec yes") + "&stdin=true";
    let exec = api.begun(&query, V5).await;
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
    let (cluster, api) = with_pod(Options::default()).await;
    let mut exec = api.begun(&sh("echo up; exec sleep 600"), V5).await;
    assert_eq!(exec.next_data().await.payload, b"\x01up\n");
    assert!(cluster.delete_pod(NS, "run", Some(1)));
    let pod = cluster.pod(NS, "run").expect("still there");
    assert!(pod["metadata"]["deletionTimestamp"].is_string());
    let during = api.ran(&sh("echo works"), V5).await;
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
        let (cluster, api) = with_pod(Options {
            style,
            ..Options::default()
        })
        .await;
        let mut exec = api.begun(&sh("echo up; exec sleep 600"), protocol).await;
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
    let (cluster, api) = with_pod(Options::default()).await;
    let script = sh("head -c 1000000 /dev/zero; exit 3");
    // plan → (bytes of output, what the status says, whether CLOSE was said)
    for (plan, bytes, said, closed) in [
        (
            ExecPlan::new().cut_after(500_000, Cut::Eof),
            500_000,
            None,
            0,
        ),
        (
            ExecPlan::new().cut_after(500_000, Cut::FalseSuccess),
            500_000,
            Some("Success"),
            1,
        ),
        (
            ExecPlan::new().cut_after(500_000, Cut::Close),
            500_000,
            None,
            1,
        ),
        (ExecPlan::new().no_status(), 1_000_000, None, 1),
        (
            ExecPlan::new().says_success(),
            1_000_000,
            Some("Success"),
            1,
        ),
        (
            ExecPlan::new().status_before(1000),
            1_000_000,
            Some("Failure"),
            1,
        ),
    ] {
        let ordered = format!("{plan:?}");
        cluster.next_exec(plan);
        let all = api.ran(&script, V5).await;
        let statuses: Vec<_> = all.statuses.iter().map(|s| s["status"].as_str()).collect();
        assert_eq!(
            (all.stdout.len(), &statuses[..], all.closed.len()),
            (bytes, said.map(Some).as_slice(), closed),
            "{ordered}"
        );
    }
    cluster.next_exec(ExecPlan::new().status_before(1000));
    let frames = api.ran(&script, V5).await.frames;
    let last: Vec<u8> = frames.iter().rev().take(3).map(|f| f.payload[0]).collect();
    assert_eq!(last, [3, 1, 3], "status, bytes, CLOSE 1000");
    cluster.next_exec(ExecPlan::new().stall_after(10, Stall::Answering));
    let mut exec = api.begun(&script, V5).await;
    assert_eq!(exec.next_data().await.payload.len(), 11);
    exec.frame(true, opcode::PING, b"x").await;
    assert_eq!(exec.next_data().await.payload, b"x", "nothing but the pong");
}

#[tokio::test]
async fn an_idle_v4_exec_is_cut_and_only_data_keeps_it() {
    let (cluster, api) = with_pod(Options {
        stream_idle: Duration::from_secs(1),
        ..Options::default()
    })
    .await;
    let mut pinged = api.begun(&sh("sleep 600"), V4).await;
    let mut kept = api.begun(&sh("sleep 2; echo done"), V4).await;
    // the pace of two clients: one pings, one sends empty messages
    let mut pace = tokio::time::interval(Duration::from_millis(100));
    for _ in 0..15 {
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
    let (_cluster, api) = with_pod(Options::default()).await;
    let script = sh("head -c 16777216 /dev/zero");
    let api = &api;
    let script = &script;
    let all = futures::future::join_all((0..4).map(async |_| api.ran(script, V5).await)).await;
    assert!(
        all.iter()
            .all(|all| all.stdout.len() == 16 << 20 && all.statuses.len() == 1)
    );
}
