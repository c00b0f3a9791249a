//! What the registry file and /proc say about one sandbox.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::net::SocketAddr;
use std::path::Path;

use bex_proto::launch::{LocalSandbox, SANDBOX_FILE};

use crate::sandbox::TargetRef;

/// A registry file; it holds a few names and numbers.
const REGISTRY_BYTES: u64 = 64 * 1024;
/// /proc/<pid>/stat is one line.
const STAT_BYTES: u64 = 16 * 1024;
/// Fields of /proc/<pid>/stat, counted from 1 as its manual does.
const STATE_FIELD: usize = 3;
const START_FIELD: usize = 22;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The very sandbox, with a living driver.
    Alive(SocketAddr),
    /// Surely not there.
    Gone,
    /// Nobody can say; why.
    Unreadable(String),
}

/// Looks at the sandbox in `home` below the registry directory `root`. Blocking.
pub(super) fn find(root: &Path, home: &Path, wanted: &TargetRef) -> Found {
    let text = match read(&home.join(SANDBOX_FILE), REGISTRY_BYTES) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return gone_unless_unreadable(root),
        Err(error) => return Found::Unreadable(error.to_string()),
    };
    let sandbox: LocalSandbox = match serde_json::from_str(&text) {
        Ok(sandbox) => sandbox,
        Err(error) => return Found::Unreadable(error.to_string()),
    };
    let same = sandbox.session == wanted.session
        && sandbox.generation == wanted.generation
        && sandbox.namespace == wanted.namespace
        && sandbox.pod_uid == wanted.pod_uid;
    if !same {
        return Found::Gone;
    }
    match is_alive(sandbox.pid, sandbox.pid_start) {
        Ok(true) => Found::Alive(sandbox.address),
        Ok(false) => Found::Gone,
        Err(error) => Found::Unreadable(error.to_string()),
    }
}

fn gone_unless_unreadable(root: &Path) -> Found {
    match std::fs::read_dir(root) {
        Ok(_) => Found::Gone,
        Err(error) => Found::Unreadable(error.to_string()),
    }
}

fn read(path: &Path, limit: u64) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(limit).read_to_string(&mut text)?;
    Ok(text)
}

/// Whether process `pid` is the one that started at `start` (field 22 of its stat) and is no zombie.
fn is_alive(pid: u32, start: u64) -> io::Result<bool> {
    let text = match read(Path::new(&format!("/proc/{pid}/stat")), STAT_BYTES) {
        Ok(text) => text,
        // ESRCH: it ended between open and read
        Err(error) if error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(3) => {
            // without a /proc nobody can say
            return read(Path::new("/proc/self/stat"), STAT_BYTES).map(|_| false);
        }
        Err(error) => return Err(error),
    };
    let stat = Stat::parse(&text)
        .ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "/proc/<pid>/stat does not parse"))?;
    Ok(stat.start == start && !matches!(stat.state, 'Z' | 'X'))
}

struct Stat {
    state: char,
    start: u64,
}

impl Stat {
    /// The second field is the program's name in parentheses and may hold anything, so fields are counted from its last one.
    fn parse(text: &str) -> Option<Self> {
        let rest = &text[text.rfind(')')? + 1..];
        let field = |n: usize| rest.split_ascii_whitespace().nth(n - STATE_FIELD);
        Some(Self {
            state: field(STATE_FIELD)?.chars().next()?,
            start: field(START_FIELD)?.parse().ok()?,
        })
    }
}

/// The start time of a living process: for tests that write registry files.
#[cfg(test)]
pub(super) fn start_of(pid: u32) -> u64 {
    let text = read(Path::new(&format!("/proc/{pid}/stat")), STAT_BYTES).expect("a living process");
    Stat::parse(&text).expect("a stat line").start
}
