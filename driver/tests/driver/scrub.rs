//! Credential files are overwritten before the turn's last line is written.

use std::fs::File;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use bex_proto::driver::TurnState;
use nix::sys::stat::Mode;

use crate::isolation::isolated;
use crate::sandbox::{Sandbox, eventually};

const COMPLAINT: &str = "a credential file is not overwritten";

/// What the driver logged about files that it could not overwrite.
fn complaints(sandbox: &Sandbox) -> Vec<String> {
    let log = std::fs::read_to_string(&sandbox.stderr).expect("a log");
    let lines = log.lines().filter(|line| line.contains(COMPLAINT));
    lines.map(str::to_owned).collect()
}

fn inode(path: &Path) -> u64 {
    path.metadata().expect("a file").ino()
}

#[tokio::test]
async fn files_are_overwritten_in_place_and_missing_ones_are_nothing() {
    let script = "mkdir -p .config/agent; printf s3cr3t > .config/agent/auth.json; printf other > .netrc; \
        chmod 400 .netrc; stat -c %i .netrc > inode; echo kept > kept";
    let files = [".config/agent/auth.json", ".netrc", "none", "none/at/all"];
    let sandbox = Sandbox::shell(script).with_credential_files(&files);
    let sandbox = sandbox.start().await;
    assert_eq!(sandbox.turn(1, "x", None).await, 202);
    // seen at the very moment when the last line is there
    assert_eq!(sandbox.ended(1).await.state, TurnState::Succeeded);
    let work = &sandbox.launch.workdir;
    let read = |name: &str| std::fs::read_to_string(work.join(name)).expect("a file");
    assert_eq!(read(".config/agent/auth.json"), "");
    assert_eq!(read(".netrc"), "");
    assert_eq!(read("kept"), "kept\n");
    assert_eq!(
        read("inode").trim(),
        inode(&work.join(".netrc")).to_string()
    );
    assert_eq!(complaints(&sandbox), Vec::<String>::new());
}

#[tokio::test]
async fn what_is_no_file_is_left_alone_told_and_holds_nobody() {
    let script =
        "ln -s ../outside link; ln -s ../away linked; mkfifo pipe; mkdir dir; printf s3cr3t > file";
    let files = [
        "link",
        "linked/file",
        "pipe",
        "read",
        "dir",
        "file/in",
        "file",
    ];
    let sandbox = Sandbox::shell(script).with_credential_files(&files);
    let root = sandbox.root.path().to_owned();
    std::fs::create_dir(root.join("away")).expect("a directory");
    for outside in ["outside", "away/file"] {
        std::fs::write(root.join(outside), "mine").expect("a file");
    }
    let read = sandbox.launch.workdir.join("read");
    nix::unistd::mkfifo(&read, Mode::S_IRWXU).expect("a pipe");
    // one that somebody reads
    let mut reader = File::options();
    let _reader = reader.read(true).write(true).open(&read).expect("a pipe");
    let sandbox = sandbox.start().await;
    assert_eq!(sandbox.turn(1, "x", None).await, 202);
    assert_eq!(sandbox.ended(1).await.state, TurnState::Succeeded);
    for outside in ["outside", "away/file"] {
        let text = std::fs::read_to_string(root.join(outside)).expect("a file");
        assert_eq!(text, "mine", "{outside}");
    }
    let file = sandbox.launch.workdir.join("file");
    assert_eq!(std::fs::read_to_string(file).expect("a file"), "");
    let complaints = complaints(&sandbox);
    assert_eq!(complaints.len(), files.len() - 1, "{complaints:#?}");
    assert_eq!(sandbox.turn(2, "x", None).await, 202, "and it goes on");
}

#[tokio::test]
async fn a_turn_that_the_driver_did_not_live_to_end_too() {
    let script = "printf s3cr3t > file; echo said; sleep 20";
    let mut sandbox = Sandbox::shell(script).with_credential_files(&["file"]);
    sandbox.restart().await;
    assert_eq!(sandbox.turn(1, "x", None).await, 202);
    let log = sandbox.log_path(1);
    eventually("it is said", || {
        std::fs::read_to_string(&log).is_ok_and(|text| text.contains("said"))
    })
    .await;
    sandbox.kill().await;
    let file = sandbox.launch.workdir.join("file");
    assert_eq!(std::fs::read_to_string(&file).expect("a file"), "s3cr3t");
    sandbox.restart().await;
    assert_eq!(sandbox.ended(1).await.state, TurnState::Failed);
    assert_eq!(std::fs::read_to_string(&file).expect("a file"), "");
    // turns that were ended leave a fresh agent its files
    std::fs::write(&file, "again").expect("a file");
    sandbox.kill().await;
    sandbox.restart().await;
    assert_eq!(std::fs::read_to_string(&file).expect("a file"), "again");
}

#[tokio::test]
async fn it_is_the_agent_s_user_who_overwrites() {
    let script = "umask 377; printf s3cr3t > own; ln -s \"$DRIVER/launch.json\" link";
    let Some(sandbox) = isolated(script) else {
        return;
    };
    let mut sandbox = sandbox.with_credential_files(&["own", "link", "root"]);
    let dir = sandbox.launch.dir.display().to_string();
    sandbox.launch.secrets.insert("DRIVER".into(), dir);
    let file = |name: &str| sandbox.launch.workdir.join(name);
    let (own, root) = (file("own"), file("root"));
    std::fs::write(&root, "of root").expect("a file");
    std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o644)).expect("a mode");
    let sandbox = sandbox.start().await;
    assert_eq!(sandbox.turn(1, "x", None).await, 202);
    assert_eq!(sandbox.ended(1).await.state, TurnState::Succeeded);
    assert_eq!(own.metadata().expect("a file").len(), 0);
    assert_eq!(std::fs::read_to_string(&root).expect("a file"), "of root");
    let complaints = complaints(&sandbox);
    assert_eq!(complaints.len(), 2, "{complaints:#?}");
}
