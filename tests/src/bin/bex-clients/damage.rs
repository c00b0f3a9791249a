//! Transcripts at random: turns from the cases and well-formed ones, and what befalls a transcript on its way.

use bytes::Bytes;

use crate::numbers::Numbers;
use crate::speech;
use crate::transcript::{Sort, Transcript, Turn};

/// Larger turns are read as cases, not again and again as damaged ones.
const LARGEST_BASE: usize = 20_000;

/// What a driver of another release, or a broken one, may say. The ids are those of the cases, so that they meet.
const FOREIGN: [&str; 62] = [
    r#"{"type":"brand-new","id":"t1"}"#,
    r#"{"type":"reset-step"}"#,
    r#"{"type":"steering-message","id":"s","parts":[{"type":"text","text":"x"}]}"#,
    r#"{"type":"custom","kind":"a.b"}"#,
    r#"{"type":"reasoning-file","url":"data:,","mediaType":"text/plain"}"#,
    r#"{"type":"tool-approval-request","approvalId":"a1","toolCallId":"c1"}"#,
    r#"{"type":"tool-approval-response","approvalId":"a1","approved":true}"#,
    r#"{"type":"tool-output-denied","toolCallId":"c1"}"#,
    r#"{"type":"tool-output-denied","toolCallId":"lost"}"#,
    r#"{"type":"tool-output-available","toolCallId":"lost","output":1,"dynamic":true}"#,
    r#"{"type":"tool-output-available","toolCallId":"c1","output":{"x":1},"preliminary":true}"#,
    r#"{"type":"tool-output-available","toolCallId":"c1"}"#,
    r#"{"type":"tool-output-available","toolCallId":"c1","output":1,"providerMetadata":{"flat":1}}"#,
    r#"{"type":"tool-output-error","toolCallId":"c1","errorText":"e","dynamic":true}"#,
    r#"{"type":"tool-input-error","toolCallId":"c1","toolName":"weather","input":"{","errorText":"bad","dynamic":false}"#,
    r#"{"type":"tool-input-error","toolCallId":"c7","toolName":"weather","input":{},"errorText":"bad","title":"T"}"#,
    r#"{"type":"tool-input-start","toolCallId":"c1","toolName":"weather","title":7}"#,
    r#"{"type":"tool-input-start","toolCallId":"c8","toolName":"weather","toolMetadata":7}"#,
    r#"{"type":"tool-input-start","toolCallId":"c8","toolName":"weather","inputEncoding":"text"}"#,
    r#"{"type":"tool-input-start","toolCallId":"c8","toolName":"weather","inputEncoding":"yaml"}"#,
    r#"{"type":"tool-input-start","toolCallId":"c1","toolName":"weather","dynamic":true}"#,
    r#"{"type":"tool-input-delta","toolCallId":"c8","inputTextDelta":"{\"a\":"}"#,
    r#"{"type":"tool-input-delta","toolCallId":"c1","inputTextDelta":"","x":1}"#,
    r#"{"type":"tool-input-available","toolCallId":"c8","toolName":"weather","input":{"a":1},"title":"T","toolMetadata":{"a":1}}"#,
    r#"{"type":"tool-input-available","toolCallId":"c1","toolName":"weather"}"#,
    r#"{"type":"tool-input-available","toolCallId":"c1","toolName":"other","input":[1],"dynamic":true}"#,
    r#"{"type":"tool-input-available","toolCallId":"c9","toolName":"weather","input":{"__proto__":{"a":1},"b":"\ud800"}}"#,
    r#"{"type":"text-start","id":"t1"}"#,
    r#"{"type":"text-start","id":"t1","providerMetadata":null}"#,
    r#"{"type":"text-delta","id":"t1","delta":"half \ud83d","providerMetadata":null}"#,
    r#"{"type":"text-delta","id":"t1","delta":"\ude00 half","later":{"constructor":{"prototype":1}}}"#,
    r#"{"type":"text-delta","id":"t1","delta":"half \ud83d"}"#,
    r#"{"type":"text-delta","id":"t1"}"#,
    r#"{"type":"text-delta","id":7,"delta":"x"}"#,
    r#"{"type":"text-end","id":"t1","citations":[7]}"#,
    r#"{"type":"text-end","id":"t1","providerMetadata":{"flat":1}}"#,
    r#"{"type":"text-end","id":"never"}"#,
    r#"{"type":"reasoning-delta","id":"t1","delta":"the same id"}"#,
    r#"{"type":"reasoning-end","id":"r1"}"#,
    r#"{"type":"data-x","id":7,"data":1}"#,
    r#"{"type":"data-x","data":{"constructor":null,"a":{"constructor":{"prototype":1,"b":2}}}}"#,
    r#"{"type":"data-x","data":{"\u005f_proto__":[1],"big":1e999,"long":12345678901234567890123}}"#,
    r#"{"type":"data-x","data":[[[[{"__proto__":1},[[]]]]]],"transient":1}"#,
    r#"{"type":"message-metadata","messageMetadata":null}"#,
    r#"{"type":"message-metadata"}"#,
    r#"{"type":"start","messageId":"other","messageMetadata":{"a":"\ud800"}}"#,
    r#"{"type":"finish","finishReason":"interrupted","messageMetadata":{"b":1}}"#,
    r#"{"type":"finish-step"}"#,
    r#"{"type":"start-step"}"#,
    r#"{"type":"abort","reason":"enough"}"#,
    r#"{"type":"error","errorText":"in the middle \ud800"}"#,
    r#"{"type":"text-delta","id":"__proto__","delta":"x"}"#,
    r#"{"type":"text-delta","id":"constructor","delta":"x"}"#,
    r#"{"type":"reasoning-delta","id":"text","delta":"x"}"#,
    r#"{"type":"text-delta","id":"\udc00","delta":"x"}"#,
    r#"{"type":"text-delta","id":"nul\u0000","delta":"x"}"#,
    r#"{"type":"data-nul\u0000","data":1}"#,
    r#"{"type":"tool-input-start","toolCallId":"__proto__","toolName":"toString"}"#,
    r#"{"type":"tool-output-available","toolCallId":"hasOwnProperty","output":{"\ud800":1}}"#,
    r#"{"type":"text-delta","id":"t1","delta":"x","providerMetadata":{"a":{"n":1e999}}}"#,
    r#"{"\u0074ype":"text-delta","type":"text-delta","id":"no","id":"t1","delta":"","delta":"twice"}"#,
    r#"[{"type":"start"}]"#,
];

/// The `n`th transcript of a seed.
pub fn random(cases: &[Transcript], seed: u64, n: u64) -> Transcript {
    let mut numbers = Numbers::new(seed.wrapping_mul(1_000_003).wrapping_add(n));
    let turns = 1 + numbers.below(3);
    let damaged = !numbers.once_in(8);
    let turns = (1..=turns).map(|turn| {
        if !damaged {
            return speech::turn(&mut numbers, turn);
        }
        let mut spoken = base(&mut numbers, cases, turn);
        for _ in 0..numbers.below(5) {
            damage(&mut numbers, &mut spoken.0);
        }
        spoken
    });
    Transcript {
        turns: turns.collect(),
        name: format!("random {seed}/{n}"),
        sort: if damaged { Sort::Any } else { Sort::WellFormed },
    }
}

fn base(numbers: &mut Numbers, cases: &[Transcript], turn: usize) -> Turn {
    if numbers.once_in(2) {
        return speech::turn(numbers, turn);
    }
    let case = numbers.pick(cases).turns[0].clone();
    let bytes: usize = case.0.iter().flatten().map(Bytes::len).sum();
    if bytes > LARGEST_BASE {
        speech::turn(numbers, turn)
    } else {
        case
    }
}

fn damage(numbers: &mut Numbers, parts: &mut Vec<Option<Bytes>>) {
    let range = numbers.range(parts.len());
    match numbers.below(9) {
        // the head, forgotten by a driver that numbers what it still has, or known to be missing
        0 => drop(parts.drain(..range.start)),
        1 => parts[..range.start].fill(None),
        // a hole that nobody knows of, and one that everybody sees
        2 => drop(parts.drain(range)),
        3 => parts[range].fill(None),
        // the tail
        4 => parts.truncate(range.start),
        // said again
        5 => {
            let again = parts[range.clone()].to_vec();
            drop(parts.splice(range.end..range.end, again));
        }
        // out of order
        6 if range.len() > 1 => parts.swap(range.start, range.end - 1),
        7 if numbers.once_in(4) => parts.insert(range.start, Some(deep(numbers))),
        _ => {
            for _ in 0..1 + numbers.below(3) {
                let at = numbers.below(parts.len() + 1);
                let foreign = numbers.pick(&FOREIGN);
                parts.insert(at, Some(Bytes::from_static(foreign.as_bytes())));
            }
        }
    }
}

/// A chunk that nests deeper than a client can copy.
fn deep(numbers: &mut Numbers) -> Bytes {
    let depth = 100 + numbers.below(20_000);
    let (open, close) = ("[".repeat(depth), "]".repeat(depth));
    let kind = numbers.pick(&[
        r#""data-x","data""#,
        r#""tool-output-available","toolCallId":"c1","output""#,
        r#""text-delta","id":"t1","delta":"x","later""#,
        r#""finish","messageMetadata""#,
        r#""new","a""#,
    ]);
    Bytes::from(format!(r#"{{"type":{kind}:{open}{close}}}"#))
}
