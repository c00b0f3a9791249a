//! A deterministic agent that speaks the Agent Client Protocol on standard input and output.

use std::process::ExitCode;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match bex_tests::agent::serve().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bex-demo-agent: {error}");
            ExitCode::FAILURE
        }
    }
}
