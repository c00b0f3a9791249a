//! The real times, on a clock that jumps: two minutes of silence, and a peer that is gone.

use std::time::Duration;

use tokio::io::DuplexStream;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::*;

const SILENCE: Duration = Duration::from_secs(120);
/// What proxies and runtimes are known to cut after, when nothing passes.
const IDLE_CUT: Duration = Duration::from_secs(30);

/// What a peer saw of us.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    pings: u32,
    empties: u32,
    closed: bool,
}

async fn ends() -> (WebSocketStream<DuplexStream>, DuplexStream) {
    let (ours, theirs) = tokio::io::duplex(64 * 1024);
    let ours = WebSocketStream::from_raw_socket(ours, Role::Client, None).await;
    (ours, theirs)
}

/// A peer that says nothing of its own for [`SILENCE`] and cuts who is idle; then the output, its status and CLOSE.
async fn silent_peer(socket: DuplexStream) -> Seen {
    // the library answers pings by itself
    let mut socket = WebSocketStream::from_raw_socket(socket, Role::Server, None).await;
    let mut seen = Seen::default();
    let speaks_at = Instant::now() + SILENCE;
    loop {
        let message = tokio::select! {
            message = timeout(IDLE_CUT, socket.next()) => message.expect("somebody idle is cut"),
            () = sleep_until(speaks_at) => break,
        };
        match message {
            Some(Ok(Message::Ping(_))) => seen.pings += 1,
            Some(Ok(Message::Binary(bytes))) if bytes.is_empty() => seen.empties += 1,
            Some(Ok(Message::Binary(_) | Message::Pong(_))) => {}
            Some(Ok(Message::Close(_)) | Err(_)) | None => {
                seen.closed = true;
                return seen;
            }
            Some(Ok(other)) => panic!("{other:?}"),
        }
    }
    for message in [&b"\x01late words"[..], b"\x03{\"status\":\"Success\"}"] {
        let sent = socket.send(Message::binary(message.to_vec())).await;
        sent.expect("it is heard");
    }
    socket.close(None).await.expect("it is heard");
    seen
}

async fn heard(mut output: Output) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(piece) = output.next().await {
        bytes.extend_from_slice(&piece.expect("output has no errors of its own"));
    }
    bytes
}

#[tokio::test(start_paused = true)]
async fn two_minutes_of_silence_are_no_end() {
    let (ours, theirs) = ends().await;
    let begun = Instant::now();
    let peer = tokio::spawn(silent_peer(theirs));
    let (output, mut ended) = start(ours, Bytes::from_static(b"request"), Pace::default());
    assert_eq!(heard(output).await, b"late words");
    assert!(begun.elapsed() >= SILENCE);
    let end = ended.wait_for(Option::is_some).await.expect("it is told");
    assert_eq!(*end, Some(Ended::Closed(Some(Told::Success))));
    let seen = peer.await.expect("no panic");
    // one of each every 15 s
    assert_eq!((seen.pings, seen.empties), (7, 7), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_answers_no_ping_is_given_up() {
    let (ours, mut theirs) = ends().await;
    let begun = Instant::now();
    // takes everything, says nothing
    let peer =
        tokio::spawn(async move { tokio::io::copy(&mut theirs, &mut tokio::io::sink()).await });
    let (output, mut ended) = start(ours, Bytes::from_static(b"request"), Pace::default());
    assert_eq!(heard(output).await, b"");
    let end = ended.wait_for(Option::is_some).await.expect("it is told");
    assert_eq!(*end, Some(Ended::Silent));
    let pace = Pace::default();
    assert!(
        begun.elapsed() <= pace.silence + pace.ping,
        "{:?}",
        begun.elapsed()
    );
    peer.await
        .expect("no panic")
        .expect("the connection is left");
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_leaves_ends_the_connection() {
    let (ours, theirs) = ends().await;
    let peer = tokio::spawn(silent_peer(theirs));
    let (output, ended) = start(ours, Bytes::from_static(b"request"), Pace::default());
    drop(output);
    assert!(peer.await.expect("no panic").closed);
    assert_eq!(*ended.borrow(), None, "nobody is there to be told");
}
