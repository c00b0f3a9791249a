//! The node: takes pods from creation to their end. One task per pod; the API server's objects say what it did.

mod containers;
mod files;
mod probe;
mod process;
mod status;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::objects::{Key, uid_of};
use crate::world::{World, now};
use containers::Pod;

pub(crate) use files::Setting;
pub(crate) use process::{code_of, is_there, kill_session, session, session_gone, start};

/// Orders that wait for one pod's task.
const ORDERS: usize = 64;
/// How often a readiness probe is tried.
const PROBE: Duration = Duration::from_millis(20);
/// For how long a crash is shown before the back-off.
const CRASH_SHOWN: Duration = Duration::from_millis(100);
/// The only node.
const NODE: &str = "node-1";
/// A pod that asks for an address gets it, also when another pod has or had it.
pub(crate) const IP_ANNOTATION: &str = "testk8s/ip";
/// The exit code of what was killed.
pub(crate) const KILLED: i32 = 137;

/// What the node knows of a living pod.
pub(crate) struct Life {
    pub(crate) orders: mpsc::Sender<Order>,
    /// The running containers, by name.
    pub(crate) containers: BTreeMap<String, Live>,
}

/// A running container, as exec finds it.
#[derive(Clone)]
pub(crate) struct Live {
    pub(crate) ended: CancellationToken,
    /// Its first process, if it has one.
    pub(crate) pid: Option<u32>,
    pub(crate) setting: Arc<Setting>,
}

/// What the node is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Delete {
        grace: Duration,
    },
    /// The first container's process ends with this code.
    Finish {
        code: i32,
    },
    /// As above, and it is started again at once, whatever the restart policy.
    Restart,
    /// As above, and it waits in back-off for ever.
    CrashLoop,
}

/// Begins a pod's life.
pub(crate) fn begin(world: &Arc<World>, key: Key, pod: &Value) {
    let uid = uid_of(pod).to_owned();
    let (orders, inbox) = mpsc::channel(ORDERS);
    let life = Life {
        orders,
        containers: BTreeMap::new(),
    };
    world.with(|state| state.lives.insert(uid.clone(), life));
    let (world, pod) = (Arc::clone(world), pod.clone());
    tokio::spawn(async move {
        let stop = world.stop.clone();
        let mut pod = Pod::new(world.clone(), key.clone(), uid.clone(), &pod);
        tokio::select! {
            () = live(&mut pod, inbox) => {}
            () = stop.cancelled() => {}
        }
        pod.kill_all();
        world.with(|state| state.lives.remove(&uid));
        let _ = std::fs::remove_dir_all(world.pod_dir(&uid));
    });
}

async fn live(pod: &mut Pod, mut inbox: mpsc::Receiver<Order>) {
    pod.schedule();
    let deadline = pod.deadline();
    let mut probe = tokio::time::interval(PROBE);
    loop {
        let (wants_probe, runs, next_start) = (pod.wants_probe(), pod.runs(), pod.next_start());
        tokio::select! {
            order = inbox.recv() => match order {
                None => return,
                Some(Order::Delete { grace }) => return delete(pod, grace, inbox).await,
                Some(Order::Finish { code }) => pod.finish(code),
                Some(Order::Restart) => pod.restart_first(),
                Some(Order::CrashLoop) => pod.crash_loop_first(),
            },
            Some((index, id, code)) = pod.exits.recv() => pod.note_exit(index, &id, code),
            _ = probe.tick(), if wants_probe => pod.probe().await,
            () = until(next_start) => pod.start_again(),
            () = until(deadline), if runs => pod.exceed_deadline().await,
        }
    }
}

/// SIGTERM, grace, SIGKILL, gone. A second delete may shorten the grace.
async fn delete(pod: &mut Pod, grace: Duration, mut inbox: mpsc::Receiver<Order>) {
    let mut until_kill = Instant::now() + grace;
    pod.terminate();
    while pod.runs() {
        tokio::select! {
            () = tokio::time::sleep_until(until_kill) => break,
            Some((index, id, code)) = pod.exits.recv() => pod.note_exit(index, &id, code),
            Some(order) = inbox.recv() => {
                if let Order::Delete { grace } = order {
                    until_kill = until_kill.min(Instant::now() + grace);
                }
            }
        }
    }
    pod.kill_all();
    pod.wait_dead().await;
    pod.gone();
}

async fn until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Marks a pod as being deleted, as the API server does before the node hears of it.
pub(crate) fn mark_deleted(pod: &mut Value, grace: u64) {
    pod["metadata"]["deletionTimestamp"] = now();
    pod["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
}
