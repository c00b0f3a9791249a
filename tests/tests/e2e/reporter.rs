//! The reporter of remote sessions against the real api: killed, cut off, and told what to do.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use bex_proto::remote::RemoteState;
use bex_testpg::certs::Authority;
use bex_tests::client::ApiClient;
use bex_tests::edge::{Edge, is_installed};
use bex_tests::fault_proxy::{FaultProxy, Network};
use bex_tests::stack::{WORKSPACE, bin_dir};
use bex_tests::{Stack, StackOptions, eventually};
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};

/// Far over what anything here takes.
const STEP: Duration = Duration::from_secs(60);

/// A session on a machine, and what reports it.
struct Reported {
    dir: TempDir,
    api: ApiClient,
    session: String,
    url: String,
    child: Option<Child>,
}

impl Reported {
    async fn new(stack: &Stack, url: String) -> Self {
        let api = stack.operator();
        let body = json!({"workspaceId": WORKSPACE, "name": "builder"});
        let admin = stack.admin();
        let made = admin.call(Method::POST, "/v1/machines", Some(&body));
        let made: Value = made.await.unwrap().expect(StatusCode::CREATED).unwrap();
        let body =
            json!({"machineId": made["machine"]["id"], "kind": "interactive", "activity": "agent"});
        let session = api.call(Method::POST, "/v1/remote-sessions", Some(&body));
        let session: Value = session.await.unwrap().expect(StatusCode::CREATED).unwrap();
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("token"), made["token"].as_str().unwrap()).unwrap();
        Self {
            dir,
            api,
            session: session["id"].as_str().unwrap().to_owned(),
            url,
            child: None,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn start(&mut self, flags: &[&str], script: &str) {
        let mut log = std::fs::File::options();
        let log = log
            .create(true)
            .append(true)
            .open(self.path("log"))
            .unwrap();
        let child = Command::new(bin_dir().unwrap().join("bex-driver"))
            .args(["remote", "--url", &self.url, "--session", &self.session])
            .arg("--state")
            .arg(self.path("state"))
            .arg("--token-file")
            .arg(self.path("token"))
            .args(flags)
            .args(["--", "/bin/sh", "-c", script])
            .current_dir(self.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        self.child = Some(child);
    }

    async fn kill(&mut self) {
        self.child.take().unwrap().kill().await.unwrap();
    }

    async fn code(&mut self) -> Option<i32> {
        let child = self.child.as_mut().unwrap();
        let ended = tokio::time::timeout(STEP, child.wait()).await;
        let log = std::fs::read_to_string(self.path("log")).unwrap();
        ended
            .unwrap_or_else(|_| panic!("it does not end: {log}"))
            .unwrap()
            .code()
    }

    async fn get(&self, path: &str) -> Value {
        let path = format!("/v1/remote-sessions/{}{path}", self.session);
        let answer = self.api.call(Method::GET, &path, None).await.unwrap();
        answer.expect(StatusCode::OK).unwrap()
    }

    async fn tell(&self, verb: &str, body: &Value) {
        let path = format!("/v1/remote-sessions/{}/{verb}", self.session);
        let answer = self
            .api
            .call(Method::POST, &path, Some(body))
            .await
            .unwrap();
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.json());
    }

    async fn events(&self) -> u64 {
        self.get("").await["counters"]["nextEventIndex"]
            .as_u64()
            .unwrap()
    }

    async fn has_events(&self, count: u64) {
        let wait = eventually("events arrive", STEP, async || {
            (self.events().await >= count).then_some(())
        });
        wait.await.unwrap();
    }

    async fn is(&self, state: RemoteState) -> Value {
        let wait = eventually(state.as_str(), STEP, async || {
            let view = self.get("").await;
            (view["state"] == state.as_str()).then_some(view)
        });
        wait.await.unwrap()
    }

    /// What a stream said, by the log.
    async fn said(&self, stream: &str) -> String {
        let (mut said, mut from) = (String::new(), 0);
        loop {
            let page = self.get(&format!("/output?from={from}&limit=500")).await;
            for event in page["events"].as_array().unwrap() {
                if event["stream"] == stream {
                    said.push_str(event["data"].as_str().unwrap());
                }
            }
            from = page["nextFrom"].as_u64().unwrap();
            if page["caughtUp"] == true {
                return said;
            }
        }
    }

    async fn messages(&self) -> Vec<(String, String)> {
        let page = self.get("/messages").await;
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let rows = page["messages"].as_array().unwrap().iter();
        rows.map(|row| (text(&row["role"]), text(&row["content"])))
            .collect()
    }
}

async fn exists(path: &Path) {
    let wait = eventually("the command gets there", STEP, async || {
        path.exists().then_some(())
    });
    wait.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_is_complete_and_in_order_though_its_reporter_is_killed_and_the_network_cut() {
    let stack = Stack::start(StackOptions::default()).await.unwrap();
    let proxy = FaultProxy::start(vec![stack.addresses.api]).await.unwrap();
    let mut reported = Reported::new(&stack, format!("http://{}", proxy.address)).await;
    let script = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); echo line $i; \
        [ $((i % 250)) -ne 0 ] || sleep 0.05; [ $i -ne 12000 ] || { touch half; while [ ! -e go ]; do sleep 0.05; done; }; done; \
        echo done >&2; exit 7";
    for until in [1, 7, 20] {
        reported.start(&[], script);
        reported.has_events(until).await;
        reported.kill().await;
    }
    proxy.set(Network::Cut);
    reported.start(&[], script);
    exists(&reported.path("half")).await;
    let while_away = reported.events().await;
    proxy.set(Network::Open);
    reported.has_events(while_away + 1).await;
    proxy.set(Network::Frozen);
    std::fs::write(reported.path("go"), "").unwrap();
    exists(&reported.path("state/exit.json")).await;
    reported.kill().await;
    proxy.set(Network::Open);
    reported.start(&[], script);
    assert_eq!(reported.code().await, Some(7));

    let view = reported.is(RemoteState::Error).await;
    assert_eq!(view["error"], "the command ended with exit code 7");
    let lines: String = (1..=20_000).map(|n| format!("line {n}\n")).collect();
    assert!(reported.said("stdout").await == lines);
    assert_eq!(reported.said("stderr").await, "done\n");
    stack.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_away_for_a_minute_costs_nothing() {
    /// Longer than any request of the reporter waits for its answer.
    const AWAY: Duration = Duration::from_secs(60);
    let stack = Stack::start(StackOptions::default()).await.unwrap();
    let proxy = FaultProxy::start(vec![stack.addresses.api]).await.unwrap();
    let mut reported = Reported::new(&stack, format!("http://{}", proxy.address)).await;
    // it speaks before, all the while, and behind
    let script = "i=0; while [ ! -e go ]; do i=$((i+1)); echo line $i; sleep 0.02; done; \
        echo $i > count; echo last";
    reported.start(&[], script);
    reported.has_events(20).await;
    proxy.set(Network::Frozen);
    tokio::time::sleep(AWAY).await;
    let meanwhile = reported.events().await;
    proxy.set(Network::Open);
    reported.has_events(meanwhile + 1).await;
    std::fs::write(reported.path("go"), "").unwrap();
    assert_eq!(reported.code().await, Some(0));

    reported.is(RemoteState::Completed).await;
    let count = std::fs::read_to_string(reported.path("count")).unwrap();
    let count: u64 = count.trim().parse().unwrap();
    assert!(
        count > meanwhile,
        "{count} lines, {meanwhile} of them before"
    );
    let lines: String = (1..=count).map(|n| format!("line {n}\n")).collect();
    assert!(reported.said("stdout").await == lines + "last\n");
    stack.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_go_over_tls_to_a_service_that_is_proved_and_to_no_other() {
    if !is_installed() {
        return;
    }
    let stack = Stack::start(StackOptions::default()).await.unwrap();
    let authority = Authority::new("a company's own").unwrap();
    let proved = authority.issue(&["127.0.0.1"]).unwrap();
    let (upstream, logs) = (stack.addresses.api, stack.log_dir());
    let edge = Edge::start_tls(upstream, &logs, &proved).await.unwrap();
    let mut reported = Reported::new(&stack, format!("https://{}", edge.address)).await;
    let ca = reported.path("ca.pem");
    let ca_flag = ["--ca", ca.to_str().unwrap()];
    // a megabyte and more: batches pass the edge's own bound of a body
    let script =
        "i=0; while [ $i -lt 30 ]; do i=$((i+1)); head -c 50000 /dev/zero | tr '\\0' x; echo; done";

    let stranger = Authority::new("another one").unwrap();
    let elsewhere = authority.issue(&["api.example.org"]).unwrap();
    let misnamed = Edge::start_tls(upstream, &logs, &elsewhere);
    let misnamed = misnamed.await.unwrap();
    let good = std::mem::take(&mut reported.url);
    for (url, trusted) in [
        (good.clone(), stranger.pem()),
        (format!("https://{}", misnamed.address), authority.pem()),
    ] {
        std::fs::write(&ca, trusted).unwrap();
        reported.url = url;
        reported.start(&ca_flag, script);
        let log = reported.path("log");
        let refusals = eventually("it tells that it was not proved", STEP, async || {
            let log = std::fs::read_to_string(&log).ok()?;
            log.contains("certificate").then_some(())
        });
        refusals.await.unwrap();
        reported.kill().await;
        assert_eq!(reported.events().await, 0);
        std::fs::write(&log, "").unwrap();
    }

    std::fs::write(&ca, authority.pem()).unwrap();
    reported.url = good;
    reported.start(&ca_flag, script);
    assert_eq!(reported.code().await, Some(0));
    reported.is(RemoteState::Completed).await;
    let line = "x".repeat(50_000) + "\n";
    assert!(reported.said("stdout").await == line.repeat(30));
    stack.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn people_talk_to_a_reported_program_and_read_its_turns() {
    let stack = Stack::start(StackOptions::default()).await.unwrap();
    let mut reported = Reported::new(&stack, format!("http://{}", stack.addresses.api)).await;
    // as Claude's CLI does: a line in, a turn out
    let script = r#"n=0; while read -r line; do n=$((n+1)); printf '%s\n' "$line" >> heard
        printf '{"type":"assistant","uuid":"u%s","message":{"id":"m%s","role":"assistant","content":[{"type":"text","text":"answer %s"}]}}\n' $n $n $n
        printf '{"type":"result","subtype":"success","is_error":false,"uuid":"r%s"}\n' $n; done"#;
    reported.start(&["--input", "claude"], script);
    for n in 1..=2 {
        let content = format!("question {n}");
        reported.tell("chat", &json!({"content": content})).await;
        let wait = eventually("the answer", STEP, async || {
            (reported.messages().await.len() == 2 * n).then_some(())
        });
        wait.await.unwrap();
        reported.kill().await;
        reported.start(&["--input", "claude"], script);
    }
    reported.tell("pause", &json!({})).await;
    reported.is(RemoteState::Paused).await;
    reported.tell("resume", &json!({})).await;
    reported.is(RemoteState::Active).await;
    reported.tell("stop", &json!({})).await;
    assert_eq!(reported.code().await, Some(128 + 15));
    let view = reported.is(RemoteState::Stopped).await;
    assert_eq!(view["counters"]["messages"], 4);
    let row = |role: &str, content: &str| (role.to_owned(), content.to_owned());
    let rows = [
        row("user", "question 1"),
        row("assistant", "answer 1"),
        row("user", "question 2"),
        row("assistant", "answer 2"),
    ];
    assert_eq!(reported.messages().await, rows);
    let heard = std::fs::read_to_string(reported.path("heard")).unwrap();
    assert_eq!(heard.lines().count(), 2, "each was told once: {heard}");
    stack.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_script_reports_a_file_line_by_line() {
    let stack = Stack::start(StackOptions::default()).await.unwrap();
    let reported = Reported::new(&stack, format!("http://{}", stack.addresses.api)).await;
    let log = reported.path("out.log");
    let file = std::fs::File::create(&log).unwrap();
    let script = "for i in 1 2 3; do echo line $i; sleep 0.1; done; printf last";
    let mut program = Command::new("/bin/sh")
        .args(["-c", script])
        .stdout(file)
        .spawn()
        .unwrap();
    let token = std::fs::read_to_string(reported.path("token")).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/report.py");
    let status = Command::new("python3")
        .arg(script)
        .args(["--url", &reported.url, "--session", &reported.session])
        .args(["--follow-pid", &program.id().unwrap().to_string()])
        .arg(&log)
        .env("BEX_MACHINE_TOKEN", token)
        .kill_on_drop(true)
        .status();
    let status = tokio::time::timeout(STEP, status).await.unwrap().unwrap();
    assert!(status.success() && program.wait().await.unwrap().success());
    let view = reported.is(RemoteState::Completed).await;
    assert_eq!(view["counters"]["nextEventIndex"], 5);
    assert_eq!(
        reported.said("stdout").await,
        "line 1\nline 2\nline 3\nlast"
    );
    stack.stop().await.unwrap();
}
