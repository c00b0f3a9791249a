//! Steps that many end-to-end tests take.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, ensure};
use bex_proto::driver::log_file;
use bex_proto::session::Phase;
use bex_proto::{PartId, SessionId, TurnNo};
use bytes::Bytes;
use serde_json::Value;

use crate::client::{ApiClient, Turn, Viewer};
use crate::eventually;
use crate::stack::{Driver, Stack, StackOptions, pid_lives};
use crate::tally::{Parts, Tally};

/// The longest any one step takes on a busy machine; steps are waited for by what they change.
pub const STEP: Duration = Duration::from_secs(90);

/// Waits until a turn is settled.
///
/// # Errors
/// When it is not within [`STEP`].
pub async fn settled(api: &ApiClient, session: &SessionId, turn: u32) -> anyhow::Result<Turn> {
    eventually("the turn is settled", STEP, async || {
        let turns = api.turns(session).await.ok()?;
        let turn = turns.into_iter().find(|t| t.turn == turn)?;
        (turn.verdict != "open").then_some(turn)
    })
    .await
}

/// Waits until a session stands where it should.
///
/// # Errors
/// When it does not within [`STEP`].
pub async fn reaches(api: &ApiClient, session: &SessionId, phase: Phase) -> anyhow::Result<()> {
    let what = format!("the session is {phase}");
    eventually(&what, STEP, async || {
        (api.phase(session).await.ok()? == phase).then_some(())
    })
    .await
}

/// Waits until at least so many parts are stored.
///
/// # Errors
/// When they are not within [`STEP`].
pub async fn stored_at_least(
    api: &ApiClient,
    session: &SessionId,
    parts: usize,
) -> anyhow::Result<()> {
    let what = format!("{parts} parts are stored");
    eventually(&what, STEP, async || {
        (api.feed(session).await.ok()?.len() >= parts).then_some(())
    })
    .await
}

/// What is stored, in conversation order.
///
/// # Errors
/// When the feed is not given.
pub async fn stored(api: &ApiClient, session: &SessionId) -> anyhow::Result<Parts> {
    let feed = api.feed(session).await?;
    let mut parts: Parts = feed
        .iter()
        .map(|p| (p.id(), Bytes::copy_from_slice(p.part.get().as_bytes())))
        .collect();
    parts.sort_by_key(|(id, _)| *id);
    Ok(parts)
}

/// Checks that a turn's stored parts are these, under the indexes 0, 1, 2, …
///
/// # Errors
/// The first difference.
pub fn same_parts(stored: &[(PartId, Bytes)], turn: u32, expected: &[Bytes]) -> anyhow::Result<()> {
    let of_turn: Vec<_> = stored.iter().filter(|(id, _)| id.turn.0 == turn).collect();
    for (index, (id, bytes)) in (0u32..).zip(&of_turn) {
        ensure!(
            *id == PartId::new(turn, index),
            "{id} where {turn}.{index} was due"
        );
        let wanted = expected.get(index as usize);
        ensure!(
            wanted == Some(bytes),
            "{id} is {} instead of {:?}",
            shown(bytes),
            wanted.map(|w| shown(w))
        );
    }
    ensure!(
        of_turn.len() == expected.len(),
        "{} parts instead of {}",
        of_turn.len(),
        expected.len()
    );
    Ok(())
}

/// Checks that a turn's stored parts say what these say, under the indexes 0, 1, 2, …
///
/// A driver holds back text that may still become a secret and says it with a later delta of the same run: so deltas are compared as
/// the text that they join to, each run by its kind, its id and how often it was begun; all other parts byte by byte and in order.
///
/// # Errors
/// The first difference.
pub fn same_said(stored: &[(PartId, Bytes)], turn: u32, expected: &[Bytes]) -> anyhow::Result<()> {
    let of_turn = stored.iter().filter(|(id, _)| id.turn.0 == turn);
    for (index, (id, _)) in (0u32..).zip(of_turn.clone()) {
        ensure!(
            *id == PartId::new(turn, index),
            "{id} where {turn}.{index} was due"
        );
    }
    let stored = Said::of(of_turn.map(|(_, part)| part));
    let expected = Said::of(expected.iter());
    for (index, (part, due)) in stored.others.iter().zip(&expected.others).enumerate() {
        ensure!(
            part == due,
            "of the parts that are no deltas, number {index} is {} instead of {}",
            shown(part),
            shown(due)
        );
    }
    ensure!(
        stored.others.len() == expected.others.len(),
        "{} parts that are no deltas instead of {}",
        stored.others.len(),
        expected.others.len()
    );
    for (run, text) in &expected.texts {
        ensure!(
            stored.texts.get(run) == Some(text),
            "{run:?} says {:?} instead of {text:?}",
            stored.texts.get(run)
        );
    }
    ensure!(
        stored.texts.len() == expected.texts.len(),
        "{} runs instead of {}",
        stored.texts.len(),
        expected.texts.len()
    );
    Ok(())
}

fn shown(part: &[u8]) -> String {
    String::from_utf8_lossy(&part[..part.len().min(200)]).into_owned()
}

/// What parts say, wherever the borders of their deltas are.
struct Said<'a> {
    others: Vec<&'a Bytes>,
    /// By kind, id and how many parts that are no deltas named the id before: a run ends where one does.
    texts: BTreeMap<(String, String, usize), String>,
}

impl<'a> Said<'a> {
    fn of(parts: impl Iterator<Item = &'a Bytes>) -> Self {
        let mut said = Self {
            others: Vec::new(),
            texts: BTreeMap::new(),
        };
        let mut named = BTreeMap::<String, usize>::new();
        for part in parts {
            let fields: Value = serde_json::from_slice(part).unwrap_or_default();
            let field = |name: &str| fields[name].as_str().map(str::to_owned);
            let id = field("id").or_else(|| field("toolCallId"));
            let text = field("delta").or_else(|| field("inputTextDelta"));
            match (field("type"), id, text) {
                (Some(kind), Some(id), Some(text)) if kind.ends_with("-delta") => {
                    let times = named.get(&id).copied().unwrap_or(0);
                    *said.texts.entry((kind, id, times)).or_default() += &text;
                }
                (_, id, _) => {
                    if let Some(id) = id {
                        *named.entry(id).or_default() += 1;
                    }
                    said.others.push(part);
                }
            }
        }
        // a delta may be empty, or become so
        said.texts.retain(|_, text| !text.is_empty());
        said
    }
}

/// Checks that a viewer was shown every stored part once, in order, unchanged.
///
/// # Errors
/// What differs.
pub fn saw_everything(stored: &[(PartId, Bytes)], shown: &[(PartId, Bytes)]) -> anyhow::Result<()> {
    let tally = Tally::of(stored, shown);
    ensure!(
        tally.is_clean(),
        "the viewer's stream differs from the store: {tally:?}"
    );
    Ok(())
}

impl Stack {
    /// Opens a session's stream with a fresh ticket.
    ///
    /// # Errors
    /// When the ticket or the stream is refused.
    pub async fn watch(&self, session: &SessionId) -> anyhow::Result<Viewer> {
        self.watch_from(session, None).await
    }

    /// The same behind a cursor.
    ///
    /// # Errors
    /// When the ticket or the stream is refused.
    pub async fn watch_from(
        &self,
        session: &SessionId,
        cursor: Option<PartId>,
    ) -> anyhow::Result<Viewer> {
        let ticket = self.operator().read_ticket(session).await?;
        Viewer::open_at(self.addresses.attach, session, &ticket.ticket, cursor).await
    }

    /// Opens the gate of the demo agent's prompt.
    ///
    /// # Errors
    /// When the session has no sandbox.
    pub fn open_gate(&self, session: &SessionId, gate: &str) -> anyhow::Result<()> {
        let dir = self.sandboxes.newest(session)?.work_dir;
        std::fs::write(dir.join(gate), b"").context("cannot open the gate")
    }

    /// Waits until the driver of a session's newest sandbox has logged a text of its first turn.
    ///
    /// # Errors
    /// When it has not within [`STEP`].
    pub async fn said(&self, session: &SessionId, text: &str) -> anyhow::Result<()> {
        eventually("the driver said it", STEP, async || {
            let log = self.sandboxes.newest(session).ok()?.driver_dir;
            let log = std::fs::read_to_string(log.join(log_file(TurnNo(1)))).ok()?;
            log.contains(text).then_some(())
        })
        .await
    }

    /// Waits until nothing is left of a session's sandboxes.
    ///
    /// # Errors
    /// When something is after [`STEP`].
    pub async fn sandbox_gone(&self, session: &SessionId) -> anyhow::Result<()> {
        let drivers = self.sandboxes.of(session);
        eventually("the sandbox is gone", STEP, async || {
            let lives = drivers.iter().any(|driver| pid_lives(driver.pid));
            (!lives && self.sandboxes.of(session).is_empty()).then_some(())
        })
        .await?;
        match self.cluster() {
            Ok(cluster) => cluster.gone(session).await,
            Err(_) => Ok(()),
        }
    }

    /// Puts a recording where it may be played; returns its name.
    ///
    /// # Errors
    /// When it cannot be copied.
    pub fn add_recording(&self, recording: &crate::recording::Recording) -> anyhow::Result<String> {
        let name = recording.name();
        std::fs::copy(&recording.path, self.play_dir().join(&name))?;
        Ok(name)
    }
}

impl StackOptions {
    /// Sandboxes of this stack run the faulty driver.
    #[must_use]
    pub fn with_fake_driver(mut self) -> Self {
        self.driver = Driver::Faulty;
        self
    }

    /// Adds a variable to the api's environment.
    #[must_use]
    pub fn api(mut self, name: &str, value: &str) -> Self {
        self.api_env.push((name.to_owned(), value.to_owned()));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(texts: &[&str]) -> Vec<Bytes> {
        texts
            .iter()
            .map(|t| Bytes::copy_from_slice(t.as_bytes()))
            .collect()
    }

    #[test]
    fn borders_of_deltas_may_move_and_nothing_else() {
        let start = r#"{"type":"text-start","id":"1"}"#;
        let delta = |text: &str| format!(r#"{{"type":"text-delta","id":"1","delta":"{text}"}}"#);
        let end = r#"{"type":"text-end","id":"1"}"#;
        let (ab, a, b, c) = (delta("ab"), delta("a"), delta("b"), delta("c"));
        let expected = parts(&[start, &a, &b, end, start, &c, end]);
        let check = |texts: &[&str]| {
            let stored: Vec<_> = (0..)
                .zip(parts(texts))
                .map(|(index, part)| (PartId::new(1, index), part))
                .collect();
            same_said(&stored, 1, &expected).is_ok()
        };
        assert!(check(&[start, &a, &b, end, start, &c, end]));
        assert!(check(&[start, &ab, end, start, &delta(""), &c, end]));
        assert!(!check(&[start, &ab, end, start, end]), "a text is missing");
        assert!(
            !check(&[start, &b, &a, end, start, &c, end]),
            "in another order"
        );
        assert!(!check(&[start, &ab, &c, end, start, end]), "in another run");
        assert!(!check(&[start, &ab, end, start, &c, end, end]), "more");
        assert!(!check(&[start, &ab, end, start, &c]), "less");
        assert!(!check(&[
            start,
            &ab,
            r#"{"id":"1","type":"text-end"}"#,
            start,
            &c,
            end
        ]));
    }
}
