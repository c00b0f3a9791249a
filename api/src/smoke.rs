//! `bex-api smoke`: one session that nobody watches, from its creation to its replay, against any deployment.
//!
//! It does what a caller does and needs nothing else: an operator's token, a workspace, a profile. Everything that came is printed;
//! the answer is whether the turn was proved complete and the replay showed all of it, to `[DONE]`.

mod client;
mod replay;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bex_proto::ids::random_id;
use clap::Args;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use client::Client;
pub use replay::Replayed;

/// How often a session is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// Phases in which nothing more comes.
const ENDS: [&str; 3] = ["completed", "failed", "canceled"];

/// What `bex-api smoke` is told.
#[derive(Clone, Args)]
pub struct SmokeArgs {
    /// The api
    #[arg(long)]
    pub url: String,
    /// An operator's bearer token
    #[arg(long, env = "BEX_SMOKE_TOKEN", hide_env_values = true)]
    pub token: String,
    /// The session's workspace
    #[arg(long)]
    pub workspace: String,
    /// The session's profile
    #[arg(long)]
    pub profile: String,
    /// What the agent is asked
    #[arg(long, default_value = "Say hello and nothing else.")]
    pub prompt: String,
    /// Goes before the path of the stream's URL, instead of what the api says
    #[arg(long)]
    pub attach_url: Option<String>,
    /// PEM certificates that the servers' certificates must chain to, instead of the machine's
    #[arg(long)]
    pub ca: Option<PathBuf>,
    /// Seconds until it has failed
    #[arg(long, default_value_t = 900)]
    pub timeout: u64,
}

/// Runs it; prints as it goes.
///
/// # Errors
/// What did not work, and a session that is not whole.
pub async fn smoke(args: SmokeArgs) -> anyhow::Result<()> {
    let limit = Duration::from_secs(args.timeout);
    let deadline = Instant::now() + limit;
    let client = Client::new(&args.token, args.ca.clone());
    let session = create(&client, &args).await?;
    println!("session {session}");
    // whatever becomes of it, it does not stay in anybody's list
    let shown = timeout(
        deadline.saturating_duration_since(Instant::now()),
        watch(&client, &args, &session),
    )
    .await;
    let archived = client
        .call("POST", &at(&args, &format!("/{session}/archive")), None)
        .await;
    if let Err(error) = archived {
        println!("the session stays in the list: {error:#}");
    }
    shown.map_err(|_| anyhow::anyhow!("nothing came of it within {limit:?}"))?
}

async fn create(client: &Client, args: &SmokeArgs) -> anyhow::Result<String> {
    let body = json!({"workspaceId": args.workspace, "kind": "interactive", "title": "smoke test",
        "agent": {"profile": args.profile}, "prompt": args.prompt});
    let created = client
        .create(&at(args, ""), &body, &random_id("smk"))
        .await
        .context("no session could be created")?;
    word(&created, "id")
}

async fn watch(client: &Client, args: &SmokeArgs, session: &str) -> anyhow::Result<()> {
    let began = Instant::now();
    let ended = end_of(client, args, session).await?;
    let phase = word(&ended, "phase")?;
    println!("phase {phase} after {:.1} s", began.elapsed().as_secs_f64());
    let turn = &ended["turns"][0];
    let (verdict, stored) = (word(turn, "verdict")?, &turn["storedParts"]);
    let reason = turn["reason"]
        .as_str()
        .map_or_else(String::new, |r| format!(" ({r})"));
    println!(
        "turn 1 {verdict}{reason}, {stored} parts stored, {} expected",
        turn["expectedParts"]
    );

    let path = at(args, &format!("/{session}/attach-ticket"));
    let ticket = client
        .call("POST", &path, Some(&json!({"action": "read"})))
        .await
        .context("no ticket")?;
    let url = word(&ticket, "streamUrl")?;
    let url = match &args.attach_url {
        Some(prefix) => elsewhere(&url, prefix)?,
        None => url,
    };
    let replayed = replay::replay(client, &url, &word(&ticket, "ticket")?)
        .await
        .context("no replay")?;
    println!(
        "replay {} parts{}",
        replayed.parts,
        if replayed.done { ", [DONE]" } else { "" }
    );

    if let Some(why) = ended["failureMessage"].as_str() {
        println!("why {why}");
    }
    ensure!(phase == "completed", "the session is {phase}");
    ensure!(verdict == "complete", "the turn is {verdict}{reason}");
    ensure!(replayed.done, "the replay ended without [DONE]");
    ensure!(
        stored.as_u64() == Some(replayed.parts),
        "{stored} parts are stored and {} were replayed",
        replayed.parts
    );
    println!("ok");
    Ok(())
}

/// The session, once it has ended.
async fn end_of(client: &Client, args: &SmokeArgs, session: &str) -> anyhow::Result<Value> {
    loop {
        let shown = client
            .call("GET", &at(args, &format!("/{session}")), None)
            .await?;
        if ENDS.contains(&word(&shown, "phase")?.as_str()) {
            return Ok(shown);
        }
        sleep(LOOK).await;
    }
}

fn at(args: &SmokeArgs, rest: &str) -> String {
    format!("{}/v1/agent-sessions{rest}", args.url.trim_end_matches('/'))
}

/// The same path of another server.
fn elsewhere(url: &str, prefix: &str) -> anyhow::Result<String> {
    match url.find("/v1/") {
        Some(path) => Ok(format!("{}{}", prefix.trim_end_matches('/'), &url[path..])),
        None => bail!("the stream's URL has no path of ours"),
    }
}

fn word(of: &Value, name: &str) -> anyhow::Result<String> {
    let found = of[name].as_str();
    Ok(found
        .with_context(|| format!("the answer has no {name}"))?
        .to_owned())
}
