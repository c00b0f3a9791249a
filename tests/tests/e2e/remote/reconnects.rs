//! Viewers come back with any cursor, at any time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bex_proto::remote::RemoteState;
use bex_tests::client::Ending;
use futures::stream::{TryStreamExt, iter};

use super::*;

/// Of each session.
const RECONNECTS: usize = 1_000;
/// Viewers at once.
const AT_ONCE: usize = 32;
/// Turns of the session that has ended.
const TURNS: usize = 40;
/// The farthest a viewer of a live session reads.
const BEYOND: u32 = 60;
/// Between two reports: what two cores can show to everybody in a debug build.
const PACE: Duration = Duration::from_millis(4);

/// One reconnect of somebody: behind `after`, until so many events were read or the end.
struct Reconnect<'a> {
    stack: &'a Stack,
    at: SocketAddr,
    session: &'a RemoteSessionId,
    n: usize,
    after: Option<u64>,
}

impl Reconnect<'_> {
    /// Checks each event as it comes; gives how many there were, and whether that was the end.
    async fn read(&self, most: u64) -> anyhow::Result<(u64, bool)> {
        let subject = format!("viewer-{}", self.n);
        let mut viewer = loop {
            match try_follow(self.stack, self.at, self.session, &subject, self.after).await? {
                Ok(viewer) => break viewer,
                // a busy machine says so after it has waited itself
                Err(refusal) if refusal.code == "unavailable" => {}
                Err(refusal) if refusal.status == 204 => return Ok((0, true)),
                Err(refusal) => bail!("refused: {refusal:?}"),
            }
        };
        let from = self.after.map_or(0, |after| after + 1);
        let mut next = from;
        while next - from < most {
            let Some(event) = viewer.next().await? else {
                ensure!(viewer.ending == Some(Ending::Done), "cut at {next}");
                return Ok((next - from, true));
            };
            match event.id {
                Some(id) => {
                    ensure!(id == next, "{id} where {next} was due");
                    let due = line(id);
                    ensure!(event.json()["data"] == due, "{} is no {due}", event.json());
                    next += 1;
                }
                None => ensure!(event.kind() != "gap", "told {}", event.json()),
            }
            // what was checked is not kept
            viewer.events.clear();
        }
        Ok((next - from, false))
    }
}

/// The line that is event `index` of either session.
fn line(index: u64) -> String {
    let turn = index as usize / TURN_LINES;
    let text = conversation(turn..turn + 1);
    let line = text.split_inclusive('\n').nth(index as usize % TURN_LINES);
    line.unwrap().to_owned()
}

fn cursor(dice: &mut Dice, below: u64) -> Option<u64> {
    // nothing, anything, or the last
    match dice.below(10) {
        0 => None,
        1 => below.checked_sub(1),
        _ => u64::from(dice.below(below as u32 + 1)).checked_sub(1),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_comes_back_is_told_exactly_what_is_behind_its_cursor() {
    let (mut stack, machine) = begin(StackOptions::default()).await;
    let second = stack.add_gateway().await.unwrap();
    let gateways = [stack.addresses.attach, second.attach];
    to_an_ended_session(&stack, &machine, gateways).await;
    to_a_live_session(&stack, &machine, gateways).await;
    let open = "SELECT count(*) FROM stream_audit WHERE closed_at IS NULL";
    eventually("every stream is closed", STEP, async || {
        (stack.sql(open).ok()?.trim() == "0").then_some(())
    })
    .await
    .unwrap();
    stack.stop().await.unwrap();
}

async fn to_an_ended_session(stack: &Stack, machine: &Machine, gateways: [SocketAddr; 2]) {
    let session = &new_session(stack, machine, "autonomous").await;
    let events = lines(&conversation(0..TURNS), 0);
    let all = events.len() as u64;
    machine.says(session, &events).await.unwrap();
    let end = machine.ends(session, RemoteState::Completed, events.len());
    end.await.unwrap();
    is_in_state(stack, session, "completed").await;
    let dice = &mut Dice(3);
    let reconnects = (0..RECONNECTS).map(|n| Reconnect {
        stack,
        at: gateways[n % 2],
        session,
        n,
        after: cursor(dice, all),
    });
    iter(reconnects.map(anyhow::Ok))
        .try_for_each_concurrent(AT_ONCE, async |one| {
            let due = all - one.after.map_or(0, |after| after + 1);
            let read = one.read(u64::MAX).await;
            let read = read.with_context(|| format!("behind {:?}", one.after))?;
            ensure!(read == (due, true), "{read:?} behind {:?}", one.after);
            Ok(())
        })
        .await
        .unwrap();
}

async fn to_a_live_session(stack: &Stack, machine: &Machine, gateways: [SocketAddr; 2]) {
    let session = &new_session(stack, machine, "interactive").await;
    let (reported, over) = (&AtomicU64::new(0), &AtomicBool::new(false));
    let reporting = async {
        let mut every = tokio::time::interval(PACE);
        while !over.load(Ordering::Relaxed) {
            every.tick().await;
            let from = reported.load(Ordering::Relaxed);
            let event = event(from, &line(from));
            machine.says(session, &[event]).await.unwrap();
            reported.store(from + 1, Ordering::Relaxed);
        }
    };
    let waited = &AtomicU64::new(0);
    let reading = async {
        let read = iter((0..RECONNECTS).map(anyhow::Ok))
            .try_for_each_concurrent(AT_ONCE, async |n| {
                let mut dice = Dice(n as u64);
                let before = reported.load(Ordering::Relaxed);
                let one = Reconnect {
                    stack,
                    at: gateways[n % 2],
                    session,
                    n: RECONNECTS + n,
                    after: cursor(&mut dice, before),
                };
                let most = u64::from(1 + dice.below(BEYOND));
                let read = one.read(most).await;
                let read = read.with_context(|| format!("behind {:?}", one.after))?;
                ensure!(read == (most, false), "{read:?} of {most}");
                if one.after.map_or(0, |after| after + 1) + most > before {
                    waited.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            })
            .await;
        over.store(true, Ordering::Relaxed);
        read
    };
    let (read, ()) = tokio::join!(reading, reporting);
    read.unwrap();
    let waited = waited.load(Ordering::Relaxed);
    assert!(
        waited > RECONNECTS as u64 / 20,
        "only {waited} saw anything live"
    );
}
