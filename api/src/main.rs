//! `bex-api serve`, `bex-api migrate`, `bex-api verify`, `bex-api import`, `bex-api package`, `bex-api smoke`, `bex-api openapi`.

mod files;
mod packages;

use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use bex_api::config::{
    Config, ConfigFault, EXIT_USAGE, FileArgs, ImportArgs, MigrateArgs, ServeArgs, import_database,
    migrate_database,
};
use bex_api::smoke::SmokeArgs;
use clap::{Arg, Command as ClapCommand, CommandFactory, FromArgMatches, Parser, Subcommand};
use tracing_subscriber::EnvFilter;

#[derive(Parser)]
#[command(
    name = "bex-api",
    version,
    about = "the control plane of the transcript plane"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs the REST listener, the dispatcher and the Completer
    Serve(Box<ServeArgs>),
    /// Brings the database to this release's schema and grants
    Migrate(MigrateArgs),
    /// Checks an export without a store: exit code 0 when every byte of it is as it was exported
    Verify(FileArgs),
    /// Takes an exported session into the store of BEX_DATABASE_URL
    Import(ImportArgs),
    /// Makes, looks into, checks and keeps replay packages
    #[command(subcommand)]
    Package(packages::PackageCommand),
    /// Creates a session that nobody watches, waits for its end, replays it, and tells whether all of it was there
    Smoke(SmokeArgs),
    /// Prints the OpenAPI document
    Openapi,
}

fn main() -> ExitCode {
    let matches = without_empty(Cli::command()).try_get_matches();
    let cli = match matches.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => cli,
        Err(error) => {
            // help and version are no misuse
            let code = if error.use_stderr() { EXIT_USAGE } else { 0 };
            let _ = error.print();
            return ExitCode::from(code);
        }
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .json()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // a log that cannot be written must stop nothing: the complaint about it goes to stderr too, and panics there
        .log_internal_errors(false)
        .init();
    match cli.command {
        Command::Serve(args) => match Config::from_args(&args) {
            Ok(config) => run(bex_api::serve(config)),
            Err(faults) => refuse(&faults),
        },
        Command::Migrate(args) => match migrate_database(&args) {
            Ok(database) => run(migrate(database)),
            Err(faults) => refuse(&faults),
        },
        Command::Verify(args) => files::verify(&args),
        Command::Import(args) => match import_database(&args) {
            Ok(database) => run(files::import(database, args.file)),
            Err(faults) => refuse(&faults),
        },
        Command::Package(command) => packages::run(command, |work| run_to_code(work.build())),
        Command::Smoke(args) => run(bex_api::smoke::smoke(args)),
        Command::Openapi => say(&bex_api::openapi::generate()),
    }
}

/// Prints, and whether that worked; a reader that has had enough is no fault.
fn say(text: &str) -> ExitCode {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
        _ => ExitCode::SUCCESS,
    }
}

/// An empty variable counts as unset, as shells and charts write one where they mean the other.
fn without_empty(command: ClapCommand) -> ClapCommand {
    let unset = |arg: Arg| {
        let value = arg.get_env().and_then(std::env::var_os);
        if value.is_some_and(|value| value.is_empty()) {
            arg.env(None::<&str>)
        } else {
            arg
        }
    };
    command.mut_subcommands(|subcommand| {
        subcommand
            .mut_args(unset)
            .mut_subcommands(|inner| inner.mut_args(unset))
    })
}

async fn migrate(database: bex_store::DbConfig) -> anyhow::Result<()> {
    let done = bex_store::migrate(&database).await?;
    tracing::info!(applied = ?done.applied, "the schema is up to date");
    Ok(())
}

fn refuse(faults: &[ConfigFault]) -> ExitCode {
    for fault in faults {
        tracing::error!(
            variable = fault.variable,
            problem = fault.problem,
            "the configuration is refused"
        );
    }
    ExitCode::from(EXIT_USAGE)
}

fn run(work: impl Future<Output = anyhow::Result<()>>) -> ExitCode {
    run_to_code(async { work.await.map(|()| ExitCode::SUCCESS) })
}

/// For what still runs when all is over.
const LEFT_OVER: Duration = Duration::from_secs(1);

fn run_to_code(work: impl Future<Output = anyhow::Result<ExitCode>>) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            tracing::error!(%error, "no runtime");
            return ExitCode::FAILURE;
        }
    };
    let code = match runtime.block_on(work) {
        Ok(code) => code,
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "stopped");
            ExitCode::FAILURE
        }
    };
    // what nobody waits for any more may be in the middle of something long
    runtime.shutdown_timeout(LEFT_OVER);
    code
}
