//! What looks like a secret is in no log, stream or status, however it is cut into deltas.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use bex_proto::driver::TurnState;
use bex_proto::launch::{LAUNCH_FILE, Pace};
use serde_json::{Value, json};

use crate::sandbox::{Sandbox, eventually, logged};

const PAT: &str = "ghp_16C7e42F292c6912E7710c838347Ae178B4a";
/// A piece of it that tells something.
const TELLING: usize = 8;

/// What the deltas of each run join to.
fn joined(parts: &[String]) -> BTreeMap<String, String> {
    let mut texts = BTreeMap::<String, String>::new();
    for part in parts {
        let part: Value = serde_json::from_str(part).expect("JSON");
        if let (Some(id), Some(delta)) = (part["id"].as_str(), part["delta"].as_str()) {
            *texts.entry(id.to_owned()).or_default() += delta;
        }
    }
    texts
}

fn holds_a_piece(text: &str) -> bool {
    (0..=PAT.len() - TELLING).any(|at| text.contains(&PAT[at..at + TELLING]))
}

/// Everything in the driver's directory but what it was launched with.
fn written(dir: &Path) -> String {
    std::fs::read_dir(dir)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| !path.ends_with(LAUNCH_FILE))
        .map(|path| std::fs::read_to_string(path).expect("text"))
        .collect()
}

#[tokio::test]
async fn a_token_is_cut_at_every_position_and_shown_at_none() {
    let delta = |id: &str, text: &str| json!({"type": "text-delta", "id": id, "delta": text});
    let mut said = Vec::new();
    for first in 1..PAT.len() {
        for second in [first, (first + 3).min(PAT.len())] {
            let id = format!("{first}-{second}");
            said.push(json!({"type": "text-start", "id": id}));
            let cuts = ["it is ", &PAT[..first], &PAT[first..second], &PAT[second..]];
            said.extend(cuts.iter().map(|text| delta(&id, text)));
            // of some the run ends here, of some something follows, and the last ones end with the turn
            if first % 3 == 0 {
                said.push(delta(&id, " ok"));
            }
            if first % 2 == 0 {
                said.push(json!({"type": "text-end", "id": id}));
            }
        }
    }
    let runs = 2 * (PAT.len() - 1);
    let texts: Vec<String> = said.iter().map(Value::to_string).collect();
    let sandbox = Sandbox::playing(&texts, Pace::Max).start().await;
    assert_eq!(sandbox.turn(1, "x", None).await, 202);
    let shown = sandbox.parts(1).await;
    let texts = joined(&shown);
    assert_eq!(texts.len(), runs);
    let mut tokens = BTreeSet::new();
    for (id, text) in &texts {
        assert!(!holds_a_piece(text), "{id}: {text}");
        let (before, token) = text.split_at(text.find("[redacted:github-token:").expect(text));
        // a beginning of one or two letters, the same of every token, is not waited for
        assert!(
            ["it is ", "it is g", "it is gh"].contains(&before),
            "{id}: {text}"
        );
        tokens.insert(token.trim_end_matches(" ok"));
    }
    // one token for one secret
    assert_eq!(tokens.len(), 1, "{tokens:?}");
    assert!(!holds_a_piece(&written(&sandbox.launch.dir)));
    let kept: Vec<_> = logged(&sandbox.log_path(1))
        .into_iter()
        .map(|(_, part)| part)
        .collect();
    assert_eq!(kept, shown, "log and stream hold the same");
    assert_eq!(sandbox.ended(1).await.parts as usize, shown.len());
}

#[tokio::test]
async fn what_may_become_a_secret_waits_for_words_and_not_for_time() {
    let script = "printf 'key:\\n-----BEGIN RSA PRIVATE KEY-----\\nMIIEowIBAAKCAQEAtn5vcm1hbA\\n'; \
        until test -e go; do sleep 0.05; done; \
        printf 'MIIEowIBAAKCAQEAtn5vcm1hbB\\n-----END RSA PRIVATE KEY-----\\nafter\\n'";
    let sandbox = Sandbox::shell(script).start().await;
    assert_eq!(sandbox.turn(1, "x", None).await, 202);
    let log = sandbox.log_path(1);
    eventually("what is no secret is said", || {
        std::fs::read_to_string(&log).is_ok_and(|text| text.contains("key:"))
    })
    .await;
    std::fs::write(sandbox.launch.workdir.join("go"), "").expect("a file");
    let shown = sandbox.parts(1).await;
    let texts: String = joined(&shown).into_values().collect();
    assert!(
        texts.starts_with("key:\n[redacted:private-key:") && texts.ends_with("]\nafter\n"),
        "{texts}"
    );
    assert!(!written(&sandbox.launch.dir).contains("MIIE"));
}

#[tokio::test]
async fn what_an_agent_did_not_finish_goes_out_before_the_error() {
    let script = format!("printf 'PASSWORD=hunter2hunter2'; printf 'not {PAT}' >&2; exit 7");
    let sandbox = Sandbox::shell(&script).start().await;
    assert_eq!(sandbox.turn(1, "x", None).await, 202);
    let shown = sandbox.parts(1).await;
    assert_eq!(sandbox.ended(1).await.state, TurnState::Failed);
    assert!(shown.last().is_some_and(|part| part.contains("errorText")));
    let all = shown.concat() + &written(&sandbox.launch.dir);
    assert!(!holds_a_piece(&all) && !all.contains("hunter2"), "{all}");
    assert!(all.contains("PASSWORD=[redacted:assignment:"), "{all}");
}
