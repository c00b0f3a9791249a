//! Nobody holds a connection for ever.

use tokio::io::AsyncReadExt;
use tokio::time::{Instant, timeout};

use super::*;

/// A multiple of the listener's buffers and the kernel's.
const LARGE: usize = 16 * 1024 * 1024;

/// Reads to the connection's end, or a reset, which is one too.
async fn to_its_end(stream: &mut TcpStream, patience: Duration) {
    let closed = async { while stream.read(&mut [0; 4096]).await.is_ok_and(|n| n > 0) {} };
    timeout(patience, closed)
        .await
        .expect("it is closed in time");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_asks_nothing_is_closed() {
    let server = start(|_| async { Response::new(full("")) }).await;
    for said in [
        &b""[..],
        b"P",
        b"PRI",
        b"PRI * HTTP/2.0",
        b"GET / HTTP/1.1\r\nhost:",
    ] {
        let mut stream = TcpStream::connect(server.address)
            .await
            .expect("it listens");
        stream.write_all(said).await.expect("sent");
        to_its_end(&mut stream, OPTIONS.header_timeout * 3).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_that_comes_byte_by_byte_is_not_waited_for() {
    let server = start(|_| async { Response::new(full("")) }).await;
    let mut stream = ask(server.address).await;
    let trickle = async {
        for byte in b"GET / HTTP/1.1\r\nx: "
            .iter()
            .chain(std::iter::repeat(&b'y'))
        {
            if stream.write_all(&[*byte]).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    timeout(OPTIONS.header_timeout * 3, trickle)
        .await
        .expect("it is closed in time");
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed() {
    let server = start(|_| async { Response::new(full("hello")) }).await;
    let mut stream = ask(server.address).await;
    to_its_end(&mut stream, OPTIONS.header_timeout * 3).await;
    within(Duration::from_secs(1), || server.counts.open() == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_takes_nothing_is_cut() {
    let server = start(|_| async { Response::new(full(vec![b'x'; LARGE])) }).await;
    let stream = ask(server.address).await;
    // the kernel's buffers fill, and then nothing moves
    within(bex_proto::limits::WRITE_STALL * 3, || {
        server.counts.stalled() == 1 && server.counts.open() == 0
    })
    .await;
    drop(stream);
}

#[tokio::test(start_paused = true)]
async fn a_busy_connection_is_asked_to_end_when_it_is_old() {
    let server = start(|_| async { Response::new(full("hello")) }).await;
    let mut stream = TcpStream::connect(server.address)
        .await
        .expect("it listens");
    let began = Instant::now();
    let mut answer = [0; 4096];
    loop {
        let sent = stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
        if sent.is_err() || stream.read(&mut answer).await.is_ok_and(|n| n == 0) {
            break;
        }
        assert!(began.elapsed() < OPTIONS.age * 2, "it never ends");
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    assert!(began.elapsed() >= OPTIONS.age);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_never_ends_is_cut_when_its_connection_is_old() {
    for kind in ["text/event-stream", "text/plain"] {
        let (feed, body) = fed("begun");
        let mut answer = Response::new(body);
        let kind = http::HeaderValue::from_static(kind);
        answer.headers_mut().insert("content-type", kind);
        let server = start_once(answer).await;
        let began = Instant::now();
        let mut stream = ask(server.address).await;
        to_its_end(&mut stream, (OPTIONS.age + OPTIONS.last_requests) * 2).await;
        assert!(began.elapsed() >= OPTIONS.age + OPTIONS.last_requests);
        drop(feed);
    }
}
