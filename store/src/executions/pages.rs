//! Pages of what is read in the order in which it happened.

use jiff::Timestamp;
use tokio_postgres::Row;

use crate::error::StoreError;
use crate::sql::large;

/// Where a page of findings or usage ended: the next begins behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordCursor {
    /// Of the last item.
    pub at: Timestamp,
    /// Of the last item.
    pub id: String,
}

/// One page.
#[derive(Debug, Clone)]
pub struct Page<T> {
    /// In order.
    pub items: Vec<T>,
    /// Whether there are more behind it.
    pub more: bool,
}

impl<T> Page<T> {
    /// Of rows that were looked for one beyond the limit, each saying in `found` how many there were before the page was cut by bytes.
    pub(super) fn read(
        rows: &[Row],
        limit: u32,
        read: impl Fn(&Row) -> Result<T, StoreError>,
    ) -> Result<Self, StoreError> {
        let found = rows.first().map_or(Ok(0), |row| large(row, "found"))?;
        let items = rows
            .iter()
            .take(limit as usize)
            .map(read)
            .collect::<Result<Vec<_>, _>>()?;
        let more = found > items.len() as u64;
        Ok(Self { items, more })
    }
}
