//! Events as they go over the wire: rendered once, whoever reads them.

use bex_proto::remote::{OutputStream, RemoteState};
use bex_proto::{sse, time};
use bex_store::remote::LogRow;
use bytes::{BufMut, Bytes, BytesMut};
use serde_json::{Value, json};

use super::place::Absence;

/// What a quiet stream says: an event, which pages see, where they would not see a comment.
pub const KEEPALIVE: &str = "data: {\"type\":\"keepalive\"}\n\n";
/// An event's lines and fields beside what was said.
pub const FRAMING: usize = 160;

/// An event of the log, the only kind with an id. What a program said is a string, whatever it is; what the reporter itself says is JSON
/// where it is JSON.
pub fn event(row: &LogRow) -> Bytes {
    let mut frame = BytesMut::with_capacity(row.data.len() + row.data.len() / 8 + FRAMING);
    frame.put_slice(format!("id: {}\ndata: ", row.index).as_bytes());
    let kind = match row.stream {
        OutputStream::Stdout => "stdout",
        OutputStream::Stderr => "stderr",
        OutputStream::System => "system",
        OutputStream::Permission => "permission_request",
        OutputStream::RequestState => "request_state",
    };
    frame.put_slice(format!("{{\"type\":\"{kind}\",\"data\":").as_bytes());
    let is_program = matches!(row.stream, OutputStream::Stdout | OutputStream::Stderr);
    if !is_program && serde_json::from_str::<Value>(&row.data).is_ok() {
        // between values a line's end is the same as a space, and within them there is none
        frame.extend(row.data.bytes().map(|byte| match byte {
            b'\n' | b'\r' => b' ',
            byte => byte,
        }));
    } else {
        serde_json::to_writer((&mut frame).writer(), &row.data)
            .expect("writing a string to memory never fails");
    }
    frame.put_slice(format!(",\"at\":\"{}\"", time::format(row.at)).as_bytes());
    if row.complete {
        frame.put_slice(b",\"isComplete\":true");
    }
    frame.put_slice(b"}\n\n");
    frame.freeze()
}

/// Events that are not there.
pub fn gap(from: u64, to: u64, absence: Absence) -> Bytes {
    let data = json!({"from": from, "to": to, "reason": absence.as_str()});
    said("gap", &data)
}

/// A turn is durable.
pub fn turn(id: &str) -> Bytes {
    said("turn-durable", &json!({"turnId": id}))
}

/// The session stands so.
pub fn state(state: RemoteState) -> Bytes {
    said("state", &json!({"state": state}))
}

/// The end of a stream that did not end: tells where to resume.
pub fn resume(cause: &str, cursor: Option<u64>) -> String {
    let text = match cursor {
        Some(cursor) => format!("{cause}; resume after {cursor}"),
        None => format!("{cause}; reconnect"),
    };
    json!({"type": "error", "errorText": text}).to_string()
}

fn said(kind: &str, data: &Value) -> Bytes {
    let mut frame = BytesMut::new();
    let event = json!({"type": kind, "data": data}).to_string();
    sse::write_event(&mut frame, None, event.as_bytes());
    frame.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(stream: OutputStream, data: &str, complete: bool) -> String {
        let row = LogRow {
            index: 7,
            stream,
            data: data.into(),
            complete,
            at: "2026-11-30T11:53:56Z".parse().expect("a time"),
        };
        let frame = String::from_utf8(event(&row).to_vec()).expect("text");
        let frame = frame
            .strip_prefix("id: 7\ndata: ")
            .expect("an id and data")
            .to_owned();
        let line = frame.strip_suffix("\n\n").expect("an end").to_owned();
        assert!(!line.contains(['\n', '\r']), "one line: {line}");
        let at = ",\"at\":\"2026-11-30T11:53:56.000Z\"";
        assert!(line.contains(at), "{line}");
        line.replace(at, "")
    }

    #[test]
    fn what_a_program_says_is_text_and_what_its_reporter_says_is_json() {
        use OutputStream::*;
        for (stream, data, complete, line) in [
            (
                Stdout,
                "{\"a\": 1}\nhalf a li",
                false,
                r#"{"type":"stdout","data":"{\"a\": 1}\nhalf a li"}"#,
            ),
            (
                Stdout,
                "",
                true,
                r#"{"type":"stdout","data":"","isComplete":true}"#,
            ),
            (Stderr, "{}", false, r#"{"type":"stderr","data":"{}"}"#),
            (System, "{}", false, r#"{"type":"system","data":{}}"#),
            (
                System,
                "hello\r\n",
                false,
                r#"{"type":"system","data":"hello\r\n"}"#,
            ),
            (
                Permission,
                "{\"b\":\n1.50,\r\n\"a\":\"\\n\"}",
                false,
                r#"{"type":"permission_request","data":{"b": 1.50,  "a":"\n"}}"#,
            ),
            (
                RequestState,
                "\"done\"",
                false,
                r#"{"type":"request_state","data":"done"}"#,
            ),
            (
                RequestState,
                "1 2",
                false,
                r#"{"type":"request_state","data":"1 2"}"#,
            ),
        ] {
            assert_eq!(shown(stream, data, complete), line);
            serde_json::from_str::<Value>(line).expect("JSON");
        }
    }

    #[test]
    fn what_is_no_event_of_the_log_has_no_id() {
        assert_eq!(
            gap(3, 5, Absence::Purged),
            "data: {\"type\":\"gap\",\"data\":{\"from\":3,\"to\":5,\"reason\":\"purged\"}}\n\n"
        );
        assert_eq!(
            turn("trn-a"),
            "data: {\"type\":\"turn-durable\",\"data\":{\"turnId\":\"trn-a\"}}\n\n"
        );
        assert_eq!(
            state(RemoteState::Paused),
            "data: {\"type\":\"state\",\"data\":{\"state\":\"paused\"}}\n\n"
        );
        assert_eq!(
            resume("the server is restarting", Some(12)),
            r#"{"type":"error","errorText":"the server is restarting; resume after 12"}"#
        );
    }
}
