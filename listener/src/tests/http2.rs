//! Readers of HTTP/2 whose windows stay shut.

use hyper::client::conn::http2;
use hyper_util::rt::TokioExecutor;
use tokio::time::{Instant, interval};

use super::*;
use crate::streams::PATIENCE;

/// The longest that a reader who takes nothing holds its answer's body.
const SHUT: Duration = PATIENCE.saturating_add(Duration::from_secs(10));
/// The longest that its connection is held then, when it asks for nothing more.
const LEFT_ALONE: Duration = OPTIONS.header_timeout.saturating_mul(4);

/// A client that answers pings and whose streams' windows are this large and never grow, unless they are read.
async fn connect_narrow(address: SocketAddr, window: u32) -> http2::SendRequest<Empty<Bytes>> {
    let socket = TcpStream::connect(address).await.expect("it listens");
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(window)
        .handshake(TokioIo::new(socket))
        .await
        .expect("a handshake");
    tokio::spawn(connection);
    sender
}

/// A body says an event now and then, as long as it lives; `places` is shared by those that live.
fn long(places: &Arc<()>, event: usize) -> TestBody {
    let (place, beat) = (Arc::clone(places), interval(Duration::from_secs(15)));
    let events = futures::stream::unfold((beat, place), move |(mut beat, place)| async move {
        beat.tick().await;
        let data = Frame::data(Bytes::from(vec![b'x'; event]));
        Some((Ok(data), (beat, place)))
    });
    StreamBody::new(Box::pin(events)).boxed_unsync()
}

/// A body of one frame.
fn short(places: &Arc<()>) -> TestBody {
    let place = Arc::clone(places);
    let event = futures::stream::once(async move {
        let _place = place;
        Ok(Frame::data(Bytes::from(vec![b'x'; 64 * 1024])))
    });
    StreamBody::new(Box::pin(event)).boxed_unsync()
}

async fn streaming() -> (Server, impl Fn() -> usize) {
    let places = Arc::new(());
    let shared = Arc::clone(&places);
    let server = start(move |request| {
        let body = match request.uri().path() {
            "/short" => short(&shared),
            "/tiny" => long(&shared, 1),
            _ => long(&shared, 64 * 1024),
        };
        async move { Response::new(body) }
    })
    .await;
    // this one, and the handler's
    (server, move || Arc::strong_count(&places) - 2)
}

#[tokio::test(start_paused = true)]
async fn a_window_that_stays_shut_holds_neither_body_nor_connection() {
    let (server, places) = streaming().await;
    let mut sender = connect_narrow(server.address, 1024).await;
    let deaf = sender.send_request(get("/long")).await.expect("an answer");
    let mut ended = sender.send_request(get("/short")).await.expect("an answer");
    tokio::time::sleep(PATIENCE / 2).await;
    assert!(places() >= 1, "what is not taken yet is held");
    within(SHUT, || places() == 0 && server.counts.stalled() == 2).await;
    let frames = async { while ended.body_mut().frame().await.is_some_and(|f| f.is_ok()) {} };
    frames.await;
    within(LEFT_ALONE, || server.counts.open() == 0).await;
    drop((deaf, ended));
}

#[tokio::test(start_paused = true)]
async fn a_connection_whose_reader_takes_nothing_is_closed() {
    let bodies: [fn() -> TestBody; 2] =
        [|| full(vec![b'x'; 16 * 1024 * 1024]), || endless(64 * 1024)];
    for body in bodies {
        let server = start(move |_| async move { Response::new(body()) }).await;
        let mut sender = connect_narrow(server.address, 1024).await;
        // its pings are answered, its body is not read
        let answer = sender.send_request(get("/")).await.expect("a head");
        within(SHUT + LEFT_ALONE, || server.counts.open() == 0).await;
        drop(answer);
    }
}

#[tokio::test(start_paused = true)]
async fn streams_beside_one_that_is_not_taken_go_on() {
    let (server, places) = streaming().await;
    let mut sender = connect_narrow(server.address, 100 * 1024).await;
    let deaf = sender.send_request(get("/long")).await.expect("an answer");
    let mut hears = sender.send_request(get("/long")).await.expect("an answer");
    let until = Instant::now() + SHUT * 2;
    let mut read = 0;
    while Instant::now() < until {
        let frame = hears.body_mut().frame().await.expect("a frame");
        read += frame.expect("bytes").into_data().expect("data").len();
    }
    assert!(read > 64 * 1024, "{read}");
    assert_eq!(places(), 1);
    drop(deaf);
}

#[tokio::test(start_paused = true)]
async fn an_old_connection_is_asked_to_end_and_then_ended() {
    let (server, places) = streaming().await;
    let mut sender = connect_narrow(server.address, 100 * 1024).await;
    let began = Instant::now();
    let mut answer = sender.send_request(get("/tiny")).await.expect("an answer");
    while let Some(Ok(_)) = answer.body_mut().frame().await {}
    assert!(began.elapsed() >= OPTIONS.age + OPTIONS.last_requests);
    within(Duration::from_secs(10), || {
        server.counts.open() == 0 && places() == 0
    })
    .await;
}
