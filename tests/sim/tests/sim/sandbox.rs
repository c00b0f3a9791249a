//! Sandboxes and what is spoken in them. What a driver said is kept here as the truth, whatever becomes of its sandbox: all
//! verdicts are held against it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bex_api::exec_client::{ExecFailure, ExecTarget, ReadAnswer, Reading};
use bex_api::sandbox::{Look, SandboxName};
use bex_proto::driver::{
    Dropped, TurnDigest, TurnEnd, TurnState, dropped_record, log_record, turn_end_record,
    write_part_record,
};
use bex_proto::exec::{LogWindow, WindowEnding, WindowHeader};
use bex_proto::launch::pod_of;
use bex_proto::transcript::sha256_hex;
use bex_proto::{Generation, PartIndex, SessionId, TurnNo};
use bytes::Bytes;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;

type Name = (SessionId, Generation);

/// All sandboxes, living and dead.
#[derive(Debug, Default)]
pub struct World {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    pods: BTreeMap<Name, Pod>,
    speeches: BTreeMap<(SessionId, TurnNo), Speech>,
}

/// One sandbox.
#[derive(Debug)]
pub struct Pod {
    pub alive: bool,
    pub made: Instant,
    /// Removals that really removed it.
    pub removals: u32,
    /// When it died without being removed.
    pub died: Option<Instant>,
    /// Nothing that is run in it ever answers.
    pub hung: bool,
    /// The status tells something else than the truth until then.
    pub ambiguous: Option<(Instant, Option<String>)>,
    /// When its status and log could last be read, undamaged and unambiguous.
    pub last_clear: Instant,
    status: String,
    logs: BTreeMap<TurnNo, Log>,
    stops: Vec<TurnNo>,
    changed: watch::Sender<()>,
}

#[derive(Debug)]
struct Log {
    id: String,
    bytes: Vec<u8>,
    rotations: u32,
}

/// The truth about one turn.
#[derive(Debug)]
pub struct Speech {
    pub generation: Generation,
    pub parts: Vec<(Bytes, Instant)>,
    pub ended: Option<(TurnState, Instant)>,
    /// Its log lost something that was in it, or was not where it should be.
    pub tampered: bool,
    /// Its log tells something else than what was said.
    pub altered: bool,
    /// First index that its log dropped.
    pub dropped_from: Option<u32>,
    digest: TurnDigest,
    bytes: u64,
}

/// What a stream of a driver gives next.
#[derive(Debug)]
pub enum Streamed {
    Parts(Vec<(u32, Bytes)>),
    Nothing(watch::Receiver<()>),
    Done,
    Gone,
}

/// What becomes of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tampering {
    /// Another file with all that was in it.
    RotatedWhole,
    /// Another file with what comes from now on.
    RotatedEmpty,
    /// The same file, shorter.
    Shrunk,
    /// The same file, but its last part is another one.
    Altered,
}

/// The driver's clock, which is nobody's business.
fn driver_time(index: u32) -> Timestamp {
    Timestamp::from_second(1_000_000 + i64::from(index % 7) * 86_400).expect("a time")
}

impl World {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn with_pod<T>(
        &self,
        session: &SessionId,
        life: Generation,
        with: impl FnOnce(&mut Pod) -> T,
    ) -> Option<T> {
        self.state()
            .pods
            .get_mut(&(session.clone(), life))
            .map(with)
    }

    pub fn with_speech<T>(
        &self,
        session: &SessionId,
        turn: TurnNo,
        with: impl FnOnce(&Speech) -> T,
    ) -> Option<T> {
        self.state()
            .speeches
            .get(&(session.clone(), turn))
            .map(with)
    }

    pub fn pods(&self) -> Vec<(SessionId, Generation, bool)> {
        let state = self.state();
        let all = state.pods.iter();
        all.map(|((session, life), pod)| (session.clone(), *life, pod.alive))
            .collect()
    }

    /// Makes a sandbox; answers its UID.
    pub fn create(&self, session: &SessionId, life: Generation) -> String {
        let pod = Pod {
            alive: true,
            made: Instant::now(),
            removals: 0,
            died: None,
            hung: false,
            ambiguous: None,
            last_clear: Instant::now(),
            status: format!(r#"{{"state":"idle","generation":{life}}}"#),
            logs: BTreeMap::new(),
            stops: Vec::new(),
            changed: watch::Sender::new(()),
        };
        self.state().pods.insert((session.clone(), life), pod);
        uid(session, life)
    }

    /// Gives a driver a turn. False when it is not there.
    pub fn begin(&self, session: &SessionId, life: Generation, turn: TurnNo) -> bool {
        let mut state = self.state();
        let state = &mut *state;
        let Some(pod) = state
            .pods
            .get_mut(&(session.clone(), life))
            .filter(|pod| pod.alive)
        else {
            return false;
        };
        let speech = Speech {
            generation: life,
            parts: Vec::new(),
            ended: None,
            tampered: false,
            altered: false,
            dropped_from: None,
            digest: TurnDigest::default(),
            bytes: 0,
        };
        let spoken_before = state.speeches.insert((session.clone(), turn), speech);
        assert!(
            spoken_before.is_none(),
            "{session} {turn} is spoken by one generation"
        );
        let log = Log {
            id: format!("log-{turn}"),
            bytes: log_record(life, &format!("log-{turn}"), turn).into_bytes(),
            rotations: 0,
        };
        pod.logs.insert(turn, log);
        pod.say_status("running", life, turn);
        pod.last_clear = Instant::now();
        true
    }

    /// One more part: into the log, then to whoever listens. False when the sandbox is gone.
    pub fn say(&self, session: &SessionId, life: Generation, turn: TurnNo, part: String) -> bool {
        self.speaking(session, life, turn, |pod, speech| {
            let index = speech.parts.len() as u32;
            if let (None, Some(log)) = (speech.dropped_from, pod.logs.get_mut(&turn)) {
                let at = driver_time(index);
                write_part_record(&mut log.bytes, at, turn, PartIndex(index), part.as_bytes());
            }
            speech.count(part);
        })
    }

    /// The log is full from now on.
    pub fn fill_log(&self, session: &SessionId, life: Generation, turn: TurnNo) {
        self.speaking(session, life, turn, |pod, speech| {
            if speech.dropped_from.is_none() {
                let first = speech.parts.len() as u32;
                speech.dropped_from = Some(first);
                if let Some(log) = pod.logs.get_mut(&turn) {
                    log.bytes
                        .extend(dropped_record(turn, PartIndex(first)).into_bytes());
                }
            }
        });
    }

    /// The driver ends the turn.
    pub fn end(
        &self,
        session: &SessionId,
        life: Generation,
        turn: TurnNo,
        state: TurnState,
    ) -> bool {
        self.speaking(session, life, turn, |pod, speech| {
            let parts = speech.parts.len() as u32;
            let dropped = speech.dropped_from.filter(|first| *first < parts);
            let end = TurnEnd {
                turn,
                parts,
                bytes: speech.bytes,
                sha256: speech.digest.hex(),
                state,
                dropped: dropped.map(|first| Dropped {
                    first: PartIndex(first),
                    last: PartIndex(parts - 1),
                    count: parts - first,
                    bytes: 1,
                }),
            };
            if let Some(log) = pod.logs.get_mut(&turn) {
                log.bytes
                    .extend(turn_end_record(driver_time(0), &end).into_bytes());
            }
            speech.ended = Some((state, Instant::now()));
            pod.say_status("idle", life, turn);
        })
    }

    fn speaking(
        &self,
        session: &SessionId,
        life: Generation,
        turn: TurnNo,
        with: impl FnOnce(&mut Pod, &mut Speech),
    ) -> bool {
        let mut state = self.state();
        let State { pods, speeches } = &mut *state;
        let pod = pods
            .get_mut(&(session.clone(), life))
            .filter(|pod| pod.alive);
        let speech = speeches
            .get_mut(&(session.clone(), turn))
            .filter(|speech| speech.ended.is_none());
        let (Some(pod), Some(speech)) = (pod, speech) else {
            return false;
        };
        with(pod, speech);
        pod.changed.send_replace(());
        true
    }

    pub fn tamper(&self, session: &SessionId, life: Generation, turn: TurnNo, how: Tampering) {
        self.speaking(session, life, turn, |pod, speech| {
            let Some(log) = pod.logs.get_mut(&turn) else {
                return;
            };
            if how == Tampering::Altered {
                let last = log.bytes.windows(5).rposition(|text| text == b"word ");
                if let Some(at) = last {
                    log.bytes[at] = b'W';
                    speech.tampered = true;
                    speech.altered = true;
                }
                return;
            }
            if how == Tampering::Shrunk {
                let head = log_record(life, &log.id, turn).len();
                log.bytes.truncate(log.bytes.len().div_ceil(2).max(head));
                speech.tampered = true;
                return;
            }
            log.rotations += 1;
            log.id = format!("log-{turn}-{}", log.rotations);
            log.bytes = log_record(life, &log.id, turn).into_bytes();
            if how == Tampering::RotatedWhole {
                let kept = speech
                    .dropped_from
                    .map_or(speech.parts.len(), |at| at as usize);
                for (index, (part, _)) in speech.parts[..kept].iter().enumerate() {
                    let index = index as u32;
                    write_part_record(
                        &mut log.bytes,
                        driver_time(index),
                        turn,
                        PartIndex(index),
                        part,
                    );
                }
                if let Some(first) = speech.dropped_from {
                    log.bytes
                        .extend(dropped_record(turn, PartIndex(first)).into_bytes());
                }
            } else {
                speech.tampered = true;
            }
        });
    }

    /// The sandbox is gone, with its log.
    pub fn kill(&self, session: &SessionId, life: Generation) {
        self.with_pod(session, life, |pod| {
            if pod.alive {
                pod.alive = false;
                pod.died = Some(Instant::now());
                pod.changed.send_replace(());
            }
        });
    }

    /// Removes it; true when it was there.
    pub fn remove(&self, sandbox: &SandboxName) -> bool {
        self.with_pod(&sandbox.session, sandbox.generation, |pod| {
            let was = pod.alive;
            pod.alive = false;
            pod.removals += u32::from(was);
            pod.changed.send_replace(());
            was
        })
        .unwrap_or(false)
    }

    pub fn look(&self, sandbox: &SandboxName) -> Look {
        let alive = self.with_pod(&sandbox.session, sandbox.generation, |pod| pod.alive);
        match alive {
            Some(true) => Look::Running,
            Some(false) | None => Look::Gone,
        }
    }

    pub fn list(&self) -> Vec<SandboxName> {
        let living = self.pods().into_iter().filter(|(_, _, alive)| *alive);
        living
            .map(|(session, generation, _)| SandboxName {
                namespace: "ns".into(),
                pod: pod_of(&session, generation),
                pod_uid: Some(uid(&session, generation)),
                session,
                generation,
            })
            .collect()
    }

    pub fn stop(
        &self,
        session: &SessionId,
        life: Generation,
        turn: TurnNo,
    ) -> Result<(), ExecFailure> {
        self.with_pod(session, life, |pod| {
            if !pod.alive {
                return Err(ExecFailure::Terminated);
            }
            pod.stops.push(turn);
            pod.changed.send_replace(());
            Ok(())
        })
        .unwrap_or(Err(ExecFailure::Terminated))
    }

    pub fn is_stopped(&self, session: &SessionId, life: Generation, turn: TurnNo) -> bool {
        self.with_pod(session, life, |pod| pod.stops.contains(&turn))
            .unwrap_or(false)
    }

    /// Parts of a turn from an index on, as its driver streams them.
    pub fn stream(
        &self,
        session: &SessionId,
        life: Generation,
        turn: TurnNo,
        from: u32,
    ) -> Streamed {
        let state = self.state();
        let Some(pod) = state
            .pods
            .get(&(session.clone(), life))
            .filter(|pod| pod.alive)
        else {
            return Streamed::Gone;
        };
        let Some(speech) = state.speeches.get(&(session.clone(), turn)) else {
            return Streamed::Nothing(pod.changed.subscribe());
        };
        let parts: Vec<_> = speech
            .parts
            .iter()
            .enumerate()
            .skip(from as usize)
            .map(|(index, (part, _))| (index as u32, part.clone()))
            .collect();
        match (parts.is_empty(), speech.ended.is_some()) {
            (false, _) => Streamed::Parts(parts),
            (true, true) => Streamed::Done,
            (true, false) => Streamed::Nothing(pod.changed.subscribe()),
        }
    }

    /// Status and log from an offset, as the driver's own exec reads them.
    pub fn read(
        &self,
        target: &ExecTarget,
        reading: Reading,
        turn: TurnNo,
        offset: u64,
    ) -> ReadAnswer {
        self.with_pod(&target.session, target.generation, |pod| {
            if !pod.alive {
                return ReadAnswer::failed(ExecFailure::Terminated);
            }
            pod.read(target.generation, reading, turn, offset)
        })
        .unwrap_or_else(|| ReadAnswer::failed(ExecFailure::Terminated))
    }

    /// A read arrived as it was given.
    pub fn was_clear(&self, target: &ExecTarget) {
        self.with_pod(&target.session, target.generation, |pod| {
            if pod.ambiguous.is_none() {
                pod.last_clear = Instant::now();
            }
        });
    }
}

impl Pod {
    fn say_status(&mut self, state: &str, life: Generation, turn: TurnNo) {
        self.status = format!(r#"{{"state":"{state}","generation":{life},"turn":{turn}}}"#);
    }

    fn read(
        &mut self,
        life: Generation,
        reading: Reading,
        turn: TurnNo,
        offset: u64,
    ) -> ReadAnswer {
        if self
            .ambiguous
            .as_ref()
            .is_some_and(|(until, _)| *until <= Instant::now())
        {
            self.ambiguous = None;
        }
        let status = match &self.ambiguous {
            Some((_, status)) => status.clone(),
            None => Some(self.status.clone()),
        };
        let over = status.as_deref().is_some_and(|status| {
            status.contains("idle") && status.contains(&format!(r#""turn":{turn}}}"#))
        });
        let (header, bytes) = match self.logs.get(&turn) {
            Some(log) => {
                let (window, bytes) = window(log, life, offset, over);
                (Some(window), bytes)
            }
            None => (None, Bytes::new()),
        };
        ReadAnswer {
            header: Some(WindowHeader {
                status: status.filter(|_| reading == Reading::Status),
                log: header,
            }),
            bytes,
            end: Ok(()),
        }
    }
}

impl Speech {
    fn count(&mut self, part: String) {
        self.digest.add(part.as_bytes());
        self.bytes += part.len() as u64;
        self.parts.push((part.into(), Instant::now()));
    }

    /// Parts that were spoken within `time` before `end`.
    pub fn within(&self, time: Duration, end: Instant) -> usize {
        let recent = |at: &&(Bytes, Instant)| end.duration_since(at.1) <= time;
        self.parts.iter().filter(recent).count()
    }
}

fn window(log: &Log, life: Generation, offset: u64, over: bool) -> (LogWindow, Bytes) {
    let size = log.bytes.len() as u64;
    let rest = &log.bytes[offset.min(size) as usize..];
    let lines = rest
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    let (given, ending) = if over && lines < rest.len() {
        (rest, WindowEnding::Unterminated)
    } else {
        (&rest[..lines], WindowEnding::Line)
    };
    let window = LogWindow {
        generation: Some(life),
        log_id: log.id.clone(),
        offset,
        length: given.len() as u64,
        size,
        sha256: sha256_hex(given),
        ending,
    };
    (window, Bytes::copy_from_slice(given))
}

pub fn uid(session: &SessionId, life: Generation) -> String {
    format!("uid-{}", pod_of(session, life))
}

/// The text of a part.
pub fn part(index: usize, tail: &str) -> String {
    format!(r#"{{"type":"text-delta","id":"t","delta":"word {index}{tail}"}}"#)
}
