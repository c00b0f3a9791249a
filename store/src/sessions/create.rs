//! Creating a session: the session, its head, turn 1, the dispatch intent and the idempotency key are one transaction.

use bex_proto::session::{Phase, SessionKind};
use bex_proto::{Generation, RunId, SessionId, TurnNo, WorkspaceId, limits};
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::idempotency::{Idempotency, Known};
use crate::pool::{Db, Tx};
use crate::sql::{get, int4, int8, number, text, turn_no};
use crate::wake::Channel;

/// What runs in a session, as it was asked for. Stored as JSON; secrets are references only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentSpec {
    /// A profile that the deployment's configuration names.
    pub profile: String,
    /// The profile decides what it means.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Only for profiles that take them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Environment from secrets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<SecretEnv>,
}

/// One environment variable, by reference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretEnv {
    /// The variable.
    pub name: String,
    /// Where its value lives.
    pub secret_ref: String,
}

/// A session to create. The caller has checked lengths and words.
#[derive(Debug, Clone)]
pub struct NewSession {
    /// A fresh id.
    pub id: SessionId,
    /// The owner.
    pub workspace: WorkspaceId,
    /// Autonomous exactly when there is a workflow id.
    pub kind: SessionKind,
    /// See `kind`.
    pub workflow_id: Option<String>,
    /// Shown in lists.
    pub title: Option<String>,
    /// Carried and shown.
    pub repo: Option<String>,
    /// Carried and shown.
    pub branch: Option<String>,
    /// What runs in it.
    pub agent: AgentSpec,
    /// The first prompt.
    pub prompt: String,
    /// Who asks.
    pub created_by: String,
    /// Sessions of the workspace that may be live at once, this one included.
    pub live_limit: u32,
    /// Makes a repeated request the same request.
    pub idempotency: Option<Idempotency>,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Created {
    /// It exists and waits for its sandbox.
    New,
    /// The same key with the same body made this session before.
    Replayed(SessionId),
    /// The key was used with another body.
    KeyConflict,
    /// The workspace is being deleted.
    WorkspaceDeleting,
    /// The workspace has too many live sessions.
    LiveLimit {
        /// How many there are.
        live: u32,
        /// How many there may be.
        limit: u32,
    },
}

impl Db {
    /// Creates a session in phase `creating` with turn 1 open and its dispatch due.
    ///
    /// # Errors
    /// Store trouble; nothing was created then.
    pub async fn create_session(&self, new: &NewSession) -> Result<Created, StoreError> {
        let mut conn = self.conn().await?;
        let tx = conn.begin().await?;
        // one creator per workspace at a time: counting and inserting are one decision
        tx.lock_creation(&new.workspace).await?;
        if tx.is_being_deleted(&new.workspace).await? {
            return Ok(Created::WorkspaceDeleting);
        }
        if let Some(idempotency) = &new.idempotency {
            match tx
                .claim_key(&new.workspace, idempotency, &new.id, TurnNo::FIRST)
                .await?
            {
                Known::New => {}
                Known::Same { session, .. } => return Ok(Created::Replayed(session)),
                Known::OtherBody => return Ok(Created::KeyConflict),
            }
        }
        let live = tx.live_sessions(&new.workspace).await?;
        if live >= new.live_limit {
            return Ok(Created::LiveLimit {
                live,
                limit: new.live_limit,
            });
        }
        tx.insert_session(new).await?;
        tx.insert_turn(&new.id, &new.workspace, TurnNo::FIRST, &new.prompt, None)
            .await?;
        tx.notify(Channel::Dispatch, new.id.as_str()).await?;
        tx.commit().await?;
        Ok(Created::New)
    }
}

impl Tx<'_> {
    async fn live_sessions(&self, workspace: &WorkspaceId) -> Result<u32, StoreError> {
        let row = self
            .query_one(
                "live_sessions",
                "SELECT count(*) AS live FROM sessions WHERE workspace_id = $1
                    AND phase IN ('creating', 'running', 'redispatching', 'canceling')",
                &[text(&workspace.as_str())],
            )
            .await?;
        Ok(u32::try_from(get::<i64>(&row, "live")?).unwrap_or(u32::MAX))
    }

    async fn insert_session(&self, new: &NewSession) -> Result<(), StoreError> {
        let agent = serde_json::to_string(&new.agent)
            .expect("an agent spec is plain data and always serialises");
        self.execute(
            "insert_session",
            "WITH s AS (
                 INSERT INTO sessions (id, workspace_id, kind, workflow_id, title, repo, branch, agent, created_by,
                                       phase, turns, prompt_bytes)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 1, $11)),
             h AS (
                 INSERT INTO transcript_heads (session_id, byte_limit, part_limit) VALUES ($1, $12, $13))
             INSERT INTO leases (session_id) VALUES ($1)",
            &[
                text(&new.id.as_str()),
                text(&new.workspace.as_str()),
                text(&new.kind.as_str()),
                text(&new.workflow_id),
                text(&new.title),
                text(&new.repo),
                text(&new.branch),
                text(&agent),
                text(&new.created_by),
                text(&Phase::Creating.as_str()),
                int8(&bytes_of(&new.prompt)),
                int8(&i64::try_from(limits::SESSION_BYTES).unwrap_or(i64::MAX)),
                int8(&i64::from(limits::SESSION_PARTS)),
            ],
        )
        .await
        .map(drop)
    }

    /// Turn row, with the run it is, and outbox row; without a generation no sandbox speaks it yet.
    pub(crate) async fn insert_turn(
        &self,
        session: &SessionId,
        workspace: &WorkspaceId,
        turn: TurnNo,
        prompt: &str,
        generation: Option<Generation>,
    ) -> Result<(), StoreError> {
        let generation = generation.map_or(0, |g| number(g.0));
        let run = RunId::random();
        self.execute(
            "insert_turn",
            "WITH t AS (INSERT INTO turns (session_id, turn, prompt, generation, run_id) VALUES ($1, $2, $3, $4, $6))
             INSERT INTO dispatches (session_id, turn, workspace_id) VALUES ($1, $2, $5)",
            &[
                text(&session.as_str()),
                int4(&turn_no(turn)),
                text(&prompt),
                int4(&generation),
                text(&workspace.as_str()),
                text(&run.as_str()),
            ],
        )
        .await
        .map(drop)
    }
}

pub(crate) fn bytes_of(prompt: &str) -> i64 {
    i64::try_from(prompt.len()).unwrap_or(i64::MAX)
}
