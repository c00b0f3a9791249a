//! Service tokens: long-lived secrets of programs, kept as SHA-256 only.

use std::collections::{BTreeSet, HashMap};

use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::{Caller, Role, Workspaces};

/// Callers by the SHA-256 of their token. A look-up by digest tells a guesser nothing through its duration.
#[derive(Default)]
pub struct ServiceTokens {
    callers: HashMap<[u8; 32], Caller>,
}

impl std::fmt::Debug for ServiceTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServiceTokens")
            .field("count", &self.callers.len())
            .finish()
    }
}

/// Why a tokens file is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokensFault {
    /// Not the expected JSON. A parser's own words could repeat a token that stands where its digest should.
    #[error("not a file of service tokens: line {line}, column {column}")]
    Json {
        /// Where.
        line: usize,
        /// Where.
        column: usize,
    },
    /// One entry.
    #[error("entry {0}: {1}")]
    Entry(usize, &'static str),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Entry {
    sha256: String,
    subject: String,
    workspaces: Vec<String>,
    role: Role,
}

impl ServiceTokens {
    /// Reads `[{"sha256","subject","workspaces","role"}]`.
    ///
    /// # Errors
    /// The first entry that is not usable, by its position.
    pub fn parse(text: &str) -> Result<Self, TokensFault> {
        let entries: Vec<Entry> = serde_json::from_str(text).map_err(|e| TokensFault::Json {
            line: e.line(),
            column: e.column(),
        })?;
        let mut callers = HashMap::new();
        for (i, entry) in entries.into_iter().enumerate() {
            let fault = |why| TokensFault::Entry(i, why);
            let mut digest = [0; 32];
            hex::decode_to_slice(&entry.sha256, &mut digest)
                .map_err(|_| fault("sha256 must be 64 hexadecimal characters"))?;
            if entry.subject.is_empty() {
                return Err(fault("subject is empty"));
            }
            let workspaces = workspaces(&entry.workspaces)
                .ok_or_else(|| fault("workspaces must be [\"*\"] or a list of workspace ids"))?;
            let caller = Caller {
                subject: entry.subject,
                workspaces,
                role: entry.role,
            };
            if callers.insert(digest, caller).is_some() {
                return Err(fault("repeats a token"));
            }
        }
        Ok(Self { callers })
    }

    /// Everybody who has one.
    pub fn subjects(&self) -> impl Iterator<Item = &str> {
        self.callers.values().map(|caller| caller.subject.as_str())
    }

    /// Whose token this is.
    pub fn find(&self, token: &[u8]) -> Option<&Caller> {
        let digest: [u8; 32] = Sha256::digest(token).into();
        self.callers.get(&digest)
    }
}

fn workspaces(words: &[String]) -> Option<Workspaces> {
    match words {
        [] => None,
        [all] if all == "*" => Some(Workspaces::All),
        list => list
            .iter()
            .map(|id| id.parse().ok())
            .collect::<Option<BTreeSet<_>>>()
            .map(Workspaces::Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_entries_are_refused_by_position() {
        let entry = |sha: &str, workspaces: &str| {
            format!(
                r#"{{"sha256":"{sha}","subject":"s","workspaces":{workspaces},"role":"viewer"}}"#
            )
        };
        let good = entry(&"ab".repeat(32), r#"["*"]"#);
        assert!(ServiceTokens::parse(&format!("[{good}]")).is_ok());
        for bad in [
            entry("ab", r#"["*"]"#),
            entry(&"cd".repeat(32), "[]"),
            entry(&"cd".repeat(32), r#"["*","a"]"#),
            entry(&"cd".repeat(32), r#"["Bad"]"#),
            good.clone(),
        ] {
            let fault = ServiceTokens::parse(&format!("[{good},{bad}]")).err();
            assert!(
                matches!(fault, Some(TokensFault::Entry(1, _))),
                "{bad}: {fault:?}"
            );
        }
        let unknown = r#"[{"token":"x"}]"#;
        assert!(matches!(
            ServiceTokens::parse(unknown),
            Err(TokensFault::Json { line: 1, .. })
        ));
    }
}
