//! `make demo`: a session watched live, its sandbox removed, replayed and checked.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bex_tests::demo::{After, DemoOptions, IDLE_GRACE, Removal, Summary, run};
use bex_tests::dev::{DEV_DIR, Dev, Started, up};
use bex_tests::{Stack, StackOptions};
use clap::Parser;
use tokio::signal::unix::{SignalKind, signal};

/// Watches one agent session from creation to replay.
#[derive(Parser)]
struct Args {
    /// A recorded UI message stream to play instead of the demo agent.
    #[arg(long, env = "STREAM")]
    stream: Option<OsString>,
    /// `1` leaves the stack running, as `make up` would have started it.
    #[arg(long, env = "KEEP")]
    keep: Option<OsString>,
}

#[tokio::main]
async fn main() -> ExitCode {
    match demo(Args::parse()).await {
        Ok(summary) => {
            println!("{summary}");
            ExitCode::from(u8::from(!summary.is_ok()))
        }
        Err(error) => {
            eprintln!("demo: failed: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn demo(args: Args) -> anyhow::Result<Summary> {
    // make passes what was not given as an empty text
    let stream = args
        .stream
        .filter(|path| !path.is_empty())
        .map(PathBuf::from);
    let keep = args
        .keep
        .is_some_and(|keep| !keep.is_empty() && keep != "0");
    let options = DemoOptions {
        stream,
        removal: Removal::Idle,
        stack: if keep { After::Stays } else { After::Ends },
    };
    if keep {
        kept(options).await
    } else {
        throw_away(&options).await
    }
}

async fn throw_away(options: &DemoOptions) -> anyhow::Result<Summary> {
    println!("demo: starting PostgreSQL, api and gateway in a throw-away directory");
    let stack = Stack::start(StackOptions {
        idle_grace: Some(IDLE_GRACE),
        ..StackOptions::default()
    })
    .await?;
    let dev = Dev::of(&stack)?;
    let mut terminate = signal(SignalKind::terminate())?;
    let summary = tokio::select! {
        summary = run(&dev, options) => summary,
        _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
        _ = terminate.recv() => Err(anyhow::anyhow!("terminated")),
    };
    match summary {
        Ok(summary) => {
            stack.stop().await?;
            Ok(summary)
        }
        // dropped, the stack is killed; the first trouble is the one to tell
        Err(error) => Err(error),
    }
}

async fn kept(options: DemoOptions) -> anyhow::Result<Summary> {
    let grace = format!("--idle-grace-ms={}", IDLE_GRACE.as_millis());
    let (dev, removal) = match up(Path::new(DEV_DIR), &[grace]).await? {
        Started::Now(dev) => (dev, Removal::Idle),
        Started::Already(dev) => {
            println!("demo: using the stack that runs already");
            (dev, Removal::Kill)
        }
    };
    println!("demo: the stack stays up; {DEV_DIR}/dev.json tells where, `make down` ends it");
    run(&dev, &DemoOptions { removal, ..options }).await
}
