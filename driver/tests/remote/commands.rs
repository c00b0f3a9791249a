//! What people say to a session is done once and answered.

use serde_json::{Value, json};

use crate::double::Double;
use crate::reporter::{Reporter, eventually};

/// The answers to a command.
fn answers(double: &Double, id: &str) -> Vec<Value> {
    let session = double.lock();
    let own = session.answers.iter().filter(|(of, _)| of == id);
    own.map(|(_, answer)| answer.clone()).collect()
}

async fn done(double: &Double, id: &str) {
    eventually("it is answered", || !answers(double, id).is_empty()).await;
    assert_eq!(answers(double, id), [json!({"done": true})]);
}

#[tokio::test]
async fn a_chat_is_a_line_and_told_once_however_often_it_comes() {
    let double = Double::start().await;
    let script =
        "while read -r line; do echo \"heard $line\"; [ \"$line\" != end ] || exit 0; done";
    let mut reporter = Reporter::shell(&double, script);
    reporter.start();
    let id = double.tell("chat", &json!({"content": "hello"}));
    done(&double, &id).await;
    // its answer was lost, and the reporter fell
    let again = json!({"id": id, "sessionId": double.lock().id, "kind": "chat",
        "payload": {"content": "hello"}, "createdAt": "2026-01-01T00:00:00.000Z"});
    reporter.kill().await;
    double.lock().queue.push(again);
    reporter.start();
    eventually("it is answered again", || answers(&double, &id).len() == 2).await;
    let strange = json!({"id": bex_proto::CommandId::random(), "sessionId": bex_proto::RemoteSessionId::random(),
        "kind": "chat", "payload": {"content": "for another"}, "createdAt": "2026-01-01T00:00:00.000Z"});
    double.lock().queue.push(strange);
    let allowed = double.tell(
        "permission",
        &json!({"requestId": "r", "allow": true, "message": null}),
    );
    done(&double, &allowed).await;
    double.tell("chat", &json!({"content": "end"}));
    assert_eq!(reporter.code().await, 0, "{}", reporter.log());
    assert_eq!(double.said("stdout"), "heard hello\nheard y\nheard end\n");
    assert!(
        answers(&double, &id)
            .iter()
            .all(|answer| answer["done"] == true)
    );
}

#[tokio::test]
async fn a_held_command_prints_nothing_until_it_is_resumed_and_a_stop_reaches_it_held() {
    let double = Double::start().await;
    let script = "trap 'echo stopping; exit 0' TERM; while :; do echo tick; sleep 0.02; done";
    let mut reporter = Reporter::shell(&double, script).flags(&["--no-input"]);
    reporter.start();
    eventually("it ticks", || {
        double.said("stdout").contains("tick\ntick\n")
    })
    .await;
    done(&double, &double.tell("pause", &json!({"reason": null}))).await;
    eventually("it is held", || reporter.is_held()).await;
    done(&double, &double.tell("resume", &json!({"reason": null}))).await;
    eventually("it goes on", || !reporter.is_held()).await;
    let length = double.said("stdout").len();
    eventually("it ticks again", || {
        double.said("stdout").len() > length + 20
    })
    .await;
    done(&double, &double.tell("pause", &json!({"reason": null}))).await;
    eventually("it is held", || reporter.is_held()).await;
    let stop = double.tell("stop", &json!({"reason": "enough"}));
    assert_eq!(reporter.code().await, 0, "{}", reporter.log());
    assert_eq!(answers(&double, &stop), [json!({"done": true})]);
    assert!(double.said("stdout").ends_with("stopping\n"));
    double.lock().complete();
    let status = double.lock().status.clone().expect("told");
    assert_eq!(status["state"], "stopped", "{status}");
}

#[tokio::test]
async fn a_command_that_hears_no_stop_is_killed_though_its_reporter_was_killed_too() {
    let double = Double::start().await;
    let mut reporter = Reporter::shell(
        &double,
        "trap '' TERM; echo begun; while :; do sleep 0.05; done",
    );
    reporter.start();
    eventually("it has begun", || double.said("stdout") == "begun\n").await;
    done(&double, &double.tell("stop", &json!({"reason": null}))).await;
    reporter.kill().await;
    reporter.start();
    assert_eq!(reporter.code().await, 137, "{}", reporter.log());
    let status = double.lock().status.clone().expect("told");
    assert_eq!(status["state"], "stopped", "{status}");
    double.lock().complete();
}

#[tokio::test]
async fn an_abort_is_an_interrupt_and_stands_in_the_log() {
    let double = Double::start().await;
    let script = "trap 'echo interrupted' INT; echo begun; while read -r line; do echo \"heard $line\"; exit 0; done; \
        read -r line; echo \"then $line\"";
    let mut reporter = Reporter::shell(&double, script);
    reporter.start();
    eventually("it has begun", || double.said("stdout") == "begun\n").await;
    let id = double.tell("abort", &json!({"reason": null}));
    done(&double, &id).await;
    eventually("it is interrupted", || {
        double.said("stdout").contains("interrupted")
    })
    .await;
    let state: Value = serde_json::from_str(&double.said("request_state")).expect("one event");
    assert_eq!(state, json!({"state": "aborted", "commandId": id}));
    double.tell("chat", &json!({"content": "go on"}));
    assert_eq!(reporter.code().await, 0, "{}", reporter.log());
    assert!(double.said("stdout").ends_with("go on\n"));
    double.lock().complete();
}

#[tokio::test]
async fn claude_is_spoken_to_in_its_own_lines_and_its_questions_are_told() {
    let double = Double::start().await;
    let asks = r#"{"type":"control_request","request_id":"r1","request":{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"ls"}}}"#;
    let script = format!(
        "echo '{asks}'; for i in 1 2 3; do read -r line; printf '%s\\n' \"$line\" >> heard; done"
    );
    let mut reporter = Reporter::shell(&double, &script).flags(&["--input", "claude"]);
    reporter.start();
    eventually("it asks", || double.said("permission") == asks).await;
    done(
        &double,
        &double.tell(
            "permission",
            &json!({"requestId": "r1", "allow": true, "message": null}),
        ),
    )
    .await;
    done(
        &double,
        &double.tell("chat", &json!({"content": "two\nlines"})),
    )
    .await;
    let abort = double.tell("abort", &json!({"reason": null}));
    assert_eq!(reporter.code().await, 0, "{}", reporter.log());
    assert_eq!(answers(&double, &abort), [json!({"done": true})]);
    let heard = reporter.file("heard");
    let heard: Vec<Value> = heard
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(
        heard[0]["response"]["response"],
        json!({"behavior": "allow", "updatedInput": {"command": "ls"}})
    );
    assert_eq!(heard[1]["message"]["content"][0]["text"], "two\nlines");
    assert_eq!(heard[2]["request"]["subtype"], "interrupt");
    assert_eq!(double.said("stdout"), format!("{asks}\n"));
}

#[tokio::test]
async fn a_question_is_told_though_its_line_comes_in_pieces_and_its_reporter_is_killed_between() {
    let double = Double::start().await;
    let input = format!(r#"{{"file_path":"a","content":"{}"}}"#, "x".repeat(200_000));
    let head = r#"{"type":"control_request","request_id":"r1","request":{"subtype":"can_use_tool","tool_name":"Write","input":"#;
    let script = "printf 'before\\n%s' \"$(cat head)\"; while [ ! -e go ]; do sleep 0.02; done; cat rest; read -r line; \
        printf '%s\\n' \"$line\" > heard";
    let mut reporter = Reporter::shell(&double, script).flags(&["--input", "claude"]);
    let write = |name: &str, text: &str| {
        std::fs::write(reporter.root.path().join(name), text).expect("a file");
    };
    write("head", head);
    write("rest", &format!("{input}}}}}\nafter\n"));
    reporter.start();
    eventually("half of it is reported", || {
        double.said("stdout") == format!("before\n{head}")
    })
    .await;
    reporter.kill().await;
    std::fs::write(reporter.root.path().join("go"), "").expect("a file");
    reporter.start();
    let asks = format!("{head}{input}}}}}");
    eventually("it asks", || double.said("permission") == asks).await;
    let allow = json!({"requestId": "r1", "allow": true, "message": null});
    done(&double, &double.tell("permission", &allow)).await;
    assert_eq!(reporter.code().await, 0, "{}", reporter.log());
    let heard: Value = serde_json::from_str(&reporter.file("heard")).expect("JSON");
    let given = &heard["response"]["response"]["updatedInput"];
    assert_eq!(given.to_string().len(), input.len());
    assert_eq!(double.said("stdout"), format!("before\n{asks}\nafter\n"));
    double.lock().complete();
}

#[tokio::test]
async fn what_cannot_be_said_is_answered_as_such() {
    let double = Double::start().await;
    let script = "echo begun; while [ ! -e go ]; do sleep 0.02; done";
    let mut reporter = Reporter::shell(&double, script).flags(&["--no-input"]);
    reporter.start();
    let id = double.tell("chat", &json!({"content": "hello"}));
    eventually("it is answered", || !answers(&double, &id).is_empty()).await;
    let answer = answers(&double, &id).remove(0);
    assert_eq!(
        answer,
        json!({"done": false, "detail": "the command has no input"})
    );
    std::fs::write(reporter.root.path().join("go"), "").expect("a file");
    assert_eq!(reporter.code().await, 0, "{}", reporter.log());
}
