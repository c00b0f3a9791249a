//! The verdict, as a pure function of what is known.

use bex_proto::TurnNo;
use bex_proto::driver::TurnState;
use bex_proto::ids::PartId;
use bex_proto::session::{EndedBy, TruncationReason, Verdict};

use crate::turns::DroppedRange;

/// Why a turn is over, where its turn-end does not say it all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The driver ended it. Without a turn-end: its log could not be read.
    DriverEnded,
    /// The driver ended it and its log, though whole, could not be stored.
    StoreFailed,
    /// The sandbox is gone, or its status stayed unreadable.
    Lost,
    /// It was silent for too long.
    Deadline,
    /// The session was canceled.
    Canceled,
}

/// What the driver declared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Declared {
    /// Emitted parts, dropped ones too.
    pub parts: u32,
    /// Their digest.
    pub sha256: String,
    /// How it ended.
    pub state: TurnState,
    /// What the log did not keep.
    pub dropped: Option<DroppedRange>,
}

/// What an older driver's log and status say; it declares no count and no digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Legacy {
    /// From status.json.
    pub state: TurnState,
    /// Part records in the log, without holes from 0.
    pub parts: u32,
    /// Whether the log was read whole: untruncated, every line understood, no evidence of skipped records.
    pub whole: bool,
}

/// What is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// How many parts.
    pub parts: u32,
    /// One above the highest index; equal to `parts` when there is no hole.
    pub end: u32,
    /// Digest over the stored parts in order, each followed by a newline.
    pub sha256: String,
}

/// Everything the verdict depends on.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The turn.
    pub turn: TurnNo,
    /// See [`Stored`].
    pub stored: Stored,
    /// See [`Declared`].
    pub declared: Option<Declared>,
    /// The first part the session's quota refused.
    pub quota_mark: Option<PartId>,
    /// Something of the turn could not be stored as it was.
    pub unstorable: bool,
    /// A stored part differs from the log's.
    pub mismatch: bool,
    /// See [`Cause`].
    pub cause: Cause,
    /// Somebody asked to stop the turn.
    pub stop_requested: bool,
    /// See [`Legacy`].
    pub legacy: Option<Legacy>,
}

/// The contract's rules, in order.
pub fn judge(facts: &Facts) -> (Verdict, Option<TruncationReason>, EndedBy) {
    let reason = reason(facts);
    let verdict = if reason.is_none() {
        Verdict::Complete
    } else {
        Verdict::Truncated
    };
    (verdict, reason, ended_by(facts))
}

fn reason(facts: &Facts) -> Option<TruncationReason> {
    use TruncationReason as R;
    if facts.mismatch {
        return Some(R::DigestMismatch);
    }
    // everything at or above the mark was refused, so it lies in this turn or in one before
    let quota = facts.quota_mark.is_some_and(|mark| mark.turn <= facts.turn);
    match (&facts.declared, facts.legacy) {
        (Some(declared), _) => proved(facts, declared, quota),
        (None, Some(legacy)) => {
            let contiguous =
                facts.stored.parts == facts.stored.end && facts.stored.parts == legacy.parts;
            let proved = contiguous
                && legacy.whole
                && legacy.state == TurnState::Succeeded
                && !facts.unstorable;
            match (proved, quota) {
                (true, _) => None,
                (false, true) => Some(R::SessionQuota),
                (false, false) if facts.unstorable => Some(R::PartUnstorable),
                (false, false) => Some(R::LegacyUnproved),
            }
        }
        (None, None) => Some(match facts.cause {
            Cause::DriverEnded => R::LogUnreadable,
            Cause::StoreFailed => R::StoreFailed,
            Cause::Deadline => R::TurnDeadline,
            Cause::Lost | Cause::Canceled => R::SandboxLost,
        }),
    }
}

fn proved(facts: &Facts, declared: &Declared, quota: bool) -> Option<TruncationReason> {
    use TruncationReason as R;
    let stored = &facts.stored;
    if stored.parts == declared.parts && stored.sha256 == declared.sha256 {
        return None;
    }
    if stored.parts >= declared.parts || stored.end > declared.parts {
        return Some(if facts.unstorable {
            R::PartUnstorable
        } else {
            R::DigestMismatch
        });
    }
    Some(match facts.cause {
        _ if quota => R::SessionQuota,
        _ if declared.dropped.is_some() => R::LogTruncated,
        _ if facts.unstorable => R::PartUnstorable,
        Cause::StoreFailed => R::StoreFailed,
        Cause::DriverEnded | Cause::Lost | Cause::Deadline | Cause::Canceled => R::LogUnreadable,
    })
}

fn ended_by(facts: &Facts) -> EndedBy {
    let state = facts
        .declared
        .as_ref()
        .map(|d| d.state)
        .or(facts.legacy.map(|l| l.state));
    match (facts.cause, state) {
        (Cause::Canceled, _) => EndedBy::Canceled,
        (Cause::Deadline, _) => EndedBy::Deadline,
        (_, Some(TurnState::Stopped)) if facts.stop_requested => EndedBy::Stopped,
        // asked by a Completer that could not settle it any more
        (_, Some(TurnState::Stopped)) => EndedBy::Deadline,
        (Cause::Lost, None) => EndedBy::Lost,
        _ => EndedBy::Agent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use TruncationReason as R;

    fn facts() -> Facts {
        Facts {
            turn: TurnNo(2),
            stored: Stored {
                parts: 3,
                end: 3,
                sha256: "d".into(),
            },
            declared: Some(Declared {
                parts: 3,
                sha256: "d".into(),
                state: TurnState::Succeeded,
                dropped: None,
            }),
            quota_mark: None,
            unstorable: false,
            mismatch: false,
            cause: Cause::DriverEnded,
            stop_requested: false,
            legacy: None,
        }
    }

    fn with(change: impl FnOnce(&mut Facts)) -> Option<R> {
        let mut facts = facts();
        change(&mut facts);
        let (verdict, reason, _) = judge(&facts);
        assert_eq!(verdict == Verdict::Complete, reason.is_none());
        reason
    }

    fn fewer(facts: &mut Facts) {
        facts.stored = Stored {
            parts: 2,
            end: 2,
            sha256: "e".into(),
        };
    }

    #[test]
    fn the_verdict_table() {
        assert_eq!(with(|_| {}), None);
        assert_eq!(
            with(|f| f.stored.sha256 = "e".into()),
            Some(R::DigestMismatch)
        );
        assert_eq!(with(|f| f.mismatch = true), Some(R::DigestMismatch));
        assert_eq!(
            with(|f| {
                f.stored.sha256 = "e".into();
                f.unstorable = true;
            }),
            Some(R::PartUnstorable)
        );
        assert_eq!(with(|f| f.stored.parts = 4), Some(R::DigestMismatch));
        assert_eq!(with(fewer), Some(R::LogUnreadable));
        type Change = fn(&mut Facts);
        let cases: [(Change, R); 6] = [
            (|f| f.cause = Cause::StoreFailed, R::StoreFailed),
            (|f| f.quota_mark = Some(PartId::new(2, 2)), R::SessionQuota),
            (|f| f.quota_mark = Some(PartId::new(1, 9)), R::SessionQuota),
            (|f| f.quota_mark = Some(PartId::new(3, 0)), R::LogUnreadable),
            (|f| f.unstorable = true, R::PartUnstorable),
            (
                |f| {
                    let dropped = DroppedRange {
                        first: bex_proto::PartIndex(2),
                        last: bex_proto::PartIndex(2),
                        count: 1,
                    };
                    f.declared.as_mut().expect("declared").dropped = Some(dropped);
                },
                R::LogTruncated,
            ),
        ];
        for (change, expected) in cases {
            let reason = with(|f| {
                fewer(f);
                change(f);
            });
            assert_eq!(reason, Some(expected));
        }
    }

    #[test]
    fn without_a_turn_end_nothing_is_complete() {
        for (cause, reason, by) in [
            (Cause::Lost, R::SandboxLost, EndedBy::Lost),
            (Cause::Deadline, R::TurnDeadline, EndedBy::Deadline),
            (Cause::Canceled, R::SandboxLost, EndedBy::Canceled),
            (Cause::DriverEnded, R::LogUnreadable, EndedBy::Agent),
            (Cause::StoreFailed, R::StoreFailed, EndedBy::Agent),
        ] {
            let facts = Facts {
                declared: None,
                cause,
                ..facts()
            };
            assert_eq!(judge(&facts), (Verdict::Truncated, Some(reason), by));
        }
    }

    #[test]
    fn an_older_driver_is_complete_only_when_whole_and_succeeded() {
        let whole = Legacy {
            state: TurnState::Succeeded,
            parts: 3,
            whole: true,
        };
        let legacy = |legacy: Legacy| with(|f| (f.declared, f.legacy) = (None, Some(legacy)));
        assert_eq!(legacy(whole), None);
        assert_eq!(
            legacy(Legacy {
                whole: false,
                ..whole
            }),
            Some(R::LegacyUnproved)
        );
        assert_eq!(
            legacy(Legacy { parts: 4, ..whole }),
            Some(R::LegacyUnproved)
        );
        assert_eq!(
            legacy(Legacy {
                state: TurnState::Failed,
                ..whole
            }),
            Some(R::LegacyUnproved)
        );
    }

    #[test]
    fn who_ended_it_stands_beside_the_verdict() {
        let mut stopped = facts();
        stopped.declared.as_mut().expect("declared").state = TurnState::Stopped;
        assert_eq!(judge(&stopped).2, EndedBy::Deadline, "nobody asked");
        stopped.stop_requested = true;
        assert_eq!(judge(&stopped), (Verdict::Complete, None, EndedBy::Stopped));
        assert_eq!(
            judge(&Facts {
                cause: Cause::Deadline,
                ..stopped.clone()
            })
            .2,
            EndedBy::Deadline
        );
        assert_eq!(
            judge(&Facts {
                cause: Cause::Canceled,
                ..stopped
            })
            .2,
            EndedBy::Canceled
        );
    }
}
