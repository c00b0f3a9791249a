use std::net::SocketAddr;

use axum::routing::get;
use http_body_util::Empty;
use hyper::client::conn::http2;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use super::*;
use crate::metrics::Metrics;

/// A multiple of the listener's buffers and the kernel's.
const LARGE: usize = 16 * 1024 * 1024;

struct Server {
    address: SocketAddr,
    metrics: Metrics,
    cancel: CancellationToken,
    task: JoinHandle<Drained>,
}

async fn start(router: Router, drain: Duration) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let cancel = CancellationToken::new();
    let metrics = Metrics::default();
    let http = metrics.http.clone();
    let task = tokio::spawn(serve(listener, "test", router, http, cancel.clone(), drain));
    Server {
        address,
        metrics,
        cancel,
        task,
    }
}

async fn connect(server: &Server) -> TcpStream {
    TcpStream::connect(server.address)
        .await
        .expect("it listens")
}

async fn ask(server: &Server) -> TcpStream {
    let mut stream = connect(server).await;
    stream
        .write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .expect("sent");
    stream
}

/// Reads to the connection's end, or a reset, which is one too.
async fn to_its_end(stream: &mut TcpStream, patience: Duration) {
    let closed = async { while stream.read(&mut [0; 4096]).await.is_ok_and(|n| n > 0) {} };
    timeout(patience, closed)
        .await
        .expect("it is closed in time");
}

/// The server has let go of every connection.
async fn nobody_is_left(server: &Server, patience: Duration) {
    let empty = async {
        let level = r#"http_connections{listener="test"} 0"#;
        while !server.metrics.text().contains(level) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(patience, empty).await.expect("it let go");
}

#[tokio::test]
async fn a_drain_lets_an_open_request_finish() {
    let (entered, leave) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (e, l) = (Arc::clone(&entered), Arc::clone(&leave));
    let handler = || async move {
        e.notify_one();
        l.notified().await;
        "done"
    };
    let router = Router::new().route("/", get(handler));
    let server = start(router, Duration::from_secs(30)).await;
    let mut stream = ask(&server).await;
    entered.notified().await;
    server.cancel.cancel();
    leave.notify_one();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.ends_with("done"), "{answer}");
    assert_eq!(server.task.await.expect("no panic"), Drained::Clean);
}

#[tokio::test]
async fn a_drain_has_a_deadline() {
    let entered = Arc::new(Notify::new());
    let e = Arc::clone(&entered);
    let handler = || async move {
        e.notify_one();
        std::future::pending::<()>().await;
    };
    let router = Router::new().route("/", get(handler));
    let server = start(router, Duration::from_millis(20)).await;
    let mut stream = ask(&server).await;
    entered.notified().await;
    server.cancel.cancel();
    assert_eq!(server.task.await.expect("no panic"), Drained::Cut);
    to_its_end(&mut stream, Duration::from_secs(10)).await;
    assert!(
        TcpStream::connect(server.address).await.is_err(),
        "it accepts nothing more"
    );
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_asks_nothing_is_closed() {
    let server = start(Router::new(), Duration::ZERO).await;
    for said in [&b""[..], b"P", b"PRI * HTTP/2.0", b"GET / HTTP/1.1\r\n"] {
        let mut stream = connect(&server).await;
        stream.write_all(said).await.expect("sent");
        to_its_end(&mut stream, limits::API_HEADER_TIMEOUT * 2).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_that_comes_byte_by_byte_is_not_waited_for() {
    let server = start(Router::new(), Duration::ZERO).await;
    let mut stream = ask(&server).await;
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
    timeout(limits::API_HEADER_TIMEOUT * 3, trickle)
        .await
        .expect("it is closed in time");
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed() {
    let server = start(
        Router::new().route("/", get(|| async { "hello" })),
        Duration::ZERO,
    )
    .await;
    let mut stream = ask(&server).await;
    to_its_end(&mut stream, limits::API_HEADER_TIMEOUT * 3).await;
    nobody_is_left(&server, Duration::from_secs(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_takes_nothing_is_cut() {
    let router = Router::new().route("/", get(|| async { vec![b'x'; LARGE] }));
    let server = start(router, Duration::ZERO).await;
    let stream = ask(&server).await;
    // the kernel's buffers fill, and then nothing moves
    nobody_is_left(&server, limits::WRITE_STALL * 3).await;
    let stalls = r#"http_write_stalls_total{listener="test"} 1"#;
    assert!(server.metrics.text().contains(stalls));
    drop(stream);
}

/// Asks for `router`'s answer, opens the window for a kilobyte of it, answers pings, and reads nothing.
async fn shut_window(router: Router, patience: Duration) {
    let server = start(router, Duration::ZERO).await;
    let io = TokioIo::new(connect(&server).await);
    let (mut sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(1024)
        .handshake::<_, Empty<bytes::Bytes>>(io)
        .await
        .expect("a handshake");
    tokio::spawn(connection);
    let request = http::Request::get("http://x/").body(Empty::new());
    let answer = sender.send_request(request.expect("a request")).await;
    // its pings are answered, its body is not read
    let answer = answer.expect("a head");
    nobody_is_left(&server, patience).await;
    drop(answer);
}

#[tokio::test(start_paused = true)]
async fn a_window_that_never_opens_holds_no_connection() {
    let router = Router::new().route("/", get(|| async { vec![b'x'; LARGE] }));
    shut_window(router, limits::API_HEADER_TIMEOUT * 4).await;
}

#[tokio::test(start_paused = true)]
async fn neither_does_one_before_an_answer_that_is_still_being_made() {
    let endless = || async {
        let more = futures::stream::repeat_with(|| Ok::<_, Infallible>(vec![b'x'; 64 * 1024]));
        axum::body::Body::from_stream(more)
    };
    let router = Router::new().route("/", get(endless));
    shut_window(router, AGE + LAST_REQUESTS + Duration::from_secs(60)).await;
}

#[tokio::test(start_paused = true)]
async fn a_busy_connection_is_asked_to_end_when_it_is_old() {
    let router = Router::new().route("/", get(|| async { "hello" }));
    let server = start(router, Duration::ZERO).await;
    let mut stream = connect(&server).await;
    let began = Instant::now();
    let mut answer = [0; 4096];
    loop {
        let sent = stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await;
        if sent.is_err() || stream.read(&mut answer).await.is_ok_and(|n| n == 0) {
            break;
        }
        assert!(began.elapsed() < AGE * 2, "it never ends");
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    assert!(began.elapsed() >= AGE);
}
