//! A session with a past, and a driver that speaks its last turn on a beat.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bex_proto::{PartId, SessionId};
use bex_tests::bench::database::Database;
use bex_tests::bench::fake_driver::{self, Paced, Script};
use bex_tests::bench::gateway::{Gateway, stream_path};
use bex_tests::bench::parts::{USUAL_LINES, parts, parts_of_bytes};
use bex_tests::eventually;
use futures::{StreamExt, TryStreamExt, stream};

use crate::process::metric;
use crate::reader::{Expected, Reader, Request};

/// Below the 50 streams of one subject.
const PER_SUBJECT: usize = 40;
/// Viewers that arrive at once.
const ARRIVING: usize = 32;
/// The longest a level takes to be reached on a busy machine.
pub const STEP: Duration = Duration::from_secs(60);
/// Lines of tool outputs in the past: few, large parts.
const LARGE_LINES: u64 = 1000;

pub struct Stage<'a> {
    gateway: &'a Gateway,
    pub session: SessionId,
    pub expected: Arc<Expected>,
    paced: Arc<Paced>,
    path: String,
}

/// What the viewers of a group have in common.
#[derive(Clone, Copy, Default)]
pub struct Group {
    pub from: From,
    pub window: Option<u32>,
}

/// Where viewers begin.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub enum From {
    #[default]
    Start,
    /// Behind the past.
    Live,
}

impl<'a> Stage<'a> {
    /// `past` bytes in a first turn, unless 0, and a last turn of `live` parts of which nothing is spoken yet.
    pub async fn set(
        database: &Database,
        gateway: &'a Gateway,
        past: usize,
        live: u32,
    ) -> anyhow::Result<Self> {
        let turns = if past == 0 { 1 } else { 2 };
        let session = database.session(turns).await?;
        let live = parts(turns, live, USUAL_LINES);
        let mut told = Vec::new();
        let past = parts_of_bytes(1, past, LARGE_LINES);
        if !past.is_empty() {
            database.fill(&session, 1, &past).await?;
            told.push(past.as_slice());
        }
        told.push(&live);
        let paced = Paced::new(&live);
        let key = Gateway::driver_key(&session)?;
        let script = Script::Paced(Arc::clone(&paced));
        let driver = fake_driver::start(session.clone(), key, script).await?;
        gateway.register(&session, driver)?;
        Ok(Self {
            path: stream_path(&session),
            expected: Expected::new(&told),
            gateway,
            session,
            paced,
        })
    }

    /// Opens a viewer's stream. `n` chooses its subject.
    pub async fn viewer(&self, n: usize, group: Group) -> anyhow::Result<Reader> {
        let cursor = (group.from == From::Live).then(|| self.expected.last_of(1));
        self.resume(n, cursor, group.window).await
    }

    /// The same from any cursor.
    pub async fn resume(
        &self,
        n: usize,
        cursor: Option<PartId>,
        window: Option<u32>,
    ) -> anyhow::Result<Reader> {
        let subject = format!("viewer-{}", n / PER_SUBJECT);
        let ticket = Gateway::ticket_of(&self.session, &subject)?;
        let request = Request {
            to: self.gateway.attach,
            path: &self.path,
            ticket: &ticket,
            cursor,
            encoding: "identity",
            window,
        };
        Reader::open(request, Arc::clone(&self.expected)).await
    }

    /// Opens many, numbered from `first` on, a few at a time.
    pub async fn viewers(
        &self,
        first: usize,
        count: usize,
        group: Group,
    ) -> anyhow::Result<Vec<Reader>> {
        let opening = (first..first + count).map(|n| self.viewer(n, group));
        stream::iter(opening)
            .buffer_unordered(ARRIVING)
            .try_collect()
            .await
    }

    /// Speaks `count` further parts on the beat.
    pub async fn speak(&self, count: usize, a_second: u32) {
        let from = *self.paced.shown.borrow();
        let mut beat = tokio::time::interval(Duration::from_secs(1) / a_second);
        for n in from..from + count {
            beat.tick().await;
            self.expected.speak(n);
            self.paced.shown.send_replace(n + 1);
        }
    }

    /// Connections that asked the driver for its stream so far.
    pub fn sources(&self) -> usize {
        self.paced.readers.load(Ordering::Relaxed)
    }
}

/// Waits until the gateway has so many streams.
pub async fn streams(gateway: &Gateway, count: usize) -> anyhow::Result<()> {
    let what = format!("the gateway has {count} streams");
    eventually(&what, STEP, async || {
        let now = metric(gateway.admin, "bex_gateway_streams").await.ok()??;
        (now == count as f64).then_some(())
    })
    .await
}

/// Memory once it has stopped moving: the smallest of what is seen in a while.
pub async fn settled_memory(gateway: &Gateway) -> anyhow::Result<u64> {
    const LOOKS: u32 = 10;
    const APART: Duration = Duration::from_millis(200);
    let mut least = u64::MAX;
    for _ in 0..LOOKS {
        tokio::time::sleep(APART).await;
        least = least.min(crate::process::memory(&[gateway.pid()])?);
    }
    Ok(least)
}
