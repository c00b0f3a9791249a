use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::StatusCode;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Notify, mpsc};

use super::*;
use crate::attach::body;
use crate::attach::limiter::Limiter;

const OPTIONS: ServeOptions = ServeOptions {
    name: "test",
    connections: 2,
};

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    (listener, address)
}

fn get(path: &str) -> Request<Empty<Bytes>> {
    Request::builder()
        .uri(format!("http://test{path}"))
        .header("host", "test")
        .body(Empty::new())
        .expect("a request")
}

async fn connect(address: SocketAddr) -> http1::SendRequest<Empty<Bytes>> {
    let socket = TcpStream::connect(address).await.expect("a connection");
    let (sender, connection) = http1::handshake(TokioIo::new(socket))
        .await
        .expect("a handshake");
    tokio::spawn(connection);
    sender
}

/// A body fed by the test: says `first`, then waits for more.
fn fed(first: &'static str) -> (mpsc::Sender<&'static str>, ResponseBody) {
    let (feed, mut fed) = mpsc::channel(4);
    feed.try_send(first).expect("room");
    let frames = futures::stream::poll_fn(move |cx| {
        fed.poll_recv(cx)
            .map(|said| said.map(|s: &str| Ok(http_body::Frame::data(Bytes::from(s)))))
    });
    (feed, StreamBody::new(frames).boxed_unsync())
}

#[tokio::test]
async fn both_protocols_are_served_on_one_port() {
    let (listener, address) = listen().await;
    let serving = serve(
        listener,
        OPTIONS,
        ServeMetrics::default(),
        |request, _| async move {
            Response::new(full(format!(
                "{:?} {}",
                request.version(),
                request.uri().path()
            )))
        },
    );
    let one = connect(address)
        .await
        .send_request(get("/a"))
        .await
        .expect("an answer");
    let one = one.into_body().collect().await.expect("a body").to_bytes();
    assert_eq!(one, "HTTP/1.1 /a");

    let socket = TcpStream::connect(address).await.expect("a connection");
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(socket))
        .await
        .expect("a handshake");
    tokio::spawn(connection);
    let two = sender.send_request(get("/b")).await.expect("an answer");
    let two = two.into_body().collect().await.expect("a body").to_bytes();
    assert_eq!(two, "HTTP/2.0 /b");
    drop(sender);
    assert_eq!(serving.finish(Duration::from_secs(10)).await, 0);
}

#[tokio::test]
async fn an_open_answer_goes_on_to_its_end_and_nothing_new_is_accepted() {
    let (listener, address) = listen().await;
    let (feed, body) = fed("begun ");
    let body = std::sync::Mutex::new(Some(body));
    let serving = serve(listener, OPTIONS, ServeMetrics::default(), move |_, _| {
        let body = body.lock().expect("no panic").take().expect("one request");
        async move { Response::new(body) }
    });
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
    feed.send("to its end").await.expect("the body lives");
    drop(feed);
    let rest = answer.collect().await.expect("a whole body").to_bytes();
    assert_eq!(rest, "to its end");
    assert_eq!(finish.await.expect("no panic"), 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_open_at_the_deadline_is_cut() {
    let (listener, address) = listen().await;
    let (_feed, body) = fed("begun");
    let body = std::sync::Mutex::new(Some(body));
    let metrics = ServeMetrics::default();
    let serving = serve(listener, OPTIONS, metrics.clone(), move |_, _| {
        let body = body.lock().expect("no panic").take().expect("one request");
        async move { Response::new(body) }
    });
    let mut sender = connect(address).await;
    let mut answer = sender
        .send_request(get("/"))
        .await
        .expect("an answer")
        .into_body();
    answer.frame().await.expect("a frame").expect("bytes");
    assert_eq!(serving.finish(Duration::from_secs(20)).await, 1);
    assert!(
        answer.collect().await.is_err(),
        "the reader knows that it has not seen everything"
    );
    let label = ListenerLabel { listener: "test" };
    assert_eq!(metrics.connections.get_or_create(&label).get(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_never_speaks_is_closed() {
    let (listener, address) = listen().await;
    let _serving = serve(listener, OPTIONS, ServeMetrics::default(), |_, _| async {
        Response::new(empty())
    });
    for said in [&b""[..], b"PRI", b"GET / HTTP/1.1\r\nhost:"] {
        let mut socket = TcpStream::connect(address).await.expect("a connection");
        socket.write_all(said).await.expect("written");
        let mut answer = Vec::new();
        // both its end and a reset are fine; that it comes is the point
        let _ = socket.read_to_end(&mut answer).await;
        assert!(!answer.starts_with(b"HTTP/1.1 200"), "{said:?}");
    }
}

#[tokio::test]
async fn a_full_house_lets_nobody_in_until_somebody_leaves() {
    let (listener, address) = listen().await;
    let _serving = serve(listener, OPTIONS, ServeMetrics::default(), |_, _| async {
        Response::new(empty())
    });
    let mut guests = Vec::new();
    for _ in 0..OPTIONS.connections {
        let mut guest = connect(address).await;
        assert_eq!(
            guest
                .send_request(get("/"))
                .await
                .expect("an answer")
                .status(),
            StatusCode::OK
        );
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
    assert_eq!(
        inside
            .send_request(get("/"))
            .await
            .expect("an answer")
            .status(),
        StatusCode::OK
    );
    assert!(!answered.load(Ordering::SeqCst));
    guests.clear();
    third.await.expect("let in");
    assert!(answered.load(Ordering::SeqCst));
}

/// A client of HTTP/2 that answers pings and whose streams' windows are this large and never grow.
async fn connect_narrow(address: SocketAddr, window: u32) -> http2::SendRequest<Empty<Bytes>> {
    let socket = TcpStream::connect(address).await.expect("a connection");
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(window)
        .handshake(TokioIo::new(socket))
        .await
        .expect("a handshake");
    tokio::spawn(connection);
    sender
}

/// A listener of streams that take a place each: `/short` ends after one frame, the others go on until their viewer is gone.
async fn streaming(metrics: &ServeMetrics) -> (Serving, SocketAddr, Arc<Limiter>) {
    let (listener, address) = listen().await;
    let limiter = Limiter::new(10, 10);
    let places = Arc::clone(&limiter);
    let serving = serve(listener, OPTIONS, metrics.clone(), move |request, _| {
        let permit = places.admit("somebody").expect("a place");
        let (mut out, body) = body::stream(permit);
        tokio::spawn(async move {
            let path = request.uri().path();
            let event = vec![b'x'; if path == "/tiny" { 1 } else { 64 * 1024 }];
            out.event(&event);
            if path == "/short" {
                return out.close().await.expect("there is room for one frame");
            }
            while out
                .quietly(tokio::time::sleep(limits::HEARTBEAT))
                .await
                .is_ok()
            {
                out.event(&event);
            }
        });
        let body = body.map_err(Into::into).boxed_unsync();
        async move { Response::new(body) }
    });
    (serving, address, limiter)
}

/// The longest that a reader who takes nothing holds its place.
const SHUT: Duration = streams::PATIENCE.saturating_add(Duration::from_secs(10));
/// The longest that its connection is held when it asks for nothing more.
const LEFT_ALONE: Duration = HEADER_READ_TIMEOUT.saturating_mul(LAST_TICKS + 2);

/// Waits for a level, in paused time.
async fn within(patience: Duration, reached: impl Fn() -> bool) {
    let level = async {
        while !reached() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(patience, level)
        .await
        .expect("reached in time");
}

#[tokio::test(start_paused = true)]
async fn a_window_that_stays_shut_holds_neither_place_nor_connection() {
    let metrics = ServeMetrics::default();
    let (_serving, address, limiter) = streaming(&metrics).await;
    let mut sender = connect_narrow(address, 1024).await;
    let deaf = sender.send_request(get("/long")).await.expect("an answer");
    let mut ended = sender.send_request(get("/short")).await.expect("an answer");
    tokio::time::sleep(limits::WRITE_STALL).await;
    assert_eq!(
        limiter.count(),
        2,
        "what is not taken yet is counted, ended or not"
    );
    within(SHUT, || limiter.count() == 0).await;
    let label = ListenerLabel { listener: "test" };
    assert_eq!(metrics.write_stalls.get_or_create(&label).get(), 2);
    let frames = async { while ended.body_mut().frame().await.is_some_and(|f| f.is_ok()) {} };
    frames.await;
    within(LEFT_ALONE, || {
        metrics.connections.get_or_create(&label).get() == 0
    })
    .await;
    drop((deaf, ended));
}

#[tokio::test(start_paused = true)]
async fn streams_beside_one_that_is_not_taken_go_on() {
    let metrics = ServeMetrics::default();
    let (_serving, address, limiter) = streaming(&metrics).await;
    let mut sender = connect_narrow(address, 100 * 1024).await;
    let deaf = sender.send_request(get("/long")).await.expect("an answer");
    let mut hears = sender.send_request(get("/long")).await.expect("an answer");
    let until = Instant::now() + SHUT * 2;
    let mut read = 0;
    while Instant::now() < until {
        let frame = hears.body_mut().frame().await.expect("a frame");
        read += frame.expect("bytes").into_data().expect("data").len();
    }
    assert!(read > 64 * 1024, "{read}");
    assert_eq!(limiter.count(), 1);
    drop(deaf);
}

#[tokio::test(start_paused = true)]
async fn an_old_connection_is_asked_to_end_and_then_ended() {
    let metrics = ServeMetrics::default();
    let (_serving, address, limiter) = streaming(&metrics).await;
    let mut sender = connect_narrow(address, 100 * 1024).await;
    let began = Instant::now();
    let mut answer = sender.send_request(get("/tiny")).await.expect("an answer");
    while let Some(Ok(_)) = answer.body_mut().frame().await {}
    assert!(began.elapsed() >= AGE + LAST_REQUESTS);
    let label = ListenerLabel { listener: "test" };
    within(Duration::from_secs(10), || {
        metrics.connections.get_or_create(&label).get() == 0 && limiter.count() == 0
    })
    .await;
}
