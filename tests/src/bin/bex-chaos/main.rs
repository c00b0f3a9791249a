//! `make chaos`: sessions by the dozen on the real programs, while everything that they stand on fails, and at the end one look
//! at every session: what was spoken is stored, or it is said truly why not.
//!
//! `BEX_CHAOS_SECONDS`: how long faults come. `BEX_CHAOS_SEED`: the same faults and the same sessions again. Exits 1 when a
//! session failed; its logs are kept then.

mod doors;
mod evidence;
mod faults;
mod plan;
mod report;
mod rng;
mod schedule;
mod sessions;
mod verdict;
mod viewers;
mod witness;

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use bex_tests::stack::{Fleet, FleetOptions, Fsync, LogRules, StackOptions, bin_dir};
use nix::sys::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval};

use doors::Doors;
use faults::Faults;
use sessions::{Told, World};
use witness::Witness;

const GATEWAYS: usize = 2;
const APIS: usize = 2;
/// Sessions at once.
const AT_ONCE: usize = 48;
/// Without BEX_CHAOS_SECONDS.
const SECONDS: u64 = 140;
/// How long an idle sandbox lives.
const IDLE_GRACE: Duration = Duration::from_secs(2);
/// Sessions that a run must show.
const SESSIONS: u64 = 200;
/// On a busy machine it takes so many times as long to have them.
const SLOWER: u32 = 3;
/// From this length on; a shorter run shows what it can.
const SESSIONS_FROM: Duration = Duration::from_secs(120);
/// How often faults are looked after, and new logs witnessed.
const BEAT: Duration = Duration::from_millis(100);
/// How long everything may take to come to its end when nothing fails any more. What is left of sandboxes that were killed is swept,
/// some every minute, by apis that have lived for one.
const CONVERGED: Duration = Duration::from_secs(900);
/// Between two looks at that.
const LOOK: Duration = Duration::from_secs(1);
/// What is not at its end yet.
const OPEN: &str = "SELECT (SELECT count(*) FROM turns WHERE verdict = 'open' OR rejudge OR statement_due) || ' turns, ' || \
    (SELECT count(*) FROM sandboxes WHERE state <> 'gone') || ' sandboxes, ' || \
    (SELECT count(*) FROM dispatches) || ' dispatches, ' || \
    (SELECT count(*) FROM sessions WHERE phase NOT IN ('completed', 'failed', 'canceled')) || ' sessions'";
const NOTHING_OPEN: &str = "0 turns, 0 sandboxes, 0 dispatches, 0 sessions";
/// Log lines of level ERROR that outages explain: verbs are not refused for want of their audit row, and a program that finds no
/// database when it starts is started again by whoever runs it. A driver tells a full disk.
const EXPECTED: [&str; 7] = [
    "an audit event was not recorded",
    "the database cannot be asked",
    r#""message":"stopped","error":"no database connection"#,
    "log cannot be written",
    "log cannot say that it is full",
    "turn-end cannot be written",
    "status cannot be written",
];

fn main() -> anyhow::Result<ExitCode> {
    become_deaf_to_file_limits()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let (mut interrupt, mut terminate) = (
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
        );
        tokio::select! {
            done = Box::pin(run()) => done,
            // dropped, the fleet ends
            _ = interrupt.recv() => bail!("interrupted"),
            _ = terminate.recv() => bail!("terminated"),
        }
    })
}

/// A file limit stands for a full disk. The signal that comes with it, which no full disk sends, is to be ignored by every process
/// that we start, and only what is ignored at a process's start is.
fn become_deaf_to_file_limits() -> anyhow::Result<()> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = u64::from_str_radix(ignored.context("no ignored signals")?.trim(), 16)?;
    if ignored & (1 << (Signal::SIGXFSZ as u64 - 1)) != 0 {
        return Ok(());
    }
    let me = std::env::current_exe()?;
    let deaf = r#"trap '' XFSZ; exec "$@""#;
    let error = Command::new("/bin/sh")
        .args(["-c", deaf, "sh"])
        .arg(me)
        .args(std::env::args_os().skip(1))
        .exec();
    Err(error).context("cannot run /bin/sh")
}

fn number(name: &str) -> anyhow::Result<Option<u64>> {
    match std::env::var(name) {
        Ok(text) if !text.is_empty() => {
            let number = text.parse();
            Ok(Some(
                number.with_context(|| format!("{name} is no number"))?,
            ))
        }
        _ => Ok(None),
    }
}

fn random_seed() -> anyhow::Result<u64> {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes).map_err(|error| anyhow::anyhow!("no randomness: {error}"))?;
    Ok(u64::from(u32::from_le_bytes(bytes)))
}

async fn run() -> anyhow::Result<ExitCode> {
    let seconds = Duration::from_secs(number("BEX_CHAOS_SECONDS")?.unwrap_or(SECONDS));
    let seed = number("BEX_CHAOS_SEED")?.map_or_else(random_seed, Ok)?;
    println!(
        "chaos: {} s, BEX_CHAOS_SEED={seed} plays it again",
        seconds.as_secs()
    );
    let fleet = Fleet::start(&options()).await?;
    let mut faults = Faults::new(fleet, schedule::schedule(seed, seconds * SLOWER));
    match Box::pin(chaos(&mut faults, seed, seconds)).await {
        Ok(()) => {
            println!("chaos: ok, BEX_CHAOS_SEED={seed}");
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            println!("chaos: FAILED, BEX_CHAOS_SEED={seed}: {error:#}");
            println!(
                "chaos: everything is kept in {}",
                faults.fleet.keep().display()
            );
            Ok(ExitCode::FAILURE)
        }
    }
}

fn options() -> FleetOptions {
    FleetOptions {
        gateways: GATEWAYS,
        apis: APIS,
        stack: StackOptions {
            // what was acknowledged must survive the server's crash
            fsync: Fsync::On,
            idle_grace: Some(IDLE_GRACE),
            ..StackOptions::default()
        },
    }
}

async fn chaos(faults: &mut Faults, seed: u64, seconds: Duration) -> anyhow::Result<()> {
    let dir = faults.fleet.dir().to_owned();
    let records = dir.join("records");
    std::fs::create_dir_all(&records)?;
    let mut witness = Witness::new(faults.fleet.sandboxes.dir(), dir.join("witness"))?;
    let doors = Doors {
        apis: faults.fleet.apis.clone(),
        attach: faults.fleet.attach.clone(),
    };
    let now = Instant::now();
    let wanted = if seconds >= SESSIONS_FROM {
        SESSIONS
    } else {
        0
    };
    let world = World {
        doors: doors.clone(),
        seed,
        agent: bin_dir()?.join(faults::AGENT),
        records: records.clone(),
        until: now + seconds,
        wanted,
        latest: now + seconds * SLOWER,
        begun: AtomicU64::new(0),
    };
    let (told, mut wrong) = load(faults, &mut witness, world).await?;
    converge(faults, &mut witness).await?;

    let gathered = evidence::gather(
        &faults.fleet,
        &doors,
        told,
        &faults.hits,
        &witness,
        &records,
    );
    let (cases, unknown) = Box::pin(gathered).await?;
    wrong.extend(
        unknown
            .iter()
            .map(|id| format!("{id} is there, and nobody made it")),
    );
    let judged = cases.iter().map(|case| (case, verdict::faults(case)));
    let failed: Vec<_> = judged.filter(|(_, faults)| !faults.is_empty()).collect();
    let logs = report::logs(&faults.fleet.log_dir(), &witness);
    report::failures(&failed, &logs, &dir.join("failed"))?;
    report::table(&cases, &faults.counts, &faults.own_ends);
    if (cases.len() as u64) < wanted {
        wrong.push(format!(
            "{} sessions are too few to show anything",
            cases.len()
        ));
    }
    wrong.extend(
        faults
            .fleet
            .end()
            .await
            .err()
            .map(|error| format!("{error:#}")),
    );
    let rules = LogRules {
        expected: EXPECTED.to_vec(),
    };
    wrong.extend(
        faults
            .fleet
            .check_logs(&rules)
            .err()
            .map(|error| format!("{error:#}")),
    );
    wrong.extend(report::panics(&logs));
    wrong.iter().for_each(|wrong| println!("WRONG: {wrong}"));
    ensure!(
        failed.is_empty(),
        "{} of {} sessions",
        failed.len(),
        cases.len()
    );
    ensure!(wrong.is_empty(), "see above");
    Ok(())
}

/// Sessions and faults, until the time is over and every user has gone.
async fn load(
    faults: &mut Faults,
    witness: &mut Witness,
    world: World,
) -> anyhow::Result<(Vec<Told>, Vec<String>)> {
    let world = Arc::new(world);
    let users = tokio::spawn(sessions::crowd(Arc::clone(&world), AT_ONCE));
    let (mut beat, mut calm) = (beat(), false);
    while !users.is_finished() {
        beat.tick().await;
        witness.look();
        faults.tick()?;
        if !calm && world.is_over() {
            faults.calm()?;
            calm = true;
        }
    }
    Ok(users.await?)
}

/// Until nothing is open and nothing is left; what still is after a while is told with its session.
async fn converge(faults: &mut Faults, witness: &mut Witness) -> anyhow::Result<()> {
    let (mut beat, deadline, mut looked) = (beat(), Instant::now() + CONVERGED, Instant::now());
    loop {
        beat.tick().await;
        witness.look();
        faults.tick()?;
        if looked.elapsed() < LOOK {
            continue;
        }
        let open = faults.fleet.sql(OPEN)?;
        let sandboxes = &faults.fleet.sandboxes;
        let left = (
            sandboxes.left_directories().len(),
            sandboxes.left_processes().len(),
        );
        if open.trim() == NOTHING_OPEN && left == (0, 0) {
            faults.tell("everything came to its end");
            return faults.fleet.ready().await;
        }
        if Instant::now() >= deadline {
            faults.tell(&format!("not at its end: {}, left: {left:?}", open.trim()));
            return Ok(());
        }
        looked = Instant::now();
    }
}

fn beat() -> tokio::time::Interval {
    let mut beat = interval(BEAT);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    beat
}
