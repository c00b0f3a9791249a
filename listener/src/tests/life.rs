//! Both protocols, a full listener, and the ends of a listener.

use std::sync::atomic::AtomicBool;

use hyper::client::conn::http2;
use hyper_util::rt::TokioExecutor;
use tokio::io::AsyncReadExt;
use tokio::sync::Notify;

use super::*;

#[tokio::test]
async fn both_protocols_are_served_on_one_port() {
    let server = start(|request| async move {
        Response::new(full(format!(
            "{:?} {}",
            request.version(),
            request.uri().path()
        )))
    })
    .await;
    let one = connect(server.address)
        .await
        .send_request(get("/a"))
        .await
        .expect("an answer");
    let one = one.into_body().collect().await.expect("a body").to_bytes();
    assert_eq!(one, "HTTP/1.1 /a");

    let socket = TcpStream::connect(server.address)
        .await
        .expect("it listens");
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(socket))
        .await
        .expect("a handshake");
    tokio::spawn(connection);
    let two = sender.send_request(get("/b")).await.expect("an answer");
    let two = two.into_body().collect().await.expect("a body").to_bytes();
    assert_eq!(two, "HTTP/2.0 /b");
    drop(sender);
    assert_eq!(server.serving.finish(Duration::from_secs(10)).await, 0);
}

#[tokio::test]
async fn a_protocol_that_is_told_byte_by_byte_is_understood() {
    let server = start(|_| async { Response::new(full("hello")) }).await;
    for (said, head) in [
        (
            &b"PUT / HTTP/1.1\r\nhost: x\r\n\r\n"[..],
            &b"HTTP/1.1 200"[..],
        ),
        // a settings frame
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &[0, 0]),
    ] {
        let mut stream = TcpStream::connect(server.address)
            .await
            .expect("it listens");
        stream.set_nodelay(true).expect("set");
        for byte in said {
            stream.write_all(&[*byte]).await.expect("sent");
            tokio::task::yield_now().await;
        }
        let mut answer = vec![0; head.len()];
        stream.read_exact(&mut answer).await.expect("an answer");
        assert_eq!(answer, head);
    }
}

#[tokio::test]
async fn an_open_answer_goes_on_to_its_end_and_nothing_new_is_accepted() {
    let (feed, body) = fed("begun ");
    let Server {
        address, serving, ..
    } = start_once(Response::new(body)).await;
    let mut sender = connect(address).await;
    let mut answer = sender
        .send_request(get("/"))
        .await
        .expect("an answer")
        .into_body();
    let first = answer.frame().await.expect("a frame").expect("bytes");
    assert_eq!(first.into_data().expect("data"), "begun ");

    let finish = tokio::spawn(serving.finish(Duration::from_secs(10)));
    // accepted by the kernel at most; never answered
    let refused = async {
        let Ok(mut socket) = TcpStream::connect(address).await else {
            return true;
        };
        let _ = socket
            .write_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n")
            .await;
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer).await;
        answer.is_empty()
    };
    assert!(refused.await);
    feed.send(Ok("to its end")).await.expect("the body lives");
    drop(feed);
    let rest = answer.collect().await.expect("a whole body").to_bytes();
    assert_eq!(rest, "to its end");
    assert_eq!(finish.await.expect("no panic"), 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_open_at_the_deadline_is_cut() {
    let (_feed, body) = fed("begun");
    let server = start_once(Response::new(body)).await;
    let mut sender = connect(server.address).await;
    let mut answer = sender
        .send_request(get("/"))
        .await
        .expect("an answer")
        .into_body();
    answer.frame().await.expect("a frame").expect("bytes");
    assert_eq!(server.serving.finish(Duration::from_secs(20)).await, 1);
    assert!(
        answer.collect().await.is_err(),
        "the reader knows that it has not seen everything"
    );
    assert_eq!(server.counts.open(), 0);
    assert!(
        TcpStream::connect(server.address).await.is_err(),
        "it accepts nothing more"
    );
}

#[tokio::test]
async fn with_all_connections_open_nobody_gets_in_until_somebody_leaves() {
    let server = start(|_| async { Response::new(full("")) }).await;
    let address = server.address;
    let mut guests = Vec::new();
    for _ in 0..OPTIONS.connections {
        let mut guest = connect(address).await;
        guest.send_request(get("/")).await.expect("an answer");
        guests.push(guest);
    }
    let answered = Arc::new(AtomicBool::new(false));
    let (flag, begun) = (Arc::clone(&answered), Arc::new(Notify::new()));
    let started = Arc::clone(&begun);
    let third = tokio::spawn(async move {
        let mut guest = connect(address).await;
        started.notify_one();
        guest.send_request(get("/")).await.expect("an answer");
        flag.store(true, Ordering::SeqCst);
    });
    begun.notified().await;
    // a guest inside is served while the third waits outside
    let inside = guests.last_mut().expect("a guest");
    inside.send_request(get("/")).await.expect("an answer");
    assert!(!answered.load(Ordering::SeqCst));
    guests.clear();
    third.await.expect("let in");
    assert!(answered.load(Ordering::SeqCst));
}
