//! `bex-redact [--report FILE] [FILE...]`: files, or standard input, without secrets and personal data, to standard output.
//!
//! Lines of JSON are treated as parts of one conversation. Exit code 0; 3 when the gate refuses, and then nothing is written; 1 when
//! something could not be read or written.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use bex_redact::{Conversation, Counts, Gate, Profile, Redactor, Refused, Rules, TokenKey};
use clap::Parser;
use serde_json::json;

/// What the gate's refusal exits with.
const REFUSED: u8 = 3;

/// Takes secrets and personal data out of transcripts and logs.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    /// Writes what was taken out, as counts by rule, and the gate's answer, as JSON.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// The bytes of this file key the tokens, so that they are the same in every run; without it they are of this run only.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// Takes out national ids too.
    #[arg(long)]
    national_ids: bool,
    /// What to clean; standard input when there is none.
    files: Vec<PathBuf>,
}

/// Why nothing was cleaned.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("cannot read {0}: {1}")]
    Read(String, std::io::Error),
    #[error("cannot write {0}: {1}")]
    Write(String, std::io::Error),
    #[error("no randomness for a key: {0}")]
    Key(getrandom::Error),
    #[error(transparent)]
    Gate(#[from] bex_redact::GateError),
    #[error(transparent)]
    Refused(#[from] Refused),
}

#[expect(clippy::print_stderr, reason = "what a command has to say")]
fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("bex-redact: {failure}");
            match failure {
                Failure::Refused(_) => REFUSED.into(),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Failure> {
    let key = match &arguments.key {
        Some(path) => TokenKey::new(
            &std::fs::read(path).map_err(|e| Failure::Read(path.display().to_string(), e))?,
        ),
        None => TokenKey::random().map_err(Failure::Key)?,
    };
    let profile = if arguments.national_ids {
        Profile::WithNationalIds
    } else {
        Profile::Package
    };
    let gate = Gate::new(profile)?;
    let redactor = Redactor::new(profile, key);
    let mut conversation = Conversation::new(&redactor);
    for text in texts(&arguments.files)? {
        conversation.push(text);
    }
    let (texts, counts) = conversation.finish();
    let answer = gate.check(texts.iter().map(Vec::as_slice));
    if let Some(path) = &arguments.report {
        let report = report(&counts, answer.as_ref().err());
        std::fs::write(path, report).map_err(|e| Failure::Write(path.display().to_string(), e))?;
    }
    answer?;
    let mut out = std::io::stdout().lock();
    let written = texts
        .iter()
        .try_for_each(|text| out.write_all(text))
        .and_then(|()| out.flush());
    written.map_err(|e| Failure::Write("standard output".to_owned(), e))
}

fn texts(files: &[PathBuf]) -> Result<Vec<Vec<u8>>, Failure> {
    if files.is_empty() {
        let mut text = Vec::new();
        let read = std::io::stdin().lock().read_to_end(&mut text);
        return read
            .map(|_| vec![text])
            .map_err(|e| Failure::Read("standard input".to_owned(), e));
    }
    let read = |path: &PathBuf| {
        std::fs::read(path).map_err(|e| Failure::Read(path.display().to_string(), e))
    };
    files.iter().map(read).collect()
}

fn report(counts: &Counts, refused: Option<&Refused>) -> String {
    let report = json!({
        "rulesVersion": Rules::get().version,
        "redacted": counts,
        "gate": if refused.is_some() { "refused" } else { "passed" },
        "gateIds": refused.map(|r| &r.ids),
    });
    format!("{report}\n")
}
