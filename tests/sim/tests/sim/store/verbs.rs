//! What users ask for.

use std::collections::BTreeMap;

use bex_proto::session::{DeliveryMode, Phase, SessionKind, Verdict};
use bex_proto::{Generation, Seq, SessionId, TurnNo, limits};
use bex_store::sandboxes::SandboxState;
use bex_store::sessions::{AgentSpec, BeginTurn, Cancel, SessionRow, TranscriptHead};
use bex_store::turns::TurnRow;
use jiff::Timestamp;

use super::{Dispatch, LeaseRow, Model, Session, Turn};

impl Model {
    pub fn create(&self, id: &SessionId) {
        let now = self.now();
        let row = SessionRow {
            id: id.clone(),
            workspace: "acme".parse().expect("an id"),
            kind: SessionKind::Interactive,
            workflow_id: None,
            title: None,
            repo: None,
            branch: None,
            agent: AgentSpec {
                profile: "p".into(),
                model: None,
                args: vec![],
                env: vec![],
            },
            created_by: "somebody".into(),
            phase: Phase::Creating,
            failure_reason: None,
            turns: TurnNo::FIRST,
            prompt_bytes: 0,
            legal_hold: false,
            created_at: now,
            updated_at: now,
            archived_at: None,
            cancel_requested_at: None,
            canceled_at: None,
            transcript: TranscriptHead {
                next_seq: Seq(0),
                charged_bytes: 0,
                parts: 0,
                quota_mark: None,
            },
        };
        let mut session = Session {
            row,
            byte_limit: limits::SESSION_BYTES,
            part_limit: u64::from(limits::SESSION_PARTS),
            turns: BTreeMap::new(),
            sandboxes: BTreeMap::new(),
            parts: BTreeMap::new(),
            offsets: BTreeMap::new(),
            dispatch: None,
            lease: LeaseRow {
                next_due_at: Some(now),
                ..LeaseRow::default()
            },
            generation: 0,
            moves: 0,
            refuses: false,
            verdicts: Vec::new(),
            ends: 0,
        };
        session.open(TurnNo::FIRST, None, now);
        self.sessions().insert(id.clone(), session);
    }

    pub fn begin_turn(&self, session: &SessionId) -> BeginTurn {
        let now = self.now();
        self.with(session, |session| {
            let last = session.row.turns;
            if session.row.archived_at.is_some() {
                return BeginTurn::Archived;
            }
            match session.row.phase {
                Phase::Completed | Phase::Failed => {}
                Phase::Creating | Phase::Running | Phase::Redispatching => {
                    return BeginTurn::InFlight { turn: last };
                }
                Phase::Canceling | Phase::Canceled => return BeginTurn::NotSteerable,
            }
            let head = &session.row.transcript;
            if head.quota_mark.is_some()
                || head.charged_bytes >= session.byte_limit
                || head.parts >= session.part_limit
            {
                return BeginTurn::Full;
            }
            let turn = last.next();
            let live = session
                .sandboxes
                .values_mut()
                .next_back()
                .filter(|life| life.row.state == SandboxState::Idle && !life.row.legacy)
                .map(|life| {
                    life.row.state = SandboxState::Turn;
                    life.row.turn = turn;
                    life.row.idle_since = None;
                    life.row.generation
                });
            session.row.phase = match live {
                Some(_) => Phase::Running,
                None => Phase::Redispatching,
            };
            session.row.turns = turn;
            session.row.failure_reason = None;
            session.open(turn, live, now);
            match live {
                Some(generation) => BeginTurn::Delivering { turn, generation },
                None => BeginTurn::Redispatched { turn },
            }
        })
        .unwrap_or(BeginTurn::NotFound)
    }

    pub fn request_stop(&self, session: &SessionId, turn: TurnNo) -> bool {
        let now = self.now();
        self.with(session, |session| {
            let open = session
                .turns
                .get_mut(&turn)
                .filter(|turn| turn.row.verdict == Verdict::Open);
            open.map(|turn| {
                turn.row.stop_requested_at = turn.row.stop_requested_at.or(Some(now));
            })
            .is_some()
        })
        .unwrap_or(false)
    }

    pub fn request_cancel(&self, session: &SessionId) -> Cancel {
        let now = self.now();
        self.with(session, |session| match session.row.phase {
            Phase::Canceling => Cancel::AlreadyCanceling,
            terminal if terminal.is_terminal() => Cancel::Terminal(terminal),
            _ => {
                session.wake(now);
                session.row.phase = Phase::Canceling;
                session.row.cancel_requested_at = Some(now);
                Cancel::Canceling
            }
        })
        .unwrap_or(Cancel::NotFound)
    }

    pub fn archive(&self, session: &SessionId) {
        let now = self.now();
        self.with(session, |session| {
            session.row.archived_at = session.row.archived_at.or(Some(now));
        });
    }

    pub fn unarchive(&self, session: &SessionId) {
        self.with(session, |session| session.row.archived_at = None);
    }
}

impl Session {
    fn open(&mut self, turn: TurnNo, live: Option<Generation>, now: Timestamp) {
        let row = TurnRow {
            session: self.row.id.clone(),
            turn,
            prompt: "do it".into(),
            delivery_mode: DeliveryMode::Pending,
            generation: live.unwrap_or(Generation(0)),
            delivery_started_at: None,
            delivered_at: None,
            stop_requested_at: None,
            verdict: Verdict::Open,
            reason: None,
            ended_by: None,
            driver_state: None,
            expected_parts: None,
            expected_sha256: None,
            dropped: None,
            unstorable: false,
            mismatch: None,
            stored_parts: 0,
            stored_bytes: 0,
            created_at: now,
            started_at: None,
            last_part_at: None,
            settled_at: None,
            healed_at: None,
            run: None,
        };
        self.turns.insert(
            turn,
            Turn {
                row,
                rejudge: false,
            },
        );
        self.dispatch = Some(Dispatch {
            turn,
            fence: 0,
            attempts: 0,
            until: None,
        });
    }
}
