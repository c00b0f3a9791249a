//! `bex-driver serve` runs a sandbox's agent; `bex-driver exec` answers one exec operation inside it; `bex-driver install` puts it there. `bex-driver
//! remote` is not for sandboxes: it reports a command of any machine to a remote session.

use std::path::PathBuf;
use std::process::ExitCode;

use bex_driver::remote;
use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

#[derive(Parser)]
#[command(name = "bex-driver", version, about)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs the agent, keeps its log, serves it.
    Serve {
        /// The launch file.
        #[arg(long)]
        launch: PathBuf,
    },
    /// Answers one operation: a request frame on standard input, frames on standard output.
    Exec {
        /// The driver's directory.
        #[arg(long)]
        dir: PathBuf,
    },
    /// Overwrites files of the working directory with zeros and empties them; the driver runs it as the agent's user.
    Scrub {
        /// Paths within it.
        files: Vec<String>,
    },
    /// Copies this program into a directory, for a container whose image has none.
    Install {
        /// The directory.
        dir: PathBuf,
    },
    /// Runs a command on a machine of yours and reports what it prints to a remote session.
    Remote(remote::arguments::Arguments),
    /// What `remote` starts the command with.
    #[command(hide = true)]
    RemoteRun(remote::runner::RunArguments),
}

fn main() -> ExitCode {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .json()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // a log that cannot be written must stop nothing: the complaint about it goes to stderr too, and panics there
        .log_internal_errors(false)
        .init();
    match Arguments::parse().command {
        Command::Serve { launch } => bex_driver::serve::main(&launch),
        Command::Exec { dir } => bex_driver::exec::main(&dir),
        Command::Scrub { files } => bex_driver::scrub::main(&files),
        Command::Install { dir } => bex_driver::install::main(&dir),
        Command::Remote(arguments) => bex_driver::remote::main(arguments),
        Command::RemoteRun(arguments) => bex_driver::remote::runner::main(&arguments),
    }
}
