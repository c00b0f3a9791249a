//! Where replay and live meet, with the real binaries: viewers attach at random moments while numbered parts are spoken, with
//! and without a cursor, leave and come back. Each is sent each part once, in order, and nothing is told to be missing.
//!
//! `BEX_JOIN_ATTACHES` and `BEX_JOIN_PARTS` scale it, `BEX_JOIN_SEED` chooses the moments.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use bex_proto::ticket::{ATTACH_HEADER, AttachClaims, KeyRing};
use bex_proto::{PartId, SessionId};
use bex_tests::client::{Ending, NewSession, Refusal, Viewer, stream_path};
use bex_tests::recording::Recording;
use bex_tests::scenario::{STEP, same_parts, settled, stored};
use bex_tests::stack::WORKSPACE;
use bex_tests::{Stack, StackOptions};
use bytes::Bytes;
use http::Method;
use jiff::Timestamp;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

/// Viewers at once: what two cores can read along with a debug build.
const AT_ONCE: usize = 256;
/// Viewers that stay to the end; the others leave soon after they have joined.
const STAY: usize = 50;
/// The farthest a viewer that leaves reads beyond its moment.
const BEYOND: u32 = 300;
/// Parts a second that all viewers together read, at least.
const READ_RATE: u64 = 200_000;
/// What the plane itself says beside parts when nothing is missing.
const OWN: [&str; 5] = [
    "start",
    "data-user-prompt",
    "data-bex-live",
    "data-bex-turn",
    "finish",
];

fn number(variable: &str, default: u64) -> u64 {
    let set = std::env::var(variable).ok();
    set.map_or(default, |text| text.parse().expect("a number"))
}

/// SplitMix64.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed >> 32) as u32 % bound.max(1)
    }
}

/// One text of numbered deltas.
fn numbered(parts: u32) -> Vec<Bytes> {
    let mut all = vec![
        Bytes::from_static(br#"{"type":"start"}"#),
        Bytes::from_static(br#"{"type":"text-start","id":"t"}"#),
    ];
    let delta = |n| {
        Bytes::from(format!(
            r#"{{"type":"text-delta","id":"t","delta":"{n} "}}"#
        ))
    };
    all.extend((0..parts).map(delta));
    all.push(Bytes::from_static(br#"{"type":"text-end","id":"t"}"#));
    all.push(Bytes::from_static(br#"{"type":"finish"}"#));
    all
}

/// What every viewer of the turn is judged by.
struct Turn {
    to: SocketAddr,
    ring: KeyRing,
    session: SessionId,
    parts: Vec<Bytes>,
    /// How far the turn is spoken, as far as the first viewer knows.
    spoken: watch::Receiver<u32>,
    places: Semaphore,
}

/// Where a viewer stops reading.
#[derive(Clone, Copy)]
enum Until {
    /// Behind this index.
    Part(u32),
    End,
}

/// What one attach came to.
struct Read {
    /// The next index.
    next: u32,
    /// It went over from the store to the driver.
    joined: bool,
}

impl Turn {
    /// A ticket of a subject of its own, so that only the process's limit counts.
    fn ticket(&self, subject: &str) -> anyhow::Result<String> {
        let now = Timestamp::now().as_second();
        let claims = AttachClaims::to_read(&self.session, WORKSPACE.parse()?, subject, now);
        Ok(claims.sign(&self.ring))
    }

    async fn open(
        &self,
        subject: &str,
        cursor: Option<PartId>,
    ) -> anyhow::Result<Result<Viewer, Refusal>> {
        let (ticket, cursor) = (self.ticket(subject)?, cursor.map(|id| id.to_string()));
        let mut headers = vec![(ATTACH_HEADER, ticket.as_str())];
        headers.extend(cursor.iter().map(|id| ("last-event-id", id.as_str())));
        let path = stream_path(&self.session);
        Viewer::request(self.to, Method::GET, &path, &headers, Bytes::new()).await
    }

    /// Reads from behind a cursor and checks every event as it comes.
    async fn read(&self, subject: &str, from: u32, until: Until) -> anyhow::Result<Read> {
        let cursor = from.checked_sub(1).map(|last| PartId::new(1, last));
        let deadline = Instant::now() + STEP;
        let mut viewer = loop {
            match self.open(subject, cursor).await? {
                Ok(viewer) => break viewer,
                // a machine too busy to ask its store in time says so, after having waited itself
                Err(refusal) if refusal.code == "unavailable" && Instant::now() < deadline => {}
                // the turn ended meanwhile, and it has everything
                Err(refusal) if refusal.status == 204 && from as usize == self.parts.len() => {
                    return Ok(Read {
                        next: from,
                        joined: false,
                    });
                }
                Err(refusal) => bail!("refused: {refusal:?}"),
            }
        };
        let (mut next, mut joined) = (from, false);
        while let Some(event) = viewer.next().await? {
            match (event.id, &event.data) {
                (None, _) => {
                    let kind = event.kind();
                    ensure!(OWN.contains(&kind.as_str()), "told {}", event.json());
                    joined |= kind == "data-bex-live";
                }
                (Some(id), None) if Some(id) == cursor && next == from => {}
                (Some(id), data) => {
                    ensure!(id == PartId::new(1, next), "{id} where 1.{next} was due");
                    let wanted = self.parts.get(next as usize);
                    // the turn's own `start` and `finish` are the stream's: only their ids are sent
                    ensure!(data.is_none() || data.as_ref() == wanted, "{id} is altered");
                    next += 1;
                }
            }
            if matches!(until, Until::Part(last) if next > last) {
                return Ok(Read { next, joined });
            }
            // what was checked is not kept
            viewer.events.clear();
        }
        ensure!(viewer.ending == Some(Ending::Done), "cut at 1.{next}");
        ensure!(next as usize == self.parts.len(), "ended at 1.{next}");
        Ok(Read { next, joined })
    }

    /// One viewer: it attaches at its moment, leaves, and comes back once; gives how often it joined.
    async fn view(
        self: Arc<Self>,
        n: usize,
        moment: u32,
        mut dice: Dice,
        until: Until,
    ) -> anyhow::Result<u32> {
        let mut spoken = self.spoken.clone();
        spoken.wait_for(|spoken| *spoken >= moment).await?;
        let _place = self.places.acquire().await?;
        let now = *spoken.borrow();
        let from = match dice.below(3) {
            0 => 0,
            1 => dice.below(now),
            // what the quickest viewer has just seen is hardly ever stored
            _ => now,
        };
        let subject = format!("viewer-{n}");
        let first = self.read(&subject, from, until).await?;
        let Until::Part(last) = until else {
            return Ok(u32::from(first.joined));
        };
        let last = (last + dice.below(BEYOND)).max(first.next) as usize;
        let until = if last < self.parts.len() {
            Until::Part(last as u32)
        } else {
            Until::End
        };
        let second = self.read(&subject, first.next, until).await?;
        Ok(u32::from(first.joined) + u32::from(second.joined))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn viewers_attach_at_random_moments_and_get_each_part_once() {
    let attaches = number("BEX_JOIN_ATTACHES", 200) as usize;
    let spoken = number("BEX_JOIN_PARTS", 2000) as u32;
    let seed = number("BEX_JOIN_SEED", 1);
    join(attaches, spoken, seed)
        .await
        .with_context(|| format!("BEX_JOIN_SEED={seed}"))
        .unwrap();
}

async fn join(attaches: usize, spoken: u32, seed: u64) -> anyhow::Result<()> {
    let mut dice = Dice(seed);
    let stack = Stack::start(StackOptions::default()).await?;
    let parts = numbered(spoken);
    let path = stack.play_dir().join("numbered.sse");
    let lines = parts
        .iter()
        .flat_map(|part| [b"data: ", &part[..], b"\n\n"]);
    std::fs::write(&path, lines.collect::<Vec<_>>().concat())?;
    ensure!(
        Recording::read(&path)?.parts == parts,
        "it is played as it was written"
    );

    // slow enough for the viewers to come while it is spoken
    let seconds = (attaches as u64 * u64::from(spoken) / READ_RATE).max(5);
    let pace = (u64::from(spoken) / seconds).max(1).to_string();
    let new = NewSession::new(WORKSPACE, "play", "say the numbers").args(&["numbered.sse", &pace]);
    let session = stack.operator().create(&new).await?;
    let mut quickest = stack.watch(&session).await?;
    let (progress, seen) = watch::channel(0);
    let turn = Arc::new(Turn {
        to: stack.addresses.attach,
        ring: KeyRing::parse(&stack.keys.attach)?,
        session: session.clone(),
        parts,
        spoken: seen,
        places: Semaphore::new(AT_ONCE),
    });

    let mut viewers = JoinSet::new();
    let end = turn.parts.len() as u32;
    for n in 0..attaches {
        let moment = dice.below(end);
        let stays = n.is_multiple_of(attaches.div_ceil(STAY));
        let last = moment + dice.below(BEYOND);
        let until = if stays || last >= end {
            Until::End
        } else {
            Until::Part(last)
        };
        let own = Dice(u64::from(dice.below(u32::MAX)));
        let viewing = Arc::clone(&turn).view(n, moment, own, until);
        viewers.spawn(async move {
            viewing
                .await
                .with_context(|| format!("viewer {n}, at {moment}"))
        });
    }
    while let Some(event) = quickest.next().await? {
        if let Some(id) = event.id {
            progress.send_replace(id.index.0 + 1);
        }
        quickest.events.clear();
    }
    ensure!(
        quickest.ending == Some(Ending::Done),
        "the first viewer was cut"
    );
    let mut joins = 0;
    while let Some(viewed) = viewers.join_next().await {
        let ends = || stack.sql("SELECT result, count(*) FROM stream_audit GROUP BY 1");
        joins += viewed?.with_context(|| format!("streams ended: {:?}", ends()))?;
    }
    if (joins as usize) < attaches / 5 {
        bail!(
            "only {joins} of {attaches} viewers went over to the driver: nothing was shown by that"
        );
    }
    let settled = settled(&stack.operator(), &session, 1).await?;
    ensure!(settled.verdict == "complete", "{settled:?}");
    same_parts(&stored(&stack.operator(), &session).await?, 1, &turn.parts)?;
    tokio::time::timeout(Duration::from_secs(60), stack.stop()).await?
}
