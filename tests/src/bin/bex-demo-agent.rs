//! A deterministic agent that speaks the Agent Client Protocol on standard input and output. `--record DIR`: where prompts may
//! have their text recorded. `--sessions DIR`: where conversations are kept, so that another process can load them.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
struct Arguments {
    #[arg(long)]
    record: Option<PathBuf>,
    #[arg(long)]
    sessions: Option<PathBuf>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match bex_tests::agent::serve(arguments.record, arguments.sessions).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bex-demo-agent: {error}");
            ExitCode::FAILURE
        }
    }
}
