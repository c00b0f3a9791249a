use super::*;
use crate::limits;

fn feed(guard: &mut Guard, place: Place, chunks: &[&str]) -> Vec<String> {
    feed_turn(guard, TurnNo(2), place, chunks)
}

fn feed_turn(guard: &mut Guard, turn: TurnNo, place: Place, chunks: &[&str]) -> Vec<String> {
    let mut sent = Vec::new();
    for chunk in chunks {
        let (head, mut out) = (ChunkHead::read(chunk).expect("a chunk"), Vec::new());
        guard.push(turn, place, &head, chunk.as_bytes(), &mut out);
        sent.extend(out.into_iter().map(|out| match out {
            Output::Verbatim => (*chunk).to_owned(),
            Output::Written(bytes) => String::from_utf8(bytes.to_vec()).expect("json"),
        }));
    }
    sent
}

fn last(chunks: &[&str]) -> Vec<String> {
    feed(&mut Guard::new(), Place::Last, chunks)
}

fn ends(guard: &mut Guard) -> Vec<String> {
    let mut out = Vec::new();
    guard.end(&mut out);
    out.into_iter()
        .map(|o| match o {
            Output::Written(b) => String::from_utf8(b.to_vec()).expect("json"),
            Output::Verbatim => panic!("nothing is stored here"),
        })
        .collect()
}

const CALL: &str = r#"{"type":"tool-input-available","toolCallId":"c","toolName":"x","input":{}}"#;
const OUTPUT: &str = r#"{"type":"tool-output-available","toolCallId":"c","output":1}"#;
const BEGUN: &str = r#"{"type":"tool-input-start","toolCallId":"c","toolName":"x"}"#;
const INPUT: &str = r#"{"type":"tool-input-delta","toolCallId":"c","inputTextDelta":"{}"}"#;
const INTERRUPTED: &str =
    r#"{"type":"tool-output-error","toolCallId":"c","errorText":"interrupted"}"#;
const STAND_IN: &str = r#"{"type":"tool-input-available","toolCallId":"c","toolName":"unknown","input":{},"providerExecuted":true}"#;
const STEP: &str = r#"{"type":"start-step"}"#;
const STEP_END: &str = r#"{"type":"finish-step"}"#;

#[test]
fn a_well_formed_stream_passes_byte_for_byte() {
    let chunks = [
        r#"{"type":"start-step"}"#,
        r#"{"type":"text-start","id":"t"}"#,
        r#"{"type":"text-delta","id":"t","delta":"a\ud800"}"#,
        r#"{ "type":"text-end","id":"t"}"#,
        r#"{"type":"tool-input-start","toolCallId":"c","toolName":"x"}"#,
        r#"{"type":"tool-input-delta","toolCallId":"c","inputTextDelta":"{}"}"#,
        CALL,
        r#"{"type":"tool-output-available","toolCallId":"c","output":0,"preliminary":true}"#,
        OUTPUT,
        r#"{"type":"finish-step"}"#,
        r#"{"type":"data-x","data":1}"#,
    ];
    let mut guard = Guard::new();
    assert_eq!(feed(&mut guard, Place::Last, &chunks), chunks);
    assert!(ends(&mut guard).is_empty());
}

#[test]
fn nested_ends_keep_only_their_metadata() {
    let chunks = [
        r#"{"type":"start","messageId":"m","messageMetadata":{"a":1}}"#,
        r#"{"type":"text-start","id":"t"}"#,
        r#"{"type":"finish"}"#,
    ];
    assert_eq!(
        last(&chunks),
        [
            r#"{"type":"message-metadata","messageMetadata":{"a":1}}"#,
            chunks[1],
            r#"{"type":"text-end","id":"t"}"#
        ]
    );
}

#[test]
fn a_cut_head_is_started_and_a_cut_tail_is_closed() {
    let chunks = [
        r#"{"type":"text-delta","id":"t","delta":"lo"}"#,
        r#"{"type":"reasoning-end","id":"r"}"#,
        OUTPUT,
        r#"{"type":"tool-input-start","toolCallId":"d","toolName":"x"}"#,
        r#"{"type":"start-step"}"#,
    ];
    let mut guard = Guard::new();
    assert_eq!(
        feed(&mut guard, Place::Last, &chunks),
        [
            r#"{"type":"text-start","id":"t"}"#,
            chunks[0],
            r#"{"type":"tool-input-available","toolCallId":"c","toolName":"unknown","input":{},"providerExecuted":true}"#,
            OUTPUT,
            chunks[3],
            r#"{"type":"text-end","id":"t"}"#,
            r#"{"type":"tool-output-error","toolCallId":"d","errorText":"interrupted"}"#,
            chunks[4],
        ]
    );
    assert_eq!(ends(&mut guard), [r#"{"type":"finish-step"}"#]);
}

#[test]
fn an_earlier_error_is_history_and_the_last_one_is_the_streams() {
    let error = r#"{"type":"error","errorText":"boom"}"#;
    let history = feed(&mut Guard::new(), Place::Earlier, &[error]);
    assert_eq!(
        history,
        [r#"{"type":"data-bex-turn-error","data":{"turn":2,"errorText":"boom"}}"#]
    );
    assert_eq!(last(&[error]), [error]);
}

#[test]
fn what_clients_throw_on_is_rewritten_or_wrapped() {
    assert_eq!(
        last(&[r#"{"type":"text-start","id":"t","providerMetadata":null}"#]),
        [r#"{"type":"text-start","id":"t"}"#]
    );
    assert_eq!(
        last(&[r#"{"type":"brand-new","a":1}"#]),
        [r#"{"type":"data-bex-chunk","data":{"type":"brand-new","a":1}}"#]
    );
    assert_eq!(
        last(&[r#"{"type":"text-delta","id":"t"}"#]),
        [r#"{"type":"data-bex-chunk","data":{"type":"text-delta","id":"t"}}"#]
    );
    assert_eq!(
        last(&[r#"{"type":"data-x","data":{"__proto__":{},"a":1}}"#]),
        [r#"{"type":"data-x","data":{"a":1}}"#]
    );
    let denied = last(&[CALL, r#"{"type":"tool-output-denied","toolCallId":"c"}"#]);
    assert_eq!(
        denied[1],
        r#"{"type":"tool-output-error","toolCallId":"c","errorText":"denied"}"#
    );
}

#[test]
fn a_call_and_its_output_agree_and_repeats_are_dropped() {
    let sent = last(&[
        CALL,
        CALL,
        r#"{"type":"tool-output-available","toolCallId":"c","output":1,"dynamic":true}"#,
    ]);
    assert_eq!(
        sent,
        [
            CALL,
            r#"{"type":"tool-output-available","toolCallId":"c","output":1}"#
        ]
    );
}

#[test]
fn strict_clients_get_only_what_they_know() {
    let mut guard = Guard::for_profile(Profile::Strict5);
    let text = r#"{"type":"text-start","id":"t"}"#;
    let sent = feed(
        &mut guard,
        Place::Last,
        &[
            text,
            r#"{"type":"text-delta","id":"t","delta":"a","x":1}"#,
            r#"{"type":"tool-input-error","toolCallId":"c","toolName":"n","input":1,"errorText":"e"}"#,
        ],
    );
    assert_eq!(
        sent,
        [
            text,
            r#"{"type":"text-delta","id":"t","delta":"a"}"#,
            r#"{"type":"tool-input-available","toolCallId":"c","toolName":"n","input":1,"providerExecuted":true}"#,
            r#"{"type":"tool-output-error","toolCallId":"c","errorText":"e"}"#,
        ]
    );
}

#[test]
fn state_can_be_rebuilt_from_columns_alone() {
    let chunks = [
        r#"{"type":"start-step"}"#,
        r#"{"type":"text-start","id":"t","providerMetadata":null}"#,
        r#"{"type":"reasoning-delta","id":"r"}"#,
        r#"{"type":"tool-input-start","toolCallId":"c","toolName":"x","dynamic":true}"#,
        r#"{"type":"tool-output-error","toolCallId":"d","errorText":""}"#,
    ];
    let (mut read, mut rebuilt) = (Guard::new(), Guard::new());
    feed(&mut read, Place::Last, &chunks);
    for chunk in chunks {
        let head = ChunkHead::read(chunk).expect("a chunk");
        rebuilt.skip(
            TurnNo(2),
            &ChunkHead::from_columns(&head.kind_column(), head.chunk_id.as_deref()),
        );
    }
    assert_eq!(read, rebuilt);
}

#[test]
fn the_streams_own_error_leaves_nothing_half_open() {
    let error = r#"{"type":"error","errorText":"boom"}"#;
    let start = r#"{"type":"text-start","id":"t"}"#;
    let sent = last(&[start, CALL, error, OUTPUT]);
    assert_eq!(
        sent,
        [
            start,
            CALL,
            r#"{"type":"text-end","id":"t"}"#,
            r#"{"type":"tool-output-error","toolCallId":"c","errorText":"interrupted"}"#,
            error,
            OUTPUT
        ]
    );
}

#[test]
fn a_call_may_start_over_while_it_is_streamed() {
    let start = r#"{"type":"tool-input-start","toolCallId":"c","toolName":"x"}"#;
    let delta = r#"{"type":"tool-input-delta","toolCallId":"c","inputTextDelta":"{}"}"#;
    let dynamic = r#"{"type":"tool-input-start","toolCallId":"c","toolName":"x","dynamic":true}"#;
    let sent = last(&[start, delta, start, delta, dynamic, CALL, start]);
    assert_eq!(sent, [start, delta, start, delta, start, CALL]);
}

#[test]
fn what_no_decoder_takes_is_not_lost() {
    let half = r#"{"type":"text-delta","id":"t","delta":"a\ud83d"}"#;
    let start = r#"{"type":"text-start","id":"t"}"#;
    let odd = r#"{"type":"text-delta","id":"t","delta":"a\ud83d","providerMetadata":null}"#;
    let strict = feed(
        &mut Guard::for_profile(Profile::Strict5),
        Place::Last,
        &[start, half, odd],
    );
    assert_eq!(strict, [start, half, half]);
    assert_eq!(last(&[start, odd]), [start, half]);
    let sent = last(&[
        r#"{"type":"finish","messageMetadata":{"a":"\ude00","__proto__":1}}"#,
        r#"{"type":"new","a":1e999,"__proto__":1}"#,
    ]);
    assert_eq!(
        sent,
        [
            r#"{"type":"message-metadata","messageMetadata":{"a":"\ude00"}}"#,
            r#"{"type":"data-bex-chunk","data":{"type":"new","a":1e999}}"#
        ]
    );
    let error = r#"{"type":"error","errorText":"\ud800"}"#;
    assert_eq!(
        feed(&mut Guard::new(), Place::Earlier, &[error]),
        [r#"{"type":"data-bex-turn-error","data":{"turn":2,"errorText":"\ud800"}}"#]
    );
}

#[test]
fn an_id_keeps_its_binding_for_strict_clients() {
    let step = r#"{"type":"start-step"}"#;
    let again = r#"{"type":"tool-input-available","toolCallId":"c","toolName":"x","input":{},"dynamic":true}"#;
    let output = r#"{"type":"tool-output-available","toolCallId":"c","output":1,"dynamic":true}"#;
    let chunks = [step, CALL, OUTPUT, step, again, output];
    assert_eq!(last(&chunks), chunks);
    let mut strict = Guard::for_profile(Profile::Strict5);
    assert_eq!(
        feed(&mut strict, Place::Last, &chunks),
        [step, CALL, OUTPUT, step, CALL, OUTPUT]
    );
}

#[test]
fn what_nests_too_deep_is_a_text() {
    let deep = format!(
        r#"{{"type":"new","a":{}{}}}"#,
        "[".repeat(9000),
        "]".repeat(9000)
    );
    let sent: serde_json::Value = serde_json::from_str(&last(&[&deep])[0]).expect("shallow JSON");
    assert_eq!(sent["data"], deep);
}

#[test]
fn texts_that_nobody_closes_are_bounded() {
    let mut guard = Guard::new();
    let starts: Vec<String> = (0..limits::OPEN_RUNS + 1)
        .map(|id| format!(r#"{{"type":"text-start","id":"{id}"}}"#))
        .collect();
    let starts: Vec<&str> = starts.iter().map(String::as_str).collect();
    let sent = feed(&mut guard, Place::Last, &starts);
    assert_eq!(sent.len(), starts.len() + 1);
    assert_eq!(
        sent[starts.len() - 1..],
        [r#"{"type":"text-end","id":"0"}"#, starts[starts.len() - 1]]
    );
    let delta = r#"{"type":"text-delta","id":"0","delta":"more"}"#;
    assert_eq!(
        feed(&mut guard, Place::Last, &[delta]),
        [
            r#"{"type":"text-start","id":"0"}"#,
            r#"{"type":"text-end","id":"1"}"#,
            delta
        ]
    );
    assert_eq!(ends(&mut guard).len(), limits::OPEN_RUNS);
}

#[test]
fn open_calls_are_answered_before_the_first_error_only() {
    let error = r#"{"type":"error","errorText":"x"}"#;
    let sent = last(&[CALL, error, error]);
    assert_eq!(sent.len(), 4, "{sent:?}");
    assert!(sent[1].contains("tool-output-error"));
    assert_eq!(sent[2..], [error, error]);
}

#[test]
fn many_calls_and_steps_cost_no_more_than_their_number() {
    let mut guard = Guard::new();
    let (step, mut out) = (
        ChunkHead::read(r#"{"type":"start-step"}"#).expect("a chunk"),
        Vec::new(),
    );
    // a scan of every call at every step would be ten thousand million look-ups
    for n in 0..100_000 {
        let head = ChunkHead {
            kind: ChunkKind::ToolInputAvailable,
            chunk_id: Some(n.to_string().into()),
            ..ChunkHead::read(CALL).expect("a chunk")
        };
        guard.push(TurnNo(1), Place::Last, &head, CALL.as_bytes(), &mut out);
        guard.push(TurnNo(1), Place::Last, &step, b"{}", &mut out);
        out.clear();
    }
    // the others were answered when they were forgotten; with the step's own end
    assert_eq!(ends(&mut guard).len(), limits::KNOWN_CALLS + 1);
    assert_eq!(
        guard.calls.counts(),
        [0, 0, limits::ENDED_CALLS, limits::ENDED_CALLS]
    );
}

/// What a turn is sent as behind an earlier one, which is ended as the viewer ends it.
fn behind(earlier: &[&str], later: &[&str]) -> Vec<String> {
    let mut guard = Guard::new();
    feed_turn(&mut guard, TurnNo(1), Place::Earlier, earlier);
    ends(&mut guard);
    let mut sent = feed_turn(&mut guard, TurnNo(2), Place::Last, later);
    sent.extend(ends(&mut guard));
    sent
}

#[test]
fn a_calls_id_may_come_again_in_a_later_turn() {
    // clients keep one part for an id and step: without a step between, the later call would take the earlier one's place
    let streamed = [BEGUN, INPUT, CALL, OUTPUT];
    for earlier in [
        &streamed[..],
        &[CALL, OUTPUT],
        &[CALL],
        &[OUTPUT],
        &[BEGUN, INPUT],
    ] {
        assert_eq!(
            behind(earlier, &streamed),
            [&[STEP][..], &streamed, &[STEP_END]].concat(),
            "{earlier:?}"
        );
    }
    let stepped = [STEP, CALL, OUTPUT, STEP_END];
    assert_eq!(behind(&[CALL, OUTPUT], &stepped), stepped);
    assert_eq!(
        behind(&stepped, &[CALL, OUTPUT]),
        [STEP, CALL, OUTPUT, STEP_END]
    );
    let other = CALL.replace(r#""c""#, r#""d""#);
    assert_eq!(behind(&[CALL, OUTPUT], &[&other])[0], other);
}

#[test]
fn an_output_whose_call_was_lost_leaves_an_earlier_turns_alone() {
    assert_eq!(
        behind(&[CALL, OUTPUT], &[INPUT, OUTPUT]),
        [STEP, STAND_IN, OUTPUT, STEP_END]
    );
    // nobody but this output answered it
    assert_eq!(behind(&[CALL], &[OUTPUT]), [OUTPUT]);
}

#[test]
fn a_calls_id_may_come_again_in_a_later_step() {
    let streamed = [BEGUN, INPUT, CALL, OUTPUT];
    let step = [&[STEP][..], &streamed, &[STEP_END]].concat();
    let twice = [&step[..], &step].concat();
    assert_eq!(last(&twice), twice);
    // one that was never answered is, before its id means another
    assert_eq!(
        last(&[STEP, CALL, STEP, BEGUN, INPUT, CALL]),
        [STEP, CALL, STEP, INTERRUPTED, BEGUN, INPUT, CALL]
    );
    assert_eq!(
        last(&[STEP, OUTPUT, STEP, CALL]),
        [STEP, STAND_IN, OUTPUT, STEP, CALL]
    );
    // in its own step it is only said again
    assert_eq!(last(&[CALL, OUTPUT, BEGUN, INPUT, CALL]), [CALL, OUTPUT]);
}

#[test]
fn a_text_of_an_id_that_came_before_is_another() {
    let text = [
        r#"{"type":"text-start","id":"t"}"#,
        r#"{"type":"text-delta","id":"t","delta":"a"}"#,
        r#"{"type":"text-end","id":"t"}"#,
        r#"{"type":"reasoning-start","id":"t"}"#,
        r#"{"type":"reasoning-delta","id":"t","delta":"a"}"#,
        r#"{"type":"reasoning-end","id":"t"}"#,
    ];
    assert_eq!(last(&[text, text].concat()), [text, text].concat());
    assert_eq!(behind(&text, &text), text);
    assert_eq!(behind(&text[..2], &text), text);
}

#[test]
fn a_repeated_id_is_rebuilt_from_columns_too() {
    let turns = [
        (TurnNo(1), &[CALL, OUTPUT][..]),
        (TurnNo(2), &[BEGUN, INPUT][..]),
    ];
    let (mut read, mut rebuilt) = (Guard::new(), Guard::new());
    for (turn, chunks) in turns {
        feed_turn(&mut read, turn, Place::Last, chunks);
        for chunk in chunks {
            rebuilt.skip(turn, &ChunkHead::read(chunk).expect("a chunk"));
        }
    }
    assert_eq!(read, rebuilt);
    // what follows continues the later call
    let rest = feed_turn(&mut rebuilt, TurnNo(2), Place::Last, &[INPUT, CALL, OUTPUT]);
    assert_eq!(rest, [INPUT, CALL, OUTPUT]);
}

#[test]
fn a_part_and_what_ends_it_agree_about_dynamic() {
    // a client of 5 looks a part up by its flag
    let dynamic = r#"{"type":"tool-input-available","toolCallId":"c","toolName":"x","input":{},"dynamic":true}"#;
    let error =
        r#"{"type":"tool-input-error","toolCallId":"c","toolName":"x","input":{},"errorText":"e"}"#;
    let sent = last(&[dynamic, error]);
    assert_eq!(sent[0], dynamic);
    assert!(sent[1].contains(r#""dynamic":true"#), "{sent:?}");

    let mut strict = Guard::for_profile(Profile::Strict5);
    feed_turn(&mut strict, TurnNo(1), Place::Earlier, &[CALL, OUTPUT]);
    ends(&mut strict);
    let answer = r#"{"type":"tool-output-available","toolCallId":"c","output":2,"dynamic":true}"#;
    let sent = feed_turn(&mut strict, TurnNo(2), Place::Last, &[answer]);
    let answer = r#"{"type":"tool-output-available","toolCallId":"c","output":2}"#;
    assert_eq!(sent, [STEP, STAND_IN, answer]);
}
