//! Whole listeners with real sockets; most in paused time.

mod bounds;
mod event_streams;
mod http2;
mod life;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::{BodyError, Meter, Options, Serving, serve};

type TestBody = UnsyncBoxBody<Bytes, BodyError>;

const OPTIONS: Options = Options {
    name: "test",
    connections: 2,
    header_timeout: Duration::from_secs(20),
    age: Duration::from_secs(3600),
    last_requests: Duration::from_secs(600),
    http2_streams: 100,
};

#[derive(Clone, Default)]
struct Counts {
    open: Arc<AtomicUsize>,
    stalled: Arc<AtomicUsize>,
}

struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Meter for Counts {
    type Connection = Open;

    fn connected(&self) -> Open {
        self.open.fetch_add(1, Ordering::SeqCst);
        Open(Arc::clone(&self.open))
    }

    fn stalled(&self) {
        self.stalled.fetch_add(1, Ordering::SeqCst);
    }
}

impl Counts {
    fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    fn stalled(&self) -> usize {
        self.stalled.load(Ordering::SeqCst)
    }
}

struct Server {
    address: SocketAddr,
    counts: Counts,
    serving: Serving,
}

/// Serves with `handle` within [`OPTIONS`].
async fn start<F>(handle: impl Fn(Request<Incoming>) -> F + Send + Sync + 'static) -> Server
where
    F: Future<Output = Response<TestBody>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let counts = Counts::default();
    let serving = serve(listener, OPTIONS, counts.clone(), move |request, _| {
        handle(request)
    });
    Server {
        address,
        counts,
        serving,
    }
}

/// Serves one request with this answer.
async fn start_once(answer: Response<TestBody>) -> Server {
    let answer = std::sync::Mutex::new(Some(answer));
    start(move |_| {
        let answer = answer.lock().expect("no panic").take();
        async move { answer.expect("one request") }
    })
    .await
}

fn full(bytes: impl Into<Bytes>) -> TestBody {
    Full::new(bytes.into())
        .map_err(|e| match e {})
        .boxed_unsync()
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

/// A connection that asked for `/` by itself.
async fn ask(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    stream
        .write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        .await
        .expect("sent");
    stream
}

/// A body fed by the test: says `first`, then waits for more.
fn fed(first: &'static str) -> (mpsc::Sender<Result<&'static str, BodyError>>, TestBody) {
    let (feed, mut fed) = mpsc::channel(4);
    feed.try_send(Ok(first)).expect("room");
    let frames = futures::stream::poll_fn(move |cx| {
        fed.poll_recv(cx).map(|said| {
            said.map(|said: Result<&str, BodyError>| said.map(|s| Frame::data(Bytes::from(s))))
        })
    });
    (feed, StreamBody::new(frames).boxed_unsync())
}

/// A body without end.
fn endless(piece: usize) -> TestBody {
    let more = futures::stream::repeat_with(move || {
        Ok::<_, Infallible>(Frame::data(Bytes::from(vec![b'x'; piece])))
    });
    StreamBody::new(more)
        .map_err(|never| match never {})
        .boxed_unsync()
}

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
