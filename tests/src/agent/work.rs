//! One turn from its first thought to its last word.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use agent_client_protocol::v1::schema::{
    Diff, PromptResponse, StopReason, ToolCallContent, ToolCallStatus, ToolKind,
};
use serde_json::json;

use super::orders::{Ending, Orders};
use super::project;
use super::record::Record;
use super::speaker::{Fault, Permission, Speaker};

/// Exit code of `crash`: EX_SOFTWARE.
const CRASH_CODE: i32 = 70;
/// The command every turn runs; sorted, sized, without times.
const COMMAND: &str = "ls README.md main.sh notes.md; wc -c README.md main.sh notes.md; sh main.sh";
/// What the report says, over and over.
const SENTENCES: [&str; 8] = [
    "README.md says what the project is.",
    "main.sh prints one line and ends with 0.",
    "notes.md has one line more than before.",
    "Nothing else in the directory was touched.",
    "Names are short, files are small.",
    "The command was run once, with permission.",
    "Sizes were counted, times were not.",
    "The same prompt would say the same again.",
];
const STEPS: [&str; 4] = [
    "Look around",
    "Edit the notes",
    "Run a command",
    "Report back",
];

pub(super) async fn answer(
    speaker: &Speaker,
    cwd: &Path,
    orders: &Orders,
    records: Option<&Path>,
) -> Result<PromptResponse, Fault> {
    speaker.think("I look at the directory first, then edit, then check. ")?;
    speaker.plan(&STEPS, 0)?;
    look_around(speaker, cwd)?;
    speaker.plan(&STEPS, 1)?;
    edit(speaker, cwd, &orders.title)?;
    speaker.plan(&STEPS, 2)?;
    run(speaker, cwd).await?;
    speaker.plan(&STEPS, 3)?;
    let record = Record::open(records, orders.record.as_deref())?;
    report(speaker, cwd, orders, record).await?;
    speaker.plan(&STEPS, STEPS.len())?;
    Ok(PromptResponse::new(StopReason::EndTurn))
}

fn look_around(speaker: &Speaker, cwd: &Path) -> Result<(), Fault> {
    let call = speaker.call(
        "list",
        "List files",
        ToolKind::Search,
        Path::new("."),
        json!({"path": "."}),
    )?;
    speaker.begun(&call)?;
    let written = project::set_up(cwd)?;
    let files = project::list(cwd)?;
    let listing: String = files
        .iter()
        .map(|(name, bytes)| format!("{name} {bytes}\n"))
        .collect();
    let output = json!({"created": written, "files": files.len()});
    speaker.ended(&call, ToolCallStatus::Completed, listing.into(), output)?;

    let call = speaker.call(
        "read",
        "Read notes.md",
        ToolKind::Read,
        Path::new(project::NOTES),
        json!({"path": project::NOTES}),
    )?;
    speaker.begun(&call)?;
    let text = std::fs::read_to_string(cwd.join(project::NOTES))?;
    let output = json!({"bytes": text.len()});
    speaker.ended(&call, ToolCallStatus::Completed, text.into(), output)
}

fn edit(speaker: &Speaker, cwd: &Path, title: &str) -> Result<(), Fault> {
    let call = speaker.call(
        "edit",
        "Edit notes.md",
        ToolKind::Edit,
        Path::new(project::NOTES),
        json!({"path": project::NOTES, "append": title}),
    )?;
    speaker.begun(&call)?;
    let edit = project::note(cwd, title)?;
    // the path is told relative to the directory, whose name differs from run to run
    let shown = edit.path.file_name().map(Path::new).unwrap_or(&edit.path);
    let output = json!({"added": edit.after.len() - edit.before.len()});
    let diff = Diff::new(shown, edit.after.clone()).old_text(edit.before.clone());
    speaker.ended(
        &call,
        ToolCallStatus::Completed,
        ToolCallContent::Diff(diff),
        output,
    )
}

async fn run(speaker: &Speaker, cwd: &Path) -> Result<(), Fault> {
    let call = speaker.call(
        "run",
        "Run a command",
        ToolKind::Execute,
        Path::new("main.sh"),
        json!({"command": COMMAND}),
    )?;
    if speaker.ask(&call).await? == Permission::Refused {
        let text = "The command was not allowed.";
        let output = json!({"refused": true});
        return speaker.ended(&call, ToolCallStatus::Failed, text.into(), output);
    }
    speaker.begun(&call)?;
    let output = tokio::process::Command::new("/bin/sh")
        .args(["-c", COMMAND])
        .current_dir(cwd)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::select! {
        output = output => output?,
        () = speaker.canceled() => return Err(Fault::Canceled),
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (status, code) = match output.status.code() {
        Some(0) => (ToolCallStatus::Completed, 0),
        code => (ToolCallStatus::Failed, code.unwrap_or(-1)),
    };
    speaker.ended(&call, status, text.into(), json!({"exitCode": code}))
}

async fn report(
    speaker: &Speaker,
    cwd: &Path,
    orders: &Orders,
    mut record: Record,
) -> Result<(), Fault> {
    if let Some(turn) = orders.recall {
        speaker.say(match orders.recalled(turn) {
            Some(asked) => format!("In turn {turn} I was asked: {asked}\n"),
            None => format!("I know nothing of turn {turn}.\n"),
        })?;
    }
    let pause = orders.pace.map(|pace| Duration::from_secs(1) / pace.max(1));
    let middle = orders.parts / 2;
    for n in 0..orders.parts {
        if n == middle {
            match orders.ending {
                Ending::Normal => {}
                Ending::Crash => crash(speaker).await,
                Ending::Hang => {
                    speaker.canceled().await;
                    return Err(Fault::Canceled);
                }
            }
            if let Some(gate) = &orders.gate {
                speaker.wait_for(&cwd.join(gate)).await?;
            }
        }
        let line = line(n, orders);
        record.before(&line)?;
        speaker.say(line)?;
        match pause {
            Some(pause) => speaker.pause(pause).await?,
            None => tokio::task::yield_now().await,
        }
    }
    Ok(())
}

fn line(n: u32, orders: &Orders) -> String {
    let sentence = SENTENCES[n as usize % SENTENCES.len()];
    let head = format!("Line {} of {}: {sentence}", n + 1, orders.parts);
    let fill = orders.size.saturating_sub(head.len() + 1);
    format!(
        "{head}{}\n",
        " and so on".repeat(fill / 10 + 1).split_at(fill).0
    )
}

/// Leaves once the client has read what was said before: it answers a request only after that.
async fn crash(speaker: &Speaker) -> ! {
    let call = speaker.call("crash", "Crash", ToolKind::Other, Path::new("."), json!({}));
    if let Ok(call) = call {
        let _ = speaker.ask(&call).await;
    }
    eprintln!("bex-demo-agent: crashing, as the prompt asks");
    #[expect(clippy::disallowed_methods, reason = "a crash is what was asked for")]
    std::process::exit(CRASH_CODE)
}
