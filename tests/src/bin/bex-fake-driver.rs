//! Stands where `bex-driver` does, with one fault that its prompt names.

use std::path::PathBuf;
use std::process::ExitCode;

use bex_tests::fake_driver;
use clap::Parser;

/// The same command line as the real driver's.
#[derive(Parser)]
enum Args {
    /// Serves a sandbox.
    Serve {
        /// The launch file.
        #[arg(long)]
        launch: PathBuf,
    },
    /// Becomes the real driver.
    Exec {
        /// The driver's directory.
        #[arg(long)]
        dir: PathBuf,
    },
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let done = match Args::parse() {
        Args::Serve { launch } => fake_driver::serve(&launch).await,
        Args::Exec { dir } => fake_driver::exec(&dir),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bex-fake-driver: {error:#}");
            ExitCode::FAILURE
        }
    }
}
