use super::*;

fn fold(chunks: &[&str]) -> Vec<(Option<String>, String)> {
    let (mut compact, mut out) = (Compact::default(), Vec::new());
    for (i, chunk) in chunks.iter().enumerate() {
        let head = ChunkHead::read(chunk).expect("a chunk");
        compact.push(
            PartId::new(1, i as u32),
            &head,
            &Bytes::copy_from_slice(chunk.as_bytes()),
            &mut out,
        );
    }
    compact.flush(&mut out);
    out.into_iter()
        .map(|f| {
            (
                f.id.map(|id| id.to_string()),
                String::from_utf8(f.bytes.to_vec()).expect("json"),
            )
        })
        .collect()
}

fn texts(chunks: &[&str]) -> Vec<String> {
    fold(chunks).into_iter().map(|(_, text)| text).collect()
}

#[test]
fn deltas_become_one_and_escapes_stay_as_they_were() {
    let folded = fold(&[
        r#"{"type":"text-start","id":"t"}"#,
        r#"{"type":"text-delta","id":"t","delta":"a\ud83d"}"#,
        r#"{"type":"text-delta","id":"t","delta":"\ude00\n"}"#,
        r#"{"type":"text-end","id":"t"}"#,
    ]);
    assert_eq!(
        folded[1],
        (
            None,
            r#"{"type":"text-delta","id":"t","delta":"a\ud83d\ude00\n"}"#.to_owned()
        )
    );
    assert_eq!(
        folded[2],
        (
            Some("1.3".to_owned()),
            r#"{"type":"text-end","id":"t"}"#.to_owned()
        )
    );
}

#[test]
fn no_cursor_skips_what_is_held() {
    let folded = fold(&[
        r#"{"type":"text-start","id":"a"}"#,
        r#"{"type":"reasoning-start","id":"b"}"#,
        r#"{"type":"text-delta","id":"a","delta":"1"}"#,
        r#"{"type":"reasoning-delta","id":"b","delta":"2"}"#,
        r#"{"type":"text-end","id":"a"}"#,
        r#"{"type":"data-x","data":1}"#,
    ]);
    let cursors: Vec<_> = folded.iter().map(|(id, _)| id.as_deref()).collect();
    assert_eq!(
        cursors,
        [Some("1.0"), Some("1.1"), None, None, None, Some("1.5")],
        "{folded:?}"
    );
}

const START: &str = r#"{"type":"tool-input-start","toolCallId":"c","toolName":"x"}"#;
const CALL: &str =
    r#"{"type":"tool-input-available","toolCallId":"c","toolName":"x","input":{"a":"b"}}"#;
const OUTPUT: &str = r#"{"type":"tool-output-available","toolCallId":"c","output":1}"#;
const WHOLE: &str =
    r#"{"type":"tool-input-delta","toolCallId":"c","inputTextDelta":"{\"a\":\"b\"}"}"#;

#[test]
fn a_finished_call_does_not_run_again() {
    assert_eq!(texts(&[CALL, OUTPUT]), [START, WHOLE, OUTPUT]);
    let streamed = r#"{"type":"tool-input-delta","toolCallId":"c","inputTextDelta":"{\"a\""}"#;
    assert_eq!(
        texts(&[START, streamed, streamed, CALL, OUTPUT]),
        [START, WHOLE, OUTPUT]
    );
}

#[test]
fn an_unfinished_call_is_a_call() {
    assert_eq!(texts(&[CALL]), [START, WHOLE, CALL]);
    assert_eq!(
        texts(&[CALL, r#"{"type":"finish-step"}"#, OUTPUT]),
        [START, WHOLE, CALL, r#"{"type":"finish-step"}"#, OUTPUT]
    );
}

#[test]
fn what_says_more_than_a_delta_stands_alone() {
    let odd = r#"{"type":"text-delta","id":"t","delta":"b","providerMetadata":{"x":{}}}"#;
    let plain = r#"{"type":"text-delta","id":"t","delta":"a"}"#;
    assert_eq!(texts(&[plain, odd, plain]), [plain, odd, plain]);
}

#[test]
fn the_bound_holds() {
    let chunk = format!(
        r#"{{"type":"text-delta","id":"t","delta":"{}"}}"#,
        "x".repeat(900_000)
    );
    let (mut compact, mut out) = (Compact::default(), Vec::new());
    for i in 0..20 {
        compact.push(
            PartId::new(1, i),
            &ChunkHead::read(&chunk).expect("a chunk"),
            &Bytes::from(chunk.clone()),
            &mut out,
        );
        assert!(compact.held_bytes <= limits::COMPACT_BYTES);
    }
    assert!(!out.is_empty());
}

#[test]
fn runs_that_nobody_ends_are_bounded_and_nothing_of_them_is_lost() {
    let (mut compact, mut out) = (Compact::default(), Vec::new());
    let mut sent = 0;
    for id in 0..3 * MOST_BEGUN {
        for chunk in [
            format!(r#"{{"type":"text-start","id":"{id}"}}"#),
            format!(r#"{{"type":"text-delta","id":"{id}","delta":""}}"#),
            r#"{"type":"text-delta","id":"0","delta":"!"}"#.to_owned(),
        ] {
            let head = ChunkHead::read(&chunk).expect("a chunk");
            compact.push(PartId::new(1, sent), &head, &Bytes::from(chunk), &mut out);
            sent += 1;
            assert!(compact.begun.len() <= MOST_BEGUN && compact.runs.len() <= MOST_BEGUN);
        }
    }
    compact.flush(&mut out);
    let told = |folded: &Folded| String::from_utf8(folded.bytes.to_vec()).expect("json");
    let first = out.iter().map(told).filter(|t| t.contains(r#""id":"0""#));
    let said: usize = first.map(|text| text.matches('!').count()).sum();
    assert_eq!(said, 3 * MOST_BEGUN);
    assert_eq!(
        out.last().and_then(|folded| folded.id),
        Some(PartId::new(1, sent - 1))
    );
}

#[test]
fn a_delta_without_its_start_stands_in_its_place() {
    let (first, more) = (
        r#"{"type":"text-delta","id":"t","delta":"a"}"#,
        r#"{"type":"text-delta","id":"t","delta":"b"}"#,
    );
    let data = r#"{"type":"data-x","data":1}"#;
    let step = r#"{"type":"finish-step"}"#;
    assert_eq!(
        texts(&[first, data, more, more, step, more]),
        [
            first,
            data,
            r#"{"type":"text-delta","id":"t","delta":"bb"}"#,
            step,
            more
        ]
    );
}

#[test]
fn what_is_odd_stays_behind_what_is_held() {
    let start = r#"{"type":"text-start","id":"t"}"#;
    let delta = r#"{"type":"text-delta","id":"t","delta":"a"}"#;
    let odd = r#"{"type":"text-end","id":"t","providerMetadata":null}"#;
    assert_eq!(texts(&[start, delta, odd]), [start, delta, odd]);
    let odd_call = r#"{"type":"tool-input-available","toolCallId":"c","toolName":"x","input":{"a":"b","__proto__":1}}"#;
    assert_eq!(texts(&[odd_call, OUTPUT]), [START, WHOLE, OUTPUT]);
}

#[test]
fn a_call_whose_start_is_lost_makes_its_own() {
    let lost = r#"{"type":"tool-input-delta","toolCallId":"c","inputTextDelta":"x"}"#;
    assert_eq!(
        texts(&[lost, lost, CALL, OUTPUT]),
        [lost, lost, START, WHOLE, OUTPUT]
    );
}

#[test]
fn a_call_that_a_client_has_in_part_begins_anew() {
    let part = r#"{"type":"tool-input-delta","toolCallId":"c","inputTextDelta":"{\"a\""}"#;
    let odd = r#"{"type":"tool-input-delta","toolCallId":"c","inputTextDelta":":","x":1}"#;
    assert_eq!(
        texts(&[START, part, odd, CALL, OUTPUT]),
        [START, part, odd, START, WHOLE, OUTPUT]
    );
    let text =
        r#"{"type":"tool-input-start","toolCallId":"c","toolName":"x","inputEncoding":"text"}"#;
    assert_eq!(texts(&[text, CALL, OUTPUT]), [text, START, WHOLE, OUTPUT]);
    let other = r#"{"type":"tool-input-start","toolCallId":"c","toolName":"other"}"#;
    assert_eq!(texts(&[other, CALL, OUTPUT]), [other, START, WHOLE, OUTPUT]);
    let told = r#"{"type":"tool-input-available","toolCallId":"c","toolName":"x","input":{"a":"b"},"providerMetadata":{"p":{}}}"#;
    assert_eq!(
        texts(&[START, told, OUTPUT]),
        [
            START,
            r#"{"type":"tool-input-start","toolCallId":"c","toolName":"x","providerMetadata":{"p":{}}}"#,
            WHOLE,
            OUTPUT
        ]
    );
}

#[test]
fn a_call_that_waits_for_its_output_hears_nothing_else() {
    let again = r#"{"type":"tool-input-delta","toolCallId":"c","inputTextDelta":"{}"}"#;
    assert_eq!(
        texts(&[CALL, START, again, CALL, OUTPUT]),
        [START, WHOLE, OUTPUT]
    );
    let last = fold(&[CALL, again]).pop();
    assert_eq!(last, Some((Some("1.1".to_owned()), CALL.to_owned())));
    let denied = r#"{"type":"tool-output-denied","toolCallId":"c"}"#;
    assert_eq!(texts(&[CALL, denied]), [START, WHOLE, denied]);
}

#[test]
fn an_output_stands_behind_the_input_that_is_there() {
    let part = r#"{"type":"tool-input-delta","toolCallId":"c","inputTextDelta":"{"}"#;
    assert_eq!(texts(&[START, part, OUTPUT]), [START, part, OUTPUT]);
}
