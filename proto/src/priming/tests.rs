use proptest::prelude::*;

use super::*;
use crate::ids::PartId;
use crate::transcript::{Part, inspect};

fn part(index: u32, json: &serde_json::Value) -> Part {
    let text = json.to_string();
    Part {
        id: PartId::new(1, index),
        head: inspect(text.as_bytes()).expect("a chunk"),
        bytes: text.into(),
        spoken_at: None,
    }
}

/// One thing of a random conversation.
#[derive(Debug, Clone)]
enum Act {
    Text(String),
    Tool(String),
    Thought(String),
}

#[derive(Debug, Clone)]
struct Turn {
    prompt: String,
    acts: Vec<Act>,
}

fn words() -> impl Strategy<Value = String> {
    let unit = prop::sample::select(vec![
        "a", "\n", "é", "😀", "\"", "\\", "\u{1}", " ", "\t", "語",
    ]);
    (prop::collection::vec(unit, 1..60), 1usize..400)
        .prop_map(|(units, times)| units.concat().repeat(times))
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => words().prop_map(Act::Text),
        2 => words().prop_map(Act::Tool),
        1 => words().prop_map(Act::Thought),
    ]
}

fn conversation() -> impl Strategy<Value = Vec<Turn>> {
    let turn = (words(), prop::collection::vec(act(), 0..6));
    prop::collection::vec(turn.prop_map(|(prompt, acts)| Turn { prompt, acts }), 0..8)
}

fn budget() -> impl Strategy<Value = usize> {
    prop_oneof![0usize..200, 200usize..20_000, 20_000usize..=MAX_BUDGET]
}

fn parts_of(turn: &Turn) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut say = |json: serde_json::Value| {
        let index = u32::try_from(parts.len()).expect("few");
        parts.push(part(index, &json));
    };
    for (n, act) in turn.acts.iter().enumerate() {
        let id = format!("i{n}");
        match act {
            Act::Text(text) => {
                say(serde_json::json!({"type": "text-start", "id": id}));
                let half = text.floor_char_boundary(text.len() / 2);
                say(serde_json::json!({"type": "text-delta", "id": id, "delta": &text[..half]}));
                say(serde_json::json!({"type": "text-delta", "id": id, "delta": &text[half..]}));
                say(serde_json::json!({"type": "text-end", "id": id}));
            }
            Act::Tool(payload) => {
                say(
                    serde_json::json!({"type": "tool-input-available", "toolCallId": id, "toolName": "edit", "input": {"p": payload}}),
                );
                say(
                    serde_json::json!({"type": "tool-output-available", "toolCallId": id, "output": payload}),
                );
            }
            Act::Thought(text) => {
                say(serde_json::json!({"type": "reasoning-delta", "id": id, "delta": text}));
            }
        }
    }
    parts
}

fn select(conversation: &[Turn], budget: usize, payloads: Payloads) -> Priming {
    let mut selection = Selection::new(budget);
    for (n, turn) in conversation.iter().enumerate().rev() {
        if selection.is_full() {
            break;
        }
        let number = u32::try_from(n + 1).expect("few");
        let mut gathered = TurnWords::new(number, turn.prompt.clone(), payloads, selection.room());
        parts_of(turn).iter().for_each(|part| gathered.push(part));
        selection.add(gathered);
    }
    selection.finish(u32::try_from(conversation.len()).expect("few"), None)
}

/// The conversation as it would be with an endless budget.
fn whole(conversation: &[Turn], payloads: Payloads) -> Vec<PrimedTurn> {
    let turns = conversation.iter().enumerate().map(|(n, turn)| PrimedTurn {
        turn: u32::try_from(n + 1).expect("few"),
        prompt: Some(turn.prompt.clone()),
        said: turn
            .acts
            .iter()
            .filter_map(|act| match act {
                Act::Text(text) => Some(Said::Text { text: text.clone() }),
                Act::Tool(payload) => Some(Said::Tool {
                    name: "edit".into(),
                    input: (payloads == Payloads::Kept)
                        .then(|| serde_json::json!({"p": payload}).to_string()),
                    output: (payloads == Payloads::Kept)
                        .then(|| serde_json::json!(payload).to_string()),
                }),
                Act::Thought(_) => None,
            })
            .collect(),
    });
    turns.collect()
}

/// Everything of a conversation as one row of words, from the newest back; what is kept must be the beginning of it.
fn backwards(turns: &[PrimedTurn]) -> Vec<String> {
    let mut row = Vec::new();
    for turn in turns.iter().rev() {
        for said in turn.said.iter().rev() {
            row.push(match said {
                Said::Text { text } => format!("{}t{text}", turn.turn),
                Said::Tool { name, .. } => format!("{}u{name}", turn.turn),
            });
        }
        row.extend(turn.prompt.as_ref().map(|p| format!("{}p{p}", turn.turn)));
    }
    row
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn the_newest_words_are_kept_whole_and_in_order(turns in conversation(), budget in budget(), kept in any::<bool>()) {
        let payloads = if kept { Payloads::Kept } else { Payloads::Left };
        let priming = select(&turns, budget, payloads);
        let json = serde_json::to_string(&priming.turns).expect("plain data");
        prop_assert!(json.len() - 2 <= budget, "{} bytes of {budget}", json.len());
        if let Some(text) = priming.preamble() {
            prop_assert!(text.len() <= budget + FRAME, "{} bytes of {budget}", text.len());
        }
        let all = whole(&turns, payloads);
        let (have, want) = (backwards(&priming.turns), backwards(&all));
        prop_assert!(have.len() <= want.len());
        for (n, (have_one, want_one)) in have.iter().zip(&want).enumerate() {
            if n + 1 < have.len() {
                prop_assert_eq!(have_one, want_one);
            } else {
                // the oldest that is kept may lack its beginning, in whole pieces
                let mark = have_one.find(|c: char| !c.is_ascii_digit()).expect("a mark") + 1;
                prop_assert_eq!(&have_one[..mark], &want_one[..mark]);
                prop_assert!(want_one[mark..].ends_with(&have_one[mark..]));
            }
        }
        let numbers: Vec<_> = priming.turns.iter().map(|t| t.turn).collect();
        let first = turns.len() - numbers.len() + 1;
        let expected: Vec<_> = (first..=turns.len()).map(|n| u32::try_from(n).expect("few")).collect();
        prop_assert_eq!(numbers, expected, "the newest, the oldest first");
        prop_assert_eq!(priming.omitted_turns as usize, first - 1);
        prop_assert_eq!(priming.truncated, priming.turns != all);
        if payloads == Payloads::Left {
            prop_assert!(!json.contains("\"output\":") && !json.contains("\"input\":"));
        }
        prop_assert_eq!(Priming::parse(&serde_json::to_string(&priming).expect("plain data")), Some(priming));
    }

    #[test]
    fn what_fits_is_all_there(turns in conversation()) {
        let all = whole(&turns, Payloads::Left);
        let bytes = serde_json::to_string(&all).expect("plain data").len();
        // numbers are reckoned with ten digits
        let budget = bytes + 16 * turns.len();
        if budget <= MAX_BUDGET {
            let priming = select(&turns, budget, Payloads::Left);
            prop_assert_eq!(priming.turns, all);
            prop_assert!(!priming.truncated);
        }
    }
}

#[test]
fn a_budget_that_ends_inside_a_text_keeps_its_last_lines() {
    let text: String = (0..2000).map(|n| format!("line {n}\n")).collect();
    let turn = Turn {
        prompt: "long".into(),
        acts: vec![Act::Text(text)],
    };
    let priming = select(&[turn], 4096, Payloads::Left);
    let [
        PrimedTurn {
            prompt: None, said, ..
        },
    ] = &priming.turns[..]
    else {
        panic!("{priming:?}")
    };
    let [Said::Text { text }] = &said[..] else {
        panic!("{said:?}")
    };
    assert!(text.starts_with("line ") && text.ends_with("line 1999\n"));
    assert!(text.len() > 2048, "{}", text.len());
    assert!(priming.truncated);
}

#[test]
fn a_turn_longer_than_any_budget_is_gathered_in_bounded_memory() {
    let mut gathered = TurnWords::new(1, "p".into(), Payloads::Left, 1000);
    let delta = "é".repeat(10_000);
    for index in 0..500 {
        gathered.push(&part(
            index,
            &serde_json::json!({"type": "text-delta", "id": "x", "delta": delta}),
        ));
        let Some(Said::Text { text }) = gathered.said.front() else {
            panic!("a text")
        };
        assert!(text.len() < 1000 + 256 * 1024 + delta.len() + 1);
    }
    let mut selection = Selection::new(1000);
    selection.add(gathered);
    let priming = selection.finish(1, None);
    assert!(priming.truncated && !priming.turns.is_empty());
}
