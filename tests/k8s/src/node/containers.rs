//! One pod on the node: its containers' states and what changes them.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::files::{PodFiles, Unmade, items, word};
use super::{CRASH_SHOWN, KILLED, Live, probe, process, status};
use crate::objects::Key;
use crate::options::Main;
use crate::world::{World, now, random_hex};

/// Ends of containers that wait to be noted.
const EXITS: usize = 64;
/// The exit code of a container whose program cannot be started.
const START_ERROR: i32 = 128;

/// A container's state.
#[derive(Debug, Clone)]
pub(super) enum BoxState {
    Waiting(String, String),
    Running { since: Value },
    Ended(Ended),
}

#[derive(Debug, Clone)]
pub(super) struct Ended {
    pub(super) code: i32,
    pub(super) reason: &'static str,
    pub(super) id: String,
    pub(super) began: Value,
    pub(super) ended: Value,
}

/// What follows a container's end, where an order says so.
#[derive(Debug, Clone, Copy)]
enum After {
    Again,
    BackOff,
}

/// A container.
pub(super) struct Bx {
    pub(super) spec: Value,
    pub(super) is_init: bool,
    pub(super) state: BoxState,
    pub(super) last: Option<Ended>,
    pub(super) id: Option<String>,
    pub(super) restarts: u32,
    pub(super) ready: bool,
    pid: Option<u32>,
    forced: Option<i32>,
    after: Option<After>,
    ended: CancellationToken,
    stop: CancellationToken,
    next_start: Option<Instant>,
}

impl Bx {
    fn new(spec: &Value, is_init: bool) -> Self {
        let reason = if is_init {
            "PodInitializing"
        } else {
            "ContainerCreating"
        };
        Self {
            spec: spec.clone(),
            is_init,
            state: BoxState::Waiting(reason.to_owned(), String::new()),
            last: None,
            id: None,
            restarts: 0,
            ready: false,
            pid: None,
            forced: None,
            after: None,
            ended: CancellationToken::new(),
            stop: CancellationToken::new(),
            next_start: None,
        }
    }

    pub(super) fn runs(&self) -> bool {
        matches!(self.state, BoxState::Running { .. })
    }

    /// Ends for good with 0.
    fn is_done(&self) -> bool {
        matches!(&self.state, BoxState::Ended(ended) if ended.code == 0)
    }

    fn is_fresh(&self) -> bool {
        matches!(self.state, BoxState::Waiting(..)) && self.id.is_none()
    }
}

/// See the module's text.
pub(super) struct Pod {
    world: Arc<World>,
    key: Key,
    uid: String,
    pub(super) spec: Value,
    pub(super) ip: Option<IpAddr>,
    pub(super) is_scheduled: bool,
    pub(super) boxes: Vec<Bx>,
    /// Index, container id, exit code.
    pub(super) exits: mpsc::Receiver<(usize, String, i32)>,
    say: mpsc::Sender<(usize, String, i32)>,
    /// Reason and message of a failure that no container shows.
    pub(super) failed: Option<(&'static str, &'static str)>,
    pub(super) began: Value,
    began_at: Instant,
    dir: PathBuf,
}

impl Pod {
    pub(super) fn new(world: Arc<World>, key: Key, uid: String, pod: &Value) -> Self {
        let of = |field: &str, is_init| {
            let list = items(&pod["spec"][field]).iter();
            list.map(|spec| Bx::new(spec, is_init)).collect::<Vec<_>>()
        };
        let mut boxes = of("initContainers", true);
        boxes.extend(of("containers", false));
        let (say, exits) = mpsc::channel(EXITS);
        // a test may want an address that another pod had
        let wanted = pod["metadata"]["annotations"][super::IP_ANNOTATION].as_str();
        let ip = wanted.and_then(|ip| ip.parse().ok());
        Self {
            dir: world.pod_dir(&uid),
            ip,
            world,
            key,
            uid,
            spec: pod.clone(),
            is_scheduled: false,
            boxes,
            exits,
            say,
            failed: None,
            began: now(),
            began_at: Instant::now(),
        }
    }

    /// Gives it the node, unless it wants another one.
    pub(super) fn schedule(&mut self) {
        let selector = self.spec["spec"]["nodeSelector"].as_object();
        if selector.is_none_or(serde_json::Map::is_empty) {
            self.is_scheduled = true;
            self.ip = Some(self.ip.unwrap_or_else(|| self.world.next_ip()));
            self.advance();
        } else {
            self.publish();
        }
    }

    /// Starts what is to be started next: the first unfinished init container, else all others.
    pub(super) fn advance(&mut self) {
        let next = self.boxes.iter().position(|b| b.is_init && !b.is_done());
        let startable: Vec<usize> = match next {
            Some(init) => vec![init],
            None => (0..self.boxes.len())
                .filter(|i| !self.boxes[*i].is_init)
                .collect(),
        };
        for index in startable {
            if self.boxes[index].is_fresh() {
                self.launch(index);
            }
        }
        self.publish();
    }

    fn launch(&mut self, index: usize) {
        let image = self.world.image(word(&self.boxes[index].spec["image"]));
        if let Main::Missing(reason) = image.main {
            let name = word(&self.boxes[index].spec["image"]).to_owned();
            let message = format!("failed to pull and unpack image \"{name}\": not found");
            self.boxes[index].state = BoxState::Waiting(reason.to_owned(), message);
            return;
        }
        let ip = self.ip.map(|ip| ip.to_string()).unwrap_or_default();
        let files = PodFiles {
            world: &self.world,
            key: &self.key,
            pod: &self.spec,
            dir: &self.dir,
            ip: &ip,
        };
        let made = std::fs::create_dir_all(&self.dir)
            .map_err(|e| Unmade("CreateContainerConfigError", e.to_string()))
            .and_then(|()| files.setting(&self.boxes[index].spec));
        let setting = match made {
            Ok(setting) => Arc::new(setting),
            Err(Unmade(reason, message)) => {
                self.boxes[index].state = BoxState::Waiting(reason.to_owned(), message);
                return;
            }
        };
        let argv = argv(&self.boxes[index].spec, &image.main);
        let id = random_hex();
        let (ended, stop) = (CancellationToken::new(), CancellationToken::new());
        let log = self
            .dir
            .join(format!("{}.log", word(&self.boxes[index].spec["name"])));
        let running = match argv {
            None => Ok(None),
            Some(argv) if !process::is_there(&argv[0], &setting) => {
                Err(std::io::ErrorKind::NotFound.into())
            }
            Some(argv) => process::start(&argv, &setting, |command| {
                if let Ok(log) = std::fs::File::options().create(true).append(true).open(log) {
                    command.stderr(log);
                }
            })
            .map(Some),
        };
        let bx = &mut self.boxes[index];
        bx.id = Some(format!("containerd://{id}"));
        bx.ended = ended.clone();
        bx.stop = stop.clone();
        let running = match running {
            Ok(running) => running,
            Err(_) => {
                let say = self.say.clone();
                bx.state = BoxState::Running { since: now() };
                // as an end, so that it is treated as any other
                let _ = say.try_send((index, id, START_ERROR));
                return;
            }
        };
        bx.pid = running.as_ref().map(|r| r.pid);
        bx.state = BoxState::Running { since: now() };
        let live = Live {
            ended,
            pid: bx.pid,
            setting,
        };
        let name = word(&bx.spec["name"]).to_owned();
        self.world.with(|state| {
            if let Some(life) = state.lives.get_mut(&self.uid) {
                life.containers.insert(name, live);
            }
        });
        let say = self.say.clone();
        tokio::spawn(async move {
            let code = match running {
                Some(mut running) => {
                    tokio::select! {
                        status = running.child.wait() => process::code_of(status),
                        () = stop.cancelled() => KILLED,
                    }
                }
                None => {
                    stop.cancelled().await;
                    KILLED
                }
            };
            let _ = say.send((index, id, code)).await;
        });
    }

    /// A container's process ended: everything else in it ends with it.
    pub(super) fn note_exit(&mut self, index: usize, id: &str, code: i32) {
        let name = word(&self.boxes[index].spec["name"]).to_owned();
        let bx = &mut self.boxes[index];
        let BoxState::Running { since } = bx.state.clone() else {
            return;
        };
        bx.pid.take().into_iter().for_each(process::kill_session);
        bx.ended.cancel();
        let code = bx.forced.take().unwrap_or(code);
        let reason = match code {
            0 => "Completed",
            START_ERROR => "StartError",
            _ => "Error",
        };
        let ended = Ended {
            code,
            reason,
            id: format!("containerd://{id}"),
            began: since,
            ended: now(),
        };
        bx.state = BoxState::Ended(ended.clone());
        bx.ready = false;
        self.world.with(|state| {
            state
                .lives
                .get_mut(&self.uid)
                .and_then(|life| life.containers.remove(&name))
        });
        let restarts = self.restarts(code);
        let bx = &mut self.boxes[index];
        match bx.after.take() {
            Some(After::Again) => {
                bx.last = Some(ended);
                bx.restarts += 1;
                self.launch(index);
            }
            Some(After::BackOff) => self.back_off(index, ended),
            None if bx.is_init => return self.advance(),
            None if restarts && bx.restarts == 0 => {
                bx.next_start = Some(Instant::now() + CRASH_SHOWN)
            }
            None if restarts => {
                bx.next_start = Some(Instant::now() + self.world.options.back_off);
                self.back_off(index, ended);
            }
            None => {}
        }
        self.publish();
    }

    fn back_off(&mut self, index: usize, ended: Ended) {
        let bx = &mut self.boxes[index];
        let message = format!(
            "back-off 10s restarting failed container={} pod={}",
            word(&bx.spec["name"]),
            self.key.1
        );
        bx.state = BoxState::Waiting("CrashLoopBackOff".to_owned(), message);
        bx.last = Some(ended);
    }

    fn restarts(&self, code: i32) -> bool {
        match word(&self.spec["spec"]["restartPolicy"]) {
            "Never" => false,
            "OnFailure" => code != 0,
            _ => true,
        }
    }

    pub(super) fn next_start(&self) -> Option<Instant> {
        self.boxes.iter().filter_map(|b| b.next_start).min()
    }

    /// Starts what waited in back-off.
    pub(super) fn start_again(&mut self) {
        let due = |b: &Bx| b.next_start.is_some_and(|at| at <= Instant::now());
        let due: Vec<usize> = (0..self.boxes.len())
            .filter(|i| due(&self.boxes[*i]))
            .collect();
        for index in due {
            let bx = &mut self.boxes[index];
            bx.next_start = None;
            bx.restarts += 1;
            if let BoxState::Ended(ended) = bx.state.clone() {
                bx.last = Some(ended);
            }
            self.launch(index);
        }
        self.publish();
    }

    fn first(&mut self) -> Option<&mut Bx> {
        self.boxes.iter_mut().find(|b| !b.is_init && b.runs())
    }

    pub(super) fn finish(&mut self, code: i32) {
        if let Some(bx) = self.first() {
            bx.forced = Some(code);
            bx.stop.cancel();
        }
    }

    pub(super) fn restart_first(&mut self) {
        if let Some(bx) = self.first() {
            bx.after = Some(After::Again);
            bx.stop.cancel();
        }
    }

    pub(super) fn crash_loop_first(&mut self) {
        if let Some(bx) = self.first() {
            bx.after = Some(After::BackOff);
            bx.forced = Some(1);
            bx.stop.cancel();
        }
    }

    pub(super) fn runs(&self) -> bool {
        self.boxes.iter().any(Bx::runs)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        let seconds = self.spec["spec"]["activeDeadlineSeconds"].as_u64()?;
        Some(self.began_at + Duration::from_secs(seconds))
    }

    /// Everything is killed; the status tells only later.
    pub(super) async fn exceed_deadline(&mut self) {
        self.kill_all();
        tokio::time::sleep(self.world.options.status_lag).await;
        while let Ok((index, id, code)) = self.exits.try_recv() {
            self.note_exit(index, &id, code);
        }
        self.failed = Some((
            "DeadlineExceeded",
            "Pod was active on the node longer than the specified deadline",
        ));
        self.publish();
    }

    pub(super) fn wants_probe(&self) -> bool {
        self.boxes
            .iter()
            .any(|b| !b.is_init && b.runs() && !b.ready)
    }

    pub(super) async fn probe(&mut self) {
        let Some(ip) = self.ip else { return };
        let mut changed = false;
        for bx in self
            .boxes
            .iter_mut()
            .filter(|b| !b.is_init && b.runs() && !b.ready)
        {
            bx.ready = probe::is_ready(ip, &bx.spec["readinessProbe"]).await;
            changed |= bx.ready;
        }
        if changed {
            self.publish();
        }
    }

    pub(super) fn terminate(&self) {
        self.boxes
            .iter()
            .filter_map(|b| b.pid)
            .for_each(process::terminate);
    }

    pub(super) fn kill_all(&mut self) {
        for bx in &self.boxes {
            bx.stop.cancel();
            bx.ended.cancel();
            bx.pid.into_iter().for_each(process::kill_session);
        }
    }

    pub(super) async fn wait_dead(&mut self) {
        for pid in self.boxes.iter().filter_map(|b| b.pid) {
            process::session_gone(pid).await;
        }
    }

    /// What the node knows, told to the API server.
    pub(super) fn publish(&self) {
        let status = status::status(self);
        self.world.with(|state| {
            state.objects.update(&self.key, &self.uid, |pod| {
                if self.is_scheduled {
                    pod["spec"]["nodeName"] = json!(super::NODE);
                }
                pod["status"] = status;
            })
        });
    }

    /// The node is done with it.
    pub(super) fn gone(&self) {
        self.world
            .with(|state| state.objects.remove(&self.key, &self.uid));
    }
}

/// The program that a container names, or its image does; `None` for one that only waits.
fn argv(spec: &Value, main: &Main) -> Option<Vec<String>> {
    let words = |list: &Value| {
        items(list)
            .iter()
            .map(|w| word(w).to_owned())
            .collect::<Vec<_>>()
    };
    let mut argv = words(&spec["command"]);
    if argv.is_empty() {
        let Main::Program(program) = main else {
            return None;
        };
        argv.push(program.display().to_string());
    }
    argv.extend(words(&spec["args"]));
    Some(argv)
}
