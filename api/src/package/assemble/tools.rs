//! Blocks of a turn: what was said is for messages, what tools were asked and answered stands by itself.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A block, as far as it matters here.
#[derive(Deserialize)]
struct Block<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    #[serde(borrow, default)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    input: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tool_use_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(default)]
    is_error: bool,
}

/// A call of a tool.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Call {
    tool_call_id: String,
    tool_name: Option<String>,
    input: Option<Box<RawValue>>,
    output: Option<Box<RawValue>>,
    is_error: bool,
    answered: bool,
}

/// Where a tool was called, without what it was asked.
#[derive(Serialize)]
struct Called<'a> {
    r#type: &'a str,
    id: &'a str,
    name: &'a str,
}

/// Where a tool answered, without its answer.
#[derive(Serialize)]
struct Answered<'a> {
    r#type: &'a str,
    tool_use_id: &'a str,
    is_error: bool,
}

/// A list of blocks; none where a text is no such list, which nobody stores.
fn blocks(list: &str) -> Vec<(&RawValue, Option<Block<'_>>)> {
    let raw: Vec<&RawValue> = serde_json::from_str(list).unwrap_or_default();
    raw.into_iter()
        .map(|raw| (raw, serde_json::from_str(raw.get()).ok()))
        .collect()
}

/// Every call, in the order in which tools were called, each with its answer.
pub(super) fn calls(list: &str) -> Vec<Call> {
    let mut calls: Vec<Call> = Vec::new();
    // the newest call of an id takes the answer: some agents use one again
    let mut open: HashMap<String, usize> = HashMap::new();
    for (_, block) in blocks(list) {
        let Some(block) = block else { continue };
        match &*block.r#type {
            "tool_use" => {
                let id = block.id.unwrap_or_default().into_owned();
                open.insert(id.clone(), calls.len());
                calls.push(Call {
                    tool_call_id: id,
                    tool_name: block.name.map(Cow::into_owned),
                    input: block.input.map(ToOwned::to_owned),
                    output: None,
                    is_error: false,
                    answered: false,
                });
            }
            "tool_result" => {
                let id = block.tool_use_id.unwrap_or_default().into_owned();
                let at = *open.entry(id.clone()).or_insert_with(|| {
                    calls.push(Call {
                        tool_call_id: id,
                        tool_name: None,
                        input: None,
                        output: None,
                        is_error: false,
                        answered: false,
                    });
                    calls.len() - 1
                });
                calls[at].output = block.content.map(ToOwned::to_owned);
                calls[at].is_error = block.is_error;
                calls[at].answered = true;
            }
            _ => {}
        }
    }
    calls
}

/// The blocks of a message; of calls and answers only where they stood.
pub(super) fn said(list: &str) -> Vec<Box<RawValue>> {
    let place = |value: serde_json::Result<Box<RawValue>>| value.expect("texts always serialise");
    blocks(list)
        .into_iter()
        .map(|(raw, block)| match &block {
            Some(block) if block.r#type == "tool_use" => {
                place(serde_json::value::to_raw_value(&Called {
                    r#type: "tool_use",
                    id: block.id.as_deref().unwrap_or_default(),
                    name: block.name.as_deref().unwrap_or_default(),
                }))
            }
            Some(block) if block.r#type == "tool_result" => {
                place(serde_json::value::to_raw_value(&Answered {
                    r#type: "tool_result",
                    tool_use_id: block.tool_use_id.as_deref().unwrap_or_default(),
                    is_error: block.is_error,
                }))
            }
            _ => raw.to_owned(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURN: &str = r#"[{"type":"text","text":"a"},{"type":"tool_use","id":"t1","name":"read","input":{"n":12345678901234567890123}},
        {"type":"tool_use","id":"t2","name":"run","input":"x"},{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"ok"}]},
        {"type":"tool_result","tool_use_id":"t9","content":"late","is_error":true},
        {"type":"tool_use","id":"t1","name":"again","input":{}},{"type":"tool_result","tool_use_id":"t1","content":"2"}]"#;

    #[test]
    fn calls_have_their_answers_and_keep_their_bytes() {
        let calls = serde_json::to_value(calls(TURN)).expect("plain data");
        let short = |n: usize| {
            let call = &calls[n];
            format!(
                "{} {} {} {} {}",
                call["toolCallId"],
                call["toolName"],
                call["output"],
                call["isError"],
                call["answered"]
            )
        };
        assert_eq!(calls.as_array().map(Vec::len), Some(4));
        assert_eq!(
            short(0),
            r#""t1" "read" [{"type":"text","text":"ok"}] false true"#
        );
        assert_eq!(short(1), r#""t2" "run" null false false"#);
        assert_eq!(short(2), r#""t9" null "late" true true"#);
        assert_eq!(short(3), r#""t1" "again" "2" false true"#);
        let text = serde_json::to_string(&super::calls(TURN)[0]).expect("plain data");
        assert!(text.contains("12345678901234567890123"), "{text}");
    }

    #[test]
    fn a_message_says_where_tools_were_called_and_nothing_more() {
        let said = serde_json::to_string(&said(TURN)).expect("plain data");
        assert!(said.contains(r#"{"type":"text","text":"a"}"#), "{said}");
        assert!(
            said.contains(r#"{"type":"tool_use","id":"t1","name":"read"}"#),
            "{said}"
        );
        assert!(
            !said.contains("12345678901234567890123") && !said.contains("late"),
            "{said}"
        );
        assert!(super::said("no list").is_empty() && calls("{}").is_empty());
    }
}
