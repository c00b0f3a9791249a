//! `bex-stack up|down|status`: the local stack in the background.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use bex_tests::StackOptions;
use bex_tests::dev::{DEV_DIR, Dev, Started, down, serve, up};
use clap::{Parser, Subcommand};

/// The local stack: private PostgreSQL, api, gateway, local sandboxes.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: Verb,
    /// Where everything is kept.
    #[arg(long, global = true, default_value = DEV_DIR)]
    dir: PathBuf,
    /// How long an idle sandbox lives, in milliseconds.
    #[arg(long, global = true)]
    idle_grace_ms: Option<u64>,
    /// What viewers are told that the gateway's address is: something that stands before it.
    #[arg(long, global = true)]
    attach_public_url: Option<String>,
}

#[derive(Subcommand)]
enum Verb {
    /// Starts it unless it runs.
    Up,
    /// Ends it.
    Down,
    /// Says whether it runs; exits 3 when it does not.
    Status,
    /// Owns it in the foreground; what `up` runs.
    Serve,
}

/// As `systemctl status` says of what does not run.
const NOT_RUNNING: u8 = 3;

#[tokio::main]
async fn main() -> ExitCode {
    match run(Args::parse()).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("bex-stack: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.command {
        Verb::Up => {
            let grace = args.idle_grace_ms.map(|ms| format!("--idle-grace-ms={ms}"));
            let public = args.attach_public_url;
            let public = public.map(|url| format!("--attach-public-url={url}"));
            let told: Vec<_> = grace.into_iter().chain(public).collect();
            match up(&args.dir, &told).await? {
                Started::Now(dev) => print(&args.dir, "up", &dev),
                Started::Already(dev) => print(&args.dir, "already running", &dev),
            }
        }
        Verb::Down if down(&args.dir).await? => println!("bex-stack: down"),
        Verb::Down => println!("bex-stack: nothing was running"),
        Verb::Status => match Dev::read(&args.dir)? {
            Some(dev) if dev.lives() => print(&args.dir, "running", &dev),
            _ => {
                println!("bex-stack: not running");
                return Ok(ExitCode::from(NOT_RUNNING));
            }
        },
        Verb::Serve => {
            let options = StackOptions {
                idle_grace: args.idle_grace_ms.map(Duration::from_millis),
                api_env: args
                    .attach_public_url
                    .map(|url| ("BEX_ATTACH_PUBLIC_URL".to_owned(), url))
                    .into_iter()
                    .collect(),
                ..StackOptions::default()
            };
            serve(&args.dir, options).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn print(dir: &std::path::Path, state: &str, dev: &Dev) {
    println!("bex-stack: {state}");
    println!("  api      {} (pid {})", dev.api_url, dev.api_pid);
    match &dev.dashboard_url {
        Some(url) => println!(
            "  page     {url} (sign in with apiToken, workspace {})",
            dev.workspace_id
        ),
        None => println!("  page     none: make dashboard builds it"),
    }
    println!("  attach   {} (pid {})", dev.attach_url, dev.gateway_pid);
    println!("  exec     {}", dev.exec_url);
    println!("  database {}", dev.database_url);
    println!("  logs     {}", dev.log_dir.display());
    println!("  isolation none: agents run as this user");
    println!(
        "  tokens and all of this: {}",
        dir.join("dev.json").display()
    );
}
