//! The fall-back: reading `changes` every [`limits::CHANGES_POLL`].
//!
//! Ids are given out before commit, so a lower id may appear after a higher one. The poller therefore looks again at
//! everything younger than [`OVERLAP_SECONDS`] and forgets ids only when they are older; a transaction that commits later
//! than that is missed, which costs its reader a tick.

use std::collections::BTreeSet;

use bex_proto::{Chain, limits};
use tokio::time::{MissedTickBehavior, interval};
use tracing::warn;

use super::{Event, Outlet};
use crate::error::StoreError;
use crate::pool::Db;
use crate::sql::{float8, get, int8};
use crate::wake::Channel;

/// See the module.
const OVERLAP_SECONDS: f64 = 10.0;
/// Rows of one poll; more are read by the next.
const PAGE: i64 = 1000;

/// What was read so far.
struct Position {
    /// Everything up to here is done with.
    floor: i64,
    /// Ids above the floor that were delivered.
    seen: BTreeSet<i64>,
}

pub(super) async fn run(db: Db, mut outlet: Outlet) {
    let mut ticks = interval(limits::CHANGES_POLL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut position = None;
    while !outlet.sender.is_closed() {
        ticks.tick().await;
        outlet.settle_debt();
        let polled = match position.as_mut() {
            None => start(&db).await.map(|found| {
                position = Some(found);
                outlet.resumed();
            }),
            Some(position) => poll(&db, position, &mut outlet).await,
        };
        if let Err(error) = polled {
            warn!(error = %Chain(&error), "cannot poll for changes");
            // trimmed rows may have passed meanwhile
            position = None;
        }
    }
}

async fn start(db: &Db) -> Result<Position, StoreError> {
    let row = db
        .query_one(
            "poll_start",
            "SELECT COALESCE(max(id), 0) AS id FROM changes",
            &[],
        )
        .await?;
    // what commits late with a lower id is covered by the `Resumed` that follows, or by the next tick of its reader
    Ok(Position {
        floor: get(&row, "id")?,
        seen: BTreeSet::new(),
    })
}

async fn poll(db: &Db, position: &mut Position, outlet: &mut Outlet) -> Result<(), StoreError> {
    let rows = db
        .query(
            "poll",
            "SELECT id, channel, payload, at < clock_timestamp() - $2 * interval '1 second' AS old
               FROM changes WHERE id > $1 ORDER BY id LIMIT $3",
            &[int8(&position.floor), float8(&OVERLAP_SECONDS), int8(&PAGE)],
        )
        .await?;
    let full = rows.len() == usize::try_from(PAGE).unwrap_or(usize::MAX);
    let mut all_old = true;
    for row in &rows {
        let id: i64 = get(row, "id")?;
        if position.seen.insert(id)
            && let Some(channel) = Channel::parse(get(row, "channel")?)
        {
            outlet.send(Event::Notified {
                channel,
                payload: get(row, "payload")?,
            });
        }
        // a full page must move on even when it is young
        all_old &= full || get::<bool>(row, "old")?;
        if all_old {
            position.floor = id;
        }
    }
    let floor = position.floor;
    position.seen.retain(|id| *id > floor);
    Ok(())
}
