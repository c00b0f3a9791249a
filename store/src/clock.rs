//! The database's clock, which decides every age.

use jiff::Timestamp;

use crate::error::StoreError;
use crate::pool::Db;
use crate::sql::get;

impl Db {
    /// Now, as the database says it: ages of rows are measured against this, never against a process's own clock.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn now(&self) -> Result<Timestamp, StoreError> {
        let row = self
            .query_one("now", "SELECT clock_timestamp() AS now", &[])
            .await?;
        get(&row, "now")
    }
}
