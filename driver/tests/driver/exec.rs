//! The in-sandbox side of the exec operations.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use bex_proto::driver::{LEGACY_LOG_FILE, STATUS_FILE, log_file, log_record, write_part_record};
use bex_proto::exec::{
    EndMark, Frame, FrameDecoder, FrameKind, LogWindow, Operation, SandboxRequest, WindowEnding,
    WindowHeader,
};
use bex_proto::ids::{Generation, PartIndex, TurnNo};
use bex_proto::limits;
use bex_proto::transcript::sha256_hex;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

use crate::sandbox::{DRIVER, Sandbox, eventually};

async fn ask(dir: &Path, operation: Operation) -> Child {
    let request = SandboxRequest {
        nonce: "n0nce".into(),
        operation,
    };
    let json = serde_json::to_vec(&request).expect("plain data");
    let mut child = Command::new(DRIVER)
        .arg("exec")
        .arg("--dir")
        .arg(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("starts");
    let stdin = child.stdin.as_mut().expect("piped");
    stdin.write_u32(json.len() as u32).await.expect("written");
    stdin.write_all(&json).await.expect("written");
    child
}

/// Asks, holding standard input open, and reads all frames.
async fn frames(dir: &Path, operation: Operation) -> Vec<Frame> {
    let mut child = ask(dir, operation).await;
    let mut output = Vec::new();
    child
        .stdout
        .take()
        .expect("piped")
        .read_to_end(&mut output)
        .await
        .expect("read");
    let mut decoder = FrameDecoder::default();
    decoder.push(&output);
    let mut frames = Vec::new();
    while let Some(frame) = decoder.next_frame().expect("well-formed") {
        frames.push(frame);
    }
    assert!(!decoder.is_torn());
    frames
}

fn end_of(frames: &mut Vec<Frame>) -> i32 {
    let end = frames.pop().expect("frames");
    assert_eq!(end.kind, FrameKind::End);
    let end: EndMark = serde_json::from_slice(&end.payload).expect("an end mark");
    assert_eq!(end.nonce, "n0nce");
    end.exit_code
}

fn bytes_of(frames: &[Frame], kind: FrameKind) -> Vec<u8> {
    let payloads = frames
        .iter()
        .filter(|f| f.kind == kind)
        .map(|f| &f.payload[..]);
    payloads.collect::<Vec<_>>().concat()
}

/// Header and bytes of a window.
async fn window(dir: &Path, operation: Operation) -> (WindowHeader, Vec<u8>) {
    let mut frames = frames(dir, operation).await;
    assert_eq!(end_of(&mut frames), 0);
    let header = frames.remove(0);
    assert_eq!(header.kind, FrameKind::Header);
    let header: WindowHeader = serde_json::from_slice(&header.payload).expect("a header");
    let bytes = bytes_of(&frames, FrameKind::Stdout);
    if let Some(log) = header
        .log
        .as_ref()
        .filter(|l| l.ending != WindowEnding::LineTooLong)
    {
        assert_eq!(
            (log.length, &log.sha256),
            (bytes.len() as u64, &sha256_hex(&bytes))
        );
    }
    (header, bytes)
}

fn read(turn: u32, offset: u64) -> Operation {
    Operation::ReadTranscript {
        turn: TurnNo(turn),
        offset,
    }
}

fn observe(turn: u32, offset: u64) -> Operation {
    Operation::Observe {
        turn: TurnNo(turn),
        offset,
    }
}

/// A directory with one log and a status.
struct Files(TempDir);

impl Files {
    fn new(log: &[u8], state: &str) -> Self {
        let files = Self(tempfile::tempdir().expect("a directory"));
        let mut text = log_record(Generation(2), "log-a", TurnNo(1)).into_bytes();
        text.extend_from_slice(log);
        std::fs::write(files.path().join(log_file(TurnNo(1))), text).expect("written");
        files.status(state);
        files
    }

    fn status(&self, state: &str) {
        let status = format!(r#"{{"state":"{state}","generation":2,"turn":1}}"#);
        std::fs::write(self.path().join(STATUS_FILE), status).expect("written");
    }

    fn path(&self) -> PathBuf {
        self.0.path().to_owned()
    }

    fn first_line(&self) -> u64 {
        log_record(Generation(2), "log-a", TurnNo(1)).len() as u64
    }
}

#[tokio::test]
async fn a_turn_is_read_while_it_runs_and_after() {
    let mut part = Vec::new();
    write_part_record(
        &mut part,
        jiff::Timestamp::now(),
        TurnNo(1),
        PartIndex(0),
        br#"{"type":"x"}"#,
    );
    let torn = [&part[..], b"{\"at\":\"to"].concat();
    let files = Files::new(&torn, "running");
    let first = files.first_line();
    let (header, bytes) = window(&files.path(), observe(1, 0)).await;
    let status = header.status.expect("asked for");
    assert!(status.contains("running"));
    let log = header.log.expect("a log");
    assert_eq!(log.generation, Some(Generation(2)));
    assert_eq!(log.log_id, "log-a");
    assert_eq!(
        (log.offset, log.size, log.ending),
        (0, first + torn.len() as u64, WindowEnding::Line)
    );
    assert_eq!(
        bytes[first as usize..],
        part[..],
        "the torn line is not given while it may be finished"
    );

    let (header, bytes) = window(&files.path(), read(1, first + part.len() as u64)).await;
    assert_eq!((header.status, bytes.len()), (None, 0));

    files.status("idle");
    let (header, bytes) = window(&files.path(), read(1, first)).await;
    assert_eq!(
        header.log.map(|l| l.ending),
        Some(WindowEnding::Unterminated)
    );
    assert_eq!(bytes, torn);

    let (header, bytes) = window(&files.path(), read(1, 1_000_000)).await;
    assert_eq!(
        (header.log.map(|l| l.length), bytes.len()),
        (Some(0), 0),
        "beyond the end"
    );
    let (header, _) = window(&files.path(), observe(2, 0)).await;
    assert_eq!(
        (header.log, header.status.is_some()),
        (None, true),
        "not begun"
    );
}

#[tokio::test]
async fn a_log_that_does_not_say_whose_it_is_is_not_begun() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(
        dir.path().join(log_file(TurnNo(1))),
        "{\"type\":\"log\",\"gen",
    )
    .expect("written");
    let (header, bytes) = window(dir.path(), observe(1, 0)).await;
    assert_eq!((header.status, header.log, bytes.len()), (None, None, 0));
}

#[tokio::test]
async fn a_pipe_in_a_files_place_holds_nobody() {
    let pipe = |path: &Path| {
        nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
    };
    let files = Files::new(b"", "running");
    std::fs::remove_file(files.path().join(STATUS_FILE)).expect("removed");
    pipe(&files.path().join(STATUS_FILE));
    let (header, _) = window(&files.path(), observe(1, 0)).await;
    assert_eq!((header.status, header.log.is_some()), (None, true));

    let log = files.path().join(log_file(TurnNo(1)));
    std::fs::remove_file(&log).expect("removed");
    pipe(&log);
    let frames = frames(&files.path(), observe(1, 0)).await;
    assert!(frames.is_empty(), "an answer without its end mark is none");
}

#[tokio::test]
async fn a_window_of_16_mib_is_cut_at_its_last_newline() {
    let line = [vec![b'x'; 999_999], vec![b'\n']].concat();
    let files = Files::new(&line.repeat(20), "idle");
    let (header, bytes) = window(&files.path(), read(1, 0)).await;
    let log = header.log.expect("a log");
    assert_eq!(
        (log.length, log.ending),
        (16_000_000 + files.first_line(), WindowEnding::Line)
    );
    let (rest, more) = window(&files.path(), read(1, log.length)).await;
    assert_eq!(rest.log.map(|l| l.ending), Some(WindowEnding::Line));
    assert_eq!((bytes.len() + more.len()) as u64, log.size);
}

#[tokio::test]
async fn a_line_longer_than_a_window_is_skipped_by_offset() {
    let long = [vec![b'x'; 17 * 1024 * 1024], b"\n{}\n".to_vec()].concat();
    let files = Files::new(&long, "running");
    let (header, bytes) = window(&files.path(), read(1, files.first_line())).await;
    let LogWindow {
        length,
        offset,
        ending,
        ..
    } = header.log.expect("a log");
    assert_eq!(
        (length, ending, bytes.len()),
        (limits::HARVEST_BYTES, WindowEnding::LineTooLong, 0)
    );
    let (header, bytes) = window(&files.path(), read(1, offset + length)).await;
    assert_eq!(header.log.map(|l| l.ending), Some(WindowEnding::Line));
    assert!(bytes.ends_with(b"x\n{}\n"));
}

#[tokio::test]
async fn the_old_form_is_identified_by_its_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = dir.path().join(LEGACY_LOG_FILE);
    std::fs::write(&log, "{\"a\":1}\n{\"b\"").expect("written");
    std::fs::write(dir.path().join(STATUS_FILE), r#"{"state":"running"}"#).expect("written");
    let (header, bytes) = window(dir.path(), observe(1, 0)).await;
    let before = header.log.expect("a log");
    assert_eq!(
        (before.generation, before.ending),
        (None, WindowEnding::Line)
    );
    assert_eq!(bytes, b"{\"a\":1}\n");
    std::fs::write(dir.path().join(STATUS_FILE), r#"{"state":"succeeded"}"#).expect("written");
    let (header, bytes) = window(dir.path(), observe(1, 8)).await;
    assert_eq!(
        header.log.map(|l| (l.ending, l.log_id)),
        Some((WindowEnding::Unterminated, before.log_id.clone()))
    );
    assert_eq!(bytes, b"{\"b\"");
    std::fs::rename(&log, dir.path().join("old")).expect("renamed");
    std::fs::write(&log, "{}\n").expect("written");
    let (header, _) = window(dir.path(), observe(1, 0)).await;
    assert_ne!(
        header.log.map(|l| l.log_id),
        Some(before.log_id),
        "another file is another log"
    );
}

/// A shell script as a user's command.
pub fn run(script: &str, stdin: Option<&str>) -> Operation {
    Operation::Run {
        argv: ["sh", "-c", script].map(str::to_owned).to_vec(),
        stdin: stdin.map(str::to_owned),
    }
}

/// What an operation prints on standard output.
pub async fn output_of(dir: &Path, operation: Operation) -> String {
    let mut answer = frames(dir, operation).await;
    end_of(&mut answer);
    String::from_utf8(bytes_of(&answer, FrameKind::Stdout)).expect("text")
}

#[tokio::test]
async fn a_user_s_command_runs_in_the_agent_s_directory() {
    let sandbox = Sandbox::shell("true").start().await;
    let dir = sandbox.launch.dir.clone();
    let mut answer = frames(&dir, run("pwd; cat; echo oops >&2; exit 5", Some("in"))).await;
    assert_eq!(end_of(&mut answer), 5);
    let workdir = sandbox.launch.workdir.display();
    assert_eq!(
        bytes_of(&answer, FrameKind::Stdout),
        format!("{workdir}\nin").as_bytes()
    );
    assert_eq!(bytes_of(&answer, FrameKind::Stderr), b"oops\n");

    let mut answer = frames(&dir, run("yes | head -c 5000000", None)).await;
    end_of(&mut answer);
    let given = bytes_of(&answer, FrameKind::Stdout).len() as u64;
    assert_eq!(
        given,
        limits::RUN_OUTPUT_BYTES + 1,
        "one byte more than allowed tells the reader"
    );

    let missing = Operation::Run {
        argv: vec!["/no/such/program".into()],
        stdin: None,
    };
    let mut answer = frames(&dir, missing).await;
    assert_eq!(end_of(&mut answer), 126);
    let mut answer = frames(&dir, run("sleep 1000 & exit 0", None)).await;
    assert_eq!(
        end_of(&mut answer),
        0,
        "what it left behind is not waited for"
    );
}

#[tokio::test]
async fn when_the_asker_goes_the_command_goes_too() {
    let sandbox = Sandbox::shell("true").start().await;
    let file = sandbox.launch.workdir.join("pid");
    let run = Operation::Run {
        argv: ["sh", "-c", "echo $$ > pid; sleep 1000"]
            .map(str::to_owned)
            .to_vec(),
        stdin: None,
    };
    let mut child = ask(&sandbox.launch.dir, run).await;
    let pid = || {
        std::fs::read_to_string(&file)
            .ok()?
            .trim()
            .parse::<u32>()
            .ok()
    };
    eventually("it runs", || pid().is_some()).await;
    drop(child.stdin.take());
    let status = child.wait().await.expect("it ends");
    assert!(!status.success());
    let mut output = Vec::new();
    child
        .stdout
        .take()
        .expect("piped")
        .read_to_end(&mut output)
        .await
        .expect("read");
    assert!(output.is_empty(), "no end mark");
    let stat = format!("/proc/{}/stat", pid().expect("just seen"));
    eventually("the command is gone", || {
        std::fs::read_to_string(&stat).map_or(true, |s| s.contains(") Z "))
    })
    .await;
}

#[tokio::test]
async fn operations_of_the_driver_s_http_are_not_done_here() {
    let dir = tempfile::tempdir().expect("a directory");
    let answer = frames(dir.path(), Operation::Stop { turn: TurnNo(1) }).await;
    assert_eq!(answer, [], "no end mark");
}
