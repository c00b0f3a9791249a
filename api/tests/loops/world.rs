//! Scripted sandboxes: what the loops see of them is real windows of made-up logs, with the faults a test asks for.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use bex_api::exec_client::{ExecFailure, ExecTarget, ReadAnswer, Reading, Room, SandboxRpc};
use bex_api::sandbox::{
    Again, CreateError, DeleteError, Deleted, Lifecycle, ListError, Look, Made, SandboxName,
    SandboxPlan, TurnLife,
};
use bex_proto::exec::{LogWindow, WindowEnding, WindowHeader};
use bex_proto::launch::{CONTAINER, namespace_of, pod_of};
use bex_proto::limits;
use bex_proto::session::FailureReason;
use bex_proto::transcript::sha256_hex;
use bex_proto::{Generation, SessionId, TurnNo};
use bytes::Bytes;
use tokio::sync::Notify;

/// What an observe or read-transcript suffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadFault {
    /// The bytes end here, and the answer says success.
    CutWithSuccess(usize),
    /// The bytes end here, and the transport broke.
    CutWithFailure(usize),
    /// One byte differs from what was digested.
    Corrupt,
    /// No answer of the sandbox.
    Transport,
    /// No answer of the gateway.
    Unreachable,
    /// The gateway answers with this status and no word about the sandbox.
    Refused(u16),
}

#[derive(Default)]
pub struct Sandbox {
    pub generation: u32,
    pub alive: bool,
    pub status: Option<String>,
    pub logs: BTreeMap<TurnNo, Vec<u8>>,
    pub log_id: Option<String>,
    /// Of a log that claims another generation.
    pub claims: Option<Generation>,
    pub legacy: bool,
    /// Taken one by one by reads; the last one stays.
    pub read_faults: Vec<ReadFault>,
    /// Taken one by one by deliveries.
    pub delivery_faults: Vec<ExecFailure>,
    pub delivered: Vec<TurnNo>,
    pub reads: u32,
}

type Speech = Box<dyn Fn(&mut Sandbox, TurnNo) + Send>;

#[derive(Default)]
struct State {
    sandboxes: HashMap<(SessionId, Generation), Sandbox>,
    created: Vec<String>,
    create_faults: Vec<CreateError>,
    slow_creates: u32,
    unknown_looks: u32,
    short_lives: bool,
    keys: Vec<String>,
    deleted: Vec<String>,
    delete_failures: u32,
    stopped: Vec<(SessionId, TurnNo)>,
    primed: Vec<Option<String>>,
    speech: Option<Speech>,
    stop_speech: Option<Speech>,
    calls: u32,
    hang_at: Option<u32>,
}

/// All sandboxes of a test.
#[derive(Default)]
pub struct World {
    state: Mutex<State>,
    /// Said when a call hangs.
    pub hung: Notify,
}

impl World {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .expect("no test panics while it holds the world")
    }

    /// What a sandbox does when it is given a turn.
    pub fn on_turn(&self, speech: impl Fn(&mut Sandbox, TurnNo) + Send + 'static) {
        self.state().speech = Some(Box::new(speech));
    }

    /// What a sandbox does when it is asked to stop.
    pub fn on_stop(&self, speech: impl Fn(&mut Sandbox, TurnNo) + Send + 'static) {
        self.state().stop_speech = Some(Box::new(speech));
    }

    /// Looks at or changes one sandbox.
    pub fn sandbox<T>(
        &self,
        session: &SessionId,
        generation: u32,
        with: impl FnOnce(&mut Sandbox) -> T,
    ) -> T {
        let mut state = self.state();
        with(
            state
                .sandboxes
                .get_mut(&(session.clone(), Generation(generation)))
                .expect("the sandbox was made"),
        )
    }

    pub fn fail_creates(&self, faults: Vec<CreateError>) {
        self.state().create_faults = faults;
    }

    /// So many creates find their sandbox still being made.
    pub fn slow_creates(&self, times: u32) {
        self.state().slow_creates = times;
    }

    /// So many looks tell nothing.
    pub fn unknown_looks(&self, times: u32) {
        self.state().unknown_looks = times;
    }

    /// No sandbox that is there lives long enough for another turn.
    pub fn short_lives(&self) {
        self.state().short_lives = true;
    }

    /// The driver key of each create.
    pub fn keys(&self) -> Vec<String> {
        self.state().keys.clone()
    }

    pub fn fail_deletes(&self, times: u32) {
        self.state().delete_failures = times;
    }

    pub fn created(&self) -> Vec<String> {
        self.state().created.clone()
    }

    pub fn deleted(&self) -> Vec<String> {
        self.state().deleted.clone()
    }

    pub fn stopped(&self) -> Vec<(SessionId, TurnNo)> {
        self.state().stopped.clone()
    }

    /// What sandboxes were told with each turn.
    pub fn primed(&self) -> Vec<Option<String>> {
        self.state().primed.clone()
    }

    /// The call of this number from now on never answers.
    pub fn hang_at(&self, call: Option<u32>) {
        let mut state = self.state();
        state.calls = 0;
        state.hang_at = call;
    }

    async fn enter(&self) {
        let hangs = {
            let mut state = self.state();
            state.calls += 1;
            state.hang_at == Some(state.calls)
        };
        if hangs {
            self.hung.notify_one();
            std::future::pending::<()>().await;
        }
    }

    fn answer(
        &self,
        target: &ExecTarget,
        reading: Reading,
        turn: TurnNo,
        offset: u64,
    ) -> ReadAnswer {
        let mut state = self.state();
        let Some(sandbox) = state
            .sandboxes
            .get_mut(&(target.session.clone(), target.generation))
        else {
            return ReadAnswer::failed(ExecFailure::Terminated);
        };
        if !sandbox.alive {
            return ReadAnswer::failed(ExecFailure::Terminated);
        }
        assert_eq!(target.pod_uid, format!("uid-{}", target.pod));
        sandbox.reads += 1;
        let fault = match sandbox.read_faults.len() {
            0 => None,
            1 => Some(sandbox.read_faults[0]),
            _ => Some(sandbox.read_faults.remove(0)),
        };
        if fault == Some(ReadFault::Transport) {
            return ReadAnswer::failed(ExecFailure::Transport);
        }
        if fault == Some(ReadFault::Unreachable) {
            return ReadAnswer::failed(ExecFailure::Unreachable);
        }
        if let Some(ReadFault::Refused(status)) = fault {
            return ReadAnswer::failed(ExecFailure::Refused(status));
        }
        let status = sandbox.status.clone();
        let status = status.filter(|_| reading == Reading::Status);
        let Some(log) = sandbox.logs.get(&turn) else {
            return ReadAnswer {
                header: Some(WindowHeader { status, log: None }),
                bytes: Bytes::new(),
                end: Ok(()),
            };
        };
        let running = sandbox
            .status
            .as_deref()
            .is_some_and(|s| s.contains("running"));
        let generation = (!sandbox.legacy).then(|| sandbox.claims.unwrap_or(target.generation));
        let log_id = sandbox
            .log_id
            .clone()
            .unwrap_or_else(|| format!("log-{turn}"));
        let (header, mut bytes) = window(log, offset, running, generation, log_id);
        let mut end = Ok(());
        match fault {
            Some(ReadFault::CutWithSuccess(at)) => bytes.truncate(at),
            Some(ReadFault::CutWithFailure(at)) => {
                bytes.truncate(at);
                end = Err(ExecFailure::Transport);
            }
            Some(ReadFault::Corrupt) => {
                if let Some(byte) = bytes.last_mut() {
                    *byte ^= 1;
                }
            }
            Some(ReadFault::Transport | ReadFault::Unreachable | ReadFault::Refused(_)) | None => {}
        }
        ReadAnswer {
            header: Some(WindowHeader {
                status,
                log: Some(header),
            }),
            bytes: bytes.into(),
            end,
        }
    }
}

/// As the client takes it: nothing behind the header where there is not room for all of it.
fn fitted(answer: ReadAnswer, room: Room) -> ReadAnswer {
    let log = answer
        .header
        .as_ref()
        .and_then(|header| header.log.as_ref());
    let fits = log.is_none_or(|log| log.length <= limits::HARVEST_SMALL_BYTES);
    if fits || room == Room::Window {
        return answer;
    }
    ReadAnswer {
        bytes: Bytes::new(),
        end: Err(ExecFailure::OutputLimit),
        ..answer
    }
}

fn window(
    log: &[u8],
    offset: u64,
    running: bool,
    generation: Option<Generation>,
    log_id: String,
) -> (LogWindow, Vec<u8>) {
    let size = log.len() as u64;
    let from = usize::try_from(offset.min(size)).expect("test logs are small");
    let full = usize::try_from(limits::HARVEST_BYTES).expect("a window fits");
    let mut bytes = log[from..(from + full).min(log.len())].to_vec();
    let reaches_end = from + bytes.len() == log.len();
    let cut = bytes
        .iter()
        .rposition(|b| *b == b'\n')
        .map_or(0, |at| at + 1);
    let mut ending = WindowEnding::Line;
    let mut length = bytes.len();
    if cut < bytes.len() {
        if reaches_end && !running {
            ending = WindowEnding::Unterminated;
        } else if cut == 0 && bytes.len() == full {
            ending = WindowEnding::LineTooLong;
            bytes.clear();
        } else {
            bytes.truncate(cut);
            length = cut;
        }
    }
    let window = LogWindow {
        generation,
        log_id,
        offset,
        length: length as u64,
        size,
        sha256: sha256_hex(&bytes),
        ending,
    };
    (window, bytes)
}

#[async_trait]
impl SandboxRpc for World {
    async fn read(
        &self,
        target: &ExecTarget,
        reading: Reading,
        turn: TurnNo,
        offset: u64,
        room: Room,
    ) -> ReadAnswer {
        self.enter().await;
        fitted(self.answer(target, reading, turn, offset), room)
    }

    async fn deliver_turn(
        &self,
        target: &ExecTarget,
        turn: TurnNo,
        priming: Option<String>,
    ) -> Result<(), ExecFailure> {
        self.enter().await;
        let mut state = self.state();
        let State {
            sandboxes,
            speech,
            primed,
            ..
        } = &mut *state;
        let sandbox = sandboxes
            .get_mut(&(target.session.clone(), target.generation))
            .filter(|s| s.alive)
            .ok_or(ExecFailure::Terminated)?;
        if !sandbox.delivery_faults.is_empty() {
            let fault = sandbox.delivery_faults.remove(0);
            if fault == ExecFailure::Terminated {
                sandbox.alive = false;
            }
            return Err(fault);
        }
        // idempotent by turn number
        if !sandbox.delivered.contains(&turn) {
            sandbox.delivered.push(turn);
            primed.push(priming);
            if let Some(speech) = speech {
                speech(sandbox, turn);
            }
        }
        Ok(())
    }

    async fn stop(&self, target: &ExecTarget, turn: TurnNo) -> Result<(), ExecFailure> {
        self.enter().await;
        let mut state = self.state();
        let State {
            sandboxes,
            stop_speech,
            stopped,
            ..
        } = &mut *state;
        let sandbox = sandboxes
            .get_mut(&(target.session.clone(), target.generation))
            .filter(|s| s.alive)
            .ok_or(ExecFailure::Terminated)?;
        stopped.push((target.session.clone(), turn));
        if let Some(speech) = stop_speech {
            speech(sandbox, turn);
        }
        Ok(())
    }
}

#[async_trait]
impl Lifecycle for World {
    fn kind(&self) -> &'static str {
        "local"
    }

    async fn create(&self, plan: &SandboxPlan) -> Result<Made, CreateError> {
        self.enter().await;
        let mut state = self.state();
        state.keys.push(plan.key.to_hex());
        if !state.create_faults.is_empty() {
            return Err(state.create_faults.remove(0));
        }
        let pod = pod_of(&plan.session, plan.generation);
        let State {
            sandboxes,
            created,
            speech,
            ..
        } = &mut *state;
        let sandbox = sandboxes
            .entry((plan.session.clone(), plan.generation))
            .or_default();
        if !sandbox.alive {
            sandbox.alive = true;
            sandbox.generation = plan.generation.0;
            sandbox.legacy = plan.legacy.is_some();
            created.push(pod.clone());
            if let (Some(legacy), Some(speech)) = (&plan.legacy, speech) {
                speech(sandbox, legacy.turn);
            }
        }
        if state.slow_creates > 0 {
            state.slow_creates -= 1;
            return Err(CreateError::Refused {
                what: "the pod is not started",
                reason: FailureReason::ClusterFull,
                again: Again::WhileTimeLasts,
                source: io::Error::other("it is still being started"),
            });
        }
        Ok(Made {
            namespace: namespace_of(&plan.workspace),
            pod_uid: format!("uid-{pod}"),
            pod,
            container: CONTAINER.into(),
        })
    }

    async fn look(&self, sandbox: &SandboxName) -> Look {
        let mut state = self.state();
        if state.unknown_looks > 0 {
            state.unknown_looks -= 1;
            return Look::Unknown;
        }
        let alive = state
            .sandboxes
            .get(&(sandbox.session.clone(), sandbox.generation))
            .is_some_and(|s| s.alive);
        if alive { Look::Running } else { Look::Gone }
    }

    async fn turn_life(&self, _: &SandboxName) -> TurnLife {
        match self.state().short_lives {
            true => TurnLife::TooShort,
            false => TurnLife::Enough,
        }
    }

    async fn delete(&self, sandbox: &SandboxName) -> Result<Deleted, DeleteError> {
        self.enter().await;
        let mut state = self.state();
        if state.delete_failures > 0 {
            state.delete_failures -= 1;
            return Err(DeleteError::StillRunning);
        }
        if state
            .sandboxes
            .remove(&(sandbox.session.clone(), sandbox.generation))
            .is_some()
        {
            state.deleted.push(sandbox.pod.clone());
        }
        Ok(Deleted)
    }

    async fn list(&self) -> Result<Vec<SandboxName>, ListError> {
        Ok(Vec::new())
    }
}

/// Waits for a level, a minute at most: a machine may have other work.
pub async fn eventually<F>(what: &str, mut reached: impl FnMut() -> F)
where
    F: Future<Output = bool>,
{
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while !reached().await {
        assert!(
            tokio::time::Instant::now() < deadline,
            "not reached in time: {what}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
