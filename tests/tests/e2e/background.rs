//! `make up` and `make down`.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use bex_tests::dev::{DEV_FILE, Dev};
use bex_tests::stack::pid_lives;

fn stack(dir: &Path, verb: &str) -> Output {
    let program = env!("CARGO_BIN_EXE_bex-stack");
    Command::new(program)
        .arg(verb)
        .arg("--dir")
        .arg(dir)
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn up_tells_where_it_is_a_second_up_what_runs_and_down_leaves_nothing() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join(".bex");
    assert_eq!(stack(&dir, "status").status.code(), Some(3));
    let up = stack(&dir, "up");
    assert!(
        up.status.success(),
        "{}{}",
        said(&up),
        String::from_utf8_lossy(&up.stderr)
    );
    let dev = Dev::read(&dir).unwrap().expect("dev.json is there");
    let mode = std::fs::metadata(dir.join(DEV_FILE))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600, "it holds tokens");
    assert!(dev.lives() && pid_lives(dev.gateway_pid) && pid_lives(dev.api_pid));

    let again = stack(&dir, "up");
    assert!(again.status.success());
    assert!(said(&again).contains("already running"), "{}", said(&again));
    assert_eq!(
        Dev::read(&dir).unwrap().map(|d| d.stack_pid),
        Some(dev.stack_pid)
    );
    assert!(stack(&dir, "status").status.success());

    let down = stack(&dir, "down");
    assert!(
        down.status.success(),
        "{}{}",
        said(&down),
        String::from_utf8_lossy(&down.stderr)
    );
    for pid in [dev.stack_pid, dev.gateway_pid, dev.api_pid] {
        assert!(!pid_lives(pid), "{pid} is still there");
    }
    assert!(!dir.join(DEV_FILE).exists());
    assert!(said(&stack(&dir, "down")).contains("nothing was running"));
}
