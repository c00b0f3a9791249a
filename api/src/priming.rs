//! The priming library over the durable record: turns are read from the newest back, and only as far as the budget reaches.

use bex_proto::ids::PartId;
use bex_proto::priming::{KINDS, KINDS_WITH_PAYLOADS, Payloads, Priming, Selection, TurnWords};
use bex_proto::{SessionId, TurnNo};
use bex_store::{Db, StoreError};

/// Indexes of one page.
const PAGE_INDEXES: u32 = 2048;
/// Bytes in which a page's parts begin; one more part may follow.
const PAGE_BYTES: usize = 1024 * 1024;

/// What was said before a turn: of the turns below `before`, under `budget` bytes.
///
/// # Errors
/// Store trouble only.
pub async fn priming_before(
    db: &Db,
    session: &SessionId,
    before: TurnNo,
    budget: usize,
    payloads: Payloads,
) -> Result<Priming, StoreError> {
    let mut selection = Selection::new(budget);
    let mut at = before;
    while !selection.is_full()
        && let Some((turn, prompt)) = db.turn_before(session, at).await?
    {
        let words = TurnWords::new(turn.0, prompt, payloads, selection.room());
        selection.add(gather(db, session, turn, words, payloads).await?);
        at = turn;
    }
    let all = before.0.saturating_sub(1);
    let first = db.turn(session, TurnNo::FIRST).await?;
    // where the record itself begins with it, the task is told already
    let task = first.filter(|_| before > TurnNo::FIRST).map(|t| t.prompt);
    Ok(selection.finish(all, task))
}

async fn gather(
    db: &Db,
    session: &SessionId,
    turn: TurnNo,
    mut words: TurnWords,
    payloads: Payloads,
) -> Result<TurnWords, StoreError> {
    let kinds = match payloads {
        Payloads::Left => KINDS,
        Payloads::Kept => KINDS_WITH_PAYLOADS,
    };
    let mut next = Some(PartId::first_of(turn));
    while let Some(from) = next {
        let page = db
            .read_kinds(session, from, PAGE_INDEXES, kinds, PAGE_BYTES)
            .await?;
        next = match page.last() {
            Some(last) => Some(last.id.next()),
            None => {
                let found = db.next_stored(session, from.plus(PAGE_INDEXES)).await?;
                found.map(|index| PartId { index, ..from })
            }
        };
        page.iter().for_each(|part| words.push(part));
    }
    Ok(words)
}
