//! Parameters and columns, typed: every statement is sent unnamed with its types (`query_typed`), because a
//! transaction-pooling pgbouncer forgets prepared statements.

use std::str::FromStr;
use std::time::Duration;

use bex_proto::{Generation, PartId, PartIndex, TurnNo};
use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, ToSql, Type};

use crate::error::StoreError;

/// One typed parameter.
pub(crate) type Param<'a> = (&'a (dyn ToSql + Sync), Type);

pub(crate) fn text<'a>(value: &'a (dyn ToSql + Sync)) -> Param<'a> {
    (value, Type::TEXT)
}

pub(crate) fn int4<'a>(value: &'a (dyn ToSql + Sync)) -> Param<'a> {
    (value, Type::INT4)
}

pub(crate) fn int8<'a>(value: &'a (dyn ToSql + Sync)) -> Param<'a> {
    (value, Type::INT8)
}

pub(crate) fn float8<'a>(value: &'a (dyn ToSql + Sync)) -> Param<'a> {
    (value, Type::FLOAT8)
}

pub(crate) fn boolean<'a>(value: &'a (dyn ToSql + Sync)) -> Param<'a> {
    (value, Type::BOOL)
}

pub(crate) fn time<'a>(value: &'a (dyn ToSql + Sync)) -> Param<'a> {
    (value, Type::TIMESTAMPTZ)
}

pub(crate) fn texts<'a>(value: &'a (dyn ToSql + Sync)) -> Param<'a> {
    (value, Type::TEXT_ARRAY)
}

pub(crate) fn int4s<'a>(value: &'a (dyn ToSql + Sync)) -> Param<'a> {
    (value, Type::INT4_ARRAY)
}

pub(crate) fn int8s<'a>(value: &'a (dyn ToSql + Sync)) -> Param<'a> {
    (value, Type::INT8_ARRAY)
}

pub(crate) fn times<'a>(value: &'a (dyn ToSql + Sync)) -> Param<'a> {
    (value, Type::TIMESTAMPTZ_ARRAY)
}

/// A number of the wire as a column holds it. Ids that come over the wire fit; anything larger names nothing.
pub(crate) fn number(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

pub(crate) fn turn_no(turn: TurnNo) -> i32 {
    number(turn.0)
}

pub(crate) fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}

/// A column by name.
pub(crate) fn get<'r, T: FromSql<'r>>(row: &'r Row, column: &'static str) -> Result<T, StoreError> {
    row.try_get(column)
        .map_err(|_| StoreError::Corrupt { what: column })
}

/// A text column that holds one of the contract's words or an id.
pub(crate) fn word<T: FromStr>(row: &Row, column: &'static str) -> Result<T, StoreError> {
    get::<&str>(row, column)?
        .parse()
        .map_err(|_| StoreError::Corrupt { what: column })
}

pub(crate) fn optional_word<T: FromStr>(
    row: &Row,
    column: &'static str,
) -> Result<Option<T>, StoreError> {
    get::<Option<&str>>(row, column)?
        .map(|text| {
            text.parse()
                .map_err(|_| StoreError::Corrupt { what: column })
        })
        .transpose()
}

pub(crate) fn unsigned(row: &Row, column: &'static str) -> Result<u32, StoreError> {
    u32::try_from(get::<i32>(row, column)?).map_err(|_| StoreError::Corrupt { what: column })
}

pub(crate) fn optional_unsigned(
    row: &Row,
    column: &'static str,
) -> Result<Option<u32>, StoreError> {
    get::<Option<i32>>(row, column)?
        .map(|n| u32::try_from(n).map_err(|_| StoreError::Corrupt { what: column }))
        .transpose()
}

pub(crate) fn large(row: &Row, column: &'static str) -> Result<u64, StoreError> {
    u64::try_from(get::<i64>(row, column)?).map_err(|_| StoreError::Corrupt { what: column })
}

pub(crate) fn turn(row: &Row, column: &'static str) -> Result<TurnNo, StoreError> {
    unsigned(row, column).map(TurnNo)
}

pub(crate) fn index(row: &Row, column: &'static str) -> Result<PartIndex, StoreError> {
    unsigned(row, column).map(PartIndex)
}

/// The columns `quota_turn` and `quota_index`: the first part that the session's quota refused.
pub(crate) fn quota_mark(row: &Row) -> Result<Option<PartId>, StoreError> {
    match optional_unsigned(row, "quota_turn")? {
        Some(turn) => Ok(Some(PartId::new(turn, unsigned(row, "quota_index")?))),
        None => Ok(None),
    }
}

pub(crate) fn generation(row: &Row, column: &'static str) -> Result<Generation, StoreError> {
    unsigned(row, column).map(Generation)
}
