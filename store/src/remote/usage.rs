//! Usage reports: counted once each.

use bex_proto::RemoteSessionId;

use super::log::signed;
use crate::error::StoreError;
use crate::pool::Db;
use crate::sql::{get, int8, text};

/// What a machine used.
#[derive(Debug, Clone)]
pub struct UsageReport<'a> {
    /// The session.
    pub session: &'a RemoteSessionId,
    /// The reporter's id of it.
    pub report_id: &'a str,
    /// Of its content.
    pub sha256: &'a str,
    /// Input, output, cache read and cache written tokens, and requests.
    pub counts: [u64; 5],
}

/// What became of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reported {
    /// It counts.
    Counted,
    /// It was counted before.
    Duplicate,
    /// The id was used for another one.
    Conflict,
}

impl Db {
    /// Counts a report, once.
    ///
    /// # Errors
    /// Store trouble only.
    pub async fn report_usage(&self, report: &UsageReport<'_>) -> Result<Reported, StoreError> {
        let counts = report.counts.map(signed);
        let row = self
            .query_one(
                "report_usage",
                "WITH once AS (INSERT INTO usage_reports (session_id, report_id, sha256) VALUES ($1, $2, $3)
                               ON CONFLICT DO NOTHING RETURNING 1),
                      counted AS (UPDATE remote_sessions s
                           SET input_tokens = input_tokens + $4, output_tokens = output_tokens + $5,
                               cache_read_tokens = cache_read_tokens + $6, cache_write_tokens = cache_write_tokens + $7,
                               request_count = request_count + $8, updated_at = now()
                          FROM once WHERE s.id = $1)
                 SELECT EXISTS (SELECT 1 FROM once) AS counted,
                        (SELECT sha256 FROM usage_reports WHERE session_id = $1 AND report_id = $2) AS known",
                &[
                    text(&report.session.as_str()),
                    text(&report.report_id),
                    text(&report.sha256),
                    int8(&counts[0]),
                    int8(&counts[1]),
                    int8(&counts[2]),
                    int8(&counts[3]),
                    int8(&counts[4]),
                ],
            )
            .await?;
        if get::<bool>(&row, "counted")? {
            return Ok(Reported::Counted);
        }
        // a report that another call is counting right now is not seen by this statement: it is asked for again
        let known = match get::<Option<String>>(&row, "known")? {
            Some(known) => Some(known),
            None => self.usage_report(report).await?,
        };
        Ok(match known.as_deref() == Some(report.sha256) {
            true => Reported::Duplicate,
            false => Reported::Conflict,
        })
    }

    async fn usage_report(&self, report: &UsageReport<'_>) -> Result<Option<String>, StoreError> {
        let row = self
            .query_opt(
                "usage_report",
                "SELECT sha256 FROM usage_reports WHERE session_id = $1 AND report_id = $2",
                &[text(&report.session.as_str()), text(&report.report_id)],
            )
            .await?;
        row.map(|row| get(&row, "sha256")).transpose()
    }
}
