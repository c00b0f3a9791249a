//! What became of commands, kept in the state directory, so that one that comes again is not done again.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;

use bex_proto::CommandId;
use serde::{Deserialize, Serialize};

use super::place::Place;

/// How a command stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Deed {
    /// It was begun; when the reporter fell then, nobody knows.
    Begun,
    /// It was done.
    Done,
    /// It could not be.
    Failed(String),
}

/// One line of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    id: CommandId,
    deed: Deed,
    /// The command was a stop, which a reporter that comes back goes on with.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    stops: bool,
}

/// The file. A session has few commands: a person gives them.
#[derive(Debug)]
pub struct Deeds {
    file: File,
    known: HashMap<CommandId, Deed>,
    stopped: bool,
}

impl Deeds {
    /// What an earlier reporter did. A torn last line was answered by nobody.
    ///
    /// # Errors
    /// What the system says.
    pub fn open(place: &Place) -> io::Result<Self> {
        let path = place.commands();
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&path)?;
        let (mut known, mut stopped) = (HashMap::new(), false);
        let text = std::fs::read(&path)?;
        for line in text.split(|byte| *byte == b'\n') {
            if let Ok(Line { id, deed, stops }) = serde_json::from_slice(line) {
                stopped |= stops;
                known.insert(id, deed);
            }
        }
        if !text.is_empty() && !text.ends_with(b"\n") {
            file.write_all(b"\n")?;
        }
        Ok(Self {
            file,
            known,
            stopped,
        })
    }

    /// How a command stands; nothing of one that is new.
    pub fn of(&self, id: &CommandId) -> Option<&Deed> {
        self.known.get(id)
    }

    /// Whether a stop was begun.
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    /// Writes down how it stands now.
    ///
    /// # Errors
    /// What the system says.
    pub fn set(&mut self, id: &CommandId, deed: Deed, stops: bool) -> io::Result<()> {
        let line = Line {
            id: id.clone(),
            deed,
            stops,
        };
        let mut text = serde_json::to_vec(&line)?;
        text.push(b'\n');
        self.file.write_all(&text)?;
        self.known.insert(line.id, line.deed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn open(dir: &Path) -> Deeds {
        Deeds::open(&Place::of_runner(dir)).expect("a file")
    }

    #[test]
    fn deeds_are_known_to_the_next_reporter_and_a_torn_one_is_not() {
        let dir = tempfile::tempdir().expect("a directory");
        let [a, b, c] = [(); 3].map(|()| CommandId::random());
        let mut deeds = open(dir.path());
        deeds.set(&a, Deed::Begun, true).expect("written");
        deeds.set(&a, Deed::Done, true).expect("written");
        deeds
            .set(&b, Deed::Failed("no".into()), false)
            .expect("written");
        assert!(!deeds.stopped(), "of an earlier life only");
        let path = Place::of_runner(dir.path()).commands();
        let mut text = std::fs::read(&path).expect("a file");
        text.extend_from_slice(format!("{{\"id\":\"{c}\",\"de").as_bytes());
        std::fs::write(&path, text).expect("a file");
        let mut deeds = open(dir.path());
        assert_eq!(deeds.of(&a), Some(&Deed::Done));
        assert_eq!(deeds.of(&b), Some(&Deed::Failed("no".into())));
        assert_eq!(deeds.of(&c), None);
        assert!(deeds.stopped());
        deeds.set(&c, Deed::Done, false).expect("written");
        assert_eq!(open(dir.path()).of(&c), Some(&Deed::Done));
    }
}
