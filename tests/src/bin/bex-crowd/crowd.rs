//! Crowds on one session, without and with viewers that are slow or take nothing.

use std::time::Duration;

use anyhow::ensure;
use bex_proto::limits;
use bex_tests::bench::database::Database;
use bex_tests::bench::gateway::{Gateway, Tee};
use bex_tests::bench::report::Figure;
use futures::future::try_join_all;
use hdrhistogram::Histogram;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::process::{KIB, MIB, sockets};
use crate::reader::{Ended, Reader};
use crate::stage::{From, Group, STEP, Stage, settled_memory};

/// Enough that a reader who does not read fills every buffer on the way.
const PAST: usize = 8 * 1024 * 1024;
/// The least the kernel gives.
const SMALL_WINDOW: u32 = 4096;
/// What a slow reader takes a second.
const SLOW_BYTES: usize = 1024;
/// Spoken for so long, the memory is looked at.
const LOOK: Duration = Duration::from_secs(5);
/// Viewers that are there before the others are counted.
const EARLY: usize = 32;
/// Parts before the measuring: connections fill.
const WARM: usize = 10;
const LIMIT_NEWCOMER: Duration = Duration::from_secs(10);
const LIMIT_P99: f64 = 1.5;
const LIMIT_MEMORY: f64 = 64.0 * KIB;
/// The contract's added latency, of 100 viewers at 50 parts a second.
const LIMIT_ADDED_MS: f64 = 5.0;

/// A crowd's size and beat, and how its figures are called.
pub struct Shape {
    viewers: usize,
    a_second: u32,
    parts: usize,
    names: [&'static str; 2],
    /// Gateways whose memory is looked at; the median counts. One process holds now more, now less by a few MiB, which is much beside
    /// what a small crowd costs.
    looked_at: usize,
}

/// Longer than the 30 s after which a stalled write ends its viewer.
pub const THOUSAND: Shape = Shape {
    viewers: 1000,
    a_second: 5,
    parts: 180,
    names: [
        "1 000 viewers, 5 parts/s: others' p99",
        "1 000 viewers: memory of one",
    ],
    looked_at: 1,
};
/// The fastest that agents speak.
pub const HUNDRED: Shape = Shape {
    viewers: 100,
    a_second: 50,
    parts: 500,
    names: [
        "100 viewers, 50 parts/s: others' p99",
        "100 viewers: memory of one",
    ],
    looked_at: 5,
};

/// What a run saw.
struct Outcome {
    p50: f64,
    p99: f64,
    /// Bytes of all viewers but the early ones.
    memory: f64,
    /// Bytes of the kernel's, all sockets together.
    kernel: f64,
    sources: usize,
    /// Slow viewers whose stream was ended though they read.
    ended_slow: usize,
    /// How long a newcomer waited for the whole past among the slow ones.
    newcomer: Option<Duration>,
}

pub async fn run(database: &Database, shape: &Shape) -> anyhow::Result<Vec<Figure>> {
    let mut alone = watched(database, shape, 0).await?;
    let mut memories = vec![alone.memory];
    while memories.len() < shape.looked_at {
        memories.push(watched(database, shape, 0).await?.memory);
    }
    memories.sort_by(f64::total_cmp);
    eprintln!(
        "crowd: memory of one {:.1?} KiB",
        memories
            .iter()
            .map(|all| all / KIB / (shape.viewers - EARLY) as f64)
            .collect::<Vec<_>>()
    );
    alone.memory = memories[memories.len() / 2];
    let slow = shape.viewers / 10;
    let beside = watched(database, shape, slow).await?;
    let mut figures = compared(shape, slow, &alone, &beside);
    if shape.viewers == HUNDRED.viewers {
        figures.push(Figure {
            name: "added latency, 100 viewers at 50 parts/s",
            value: format!("p50 {:.2} ms, p99 {:.2} ms", alone.p50, alone.p99),
            beside: "from the moment the driver has the part, its own way included".into(),
            floor: "p99 ≤ 5 ms",
            holds: alone.p99 <= LIMIT_ADDED_MS,
        });
    }
    Ok(figures)
}

fn compared(shape: &Shape, slow: usize, alone: &Outcome, beside: &Outcome) -> Vec<Figure> {
    let ratio = beside.p99 / alone.p99;
    let [p99, memory] = shape.names;
    let viewers = (shape.viewers - EARLY) as f64;
    vec![
        Figure {
            name: p99,
            value: format!("{:.1} ms ({ratio:.2} ×)", beside.p99),
            beside: format!("without the {slow} slow ones: {:.1} ms", alone.p99),
            floor: "≤ 1.5 ×",
            holds: ratio <= LIMIT_P99,
        },
        Figure {
            name: memory,
            value: format!("{:.1} KiB, replays included", beside.memory / viewers / KIB),
            beside: format!(
                "without slow ones {:.1} KiB; the kernel's socket buffers {:.0} MiB in all",
                alone.memory / viewers / KIB,
                beside.kernel / MIB
            ),
            floor: "≤ 64 KiB, and the 64 MiB of the replay budget",
            // without slow ones nobody holds a replay
            holds: alone.memory <= LIMIT_MEMORY * viewers
                && beside.memory <= LIMIT_MEMORY * viewers + limits::REPLAY_BUDGET_BYTES as f64,
        },
        Figure {
            name: "… connections at the driver",
            value: format!("{} and {}", alone.sources, beside.sources),
            beside: format!("{} viewers, every byte compared", shape.viewers),
            floor: "1",
            holds: alone.sources == 1 && beside.sources == 1,
        },
        Figure {
            name: "… slow viewers ended though they read",
            value: format!("{} of {}", beside.ended_slow, slow - 1),
            beside: "1 kB/s each; they resumed and saw every byte".into(),
            floor: "0",
            holds: beside.ended_slow == 0,
        },
        Figure {
            name: "… a newcomer's replay among the slow",
            value: beside.newcomer.map_or("not within 20 s".into(), |took| {
                format!("{:.1} s", took.as_secs_f64())
            }),
            beside: format!("{} MiB of past", PAST / 1024 / 1024),
            floor: "≤ 10 s",
            holds: beside.newcomer.is_some_and(|took| took <= LIMIT_NEWCOMER),
        },
    ]
}

/// One run: of the viewers, `slow - 1` read slowly from the start of the past and one takes nothing.
async fn watched(database: &Database, shape: &Shape, slow: usize) -> anyhow::Result<Outcome> {
    let gateway = Gateway::start(database, Tee::On).await?;
    let before = shape.a_second as usize * LOOK.as_secs() as usize;
    let live = before + WARM + shape.parts;
    let stage = Stage::set(database, &gateway, PAST, live as u32).await?;
    let quick = Group {
        from: From::Live,
        window: None,
    };
    // source, tail, tee and the pool's connections are not the crowd's: they work for a few viewers too. These stay, so that
    // what comes after them cannot live in what they left
    let mut early = stage.viewers(0, EARLY, quick).await?;
    let spoken = early
        .iter_mut()
        .map(|reader| reader.until(|r| r.due().index.0 as usize >= before));
    let speaking = async {
        stage.speak(before, shape.a_second).await;
        Ok(())
    };
    tokio::try_join!(try_join_all(spoken), speaking)?;
    let idle = settled_memory(&gateway).await?;
    let kernel = sockets()?;

    let slowly = Group {
        from: From::Start,
        window: Some(SMALL_WINDOW),
    };
    let more = shape.viewers - slow - EARLY;
    let mut quick = stage.viewers(EARLY, more, quick).await?;
    quick.extend(early);
    let lagging = stage.viewers(shape.viewers - slow, slow, slowly).await?;
    let (told, done) = watch::channel(false);
    let mut readers = JoinSet::new();
    for mut reader in quick {
        readers.spawn(async move {
            reader.until(Reader::is_whole).await?;
            anyhow::Ok(reader)
        });
    }
    let mut laggards = JoinSet::new();
    for (n, reader) in lagging.into_iter().enumerate() {
        let done = done.clone();
        laggards.spawn(async move { lag(reader, n == 0, done).await });
    }
    eprintln!(
        "crowd: {} viewers are there, {slow} of them slow",
        shape.viewers
    );
    stage.speak(WARM, shape.a_second).await;
    let speaking = stage.speak(shape.parts, shape.a_second);
    let looking = async {
        tokio::time::sleep(LOOK).await;
        let memory = settled_memory(&gateway).await?.saturating_sub(idle) as f64;
        let kernel = sockets()?.saturating_sub(kernel) as f64;
        // a newcomer's replay leaves memory that is not the crowd's
        anyhow::Ok((memory, kernel, newcomer(&stage, slow).await?))
    };
    let ((), looked) = tokio::join!(speaking, looking);
    let (memory, kernel, newcomer) = looked?;

    let mut late = Histogram::<u64>::new(3)?;
    while let Some(reader) = tokio::time::timeout(STEP, readers.join_next()).await? {
        let reader = reader??;
        ensure!(
            reader.is_whole(),
            "a quick viewer stands at {}",
            reader.due()
        );
        for lateness in reader.lateness.iter().skip(before + WARM) {
            late.record(lateness.as_micros() as u64)?;
        }
    }
    eprintln!("crowd: all was spoken and seen by the quick ones");
    // those who resume behind the end ask again
    let sources = stage.sources();
    told.send_replace(true);
    let mut ended_slow = 0;
    let mut resumed = Vec::new();
    while let Some(lagged) = laggards.join_next().await {
        let (reader, is_stalled) = lagged??;
        if !reader.is_whole() {
            ended_slow += usize::from(!is_stalled);
            resumed.push(reader.cursor());
        }
    }
    let resuming = resumed.into_iter().enumerate().map(async |(n, cursor)| {
        let mut rest = stage.resume(n, cursor, None).await?;
        rest.until(Reader::is_whole).await?;
        ensure!(rest.is_whole(), "resumed, it ends at {}", rest.due());
        Ok(())
    });
    try_join_all(resuming).await?;
    eprintln!("crowd: the slow ones have seen it too");
    let ms = |quantile: f64| late.value_at_quantile(quantile) as f64 / 1000.0;
    Ok(Outcome {
        p50: ms(0.5),
        p99: ms(0.99),
        memory,
        kernel,
        sources,
        ended_slow,
        newcomer,
    })
}

/// Reads a little every second, or nothing, until the others are done; then the rest as fast as it can.
async fn lag(
    mut reader: Reader,
    is_stalled: bool,
    mut done: watch::Receiver<bool>,
) -> anyhow::Result<(Reader, bool)> {
    if is_stalled {
        done.wait_for(|done| *done).await?;
    }
    let mut beat = tokio::time::interval(Duration::from_secs(1));
    while !*done.borrow() && reader.ended.is_none() {
        beat.tick().await;
        reader.read(SLOW_BYTES).await?;
    }
    reader.until(Reader::is_whole).await?;
    ensure!(
        reader.ended != Some(Ended::Done) || reader.is_whole(),
        "an end before the end"
    );
    Ok((reader, is_stalled))
}

/// How long somebody new waits for the past while the slow ones read it; `None`: too long.
async fn newcomer(stage: &Stage<'_>, slow: usize) -> anyhow::Result<Option<Duration>> {
    const PATIENCE: Duration = Duration::from_secs(20);
    let begun = std::time::Instant::now();
    let mut viewer = stage.viewer(100_000 + slow, Group::default()).await?;
    let reading = viewer.until(|reader| reader.due().turn.0 > 1);
    match tokio::time::timeout(PATIENCE, reading).await {
        Ok(read) => {
            read?;
            Ok(Some(begun.elapsed()))
        }
        Err(_) => Ok(None),
    }
}
