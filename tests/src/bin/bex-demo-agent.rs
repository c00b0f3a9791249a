//! A deterministic agent that speaks the Agent Client Protocol on standard input and output. `--record DIR`: where prompts may
//! have their text recorded.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
struct Arguments {
    #[arg(long)]
    record: Option<PathBuf>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match bex_tests::agent::serve(Arguments::parse().record).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bex-demo-agent: {error}");
            ExitCode::FAILURE
        }
    }
}
