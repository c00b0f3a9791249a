//! A user's command in the sandbox.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Instant;

use bex_proto::exec::FrameKind;
use bex_proto::launch::{Isolation, LAUNCH_FILE, Launch};
use bex_proto::limits;

use super::output::Output;
use super::{ExecFault, Started};
use crate::agent::base_environment;
use crate::bounds::{AGENT_QUEUE, DRAIN_TIMEOUT};
use crate::profile::Surroundings;

/// What shells answer when a program cannot be started.
const NOT_STARTED: i32 = 126;
/// What `timeout` answers.
const TIMED_OUT: i32 = 124;
/// What shells add to a signal's number.
const SIGNALLED: i32 = 128;

enum Event {
    Output(FrameKind, Vec<u8>),
    Exited(io::Result<ExitStatus>),
}

/// Runs `argv` as the agent's user, in its directory, with PATH and HOME and nothing else; no credentials. Gives its exit code.
/// More output than [`limits::RUN_OUTPUT_BYTES`] is cut off one byte behind the limit, so that the reader can tell, and the
/// command is killed.
///
/// # Errors
/// When the launch file cannot be read or nobody reads the answer. A command that cannot be started is an answer.
pub fn answer(
    dir: &Path,
    argv: &[String],
    stdin: Option<String>,
    started: &Started,
    output: &mut Output,
) -> Result<i32, ExecFault> {
    let surroundings = surroundings(dir).map_err(ExecFault::Files)?;
    if let Isolation::User { .. } = surroundings.isolation {
        nix::sys::prctl::set_no_new_privs().map_err(|e| ExecFault::Process(e.into()))?;
    }
    let mut child = match started.start(|| start(argv, &surroundings)) {
        Ok(child) => child,
        Err(cause) => {
            let text = format!("cannot be started: {cause}\n");
            output
                .bytes(FrameKind::Stderr, text.as_bytes())
                .map_err(ExecFault::Output)?;
            return Ok(NOT_STARTED);
        }
    };
    let events = follow(&mut child, stdin);
    thread::spawn({
        let exited = events.0;
        move || exited.send(Event::Exited(child.wait()))
    });
    relay(&events.1, started, output)
}

fn surroundings(dir: &Path) -> io::Result<Surroundings> {
    let file = BufReader::new(File::open(dir.join(LAUNCH_FILE))?);
    let launch: Launch = serde_json::from_reader(file)?;
    Ok(Surroundings {
        workdir: launch.workdir,
        isolation: launch.isolation,
        credentials: Default::default(),
    })
}

fn start(argv: &[String], surroundings: &Surroundings) -> io::Result<Child> {
    let (program, arguments) = argv
        .split_first()
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(base_environment(surroundings))
        .current_dir(&surroundings.workdir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    if let Isolation::User { uid, gid } = surroundings.isolation {
        command.uid(uid).gid(gid);
    }
    command.spawn()
}

/// Feeds the input and reads both outputs, each in a thread of its own.
fn follow(child: &mut Child, input: Option<String>) -> (SyncSender<Event>, Receiver<Event>) {
    let (say, said) = sync_channel(AGENT_QUEUE);
    if let Some(mut stdin) = child.stdin.take() {
        // a command may well end without reading its input
        thread::spawn(move || drop(stdin.write_all(input.unwrap_or_default().as_bytes())));
    }
    if let Some(stdout) = child.stdout.take() {
        let say = say.clone();
        thread::spawn(move || read_all(stdout, FrameKind::Stdout, &say));
    }
    if let Some(stderr) = child.stderr.take() {
        let say = say.clone();
        thread::spawn(move || read_all(stderr, FrameKind::Stderr, &say));
    }
    (say, said)
}

fn read_all(mut stream: impl Read, kind: FrameKind, say: &SyncSender<Event>) {
    let mut chunk = vec![0; limits::EXEC_FRAME_BYTES];
    while let Ok(length @ 1..) = stream.read(&mut chunk) {
        if say
            .send(Event::Output(kind, chunk[..length].to_vec()))
            .is_err()
        {
            return;
        }
    }
}

/// Passes output on until the command ended and its output is read; gives its exit code.
fn relay(said: &Receiver<Event>, started: &Started, output: &mut Output) -> Result<i32, ExecFault> {
    let mut deadline = Instant::now() + limits::EXEC_RUN_TIMEOUT;
    let (mut exit_code, mut left) = (None, limits::RUN_OUTPUT_BYTES as usize + 1);
    loop {
        let wait = deadline.saturating_duration_since(Instant::now());
        match said.recv_timeout(wait) {
            Ok(Event::Output(kind, bytes)) => {
                let bytes = &bytes[..bytes.len().min(left)];
                left -= bytes.len();
                output.bytes(kind, bytes).map_err(ExecFault::Output)?;
                if left == 0 {
                    started.kill();
                }
            }
            Ok(Event::Exited(status)) => {
                let status = status.map_err(ExecFault::Process)?;
                let signalled = || status.signal().map_or(NOT_STARTED, |s| SIGNALLED + s);
                exit_code.get_or_insert(status.code().unwrap_or_else(signalled));
                // what it left behind would hold the pipes open
                started.kill();
                deadline = Instant::now() + DRAIN_TIMEOUT;
            }
            Err(RecvTimeoutError::Timeout) if exit_code.is_none() => {
                exit_code = Some(TIMED_OUT);
                started.kill();
                deadline = Instant::now() + DRAIN_TIMEOUT;
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                return Ok(exit_code.unwrap_or(NOT_STARTED));
            }
        }
    }
}
