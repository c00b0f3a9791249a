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
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use bex_proto::exec::{EndMark, FrameKind, Operation, SandboxRequest};
use bex_proto::limits;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tracing::error;

use output::Output;

/// What a request may be: the operation's body, its escapes, and the nonce.
const REQUEST_BYTES: usize = 2 * limits::EXEC_REQUEST_BYTES;
/// Exit code when the asker went away.
const ABANDONED: i32 = 75;

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

/// Answers one operation.
pub fn main(dir: &Path) -> ExitCode {
    match answer(dir) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            let cause = std::error::Error::source(&fault).map(ToString::to_string);
            error!(error = %fault, cause, "operation failed");
            ExitCode::FAILURE
        }
    }
}

fn answer(dir: &Path) -> Result<(), ExecFault> {
    let request = read_request(&mut io::stdin().lock()).map_err(ExecFault::Request)?;
    let started = Started::default();
    end_with_standard_input(started.clone());
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
        Operation::Run { argv, stdin } => run::answer(dir, &argv, stdin, &started, &mut output)?,
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

/// The process group that a `run` started, shared with the watch of standard input.
#[derive(Debug, Clone, Default)]
struct Started(Arc<AtomicI32>);

impl Started {
    fn set(&self, group: i32) {
        self.0.store(group, Ordering::SeqCst);
    }

    fn kill(&self) {
        let group = self.0.load(Ordering::SeqCst);
        if group > 1 {
            // it may be gone already
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
    }
}

fn end_with_standard_input(started: Started) {
    std::thread::spawn(move || {
        let mut ignored = [0; 1024];
        let mut input = io::stdin().lock();
        while matches!(input.read(&mut ignored), Ok(1..)) {}
        started.kill();
        std::process::exit(ABANDONED);
    });
}
