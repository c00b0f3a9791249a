//! The faults themselves: each is done to the fleet, written down, told, and undone when its time is over.

use std::collections::{BTreeMap, VecDeque};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::ensure;
use bex_proto::driver::{DriverState, STATUS_FILE, Status, log_file};
use bex_proto::{Generation, SessionId, TurnNo};
use bex_tests::fault_proxy::Network;
use bex_tests::stack::{Fleet, Link, Role, Sandbox, pid_lives};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::schedule::{Fault, Kind};

/// The agents' program.
pub const AGENT: &str = "bex-demo-agent";
/// A member that ended by itself is started again after this.
const AGAIN: Duration = Duration::from_millis(500);
/// What is left of the disk: the log's next lines fit, or a piece of one.
const ROOM: u64 = 2_000;

/// A fault that hit one session's sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    pub session: SessionId,
    pub generation: Generation,
    /// The turn that its driver spoke, or spoke last.
    pub turn: TurnNo,
    pub kind: Kind,
}

/// What ends a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Undo {
    Start(usize),
    GoOn(usize),
    Open(usize, Link),
    StartPostgres,
    Room(u32),
}

pub struct Faults {
    pub fleet: Fleet,
    began: Instant,
    planned: VecDeque<Fault>,
    undo: Vec<(Instant, Undo)>,
    pub hits: Vec<Hit>,
    /// How often each kind found somebody.
    pub counts: BTreeMap<Kind, u32>,
    /// Members that ended without being killed: name and exit code.
    pub own_ends: Vec<(String, i32)>,
}

impl Faults {
    pub fn new(fleet: Fleet, planned: Vec<Fault>) -> Self {
        Self {
            fleet,
            began: Instant::now(),
            planned: planned.into(),
            undo: Vec::new(),
            hits: Vec::new(),
            counts: BTreeMap::new(),
            own_ends: Vec::new(),
        }
    }

    /// What is due now; and members that ended by themselves are started again, as an orchestrator would.
    pub fn tick(&mut self) -> anyhow::Result<()> {
        let now = Instant::now();
        let (due, later) = self.undo.drain(..).partition(|(at, _)| *at <= now);
        self.undo = later;
        for (_, undo) in due {
            self.end(undo)?;
        }
        while self
            .planned
            .front()
            .is_some_and(|fault| self.began + fault.at <= now)
        {
            if let Some(fault) = self.planned.pop_front() {
                self.begin(&fault)?;
            }
        }
        self.supervise(now);
        Ok(())
    }

    /// No further fault; those that are on are over.
    pub fn calm(&mut self) -> anyhow::Result<()> {
        self.planned.clear();
        for (_, undo) in std::mem::take(&mut self.undo) {
            self.end(undo)?;
        }
        self.tell("calm");
        Ok(())
    }

    fn begin(&mut self, fault: &Fault) -> anyhow::Result<()> {
        let done = match fault.kind {
            Kind::GatewayKilled => self.kill(Role::Gateway, fault)?,
            Kind::ApiKilled => self.kill(Role::Api, fault)?,
            Kind::MemberPaused => self.pause(fault),
            Kind::PostgresKilled | Kind::PostgresStopped => self.postgres(fault),
            Kind::DatabaseCut => self.link(Link::Database, Network::Cut, fault),
            Kind::DatabaseFrozen => self.link(Link::Database, Network::Frozen, fault),
            Kind::ExecCut => self.link(Link::Exec, Network::Cut, fault),
            Kind::ExecFrozen => self.link(Link::Exec, Network::Frozen, fault),
            Kind::DriverKilled | Kind::SandboxKilled | Kind::AgentKilled | Kind::DiskFull => {
                self.sandbox(fault)?
            }
        };
        let Some(whom) = done else { return Ok(()) };
        *self.counts.entry(fault.kind).or_default() += 1;
        let lasts = match fault.lasts.as_millis() {
            0 => String::new(),
            lasts => format!(", for {:.1} s", lasts as f64 / 1e3),
        };
        self.tell(&format!("{}: {whom}{lasts}", fault.kind.word()));
        Ok(())
    }

    fn until(&mut self, fault: &Fault, undo: Undo) {
        self.undo.push((Instant::now() + fault.lasts, undo));
    }

    fn kill(&mut self, role: Role, fault: &Fault) -> anyhow::Result<Option<String>> {
        let Some(n) = self.member(fault.which, |member| member.role == role) else {
            return Ok(None);
        };
        let member = &mut self.fleet.members_mut()[n];
        member.kill9()?;
        let name = member.name.clone();
        self.until(fault, Undo::Start(n));
        Ok(Some(name))
    }

    fn pause(&mut self, fault: &Fault) -> Option<String> {
        let n = self.member(fault.which, |_| true)?;
        let member = &self.fleet.members()[n];
        member.pause();
        let name = member.name.clone();
        self.until(fault, Undo::GoOn(n));
        Some(name)
    }

    fn link(&mut self, link: Link, network: Network, fault: &Fault) -> Option<String> {
        let n = self.member(fault.which, |member| member.has(link))?;
        if self
            .undo
            .iter()
            .any(|(_, undo)| *undo == Undo::Open(n, link))
        {
            return None;
        }
        let member = &self.fleet.members()[n];
        member.set(link, network);
        let name = member.name.clone();
        self.until(fault, Undo::Open(n, link));
        Some(name)
    }

    fn postgres(&mut self, fault: &Fault) -> Option<String> {
        if self
            .undo
            .iter()
            .any(|(_, undo)| *undo == Undo::StartPostgres)
        {
            return None;
        }
        match fault.kind {
            Kind::PostgresKilled => self.fleet.kill9_postgres(),
            _ => self.fleet.shut_down_postgres(),
        }
        self.until(fault, Undo::StartPostgres);
        Some("the server".into())
    }

    /// A member that runs.
    fn member(
        &self,
        which: u64,
        wanted: impl Fn(&bex_tests::stack::Member) -> bool,
    ) -> Option<usize> {
        let members = self.fleet.members().iter().enumerate();
        let able: Vec<usize> = members
            .filter(|(_, member)| member.runs() && wanted(member))
            .map(|(n, _)| n)
            .collect();
        choose(&able, which).copied()
    }

    fn sandbox(&mut self, fault: &Fault) -> anyhow::Result<Option<String>> {
        let mut speaking: Vec<(Sandbox, TurnNo)> = self
            .fleet
            .sandboxes
            .all()
            .into_iter()
            .filter_map(speaking)
            .collect();
        speaking.sort_by(|(a, _), (b, _)| a.pod.cmp(&b.pod));
        let Some((sandbox, turn)) = choose(&speaking, fault.which) else {
            return Ok(None);
        };
        // written down first: what follows may be seen at once
        self.hits.push(Hit {
            session: sandbox.session.clone(),
            generation: sandbox.generation,
            turn: *turn,
            kind: fault.kind,
        });
        match fault.kind {
            Kind::DriverKilled => kill9(sandbox.pid),
            Kind::SandboxKilled => self.fleet.sandboxes.kill9(&sandbox.session),
            Kind::AgentKilled => {
                for agent in self.fleet.sandboxes.agents(sandbox, AGENT) {
                    kill9(agent);
                }
            }
            _ => {
                let log = sandbox.driver_dir.join(log_file(*turn));
                let size = log.metadata().map_or(0, |log| log.len());
                file_limit(sandbox.pid, &(size + fault.which % ROOM).to_string())?;
                self.until(fault, Undo::Room(sandbox.pid));
            }
        }
        Ok(Some(format!("{} turn {turn}", sandbox.pod)))
    }

    fn end(&mut self, undo: Undo) -> anyhow::Result<()> {
        match undo {
            Undo::Start(n) => {
                let member = &mut self.fleet.members_mut()[n];
                if !member.runs() {
                    member.start()?;
                }
            }
            Undo::GoOn(n) => self.fleet.members()[n].go_on(),
            Undo::Open(n, link) => self.fleet.members()[n].set(link, Network::Open),
            Undo::StartPostgres => self.fleet.start_postgres()?,
            Undo::Room(pid) => file_limit(pid, "unlimited")?,
        }
        Ok(())
    }

    fn supervise(&mut self, now: Instant) {
        let mut ended = Vec::new();
        for (n, member) in self.fleet.members_mut().iter_mut().enumerate() {
            if let Some(code) = member.exit_code() {
                ended.push((n, member.name.clone(), code));
            }
        }
        for (n, name, code) in ended {
            self.tell(&format!("{name} ended by itself with {code}"));
            self.own_ends.push((name, code));
            self.undo.push((now + AGAIN, Undo::Start(n)));
        }
    }

    pub fn tell(&self, what: &str) {
        println!("{:8.1} s  {what}", self.began.elapsed().as_secs_f64());
    }
}

fn choose<T>(of: &[T], which: u64) -> Option<&T> {
    let n = which.checked_rem(of.len() as u64)?;
    of.get(usize::try_from(n).ok()?)
}

/// A sandbox that is in the middle of a turn.
fn speaking(sandbox: Sandbox) -> Option<(Sandbox, TurnNo)> {
    let status = std::fs::read(sandbox.driver_dir.join(STATUS_FILE)).ok()?;
    let status: Status = serde_json::from_slice(&status).ok()?;
    let running = status.state == DriverState::Running && sandbox.lives();
    running.then_some((sandbox, status.turn?))
}

fn kill9(pid: u32) {
    if let Ok(pid) = i32::try_from(pid) {
        // it may be gone by itself
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}

/// Lets a process's files grow to this size and no further, as a full disk would. See `main`: the signal that comes with it is
/// ignored by all of our processes.
fn file_limit(pid: u32, bytes: &str) -> anyhow::Result<()> {
    let limit = Command::new("prlimit")
        .args(["--pid", &pid.to_string(), &format!("--fsize={bytes}:")])
        .output()?;
    ensure!(
        limit.status.success() || !pid_lives(pid),
        "prlimit: {}",
        String::from_utf8_lossy(&limit.stderr)
    );
    Ok(())
}
