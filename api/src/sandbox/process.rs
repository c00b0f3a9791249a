//! What /proc tells of processes. Read errors are not answers: only "no such process" means dead.

use std::io::{self, ErrorKind};
use std::path::Path;

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// One process as /proc shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// Its pid.
    pub pid: u32,
    /// The session it belongs to: the pid of its leader.
    pub session: u32,
    /// Field 22 of its stat file; with the pid it names a process for ever.
    pub start: u64,
    /// It ended and waits for its parent.
    pub zombie: bool,
}

/// Reads one process; `None` when there is none.
///
/// # Errors
/// When /proc does not answer.
pub fn read(pid: u32) -> io::Result<Option<Process>> {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => parse(&stat).map(Some),
        Err(e)
            if e.kind() == ErrorKind::NotFound || e.raw_os_error() == Some(Errno::ESRCH as i32) =>
        {
            Ok(None)
        }
        Err(e) => Err(e),
    }
}

/// Whether the process of this pid and start time lives.
///
/// # Errors
/// When /proc does not answer.
pub fn alive(pid: u32, start: u64) -> io::Result<bool> {
    Ok(read(pid)?.is_some_and(|p| p.start == start && !p.zombie))
}

fn parse(stat: &str) -> io::Result<Process> {
    let odd = || io::Error::new(ErrorKind::InvalidData, "an odd /proc stat line");
    // the command's name stands in parentheses and may itself hold any character
    let (head, tail) = stat.rsplit_once(") ").ok_or_else(odd)?;
    let pid = head
        .split_once(' ')
        .and_then(|(pid, _)| pid.parse().ok())
        .ok_or_else(odd)?;
    let fields: Vec<&str> = tail.split_ascii_whitespace().collect();
    // the tail begins with field 3
    let field = |n: usize| fields.get(n - 3).copied().ok_or_else(odd);
    Ok(Process {
        pid,
        session: field(6)?.parse().map_err(|_| odd())?,
        start: field(22)?.parse().map_err(|_| odd())?,
        zombie: matches!(field(3)?, "Z" | "X"),
    })
}

/// Every living process that `keep` wants.
///
/// # Errors
/// When /proc can not be listed.
pub fn all(keep: impl Fn(&Process) -> bool) -> io::Result<Vec<Process>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|n| n.parse().ok()) else {
            continue;
        };
        // a process may end between the listing and the look
        if let Ok(Some(process)) = read(pid)
            && !process.zombie
            && keep(&process)
        {
            found.push(process);
        }
    }
    Ok(found)
}

/// Whether the process was started with this path among its arguments.
pub fn has_argument(pid: u32, path: &Path) -> bool {
    std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| {
        line.split(|b| *b == 0)
            .any(|argument| argument == path.as_os_str().as_encoded_bytes())
    })
}

/// Sends a signal to a process that still is the one meant. A process that is gone is no error.
///
/// # Errors
/// When the system refuses.
pub fn signal(process: &Process, signal: Signal) -> io::Result<()> {
    if !alive(process.pid, process.start)? {
        return Ok(());
    }
    let pid = i32::try_from(process.pid).map_err(|_| io::Error::from(ErrorKind::InvalidInput))?;
    match kill(Pid::from_raw(pid), signal) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_with_an_odd_name_is_read() {
        let line = "77 (a) b (c) S 1 70 60 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 12345 999 1";
        let expected = Process {
            pid: 77,
            session: 60,
            start: 12345,
            zombie: false,
        };
        assert_eq!(parse(line).expect("a process"), expected);
        assert!(
            parse("77 (x) Z 1 70 60 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 5 1")
                .expect("a process")
                .zombie
        );
        assert!(parse("77 (x").is_err() && parse("77 (x) S 1").is_err());
    }

    #[test]
    fn this_process_lives_and_its_pid_with_another_start_does_not() {
        let own = read(std::process::id())
            .expect("/proc")
            .expect("this process");
        assert!(alive(own.pid, own.start).expect("/proc"));
        assert!(!alive(own.pid, own.start + 1).expect("/proc"));
    }
}
