//! One look at a session: its new events become turns and messages. Whoever looks first writes; the others find that there is nothing left.

use std::iter::Peekable;

use bex_proto::message::{Gap, TerminalReason};
use bex_proto::remote::RemoteState;
use bex_proto::{RemoteSessionId, limits};
use bex_store::remote::{
    BuiltRow, LogRow, RemoteHead, RemoteSessionRow, StoredImport, WriteBuilt, Written,
};
use bex_store::{Db, StoreError};

use super::build::{Builder, Built, Cursor, LogEvent};
use super::rows::{self, Rows};

/// What a builder holds at most, about: what is kept of a turn, and what of it came in pieces. Beyond that its log is longer, not it.
const MOST_HELD: usize = 2 * limits::TURN_BLOCK_BYTES;
/// How many rows are written at once.
const ROWS: usize = 500;

/// A builder that stands in the middle of a session's log.
#[derive(Debug, Clone)]
pub struct Standing {
    builder: Builder,
    /// The next event to read.
    next: u64,
    /// The head it belongs to.
    revision: u64,
    /// Rows that are written.
    built: u64,
    /// Log bytes since the builder could have started, which is about what it holds.
    held: usize,
}

/// What a look came to.
#[derive(Debug)]
pub enum Looked {
    /// Everything that was there is read.
    Done(Standing),
    /// There is more, or somebody else was first: look again.
    Again(Option<Standing>),
    /// There is no such session any more.
    Gone,
}

/// Looks once.
///
/// # Errors
/// Store trouble; the next look starts where the last one wrote.
pub async fn look(
    db: &Db,
    session: &RemoteSessionId,
    standing: Option<Standing>,
) -> Result<Looked, StoreError> {
    let Some(row) = db.remote_session(session).await? else {
        return Ok(Looked::Gone);
    };
    let standing = standing
        .and_then(|standing| standing.caught_up(&row.head))
        .unwrap_or_else(|| Standing::at(&row.head));
    let import = match row.head.imports_waiting {
        0 => None,
        _ => db.waiting_import(session).await?,
    };
    if let Some(import) = &import
        && is_due(&row, import)
    {
        let rows = rows::of_import(db, &row, &import.lines).await?;
        let mut write = standing.write(session, &rows);
        write.cursor = row.head.cursor;
        write.seen = (row.head.seen_index, 0);
        write.import = Some(&import.sha256);
        return Ok(match db.write_built(&write).await? {
            Written::Done => Looked::Again(Some(standing.advanced())),
            Written::Stale => Looked::Again(None),
        });
    }
    let look = Look {
        db,
        row: &row,
        import: import.as_ref(),
    };
    match look.read_on(standing).await? {
        Looked::Done(standing) => look.go_on_with_import(standing).await,
        looked => Ok(looked),
    }
}

/// Whether an import's place has come: the rows before it are written, or there will be no more of them.
fn is_due(row: &RemoteSessionRow, import: &StoredImport) -> bool {
    let head = &row.head;
    let over = row.state.is_terminal() && head.seen_index >= head.next_index;
    import
        .after_built
        .is_some_and(|after| after <= head.built || over)
}

struct Look<'a> {
    db: &'a Db,
    row: &'a RemoteSessionRow,
    /// Rows of the log that stand behind it wait for it.
    import: Option<&'a StoredImport>,
}

impl Look<'_> {
    async fn read_on(&self, mut standing: Standing) -> Result<Looked, StoreError> {
        let (session, head) = (&self.row.id, &self.row.head);
        let gaps = match head.gaps {
            0 => Vec::new(),
            _ => self.db.remote_gaps(session, standing.next).await?,
        };
        let page = self
            .db
            .remote_events(session, standing.next, head.next_index)
            .await?;
        let mut out = Vec::new();
        let fresh = standing.feed(&page, &gaps, head.seen_index, &mut out);
        let all = standing.next >= head.next_index;
        let finish = all && self.is_over(standing.next);
        if finish || (all && self.row.state.is_terminal()) {
            let at = self.row.ending_since.unwrap_or(self.row.updated_at);
            let reason = reason(self.row.ending_as);
            standing.builder.end(reason, at, &mut out);
        }
        self.write(standing, out, fresh, all, finish).await
    }

    /// Everything is read. An import that came meanwhile stands behind the turn that is open now: its record tells a part of that turn too,
    /// which would be a turn of its own before.
    async fn go_on_with_import(&self, standing: Standing) -> Result<Looked, StoreError> {
        let Some(import) = self.import else {
            return Ok(Looked::Done(standing));
        };
        let Some(after) = import.after_built else {
            let is_open = standing.builder.boundary().index < standing.next;
            let after = standing.built + u64::from(is_open);
            let (session, sha256) = (&self.row.id, &import.sha256);
            let placed = self
                .db
                .place_import(session, standing.revision, sha256, after);
            return Ok(match placed.await? {
                true => Looked::Again(Some(standing.advanced())),
                false => Looked::Again(None),
            });
        };
        Ok(match after <= standing.built {
            true => Looked::Again(Some(standing)),
            false => Looked::Done(standing),
        })
    }

    /// Whether the session's end has come: its machine's last event is read, or was waited for.
    fn is_over(&self, read: u64) -> bool {
        if self.row.state != RemoteState::Ending {
            return false;
        }
        let waited = || {
            let since = self.row.ending_since?;
            Some(self.row.now.duration_since(since).unsigned_abs() >= limits::REMOTE_STOP_GRACE)
        };
        match self.row.ending_index {
            Some(declared) => read >= declared,
            // what a gap keeps from being read is decided by then, and read before
            None => {
                self.row.head.next_index >= self.row.head.high_index && waited().unwrap_or(true)
            }
        }
    }

    /// Writes rows, a bounded number at once: of a page with more the rest is written by the next look.
    async fn write(
        &self,
        mut standing: Standing,
        out: Vec<Built>,
        fresh: u64,
        all: bool,
        finish: bool,
    ) -> Result<Looked, StoreError> {
        let head = &self.row.head;
        let until = self.import.and_then(|import| import.after_built);
        let Rows {
            rows,
            built,
            cli_session,
            cut,
        } = rows::of_log(self.db, self.row, out, standing.built, until, ROWS).await?;
        let told = self.row.cli_session_id.is_some();
        let cli_session = cli_session.filter(|_| !told);
        let read = standing.next > head.seen_index;
        if rows.is_empty() && built == standing.built && !read && !finish && !cut {
            return Ok(Looked::Done(standing));
        }
        standing.built = built;
        let mut write = standing.write(&self.row.id, &rows);
        // never back: events before it may be removed by now
        write.cursor = write.cursor.max(head.cursor);
        write.cli_session = cli_session.as_deref();
        if cut {
            // another look reads this page again from the cursor, and finds the rows of it that are written
            write.cursor = head.cursor;
            write.seen = (head.seen_index, 0);
        } else {
            write.seen = (standing.next.max(head.seen_index), fresh);
            write.finish = finish;
        }
        match self.db.write_built(&write).await? {
            Written::Stale => Ok(Looked::Again(None)),
            Written::Done if cut => Ok(Looked::Again(None)),
            // its end makes room for what waited for it
            Written::Done if finish && self.import.is_some() => Ok(Looked::Again(None)),
            Written::Done if all => Ok(Looked::Done(standing.advanced())),
            Written::Done => Ok(Looked::Again(Some(standing.advanced()))),
        }
    }
}

impl Standing {
    fn at(head: &RemoteHead) -> Self {
        let (index, offset, ordinal) = head.cursor;
        let start = Cursor {
            index,
            offset,
            ordinal,
        };
        Self {
            builder: Builder::new(start),
            next: index,
            revision: head.revision,
            built: head.built,
            held: 0,
        }
    }

    /// About what it takes in memory: what was said since the last turn, within a turn's bounds.
    pub fn bytes(&self) -> usize {
        self.held.min(MOST_HELD)
    }

    /// Log bytes that whoever has not got it reads again.
    pub fn unread(&self) -> usize {
        self.held
    }

    /// At the head as it is now. That others wrote rows meanwhile makes no difference, as they have read the same events; `None` where the
    /// rows it knows of are not written, or it lacks what was removed.
    fn caught_up(mut self, head: &RemoteHead) -> Option<Self> {
        if self.revision != head.revision {
            if head.built < self.built
                || head.seen_index < self.next
                || head.first_index > self.next
            {
                return None;
            }
            self.revision = head.revision;
            self.built = head.built;
        }
        Some(self)
    }

    fn write<'a>(&self, session: &'a RemoteSessionId, rows: &'a [BuiltRow]) -> WriteBuilt<'a> {
        let boundary = self.builder.boundary();
        WriteBuilt {
            session,
            revision: self.revision,
            rows,
            built: self.built,
            cursor: (boundary.index, boundary.offset, boundary.ordinal),
            seen: (self.next, 0),
            cli_session: None,
            import: None,
            finish: false,
        }
    }

    fn advanced(mut self) -> Self {
        self.revision += 1;
        self
    }

    /// Gives the builder a page, with the gaps in it; returns the charged bytes that were read for the first time.
    fn feed(&mut self, page: &[LogRow], gaps: &[Gap], seen: u64, out: &mut Vec<Built>) -> u64 {
        let mut fresh = 0;
        let mut gaps = gaps.iter().peekable();
        for row in page {
            self.pass_gaps(&mut gaps, row.index);
            if row.index < self.next {
                // it came after it had been given up
                continue;
            }
            let charge = row.data.len() + limits::REMOTE_EVENT_CHARGE;
            if row.index >= seen {
                fresh += charge as u64;
            }
            let before = self.builder.boundary();
            let event = LogEvent {
                index: row.index,
                stream: row.stream,
                data: &row.data,
                complete: row.complete,
                at: row.at,
            };
            self.builder.event(&event, out);
            self.held = match self.builder.boundary() == before {
                true => self.held + charge,
                false => 0,
            };
            self.next = row.index + 1;
        }
        // a gap at the very end of what is there
        self.pass_gaps(&mut gaps, self.next);
        fresh
    }

    fn pass_gaps<'a>(&mut self, gaps: &mut Peekable<impl Iterator<Item = &'a Gap>>, index: u64) {
        while let Some(gap) = gaps.next_if(|gap| gap.from <= index) {
            if gap.to >= self.next {
                self.builder.gap(*gap);
                self.next = gap.to + 1;
            }
        }
    }
}

/// How a turn ends that is open when its session ends.
fn reason(ending: Option<RemoteState>) -> TerminalReason {
    match ending {
        Some(RemoteState::Stopped) => TerminalReason::Stopped,
        Some(RemoteState::Error) => TerminalReason::Error,
        _ => TerminalReason::ProcessExit,
    }
}
