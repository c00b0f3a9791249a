//! Whatever the pieces, and wherever a builder starts: the same rows.

use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

/// Everything there is, as one output of several programs.
fn everything() -> String {
    let mut all = [
        TEXT, PARTIAL, CODEX, RESUMED, SUB_AGENT, KINDS, OPENAI, ROLLOUT, RECORD,
    ]
    .concat();
    all.push_str("no json\n{\"half\": \n\n  \r\n");
    let note = json!({"type": "system", "subtype": "note", "content": "ünï\u{2028}"});
    all.push_str(&format!("{note}\r\n{}\n", result()));
    // cut in the middle of an answer, without a last line end
    all.push_str(
        PARTIAL
            .split_inclusive('\n')
            .take(16)
            .collect::<String>()
            .trim_end(),
    );
    all
}

fn cut<'a>(all: &'a str, cuts: &[Index]) -> Vec<&'a str> {
    let cuts = cuts
        .iter()
        .map(|cut| all.floor_char_boundary(cut.index(all.len())));
    let mut places: Vec<usize> = cuts.chain([0, all.len()]).collect();
    places.sort_unstable();
    places.windows(2).map(|at| &all[at[0]..at[1]]).collect()
}

/// What a builder is given.
#[derive(Clone, Copy)]
enum Given<'a> {
    Event(LogEvent<'a>),
    Gap(Gap),
}

impl Given<'_> {
    fn give(&self, builder: &mut Builder, out: &mut Vec<Built>) {
        match self {
            Self::Event(event) => builder.event(event, out),
            Self::Gap(gap) => builder.gap(*gap),
        }
    }

    fn is_before(&self, index: u64) -> bool {
        match self {
            Self::Event(event) => event.index < index,
            Self::Gap(gap) => gap.to < index,
        }
    }
}

/// Rows only: a program's session id may be told again.
fn rows(mut built: Vec<Built>, from: u64) -> Vec<Built> {
    built.retain(|one| match one {
        Built::Turn(turn) => turn.ordinal >= from,
        Built::System(system) => system.ordinal >= from,
        Built::CliSession(_) => false,
    });
    built
}

/// What rows say, without the places that depend on the pieces.
fn content(built: Vec<Built>) -> Vec<(u64, String)> {
    let content = |one| match one {
        Built::Turn(BuiltTurn {
            ordinal,
            blocks,
            model,
            terminal,
            overflow,
            ..
        }) => (
            ordinal,
            format!("{blocks:?} {model:?} {terminal} {overflow}"),
        ),
        Built::System(system) => (system.ordinal, system.content),
        Built::CliSession(_) => unreachable!("rows only"),
    };
    rows(built, 0).into_iter().map(content).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn any_pieces_say_the_same(cuts in prop::collection::vec(any::<Index>(), 0..120)) {
        let all = everything();
        let events: Vec<LogEvent<'_>> = cut(&all, &cuts).into_iter().zip(0..).map(|(data, n)| event(n, data)).collect();
        let mut pieces = run(&events);
        let mut whole = run(&[event(0, &all)]);
        prop_assert_eq!(content(pieces.clone()), content(whole.clone()));
        // its program ends
        pieces = run(&[events.clone(), vec![last(events.len() as u64)]].concat());
        whole = run(&[event(0, &all), last(1)]);
        prop_assert!(whole.len() > 14);
        prop_assert_eq!(content(pieces), content(whole));
    }

    #[test]
    fn any_builder_that_starts_at_a_boundary_writes_the_same_rows(
        cuts in prop::collection::vec(any::<Index>(), 1..60),
        odd in prop::collection::vec((any::<Index>(), 0..5u8), 0..12),
    ) {
        let all = everything();
        let mut given: Vec<Given<'_>> = Vec::new();
        let pieces = cut(&all, &cuts);
        let odd: Vec<(usize, u8)> = odd.iter().map(|(at, what)| (at.index(pieces.len()), *what)).collect();
        for ((number, data), index) in pieces.iter().enumerate().zip(0..) {
            let mut event = event(index, data);
            match odd.iter().find(|(at, _)| *at == number).map(|(_, what)| what) {
                Some(0) => given.push(Given::Gap(Gap { from: event.index, to: event.index })),
                Some(1) => {
                    event.complete = true;
                    given.push(Given::Event(event));
                }
                Some(2) => given.push(Given::Event(LogEvent { stream: OutputStream::RequestState, data: "aborted", ..event })),
                Some(3) => given.push(Given::Event(LogEvent { stream: OutputStream::System, complete: true, data: "hello", ..event })),
                Some(_) => given.push(Given::Event(LogEvent { stream: OutputStream::Stderr, ..event })),
                None => given.push(Given::Event(event)),
            }
        }
        let finish = |builder: &mut Builder, out: &mut Vec<Built>| builder.end(TerminalReason::Stopped, Timestamp::MAX, out);
        let (mut builder, mut straight, mut boundaries) = (Builder::new(Cursor::default()), Vec::new(), vec![Cursor::default()]);
        for one in &given {
            one.give(&mut builder, &mut straight);
            let boundary = builder.boundary();
            let former = *boundaries.last().expect("one at least");
            prop_assert!((boundary.index, boundary.offset, boundary.ordinal) >= (former.index, former.offset, former.ordinal));
            if boundary != former {
                boundaries.push(boundary);
            }
        }
        finish(&mut builder, &mut straight);
        for start in boundaries {
            let (mut builder, mut out) = (Builder::new(start), Vec::new());
            for one in given.iter().filter(|one| !one.is_before(start.index)) {
                one.give(&mut builder, &mut out);
            }
            finish(&mut builder, &mut out);
            prop_assert_eq!(rows(out, 0), rows(straight.clone(), start.ordinal), "from {:?}", start);
        }
    }
}
