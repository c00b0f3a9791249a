use super::*;
use proptest::prelude::*;

fn split(bytes: &[u8], chunk: usize) -> (Vec<Event>, bool) {
    let (mut splitter, mut events) = (Splitter::new(), Vec::new());
    for piece in bytes.chunks(chunk.max(1)) {
        splitter.push(piece);
        while let Some(event) = splitter.next_event() {
            events.push(event);
        }
        assert!(
            splitter.buffer.len() <= limits::SSE_EVENT_BYTES,
            "the bound holds"
        );
    }
    (events, splitter.is_torn())
}

fn data(id: Option<&str>, text: &str) -> Event {
    Event::Data {
        id: id.map(|i| Bytes::copy_from_slice(i.as_bytes())),
        data: Bytes::copy_from_slice(text.as_bytes()),
    }
}

#[test]
fn every_line_ending_and_field_form() {
    let wire = b": hello\n\nid: 1.0\ndata: {\"a\":1}\n\nid:1.1\r\ndata:x\r\n\r\nevent: e\rdata: y\r\rretry: 5\n\ndata: one\ndata: two\n\ndata: [DONE]\n\ndata: torn";
    let expected = vec![
        data(Some("1.0"), "{\"a\":1}"),
        data(Some("1.1"), "x"),
        data(None, "y"),
        data(None, "one\ntwo"),
        data(None, "[DONE]"),
    ];
    for chunk in 1..wire.len() {
        assert_eq!(
            split(wire, chunk),
            (expected.clone(), true),
            "chunks of {chunk}"
        );
    }
}

#[test]
fn oversized_data_is_named_and_the_next_event_is_whole() {
    let big = "x".repeat(2 * limits::PART_BYTES);
    let wire = format!("id: 1.0\ndata: {big}\n\nid: 1.1\ndata: ok\n\n");
    let sha256 = crate::transcript::sha256_hex(big.as_bytes());
    let expected = vec![
        Event::Oversized {
            id: Some(Bytes::from_static(b"1.0")),
            bytes: big.len() as u64,
            sha256,
        },
        data(Some("1.1"), "ok"),
    ];
    for chunk in [1000, 65_536, wire.len()] {
        // one push of everything may hold it all; the bound is on what stays between pushes
        let (mut splitter, mut events) = (Splitter::new(), Vec::new());
        for piece in wire.as_bytes().chunks(chunk) {
            splitter.push(piece);
            while let Some(event) = splitter.next_event() {
                events.push(event);
            }
        }
        assert_eq!(events, expected, "chunks of {chunk}");
    }
}

#[test]
fn a_part_of_exactly_the_limit_passes_and_one_more_byte_does_not() {
    for (extra, kept) in [(0, true), (1, false)] {
        let big = "x".repeat(limits::PART_BYTES + extra);
        let (events, _) = split(format!("data: {big}\n\n").as_bytes(), 4096);
        assert_eq!(matches!(&events[..], [Event::Data { .. }]), kept);
    }
}

#[test]
fn many_small_lines_of_one_event_are_bounded_too() {
    let line = "x".repeat(1000);
    let wire = format!("data: {line}\n").repeat(1500) + "\n";
    let joined = vec![line.as_str(); 1500].join("\n");
    let (events, _) = split(wire.as_bytes(), 8192);
    assert_eq!(
        events,
        [Event::Oversized {
            id: None,
            bytes: joined.len() as u64,
            sha256: crate::transcript::sha256_hex(joined.as_bytes())
        }]
    );
}

#[test]
fn frames_read_back() {
    let mut out = BytesMut::new();
    write_event(&mut out, Some(PartId::new(3, 120)), b"{}");
    write_cursor(&mut out, PartId::new(4_000_000_000, 0));
    write_event(&mut out, None, b"[DONE]");
    assert_eq!(
        &out[..],
        b"id: 3.120\ndata: {}\n\nid: 4000000000.0\n\ndata: [DONE]\n\n"
    );
}

proptest! {
    #[test]
    fn any_chunking_gives_the_same_events(lines in proptest::collection::vec("[a-z:\\r\\n ]{0,12}", 0..30), chunk in 1usize..9) {
        let wire = lines.iter().map(|l| format!("data: {l}\n")).collect::<String>();
        prop_assert_eq!(split(wire.as_bytes(), chunk), split(wire.as_bytes(), usize::MAX >> 1));
    }
}
