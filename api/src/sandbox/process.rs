//! What /proc tells of processes. Read errors are not answers: only "no such process", told by a /proc that shows this
//! process, means dead.

use std::io::{self, ErrorKind};
use std::path::Path;

use bex_proto::launch::ProcessStat;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const PROC: &str = "/proc";

/// Reads one process; `None` when there is none.
///
/// # Errors
/// When /proc does not answer.
pub fn read(pid: u32) -> io::Result<Option<ProcessStat>> {
    read_in(Path::new(PROC), pid)
}

fn read_in(proc: &Path, pid: u32) -> io::Result<Option<ProcessStat>> {
    match std::fs::read_to_string(proc.join(pid.to_string()).join("stat")) {
        Ok(line) => match ProcessStat::parse(&line) {
            Some(process) => Ok(Some(process)),
            None => Err(io::Error::new(
                ErrorKind::InvalidData,
                "an odd /proc stat line",
            )),
        },
        Err(e) if is_absent(&e) => must_answer(proc).map(|()| None),
        Err(e) => Err(e),
    }
}

/// ESRCH: it ended between open and read.
fn is_absent(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(Errno::ESRCH as i32)
}

/// Without a /proc nobody can say who lives; where there is one, it shows this process.
fn must_answer(proc: &Path) -> io::Result<()> {
    std::fs::metadata(proc.join("self/stat")).map(drop)
}

/// Whether the process of this pid and start time lives.
///
/// # Errors
/// When /proc does not answer.
pub fn alive(pid: u32, start: u64) -> io::Result<bool> {
    Ok(read(pid)?.is_some_and(|p| p.start == start && !p.zombie))
}

/// Every living process that `keep` wants. Other users' processes may be hidden from us; ours are not.
///
/// # Errors
/// When /proc can not be listed or does not tell of one of them.
pub fn all(keep: impl Fn(&ProcessStat) -> io::Result<bool>) -> io::Result<Vec<ProcessStat>> {
    all_in(Path::new(PROC), keep)
}

fn all_in(
    proc: &Path,
    keep: impl Fn(&ProcessStat) -> io::Result<bool>,
) -> io::Result<Vec<ProcessStat>> {
    must_answer(proc)?;
    let mut found = Vec::new();
    for entry in std::fs::read_dir(proc)? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|n| n.parse().ok()) else {
            continue;
        };
        match read_in(proc, pid) {
            Ok(Some(process)) if !process.zombie && keep(&process)? => found.push(process),
            // a process may end between the listing and the look
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::PermissionDenied => {}
            Err(e) => return Err(e),
        }
    }
    Ok(found)
}

/// Whether the process was started with this path among its arguments.
///
/// # Errors
/// When /proc does not answer.
pub fn has_argument(pid: u32, path: &Path) -> io::Result<bool> {
    match std::fs::read(format!("{PROC}/{pid}/cmdline")) {
        Ok(line) => Ok(line
            .split(|b| *b == 0)
            .any(|argument| argument == path.as_os_str().as_encoded_bytes())),
        Err(e) if is_absent(&e) || e.kind() == ErrorKind::PermissionDenied => Ok(false),
        Err(e) => Err(e),
    }
}

/// Sends a signal to a process that still is the one meant. A process that is gone is no error.
///
/// # Errors
/// When the system refuses.
pub fn signal(process: &ProcessStat, signal: Signal) -> io::Result<()> {
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
    fn this_process_lives_and_its_pid_with_another_start_does_not() {
        let own = read(std::process::id())
            .expect("/proc")
            .expect("this process");
        assert!(alive(own.pid, own.start).expect("/proc"));
        assert!(!alive(own.pid, own.start + 1).expect("/proc"));
    }

    #[test]
    fn without_a_proc_nobody_is_dead() {
        let proc = tempfile::tempdir().expect("a directory");
        assert!(read_in(proc.path(), 77).is_err());
        assert!(all_in(proc.path(), |_| Ok(true)).is_err());
        std::fs::create_dir(proc.path().join("self")).expect("a directory");
        std::fs::write(proc.path().join("self/stat"), "").expect("a file");
        assert_eq!(read_in(proc.path(), 77).expect("an answer"), None);
        assert_eq!(all_in(proc.path(), |_| Ok(true)).expect("an answer"), []);
    }

    #[test]
    fn a_process_that_can_not_be_read_is_not_left_out() {
        let proc = tempfile::tempdir().expect("a directory");
        for name in ["self", "77"] {
            std::fs::create_dir(proc.path().join(name)).expect("a directory");
        }
        std::fs::write(proc.path().join("self/stat"), "").expect("a file");
        std::fs::write(proc.path().join("77/stat"), "77 (x").expect("a file");
        assert!(all_in(proc.path(), |_| Ok(true)).is_err());
    }
}
