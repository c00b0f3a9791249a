//! Everything that a cluster is and that its parts share.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;

use crate::access::Access;
use crate::exec::ExecSeen;
use crate::faults::{ExecPlan, Refusal};
use crate::node::{Life, Order};
use crate::objects::{Key, Objects, uid_of};
use crate::options::{Image, Main, Options};

/// The port whose binding reserves a network for one cluster of this machine.
const RESERVATION_PORT: u16 = 8787;
const RESERVATION_HOST: u8 = 254;
/// Networks that are tried.
const ATTEMPTS: usize = 64;
/// Disasters that a slow exec may miss are none that happened before it.
const DISASTERS: usize = 16;

/// What happens to all execs at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disaster {
    ApiServer,
    Kubelet,
    Runtime,
}

/// A request that came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestSeen {
    /// The user.
    pub user: String,
    /// `get`, `list`, `watch`, `create`, `delete`.
    pub verb: String,
    /// `pods` or `pods/exec`.
    pub resource: String,
    /// The namespace, empty for all.
    pub namespace: String,
    /// The name, empty for all.
    pub name: String,
    /// The answer's status.
    pub status: u16,
}

/// A deletion that somebody asked the API server for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deletion {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod.
    pub name: String,
    /// The UID that it must have, if one was insisted on.
    pub uid: Option<String>,
}

pub(crate) struct World {
    pub(crate) options: Options,
    pub(crate) dir: TempDir,
    network: [u8; 2],
    _reservation: TcpListener,
    state: Mutex<State>,
    /// The newest version, for watches.
    pub(crate) versions: watch::Sender<u64>,
    pub(crate) disasters: broadcast::Sender<Disaster>,
    /// The end of everything.
    pub(crate) stop: CancellationToken,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) objects: Objects,
    pub(crate) access: Access,
    /// With the most pods that each may have.
    pub(crate) namespaces: BTreeMap<String, Option<usize>>,
    pub(crate) secrets: BTreeMap<Key, Value>,
    pub(crate) images: BTreeMap<String, Image>,
    pub(crate) plans: VecDeque<ExecPlan>,
    pub(crate) refusals: Vec<(String, String, Refusal)>,
    pub(crate) requests: Vec<RequestSeen>,
    pub(crate) execs: Vec<Arc<ExecSeen>>,
    pub(crate) deletions: Vec<Deletion>,
    pub(crate) lives: HashMap<String, Life>,
    pub(crate) kubelet_down: bool,
    last_host: u8,
}

impl World {
    pub(crate) fn new(options: Options) -> std::io::Result<Self> {
        let (network, reservation) = reserve()?;
        Ok(Self {
            options,
            dir: TempDir::new()?,
            network,
            _reservation: reservation,
            state: Mutex::default(),
            versions: watch::Sender::new(0),
            disasters: broadcast::Sender::new(DISASTERS),
            stop: CancellationToken::new(),
        })
    }

    /// Tells watches of what the closure changed.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let answer = act(&mut state);
        let version = state.objects.version();
        drop(state);
        self.versions
            .send_if_modified(|known| std::mem::replace(known, version) != version);
        answer
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn pod(&self, key: &Key) -> Option<Value> {
        self.lock().objects.get(key).cloned()
    }

    /// An order to the node about a pod; whether it has it.
    pub(crate) fn order(&self, key: &Key, order: Order) -> bool {
        let uid = self.pod(key).map(|pod| uid_of(&pod).to_owned());
        uid.is_some_and(|uid| self.order_uid(&uid, order))
    }

    /// See [`World::order`].
    pub(crate) fn order_uid(&self, uid: &str, order: Order) -> bool {
        let state = self.lock();
        let life = state.lives.get(uid);
        life.is_some_and(|life| life.orders.try_send(order).is_ok())
    }

    pub(crate) fn image(&self, name: &str) -> Image {
        let known = self.lock().images.get(name).cloned();
        known.unwrap_or(Image {
            main: Main::Missing("ErrImagePull"),
            files: Vec::new(),
        })
    }

    /// The network of all pods.
    pub(crate) fn pod_network(&self) -> String {
        format!("127.{}.{}.0/24", self.network[0], self.network[1])
    }

    /// A pod's address; they are used again only when all others were used.
    pub(crate) fn next_ip(&self) -> IpAddr {
        let mut state = self.lock();
        state.last_host = state.last_host % (RESERVATION_HOST - 1) + 1;
        let [a, b] = self.network;
        IpAddr::V4(Ipv4Addr::new(127, a, b, state.last_host))
    }

    pub(crate) fn pod_dir(&self, uid: &str) -> PathBuf {
        self.dir.path().join(uid)
    }
}

/// A network of this machine that no other cluster uses.
fn reserve() -> std::io::Result<([u8; 2], TcpListener)> {
    let mut last = std::io::Error::other("no network was tried");
    for _ in 0..ATTEMPTS {
        let [a, b] = random::<2>();
        // 127.0 is everybody's
        let network = [a.max(1), b];
        let host = Ipv4Addr::new(127, network[0], b, RESERVATION_HOST);
        match TcpListener::bind((host, RESERVATION_PORT)) {
            Ok(listener) => return Ok((network, listener)),
            Err(taken) => last = taken,
        }
    }
    Err(last)
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system has random bytes");
    bytes
}

/// 64 hexadecimal digits, as container ids and tokens are.
pub(crate) fn random_hex() -> String {
    hex::encode(random::<32>())
}

/// A UID as the API server makes them.
pub(crate) fn random_uid() -> String {
    let hex = hex::encode(random::<16>());
    let [a, b, c, d] = [&hex[..8], &hex[8..12], &hex[13..16], &hex[17..20]];
    format!("{a}-{b}-4{c}-8{d}-{}", &hex[20..])
}

/// Now, as the API server writes times.
pub(crate) fn now() -> Value {
    json!(
        jiff::Timestamp::now()
            .strftime("%Y-%m-%dT%H:%M:%SZ")
            .to_string()
    )
}
