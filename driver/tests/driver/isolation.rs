//! Agent and user commands as another user. Needs root; without it these tests fail where `CI` is set and say nothing elsewhere.

use std::os::unix::fs::{PermissionsExt, chown};

use bex_proto::exec::Operation;
use bex_proto::launch::{Isolation, LAUNCH_FILE};
use serde_json::Value;

use crate::exec::{output_of, run};
use crate::sandbox::Sandbox;

const NOBODY: u32 = 65_534;

/// Prints who it is, and what of the driver's it can read.
const SCRIPT: &str = "id -u; id -g; id -G; grep NoNewPrivs /proc/self/status | tr -d '\\t'; \
    cat \"$DRIVER\"/* 2>/dev/null | wc -c; touch mine && echo wrote; env | grep -c KEY";

pub fn isolated(script: &str) -> Option<Sandbox> {
    if !nix::unistd::Uid::effective().is_root() {
        assert!(
            std::env::var_os("CI").is_none(),
            "CI runs these tests as root"
        );
        return None;
    }
    let mut sandbox = Sandbox::shell(script);
    sandbox.launch.isolation = Isolation::User {
        uid: NOBODY,
        gid: NOBODY,
    };
    let mode = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("a mode");
    };
    mode(sandbox.root.path(), 0o711);
    mode(&sandbox.launch.dir, 0o700);
    chown(&sandbox.launch.workdir, Some(NOBODY), Some(NOBODY)).expect("an owner");
    Some(sandbox)
}

#[tokio::test]
async fn the_agent_is_another_user_and_reads_nothing_of_the_driver() {
    let Some(mut sandbox) = isolated(SCRIPT) else {
        return;
    };
    let dir = sandbox.launch.dir.display().to_string();
    sandbox.launch.secrets.insert("DRIVER".into(), dir);
    let sandbox = sandbox.start().await;
    assert_eq!(sandbox.turn(1, "x", None).await, 202);
    let parts = sandbox.parts(1).await;
    let parts = parts
        .iter()
        .map(|p| serde_json::from_str::<Value>(p).expect("JSON"));
    let said: String = parts
        .filter_map(|p| p["delta"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(said, "65534\n65534\n65534\nNoNewPrivs:1\n0\nwrote\n0\n");
}

#[tokio::test]
async fn a_user_s_command_is_the_agent_s_user_without_its_credentials() {
    let Some(mut sandbox) = isolated("true") else {
        return;
    };
    sandbox
        .launch
        .secrets
        .insert("MODEL_KEY".into(), "k3y-k3y-k3y".into());
    let sandbox = sandbox.start().await;
    let dir = sandbox.launch.dir.clone();
    let script = SCRIPT.replace("$DRIVER", &dir.display().to_string());
    let said = output_of(&dir, run(&script, None)).await;
    assert_eq!(said, "65534\n65534\n65534\nNoNewPrivs:1\n0\nwrote\n0\n");
    let launch = dir.join(LAUNCH_FILE);
    let cat = Operation::Run {
        argv: vec!["cat".into(), launch.display().to_string()],
        stdin: None,
    };
    assert_eq!(output_of(&dir, cat).await, "", "the key is out of reach");
}
