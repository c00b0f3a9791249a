//! A private PostgreSQL with fsync on, as in production, and sessions in it that a gateway may read.

use anyhow::Context;
use bex_proto::launch::{CONTAINER, namespace_of, pod_of};
use bex_proto::transcript::Part;
use bex_proto::{Generation, SessionId, TurnNo};
use bex_store::transcript::{Append, AppendOutcome, Marks};
use bex_store::{Db, DbConfig};
use bex_testpg::{Fsync, Options, TestPg};
use tokio_postgres::{Client, NoTls};

/// The workspace of every measured session.
pub const WORKSPACE: &str = "bench";
/// The sandbox life of every measured session.
pub const GENERATION: Generation = Generation(1);

/// See the module's documentation.
pub struct Database {
    _server: TestPg,
    /// The store's own pool.
    pub db: Db,
    /// A connection of the superuser.
    pub sql: Client,
    /// The superuser's URL.
    pub url: String,
}

impl Database {
    /// Starts a server and migrates it.
    ///
    /// # Errors
    /// When PostgreSQL is missing or does not start.
    pub async fn start() -> anyhow::Result<Self> {
        let server = TestPg::start_new(Options { fsync: Fsync::On })?;
        let url = server.url("postgres");
        let config = DbConfig::new(url.clone(), "bex-bench");
        bex_store::migrate(&config).await?;
        let db = Db::connect(&config)?;
        let (sql, connection) = tokio_postgres::connect(&url, NoTls).await?;
        tokio::spawn(async move {
            // its end shows in the next statement
            let _ = connection.await;
        });
        Ok(Self {
            _server: server,
            db,
            sql,
            url,
        })
    }

    /// A running session whose turns 1 to `turns` are open to append (only the last one by verdict).
    ///
    /// # Errors
    /// When the statements fail.
    pub async fn session(&self, turns: u32) -> anyhow::Result<SessionId> {
        let session = SessionId::random();
        let statements = format!(
            "INSERT INTO sessions (id, workspace_id, kind, agent, created_by, phase, turns, prompt_bytes, generation)
                  VALUES ('{session}', '{WORKSPACE}', 'interactive', '{{\"profile\":\"bench\"}}', 'bench', 'running', {turns}, 1, 1);
             INSERT INTO transcript_heads (session_id, byte_limit, part_limit) VALUES ('{session}', {}, {});
             INSERT INTO sandboxes (session_id, generation, first_turn, turn, kind, namespace, pod, pod_uid, container, legacy, driver_kid, state, ready_at)
                  VALUES ('{session}', 1, 1, {turns}, 'local', '{}', '{}', 'uid', '{CONTAINER}', false, 'k', 'turn', now());
             INSERT INTO turns (session_id, turn, prompt, generation, delivery_started_at, delivered_at, verdict, reason, settled_at)
                  SELECT '{session}', t, 'p', 1, now(), now(),
                         CASE WHEN t = {turns} THEN 'open' ELSE 'truncated' END,
                         CASE WHEN t = {turns} THEN NULL ELSE 'sandbox_lost' END,
                         CASE WHEN t = {turns} THEN NULL ELSE now() END
                    FROM generate_series(1, {turns}) t",
            bex_proto::limits::SESSION_BYTES,
            bex_proto::limits::SESSION_PARTS,
            namespace_of(&WORKSPACE.parse()?),
            pod_of(&session, GENERATION),
        );
        self.sql
            .batch_execute(&statements)
            .await
            .context("cannot seed a session")?;
        Ok(session)
    }

    /// Appends parts as a harvest does, in batches of 1 000.
    ///
    /// # Errors
    /// When a batch is not stored whole.
    pub async fn fill(&self, session: &SessionId, turn: u32, parts: &[Part]) -> anyhow::Result<()> {
        for batch in parts.chunks(bex_proto::limits::HARVEST_BATCH_PARTS) {
            append(&self.db, session, turn, batch).await?;
        }
        Ok(())
    }

    /// Ends a session: its last turn is settled, its sandbox gone.
    ///
    /// # Errors
    /// When the statements fail.
    pub async fn end(&self, session: &SessionId) -> anyhow::Result<()> {
        let statements = format!(
            "UPDATE turns SET verdict = 'complete', settled_at = now() WHERE session_id = '{session}' AND verdict = 'open';
             UPDATE turns SET verdict = 'complete', reason = NULL WHERE session_id = '{session}';
             UPDATE sessions SET phase = 'completed' WHERE id = '{session}';
             UPDATE sandboxes SET state = 'gone', gone_at = now() WHERE session_id = '{session}'"
        );
        Ok(self.sql.batch_execute(&statements).await?)
    }
}

/// One append of whole, new parts.
///
/// # Errors
/// When they are not all stored.
pub async fn append(db: &Db, session: &SessionId, turn: u32, parts: &[Part]) -> anyhow::Result<()> {
    let batch = Append {
        session,
        turn: TurnNo(turn),
        generation: GENERATION,
        parts,
        marks: Marks::Clean,
        harvest: None,
    };
    match db.append(batch).await? {
        AppendOutcome::Stored(appended) if appended.stored as usize == parts.len() => Ok(()),
        other => anyhow::bail!("append answered {other:?}"),
    }
}
