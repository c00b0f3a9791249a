//! What was seen of one exec.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Protocol;
use crate::node;
use crate::objects::Key;

/// One exec, from its upgrade on.
#[derive(Debug)]
pub struct ExecSeen {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod.
    pub pod: String,
    /// The container.
    pub container: String,
    /// As the client gave it.
    pub argv: Vec<String>,
    /// The subprotocol that was chosen.
    pub protocol: &'static str,
    counts: Mutex<ExecCounts>,
}

/// Numbers of one exec.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExecCounts {
    /// PING frames of the client.
    pub pings: u64,
    /// Messages without a byte, or with the channel only.
    pub empties: u64,
    /// The largest frame's payload.
    pub largest: usize,
    /// Frames that did not end their message, or continued one.
    pub fragments: u64,
    /// Bytes for the process's standard input.
    pub stdin: u64,
    /// The client closed standard input by `FF 00`.
    pub half_closed: bool,
    /// The client said CLOSE.
    pub closed: bool,
    /// The client is gone, or the connection was cut.
    pub disconnected: bool,
    /// Bytes of standard output that were sent.
    pub sent: u64,
    /// The process.
    pub pid: Option<u32>,
    /// Its exit code, once it ended.
    pub exit: Option<i32>,
}

impl ExecSeen {
    pub(super) fn new(key: &Key, container: String, argv: Vec<String>, protocol: Protocol) -> Self {
        Self {
            namespace: key.0.clone(),
            pod: key.1.clone(),
            container,
            argv,
            protocol: protocol.as_str(),
            counts: Mutex::default(),
        }
    }

    pub(super) fn note(&self, note: impl FnOnce(&mut ExecCounts)) {
        note(&mut self.lock());
    }

    /// The numbers so far.
    pub fn counts(&self) -> ExecCounts {
        self.lock().clone()
    }

    /// The living processes of its session: the exec'd one and what it started in it.
    pub fn processes(&self) -> Vec<u32> {
        let pid = self.lock().pid;
        pid.map(node::session).unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, ExecCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
