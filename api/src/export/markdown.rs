//! The conversation for people.

use std::fmt::Write;

use bex_proto::session::TruncationReason;
use bex_proto::{TurnNo, time};
use bex_store::Db;
use bex_store::sessions::SessionRow;
use bex_store::turns::TurnRow;
use serde_json::Value;

use super::ExportFault;
use super::messages::Message;
use super::parts::Parts;
use super::sink::Sink;

pub(super) async fn write(
    db: &Db,
    session: &SessionRow,
    sink: &mut Sink,
) -> Result<(), ExportFault> {
    sink.write(&head(session)).await?;
    let mut turn = TurnNo::FIRST;
    while let Some(snapshot) = db.turn_snapshot(&session.id, turn).await? {
        let row = snapshot.turn;
        let mut message = Message::new(row.turn);
        let mut parts = Parts::new(db, &session.id, row.turn, snapshot.before);
        while let Some(part) = parts.next().await? {
            message.push(&part);
        }
        let (parts, _) = message.end(&row);
        sink.write(&asked(&row)).await?;
        for part in &parts {
            sink.write(&shown(part)).await?;
        }
        sink.write(&verdict(&row)).await?;
        turn = row.turn.next();
    }
    sink.flush().await
}

fn head(session: &SessionRow) -> String {
    let title = session.title.as_deref().unwrap_or("Agent session");
    let mut text = format!("# {}\n\n", one_line(title));
    let mut row = |name: &str, value: &str| {
        let _ = writeln!(text, "- {name}: {}", one_line(value));
    };
    row("session", session.id.as_str());
    row("workspace", session.workspace.as_str());
    row("agent", &session.agent.profile);
    row("phase", session.phase.as_str());
    row("created", &time::format(session.created_at));
    if let Some(repo) = &session.repo {
        row("repository", repo);
    }
    if let Some(branch) = &session.branch {
        row("branch", branch);
    }
    text
}

fn asked(row: &TurnRow) -> String {
    let mut text = format!("\n## Turn {}\n\n", row.turn);
    for line in row.prompt.lines() {
        let _ = writeln!(text, "> {line}");
    }
    text
}

fn shown(part: &Value) -> String {
    let words = |field: &str| part[field].as_str().unwrap_or_default();
    let kind = words("type");
    match kind {
        "text" => format!("\n{}\n", words("text")),
        "reasoning" => {
            let mut text = String::from("\n*Thought:*\n");
            for line in words("text").lines() {
                let _ = writeln!(text, "> {line}");
            }
            text
        }
        "file" | "source-url" => format!("\n<{}>\n", one_line(words("url"))),
        "data-bex-turn-error" => format!(
            "\n**Error:** {}\n",
            one_line(part["data"]["errorText"].as_str().unwrap_or_default())
        ),
        _ if kind == "dynamic-tool" || kind.starts_with("tool-") => tool(part, kind),
        // plans, diffs and the like are for pages
        _ => String::new(),
    }
}

fn tool(part: &Value, kind: &str) -> String {
    let name = match kind.strip_prefix("tool-") {
        Some(name) => name,
        None => part["toolName"].as_str().unwrap_or_default(),
    };
    let title = part["title"].as_str();
    let mut text = format!("\n**Tool:** {}\n", one_line(title.unwrap_or(name)));
    for (label, field) in [("In", "input"), ("Out", "output"), ("Error", "errorText")] {
        match part.get(field) {
            None | Some(Value::Null) => {}
            Some(Value::String(value)) => text.push_str(&fenced(label, value)),
            Some(value) => text.push_str(&fenced(label, &format!("{value:#}"))),
        }
    }
    text
}

/// A block that its own content cannot end.
fn fenced(label: &str, content: &str) -> String {
    let longest = content.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("\n{label}:\n\n{fence}\n{content}\n{fence}\n")
}

fn verdict(row: &TurnRow) -> String {
    let reason = row.reason.map(TruncationReason::sentence);
    let reason = reason.map_or_else(String::new, |sentence| format!(": {sentence}"));
    format!("\n*Transcript {}{reason}*\n", row.verdict)
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_content_leaves_its_block() {
        let block = fenced("Out", "a\n````\nb");
        assert!(block.contains("\n`````\na\n````\nb\n`````\n"), "{block}");
        assert_eq!(one_line(" a\n# b "), "a # b");
    }
}
