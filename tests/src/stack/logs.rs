//! What the logs of a stack must not hold: errors nobody expected, panics, and anybody's secret.

use std::path::{Path, PathBuf};

use anyhow::ensure;
use serde_json::Value;

use super::process::LOG_DIR;

/// Lines shown of a log that explains a failure.
const TAIL: usize = 30;
/// How every JWT of ours begins: `{"` in base64url.
const JWT: &str = "eyJ";
/// A piece of a secret that is long enough to be told from other text.
const PIECE: usize = 16;

/// Which log lines of level ERROR are expected, by any text in them.
#[derive(Debug, Clone, Default)]
pub struct LogRules {
    /// Texts.
    pub expected: Vec<&'static str>,
}

impl LogRules {
    /// Inspects every log of a stack.
    pub(super) fn check(&self, dir: &Path, secrets: &[String]) -> anyhow::Result<()> {
        let mut faults = Vec::new();
        let secrets = pieces(secrets);
        let logs = logs(dir);
        ensure!(!logs.is_empty(), "there are no logs to inspect");
        for log in logs {
            let text = std::fs::read(&log)?;
            let text = String::from_utf8_lossy(&text);
            let name = log.strip_prefix(dir).unwrap_or(&log).display().to_string();
            for line in text.lines() {
                if let Some(fault) = self.fault(line, &secrets) {
                    faults.push(format!("{name}: {fault}"));
                }
            }
        }
        ensure!(
            faults.is_empty(),
            "the logs hold what they must not:\n{}",
            faults.join("\n")
        );
        Ok(())
    }

    fn fault(&self, line: &str, secrets: &[String]) -> Option<String> {
        if secrets.iter().any(|secret| line.contains(secret.as_str())) {
            return Some("a secret (the line is not repeated here)".into());
        }
        if jwt_in(line) {
            return Some("a ticket or grant (the line is not repeated here)".into());
        }
        let level: Option<Value> = serde_json::from_str(line).ok();
        let is_error = level.is_some_and(|l| l["level"] == "ERROR");
        let bad = line.contains("panicked at") || is_error;
        let expected = self.expected.iter().any(|text| line.contains(text));
        (bad && !expected).then(|| line.to_owned())
    }
}

/// The secrets, and of tickets also payload and signature alone: what is split at its dots is still a secret.
fn pieces(secrets: &[String]) -> Vec<String> {
    let parts = |secret: &String| -> Vec<String> {
        let parts = secret.split('.').skip(1).filter(|p| p.len() >= PIECE);
        parts.map(str::to_owned).collect()
    };
    let mut all = secrets.to_vec();
    all.extend(secrets.iter().flat_map(parts));
    all
}

fn jwt_in(line: &str) -> bool {
    line.match_indices(JWT).any(|(at, _)| {
        let token = &line[at..];
        let end = token
            .find(|c: char| !(c.is_ascii_alphanumeric() || "-_.".contains(c)))
            .unwrap_or(token.len());
        token[..end].matches('.').count() == 2
    })
}

/// The processes' logs and what is left of the drivers'.
fn logs(dir: &Path) -> Vec<PathBuf> {
    let list = |dir: PathBuf| std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut found: Vec<_> = list(dir.join(LOG_DIR)).map(|e| e.path()).collect();
    for pod in list(dir.join("sandboxes")) {
        found.push(
            pod.path()
                .join(bex_proto::launch::DRIVER_DIR)
                .join("driver.stderr"),
        );
    }
    found.retain(|path| path.is_file());
    found
}

/// The end of a log, for an error's text.
pub(super) fn tail_of(log: &Path) -> String {
    let text = std::fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let tail = lines[lines.len().saturating_sub(TAIL)..].join("\n");
    format!("its log ends with:\n{tail}")
}

#[expect(clippy::print_stderr, reason = "a failed test shows its logs")]
pub(super) fn print_tails(dir: &Path) {
    for log in logs(dir) {
        eprintln!("--- {}: {}", log.display(), tail_of(&log));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_panics_and_secrets_are_faults() {
        let rules = LogRules {
            expected: vec!["known trouble"],
        };
        let secrets = ["s3cret-token".to_owned()];
        let fault = |line: &str| rules.fault(line, &secrets).is_some();
        assert!(fault(r#"{"level":"ERROR","fields":{"message":"boom"}}"#));
        assert!(!fault(
            r#"{"level":"ERROR","fields":{"message":"known trouble"}}"#
        ));
        assert!(!fault(
            r#"{"level":"WARN","fields":{"message":"ERROR in a word"}}"#
        ));
        assert!(fault("thread 'main' panicked at src/x.rs:1:1:"));
        assert!(fault(r#"{"level":"INFO","token":"s3cret-token"}"#));
        assert!(fault("ticket eyJhbGciOiJIUzI1NiJ9.eyJhIjoxfQ.c2ln refused"));
        assert!(!fault("eyJ is how a token begins"));
    }

    #[test]
    fn half_a_ticket_is_a_secret_too() {
        let ticket =
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJzdmM6b3BlcmF0b3IifQ.c2lnbmF0dXJlLXNpZ25hdHVyZQ";
        let secrets = pieces(&[ticket.to_owned()]);
        let fault = |line: &str| LogRules::default().fault(line, &secrets).is_some();
        assert!(fault("claims eyJzdWIiOiJzdmM6b3BlcmF0b3IifQ refused"));
        assert!(fault("signature c2lnbmF0dXJlLXNpZ25hdHVyZQ is wrong"));
        assert!(!fault("header eyJhbGciOiJIUzI1NiJ9"), "no secret is in it");
    }
}
