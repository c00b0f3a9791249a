//! What a viewer will be shown: decided before the first byte, so that what cannot be served is refused with a status.

use bex_proto::TurnNo;
use bex_proto::ids::PartId;
use bex_proto::problem::Code;
use bex_proto::ticket::{AttachAction, AttachClaims};
use bex_proto::ui_stream;
use bex_store::Db;

use super::admission::in_time;
use super::cursor::{History, ViewerState, Wish};

/// How a stream opens.
#[derive(Debug, Clone)]
pub enum Opening {
    /// With a `start`.
    Start(String),
    /// Behind a cursor, in the middle of the message that the viewer has.
    Behind(PartId, ViewerState),
}

/// How far a stream goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// The whole conversation.
    Conversation,
    /// One posted turn.
    Turn,
}

/// What a viewer will be shown.
#[derive(Debug, Clone)]
pub struct Plan {
    /// How it opens.
    pub opening: Opening,
    /// The first turn shown.
    pub first: TurnNo,
    /// The session's newest turn.
    pub newest: TurnNo,
    /// How far it goes.
    pub scope: Scope,
}

/// Whether there is anything to show.
#[derive(Debug, Clone)]
pub enum Planned {
    /// There is, or may be soon.
    Show(Plan),
    /// The viewer has everything and nothing is live: 204.
    Nothing,
}

impl Plan {
    /// Decides for a ticket and a wish.
    ///
    /// # Errors
    /// [`Code::InvalidCursor`] for a turn the session does not have, [`Code::Revoked`] when the session is gone, or store trouble.
    pub async fn make(db: &Db, claims: &AttachClaims, wish: Wish) -> Result<Planned, Code> {
        let session = in_time(db.session(&claims.ses))
            .await?
            .ok_or(Code::Revoked)?;
        let newest = session.turns;
        if claims.act == AttachAction::Turn {
            let turn = claims
                .trn
                .filter(|turn| *turn <= newest)
                .ok_or(Code::Revoked)?;
            let start = ui_stream::start_of_turn(&claims.ses, turn);
            let opening = Opening::Start(start);
            return Ok(Planned::Show(Self {
                opening,
                first: turn,
                newest,
                scope: Scope::Turn,
            }));
        }
        let scope = Scope::Conversation;
        let Some(after) = wish.after else {
            let whole = ui_stream::start_of_session(&claims.ses);
            let (start, first, scope) = match wish.history {
                History::Whole => (whole, TurnNo::FIRST, scope),
                History::Last(turns) => (
                    whole,
                    TurnNo((newest.0 + 1).saturating_sub(turns).max(1)),
                    scope,
                ),
                History::Turn(turn) if turn > newest => return Err(Code::InvalidCursor),
                History::Turn(turn) => (
                    ui_stream::start_of_turn(&claims.ses, turn),
                    turn,
                    Scope::Turn,
                ),
            };
            let opening = Opening::Start(start);
            return Ok(Planned::Show(Self {
                opening,
                first,
                newest,
                scope,
            }));
        };
        if after.turn > newest {
            return Err(Code::InvalidCursor);
        }
        if after.turn == newest && session.phase.is_terminal() {
            let behind = in_time(db.next_stored(&claims.ses, after.next())).await?;
            if behind.is_none() {
                return Ok(Planned::Nothing);
            }
        }
        let opening = Opening::Behind(after, wish.state);
        Ok(Planned::Show(Self {
            opening,
            first: after.turn,
            newest,
            scope,
        }))
    }
}
