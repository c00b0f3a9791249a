use super::*;

#[test]
fn parts_of_an_agent_session_are_the_same_blocks() {
    let parts = [
        r#"{"type":"start-step"}"#,
        r#"{"type":"reasoning-start","id":"0"}"#,
        r#"{"type":"reasoning-delta","id":"0","delta":"hm"}"#,
        r#"{"type":"reasoning-end","id":"0"}"#,
        r#"{"type":"text-start","id":"0"}"#,
        r#"{"type":"text-delta","id":"0","delta":"Hel"}"#,
        r#"{"type":"tool-input-start","toolCallId":"t","toolName":"ls"}"#,
        r#"{"type":"tool-input-delta","toolCallId":"t","inputTextDelta":"{\"a\""}"#,
        r#"{"type":"tool-input-available","toolCallId":"t","toolName":"ls","input":{"a":"\u0000"}}"#,
        r#"{"type":"text-delta","id":"0","delta":"lo"}"#,
        r#"{"type":"text-end","id":"0"}"#,
        r#"{"type":"tool-output-available","toolCallId":"t","output":"half","preliminary":true}"#,
        r#"{"type":"tool-output-available","toolCallId":"t","output":"x"}"#,
        r#"{"type":"tool-input-error","toolCallId":"u","toolName":"f","input":"{","errorText":"no JSON"}"#,
        r#"{"type":"tool-output-denied","toolCallId":"v"}"#,
        r#"{"type":"text-start","id":"empty"}"#,
        r#"{"type":"data-acp-plan","data":{}}"#,
        "no JSON",
        r#"{"type":"text-start","id":"0"}"#,
        r#"{"type":"text-delta","id":"0","delta":" wor"}"#,
        r#"{"type":"tool-input-start","toolCallId":"w","toolName":"g"}"#,
        r#"{"type":"tool-input-delta","toolCallId":"w","inputTextDelta":"{\"b"}"#,
    ];
    let call = |id: &str, name: &str, input: Value, partial| Block::ToolUse {
        id: id.to_owned(),
        name: name.to_owned(),
        input: input.into(),
        partial,
    };
    let result = |id: &str, content: &str, is_error| Block::ToolResult {
        tool_use_id: id.to_owned(),
        content: json!(content).into(),
        is_error,
    };
    let expected = [
        Block::Thinking {
            thinking: "hm".to_owned(),
            partial: false,
        },
        said("Hello"),
        call("t", "ls", json!({"a": "\u{fffd}"}), false),
        result("t", "x", false),
        call("u", "f", json!("{"), false),
        result("u", "no JSON", true),
        result("v", "denied", true),
        half_said(" wor"),
        call("w", "g", json!("{\"b"), true),
    ];
    assert_eq!(of_parts(parts.into_iter()), expected);
}
