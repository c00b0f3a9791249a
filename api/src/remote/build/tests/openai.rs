use super::*;

#[test]
fn both_forms_are_the_same_blocks() {
    let turns = recorded(OPENAI);
    assert_eq!(turns.len(), 1);
    let told = blocks(&turns[0]);
    let all = [
        "reasoning",
        "thinking",
        "tool_use",
        "tool_result",
        "text",
        "text",
        "tool_use",
        "tool_result",
        "text",
    ];
    assert_eq!(kinds(&told), all);
    assert_eq!(
        visible_text(&told),
        "It is 7 °C. I cannot say more. Nobody knows."
    );
    let inputs: Vec<&str> = told
        .iter()
        .filter_map(|block| match block {
            Block::ToolUse { input, .. } => Some(input.get()),
            _ => None,
        })
        .collect();
    assert_eq!(inputs, [r#"{"city":"Bern"}"#, r#""not json""#]);
    let named: Vec<bool> = origins(&turns[0]).iter().map(Option::is_some).collect();
    // the chat form has no ids of messages, and its calls may be counted
    assert_eq!(
        named,
        [true, true, true, true, true, true, false, false, false]
    );
}
