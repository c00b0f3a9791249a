//! `bex-gateway`: reads its configuration, runs, and decides the exit code.

use std::process::ExitCode;

use bex_gateway::config::{Config, EXIT_CONFIG};
use bex_gateway::start;
use bex_proto::Chain;
use clap::Parser;
use tracing::error;
use tracing_subscriber::EnvFilter;

/// Parts are made by the task of a database connection and freed by a viewer's: an allocator for whose threads that is the
/// usual way, and that gives memory back.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The gateway of the transcript plane. Everything it is told stands in environment variables named `BEX_…`;
/// a configuration it cannot use is refused as a whole, with exit code 64.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {}

fn main() -> ExitCode {
    // a viewer keeps a few small things scattered over the heap: huge pages around them would cost more than the viewer
    let _ = nix::sys::prctl::set_thp_disable(true);
    if let Err(answer) = Arguments::try_parse() {
        // also --help and --version come this way
        let wrong = answer.use_stderr();
        let _ = answer.print();
        return if wrong {
            ExitCode::from(EXIT_CONFIG)
        } else {
            ExitCode::SUCCESS
        };
    }
    let variable =
        |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    let config = match Config::read(variable) {
        Ok(config) => config,
        Err(faults) => {
            eprintln!("bex-gateway: {faults}");
            return ExitCode::from(EXIT_CONFIG);
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
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            error!(%error, "cannot start the runtime");
            return ExitCode::FAILURE;
        }
    };
    let result = runtime.block_on(start::run(config));
    // what is left are tasks that shutdown gave up on; they must not hold the process
    runtime.shutdown_background();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!(error = %Chain(&error), "the gateway cannot run");
            ExitCode::FAILURE
        }
    }
}
