//! `bex-driver remote-run`: starts the command and waits for it. It is small and does nothing else, so nobody has a reason to kill it, and a
//! reporter that comes back learns the exit code from it.
//!
//! It is a process session of its own, beyond the terminal's signals; the command is a process group within it. Two runners of one directory
//! never both start the command: the first has the lock, and what it started is written down.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};

use bex_proto::Chain;
use bex_proto::remote::OutputStream;
use clap::Args;
use tracing::error;

use super::place::{Place, write_json};
use super::running::{ChildRecord, End};

/// `bex-driver remote-run`, which only a reporter calls.
#[derive(Debug, Args)]
pub struct RunArguments {
    /// The state directory.
    #[arg(long)]
    state: PathBuf,
    /// Standard input is empty.
    #[arg(long)]
    no_input: bool,
    /// The command.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Runs the command to its end.
pub fn main(arguments: &RunArguments) -> ExitCode {
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            error!(error = %Chain(&fault), "runner failed");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &RunArguments) -> io::Result<()> {
    // already the leader of one when a shell started it by hand: then that is it
    let _ = nix::unistd::setsid();
    let place = Place::of_runner(&arguments.state);
    let Some(_lock) = place.lock_runner()? else {
        return Ok(());
    };
    if place.child().exists() || place.exit().exists() {
        return Ok(());
    }
    let end = match start(arguments, &place) {
        Ok(mut child) => match remember(&child, &place) {
            Ok(()) => End::from(child.wait()?),
            // a command that nobody could find again must not run on
            Err(fault) => {
                child.kill()?;
                child.wait()?;
                End::NotStarted(fault.to_string())
            }
        },
        Err(fault) => End::NotStarted(fault.to_string()),
    };
    write_json(&place.exit(), &end)
}

fn start(arguments: &RunArguments, place: &Place) -> io::Result<Child> {
    let (program, rest) = arguments
        .command
        .split_first()
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let spool = |stream| OpenOptions::new().append(true).open(place.spool(stream));
    let stdin = match arguments.no_input {
        true => Stdio::null(),
        // with a writer of its own it sees no end between two chats
        false => File::options()
            .read(true)
            .write(true)
            .open(place.stdin())?
            .into(),
    };
    Command::new(program)
        .args(rest)
        .stdin(stdin)
        .stdout(spool(OutputStream::Stdout)?)
        .stderr(spool(OutputStream::Stderr)?)
        .process_group(0)
        .spawn()
}

fn remember(child: &Child, place: &Place) -> io::Result<()> {
    let record = ChildRecord::of(child.id())?;
    write_json(&place.child(), &record)
}

impl From<ExitStatus> for End {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(code),
            (None, Some(signal)) => Self::Signal(signal),
            (None, None) => Self::Unknown,
        }
    }
}
