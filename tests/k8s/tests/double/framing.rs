//! Sections 2 to 4 of the record: subprotocols, frames, statuses.

use bex_testk8s::frames::opcode;
use bex_testk8s::{ExecPlan, Options, Style};
use serde_json::json;

use crate::raw::{V4, V5, eventually, header, sh, with_pod};

#[tokio::test]
async fn the_subprotocol_is_chosen_as_recorded() {
    for (style, offered, chosen) in [
        (Style::V1_36, V5, Some(V5)),
        (Style::V1_36, V4, Some(V4)),
        (
            Style::V1_36,
            "v4.channel.k8s.io, v5.channel.k8s.io",
            Some(V5),
        ),
        (Style::V1_36, "bogus, v5.channel.k8s.io", Some(V5)),
        (Style::V1_36, "v3.channel.k8s.io", None),
        (Style::V1_29, V5, None),
        (
            Style::V1_29,
            "v5.channel.k8s.io, v4.channel.k8s.io",
            Some(V4),
        ),
    ] {
        let (_cluster, api) = with_pod(Options {
            style,
            ..Options::default()
        })
        .await;
        match (api.exec("run", &sh("true"), offered).await, chosen) {
            (Ok(exec), Some(chosen)) => {
                assert_eq!(header(&exec.head, "sec-websocket-protocol"), Some(chosen));
                assert_eq!(
                    header(&exec.head, "sec-websocket-accept"),
                    Some("s3pplmbitxaq9kygzzhzrbk+xoo=")
                );
                assert_eq!(
                    exec.head.lines().filter(|l| l.contains(':')).count(),
                    4,
                    "{}",
                    exec.head
                );
            }
            (Err(refused), None) => {
                assert_eq!((refused.status, refused.body.as_str()), (403, ""));
                assert_eq!(header(&refused.head, "content-type"), None);
                assert_eq!(header(&refused.head, "connection"), Some("close"));
            }
            (got, _) => panic!("{style:?} {offered}: {:?}", got.err()),
        }
    }
}

#[tokio::test]
async fn an_exec_is_an_empty_frame_output_a_status_and_close() {
    let (_cluster, api) = with_pod(Options::default()).await;
    for protocol in [V5, V4] {
        let mut exec = api
            .exec(
                "run",
                &sh("head -c 1000000 /dev/zero; echo e >&2"),
                protocol,
            )
            .await
            .expect("upgraded");
        let all = exec.all().await;
        assert_eq!(all.frames[0].payload, [1], "the upgrade is done");
        assert!(
            all.frames
                .iter()
                .all(|f| f.fin && f.payload.len() <= 32 * 1024 + 1)
        );
        assert_eq!(
            (all.stdout.len(), &all.stderr[..]),
            (1_000_000, &b"e\n"[..])
        );
        assert_eq!(all.statuses, [json!({"metadata": {}, "status": "Success"})]);
        assert_eq!(all.closed, [1000]);
        let ends: Vec<_> = all.frames[all.frames.len() - 2..]
            .iter()
            .map(|f| (f.opcode, f.payload[0]))
            .collect();
        assert_eq!(
            ends,
            [(opcode::BINARY, 3), (opcode::CLOSE, 3)],
            "the status, then CLOSE with 1000"
        );
    }
}

#[tokio::test]
async fn statuses_are_worded_as_recorded() {
    let (_cluster, api) = with_pod(Options::default()).await;
    for (script, code) in [
        ("exit 3", 3),
        ("kill -9 $$", 137),
        ("kill -15 $$", 143),
        ("nosuchcommand", 127),
    ] {
        let status = api.ran(&sh(script), V5).await.statuses.remove(0);
        let message = format!(
            "command terminated with non-zero exit code: command terminated with exit code {code}"
        );
        let expected = json!({"metadata": {}, "status": "Failure", "message": message, "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]}});
        assert_eq!(status, expected, "{script}");
    }
    let v4 = api.ran(&sh("exit 3"), V4).await.statuses.remove(0);
    let message = "command terminated with non-zero exit code: error executing command [/bin/sh -c exit 3], exit code 3";
    assert_eq!(v4["message"], message, "v4 repeats argv");

    let missing = api
        .exec("run", "command=/no/such&stdout=true", V5)
        .await
        .expect("101 first")
        .all()
        .await;
    let status = &missing.statuses[0];
    assert_eq!(
        (&status["reason"], &status["code"]),
        (&json!("InternalError"), &json!(500))
    );
    assert_eq!(missing.closed, [1000]);
}

#[tokio::test]
async fn standard_input_ends_by_ff00_on_v5_only() {
    let (cluster, api) = with_pod(Options::default()).await;
    let query = "command=cat&stdin=true&stdout=true";
    let mut v5 = api.begun(query, V5).await;
    v5.send(b"\0hello").await;
    assert_eq!(v5.next_data().await.payload, b"\x01hello");
    v5.send(&[0xff, 0]).await;
    let all = v5.all().await;
    assert_eq!(all.statuses[0]["status"], "Success");

    let mut v4 = api.begun(query, V4).await;
    v4.send(&[0xff, 0]).await;
    v4.send(b"\0still").await;
    assert_eq!(v4.next_data().await.payload, b"\x01still", "it was ignored");
    let seen = cluster.execs()[1].clone();
    assert_eq!(
        (seen.counts().half_closed, seen.counts().exit),
        (false, None)
    );

    let mut bad = api.begun(query, V5).await;
    bad.send(&[0xff, 9]).await;
    let all = bad.all().await;
    assert_eq!(
        (all.statuses.len(), &all.closed[..]),
        (0, &[1000][..]),
        "closed at once, without a status"
    );
    drop(v4);
    eventually("cat ends when its client is gone", || {
        seen.counts().exit == Some(0)
    })
    .await;
}

#[tokio::test]
async fn each_frame_of_a_client_is_a_message() {
    let (cluster, api) = with_pod(Options::default()).await;
    let mut exec = api.begun("command=cat&stdin=true&stdout=true", V5).await;
    exec.frame(false, opcode::BINARY, b"\0abc").await;
    exec.frame(true, opcode::CONTINUATION, b"def\n").await;
    exec.frame(true, opcode::PING, b"are you there").await;
    exec.send(&[]).await;
    let (mut said, mut pong) = (Vec::new(), Vec::new());
    while said.is_empty() || pong.is_empty() {
        let frame = exec.next_data().await;
        match frame.opcode {
            opcode::PONG => pong = frame.payload,
            _ => said = frame.payload,
        }
    }
    assert_eq!(
        (&said[..], &pong[..]),
        (&b"\x01abc"[..], &b"are you there"[..]),
        "'d' was taken for a channel"
    );
    let counts = cluster.execs()[0].counts();
    assert_eq!((counts.pings, counts.empties, counts.fragments), (1, 1, 2));
}

#[tokio::test]
async fn frames_have_the_sizes_that_were_ordered() {
    let (cluster, api) = with_pod(Options::default()).await;
    cluster.next_exec(ExecPlan::new().sizes(&[1, 32_769, 7]).noise(3));
    let mut exec = api.begun(&sh("head -c 100000 /dev/zero"), V5).await;
    let all = exec.all().await;
    let sizes: Vec<_> = all
        .frames
        .iter()
        .filter(|f| f.payload[0] == 1)
        .map(|f| f.payload.len() - 1)
        .collect();
    assert_eq!(sizes[..7], [0, 1, 32_769, 7, 1, 32_769, 7]);
    assert_eq!(
        (all.stdout.len(), sizes.iter().sum::<usize>()),
        (100_000, 100_000)
    );
    assert_eq!(all.stderr.len(), 3 * (sizes.len() - 1));
}
