//! One moment of the store.

use std::sync::atomic::Ordering;

use tokio_postgres::Row;

use crate::error::StoreError;
use crate::pool::{Conn, Db};
use crate::sql::Param;

/// A read-only, repeatable-read transaction: whatever is read through it is of the moment of its first statement. It holds a
/// connection, so its life is bounded by whoever opens it; one that is dropped ends with its connection.
pub struct Snapshot {
    conn: Conn,
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Snapshot")
    }
}

impl Db {
    /// Opens a snapshot.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn snapshot(&self) -> Result<Snapshot, StoreError> {
        let conn = self.conn().await?;
        let snapshot = Snapshot { conn };
        let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
        snapshot.query("snapshot", begin, &[]).await?;
        Ok(snapshot)
    }
}

impl Snapshot {
    /// Ends it and gives the connection back.
    ///
    /// # Errors
    /// Store trouble only; what was read is good all the same.
    pub async fn end(self) -> Result<(), StoreError> {
        self.query("end_snapshot", "COMMIT", &[]).await?;
        self.conn.busy.store(false, Ordering::Relaxed);
        Ok(())
    }

    pub(super) async fn query(
        &self,
        operation: &'static str,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Vec<Row>, StoreError> {
        let rows = self.conn.query(operation, sql, params).await;
        // the transaction is open: the connection is nobody else's until it ended
        self.conn.busy.store(true, Ordering::Relaxed);
        rows
    }

    pub(super) async fn query_opt(
        &self,
        operation: &'static str,
        sql: &str,
        params: &[Param<'_>],
    ) -> Result<Option<Row>, StoreError> {
        Ok(self.query(operation, sql, params).await?.into_iter().next())
    }
}
