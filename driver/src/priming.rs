//! What an agent that remembers nothing is told before its prompt, and the file it is left.
//!
//! The policy is [`bex_proto::priming`], which the api runs over the durable record. Here is the ladder's lower half: the record's
//! newest words, else the task that the conversation began with. (The upper half is the agent's own: it loads its session.)

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use bex_proto::ids::TurnNo;
use bex_proto::launch::Isolation;
use serde_json::{Value, json};
use tracing::warn;

pub use bex_proto::priming::{PrimedTurn, Priming, Said};

use crate::agent::Spawn;

/// Names the file to the agent.
pub const CONTEXT_VARIABLE: &str = "BEX_CONTEXT_JSON";
/// The file, in the agent's directory.
pub const CONTEXT_FILE: &str = ".bex-context.json";

const TASK: &str = "This conversation began before you, and its record is not at hand. \
                    It began with this task:\n";

/// What an agent is told, and the part that says so once. The part holds none of the words: a replay does not show them as new talk.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    /// Stands before the prompt.
    pub text: String,
    /// `data-bex-continuity`.
    pub part: Value,
}

/// What the priming of a turn's request tells. `None` when there is nothing to tell.
pub fn told(turn: TurnNo, priming: &str) -> Option<Told> {
    let Some(priming) = Priming::parse(priming) else {
        // of an api that sent a text
        let data = json!({"turn": turn, "mode": "preamble", "bytes": priming.len()});
        return (!priming.is_empty()).then(|| Told {
            text: priming.to_owned(),
            part: continuity(turn, &data),
        });
    };
    if let Some(text) = priming.preamble() {
        let data = json!({"turn": turn, "mode": "preamble", "bytes": text.len(),
            "turns": priming.turns.len(), "omittedTurns": priming.omitted_turns});
        let part = continuity(turn, &data);
        return Some(Told { text, part });
    }
    let text = format!("{TASK}{}\n", priming.original_task?);
    let data = json!({"turn": turn, "mode": "task", "bytes": text.len(),
        "turns": 0, "omittedTurns": priming.omitted_turns});
    let part = continuity(turn, &data);
    Some(Told { text, part })
}

/// The agent's own session, as an earlier sandbox's driver named it. For what it is worth here, the agent is asked.
pub fn agent_session(priming: &str) -> Option<String> {
    Priming::parse(priming)?.agent_session_id
}

/// An agent that loaded its own session is told nothing.
pub fn loaded(turn: TurnNo) -> Value {
    continuity(turn, &json!({"turn": turn, "mode": "loaded"}))
}

fn continuity(turn: TurnNo, data: &Value) -> Value {
    json!({"type": "data-bex-continuity", "id": format!("continuity-{turn}"), "data": data})
}

/// Leaves the priming to the agent as a file and names it in its environment. Where the directory takes no file of the driver the
/// agent does without: it is told the words anyway.
pub fn leave(spawn: &mut Spawn, priming: Option<&str>) {
    let Some(priming) = priming else { return };
    let path = spawn.surroundings.workdir.join(CONTEXT_FILE);
    let mode = match spawn.surroundings.isolation {
        Isolation::None => 0o600,
        // another user reads it; nobody else is in its sandbox
        Isolation::User { .. } => 0o644,
    };
    match write(&path, priming, mode) {
        Ok(()) => {
            let path = path.display().to_string();
            spawn.env.insert(CONTEXT_VARIABLE.to_owned(), path);
        }
        Err(cause) => warn!(error = %cause, "the agent is left no context file"),
    }
}

/// The directory is the agent's, so what stands at the path may be a link to something of the driver's: it is removed, never
/// followed, and a file that is there again by then is not written to.
fn write(path: &Path, text: &str, mode: u32) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Ok(()) => {}
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => {}
        Err(cause) => return Err(cause),
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn priming(turns: Vec<PrimedTurn>, task: Option<&str>) -> String {
        let priming = Priming {
            omitted_turns: 1,
            truncated: true,
            turns,
            original_task: task.map(str::to_owned),
            agent_session_id: None,
        };
        serde_json::to_string(&priming).expect("plain data")
    }

    #[test]
    fn the_record_else_the_task_else_nothing() {
        let turn = PrimedTurn {
            turn: 2,
            prompt: Some("mend the roof".into()),
            said: vec![Said::Text {
                text: "mended".into(),
            }],
        };
        let record = told(TurnNo(3), &priming(vec![turn], Some("build"))).expect("something");
        assert!(record.text.contains("mend the roof") && record.text.contains("mended"));
        assert!(!record.text.contains("build"));
        assert_eq!(record.part["data"]["mode"], "preamble");
        assert_eq!(record.part["id"], "continuity-3");
        assert!(!record.part.to_string().contains("roof"));
        let task = told(TurnNo(3), &priming(vec![], Some("build"))).expect("something");
        assert!(task.text.ends_with("build\n"));
        assert_eq!(task.part["data"]["mode"], "task");
        assert_eq!(told(TurnNo(3), &priming(vec![], None)), None);
        let plain = told(TurnNo(3), "earlier").expect("something");
        assert_eq!(plain.text, "earlier");
    }

    #[test]
    fn a_link_in_the_file_s_place_is_not_followed() {
        let dir = tempfile::tempdir().expect("a directory");
        let (own, path) = (dir.path().join("own"), dir.path().join(CONTEXT_FILE));
        std::fs::write(&own, "kept").expect("written");
        std::os::unix::fs::symlink(&own, &path).expect("linked");
        write(&path, "words", 0o600).expect("written");
        assert_eq!(std::fs::read_to_string(&own).expect("there"), "kept");
        assert_eq!(std::fs::read_to_string(&path).expect("there"), "words");
        write(&path, "newer", 0o600).expect("written");
        assert_eq!(std::fs::read_to_string(&path).expect("there"), "newer");
    }
}
