//! `bex-driver exec`: answers one exec operation inside the sandbox.
//!
//! The request comes as a length-prefixed frame on standard input, never in argv; the answer is frames on standard output, the
//! last of them an end mark with the request's nonce. Without it the answer is not whole, whatever a cluster says about the exit
//! code. Standard input is held open by the asker; when it closes, the asker is gone and this process ends with all it started.

mod output;
mod run;
mod window;

use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, ExitCode};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use bex_proto::chain::Chain;
use bex_proto::exec::{EndMark, FrameKind, Operation, SandboxRequest};
use bex_proto::limits;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tracing::error;

use output::Output;

/// What a request may be: the operation's body, its escapes, and the nonce.
const REQUEST_BYTES: usize = 2 * limits::EXEC_REQUEST_BYTES;
/// Exit code when the asker went away.
const ABANDONED: u8 = 75;

/// Why an operation has no answer; the missing end mark tells the asker.
#[derive(Debug, thiserror::Error)]
pub enum ExecFault {
    /// The request is not one.
    #[error("the request cannot be read")]
    Request(#[source] io::Error),
    /// Not an operation for inside the sandbox.
    #[error("the operation is not done in the sandbox")]
    Unsupported,
    /// The driver's files cannot be read.
    #[error("the driver's files cannot be read")]
    Files(#[source] io::Error),
    /// The answer cannot be written.
    #[error("the answer cannot be written")]
    Output(#[source] io::Error),
    /// A process cannot be handled.
    #[error("the command cannot be followed")]
    Process(#[source] io::Error),
}

/// Answers one operation. Returns as soon as the answer is out or the asker is gone.
pub fn main(dir: &Path) -> ExitCode {
    let request = match read_request(&mut io::stdin().lock()).map_err(ExecFault::Request) {
        Ok(request) => request,
        Err(fault) => return failed(&fault),
    };
    let started = Started::default();
    let (say, said) = sync_channel(2);
    let gone = say.clone();
    thread::spawn(move || {
        wait_for_the_end(io::stdin().lock());
        gone.send(Over::Abandoned)
    });
    let (dir, group) = (dir.to_owned(), started.clone());
    thread::spawn(move || say.send(Over::Answered(answer(&dir, request, &group))));
    match said.recv() {
        Ok(Over::Answered(Ok(()))) => ExitCode::SUCCESS,
        Ok(Over::Answered(Err(fault))) => failed(&fault),
        Ok(Over::Abandoned) | Err(_) => {
            started.close();
            ExitCode::from(ABANDONED)
        }
    }
}

/// What ends this process.
enum Over {
    Answered(Result<(), ExecFault>),
    Abandoned,
}

fn failed(fault: &ExecFault) -> ExitCode {
    error!(error = %Chain(fault), "operation failed");
    ExitCode::FAILURE
}

fn answer(dir: &Path, request: SandboxRequest, started: &Started) -> Result<(), ExecFault> {
    let mut output = Output::standard().map_err(ExecFault::Output)?;
    let exit_code = match request.operation {
        Operation::Observe { turn, offset } => {
            window::answer(dir, turn, offset, window::Asked::StatusAndLog, &mut output)?;
            0
        }
        Operation::ReadTranscript { turn, offset } => {
            window::answer(dir, turn, offset, window::Asked::Log, &mut output)?;
            0
        }
        Operation::Run { argv, stdin } => run::answer(dir, &argv, stdin, started, &mut output)?,
        Operation::Turn { .. } | Operation::Stop { .. } => return Err(ExecFault::Unsupported),
    };
    let end = EndMark {
        nonce: request.nonce,
        exit_code,
    };
    output.json(FrameKind::End, &end).map_err(ExecFault::Output)
}

/// `length u32 big-endian · JSON`.
fn read_request(input: &mut impl Read) -> io::Result<SandboxRequest> {
    let mut length = [0; 4];
    input.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > REQUEST_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut json = vec![0; length];
    input.read_exact(&mut json)?;
    Ok(serde_json::from_slice(&json)?)
}

/// The process group that a `run` started, shared with whoever ends it.
#[derive(Debug, Clone, Default)]
struct Started(Arc<Mutex<Group>>);

#[derive(Debug, Default)]
enum Group {
    #[default]
    None,
    Running(Pid),
    /// Nothing may be started any more.
    Closed,
}

impl Started {
    /// Starts a process of its own group, unless the asker is gone; the lock is held meanwhile, so that none is missed.
    fn start(&self, start: impl FnOnce() -> io::Result<Child>) -> io::Result<Child> {
        let mut group = self.lock();
        if matches!(*group, Group::Closed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let child = start()?;
        let id = i32::try_from(child.id()).map_err(io::Error::other)?;
        *group = Group::Running(Pid::from_raw(id));
        Ok(child)
    }

    fn kill(&self) {
        if let Group::Running(group) = *self.lock() {
            // it may be gone already
            let _ = killpg(group, Signal::SIGKILL);
        }
    }

    /// Kills what runs and lets nothing more be started.
    fn close(&self) {
        let group = std::mem::replace(&mut *self.lock(), Group::Closed);
        if let Group::Running(group) = group {
            let _ = killpg(group, Signal::SIGKILL);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Group> {
        // nothing under the lock leaves it half-changed
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads and forgets until the other side closes.
fn wait_for_the_end(mut input: impl Read) {
    let mut ignored = [0; 1024];
    while matches!(input.read(&mut ignored), Ok(1..)) {}
}
