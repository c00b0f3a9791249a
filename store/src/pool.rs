//! Connections: a bounded pool, a time limit on every statement, and no connection reused in an unknown state.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime, Timeouts};
use tokio_postgres::Row;

use crate::config::{ConfigError, DbConfig};
use crate::error::StoreError;
use crate::sql::Param;

/// Connections of one process's pool.
pub const POOL_SIZE: usize = 16;
/// Making one connection.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Waiting for a free connection: shorter than any caller's own limit, so that the caller hears the cause.
pub const POOL_WAIT: Duration = Duration::from_secs(4);
/// One statement. The slowest is the digest of a full session, a second or two.
pub const STATEMENT_TIMEOUT: Duration = Duration::from_secs(30);
/// Silence after which the kernel probes a connection.
pub(crate) const KEEPALIVE_IDLE: Duration = Duration::from_secs(60);

/// The store. Cheap to clone.
#[derive(Clone)]
pub struct Db {
    pool: Pool,
}

/// What a pool holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PoolLevels {
    /// Open connections, at most [`POOL_SIZE`].
    pub connections: usize,
    /// Those of them that nobody uses.
    pub free: usize,
    /// Statements that wait for one.
    pub waiting: usize,
}

impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Db")
            .field("connections", &self.pool.status().size)
            .finish()
    }
}

impl Db {
    /// A pool for this configuration. Connections are made on first use.
    ///
    /// # Errors
    /// When the configuration is unsafe or unusable.
    pub fn connect(config: &DbConfig) -> Result<Self, ConfigError> {
        let (pg, tls) = config.parse()?;
        let manager = Manager::from_config(
            pg,
            tls,
            ManagerConfig {
                recycling_method: RecyclingMethod::Fast,
            },
        );
        let timeouts = Timeouts {
            wait: Some(POOL_WAIT),
            create: Some(CONNECT_TIMEOUT),
            recycle: Some(CONNECT_TIMEOUT),
        };
        let pool = Pool::builder(manager)
            .max_size(POOL_SIZE)
            .timeouts(timeouts)
            .runtime(Runtime::Tokio1)
            .build()
            .map_err(|_| ConfigError::Url)?;
        Ok(Self { pool })
    }

    /// Asks the server a trivial question, for readiness probes.
    ///
    /// # Errors
    /// When there is no usable connection.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.query("ping", "SELECT 1", &[]).await.map(drop)
    }

    /// What the pool holds now, for metrics.
    pub fn levels(&self) -> PoolLevels {
        let status = self.pool.status();
        PoolLevels {
            connections: status.size,
            free: status.available,
            waiting: status.waiting,
        }
    }

    /// Closes every connection; later calls fail.
    pub fn close(&self) {
        self.pool.close();
    }

    pub(crate) async fn conn(&self) -> Result<Conn, StoreError> {
        let object = self.pool.get().await?;
        Ok(Conn {
            object: Some(object),
            busy: AtomicBool::new(false),
        })
    }

    pub(crate) async fn query(
        &self,
        operation: &'static str,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, StoreError> {
        // boxed: whoever asks lives long, a stream for hours, and its task is as large as the largest thing it ever waits for
        Box::pin(async {
            let conn = self.conn().await?;
            let client = conn.client();
            guarded(&conn.busy, operation, client.query_typed(sql, params)).await
        })
        .await
    }

    pub(crate) async fn query_opt(
        &self,
        operation: &'static str,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Option<Row>, StoreError> {
        Ok(self.query(operation, sql, params).await?.into_iter().next())
    }

    pub(crate) async fn query_one(
        &self,
        operation: &'static str,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Row, StoreError> {
        self.query_opt(operation, sql, params)
            .await?
            .ok_or(StoreError::Missing { what: operation })
    }

    pub(crate) async fn execute(
        &self,
        operation: &'static str,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<u64, StoreError> {
        // boxed as in `query`
        Box::pin(async {
            let conn = self.conn().await?;
            let client = conn.client();
            guarded(&conn.busy, operation, client.execute_typed(sql, params)).await
        })
        .await
    }
}

/// One borrowed connection. When a statement on it was abandoned half-way (a time-out, or the caller's future was
/// dropped) it does not go back to the pool: the next user would wait behind that statement.
pub(crate) struct Conn {
    object: Option<Object>,
    pub(crate) busy: AtomicBool,
}

impl Conn {
    fn client(&self) -> &Object {
        self.object
            .as_ref()
            .expect("the connection is taken out only by drop")
    }

    pub(crate) async fn query(
        &self,
        operation: &'static str,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, StoreError> {
        guarded(
            &self.busy,
            operation,
            self.client().query_typed(sql, params),
        )
        .await
    }

    /// A read committed transaction, rolled back unless committed.
    pub(crate) async fn begin(&mut self) -> Result<Tx<'_>, StoreError> {
        let Self { object, busy } = self;
        let object = object
            .as_mut()
            .expect("the connection is taken out only by drop");
        let tx = guarded(busy, "begin", object.transaction()).await?;
        Ok(Tx { tx, busy })
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        if self.busy.load(Ordering::Relaxed)
            && let Some(object) = self.object.take()
        {
            drop(Object::take(object));
        }
    }
}

/// One transaction.
pub(crate) struct Tx<'a> {
    tx: deadpool_postgres::Transaction<'a>,
    busy: &'a AtomicBool,
}

impl Tx<'_> {
    pub(crate) async fn query(
        &self,
        operation: &'static str,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, StoreError> {
        guarded(self.busy, operation, self.tx.query_typed(sql, params)).await
    }

    pub(crate) async fn query_opt(
        &self,
        operation: &'static str,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Option<Row>, StoreError> {
        Ok(self.query(operation, sql, params).await?.into_iter().next())
    }

    pub(crate) async fn query_one(
        &self,
        operation: &'static str,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Row, StoreError> {
        self.query_opt(operation, sql, params)
            .await?
            .ok_or(StoreError::Missing { what: operation })
    }

    pub(crate) async fn execute(
        &self,
        operation: &'static str,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<u64, StoreError> {
        guarded(self.busy, operation, self.tx.execute_typed(sql, params)).await
    }

    pub(crate) async fn commit(self) -> Result<(), StoreError> {
        guarded(self.busy, "commit", self.tx.commit()).await
    }
}

async fn guarded<T>(
    busy: &AtomicBool,
    operation: &'static str,
    statement: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, StoreError> {
    busy.store(true, Ordering::Relaxed);
    let answer = tokio::time::timeout(STATEMENT_TIMEOUT, statement)
        .await
        .map_err(|_| StoreError::Timeout { operation })?;
    busy.store(false, Ordering::Relaxed);
    answer.map_err(StoreError::statement(operation))
}
