//! One connection, from its first byte to its last.

use std::convert::Infallible;
use std::future::{Future, pending, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use bex_proto::Chain;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, interval, sleep_until, timeout};
use tracing::debug;

use crate::activity::{Activity, Verdict};
use crate::body::Counted;
use crate::socket::Watched;
use crate::streams::{Handed, Streams};
use crate::{BodyError, Meter, Options, Shared, event_stream, socket};

/// All headers of one request: a ticket, a cursor and what browsers and proxies add.
const REQUEST_HEADER_BYTES: usize = 32 * 1024;
/// See [`REQUEST_HEADER_BYTES`].
const REQUEST_HEADERS: usize = 100;
/// What one HTTP/2 stream buffers towards a slow reader.
const HTTP2_SEND_BUFFER: usize = 256 * 1024;
/// What the kernel takes beyond what it may send. Without a bound it takes megabytes from a writer and nothing more before half
/// of that is read, so that a slow reader could not be told from one that takes nothing.
const UNSENT_BYTES: u32 = 16 * 1024;
/// Between two looks at a connection that has said too little to know its protocol.
const SNIFF_AGAIN: Duration = Duration::from_millis(10);

/// HTTP/1.1 within its bounds.
pub(crate) fn http1(options: &Options) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(options.header_timeout)
        .max_headers(REQUEST_HEADERS)
        .max_buf_size(REQUEST_HEADER_BYTES)
        // a client that closes its sending side has left: its stream must not be kept
        .half_close(false);
    builder
}

/// HTTP/2 within its bounds.
pub(crate) fn http2<M: Clone>(
    options: &Options,
    streams: Streams<M>,
) -> http2::Builder<Streams<M>> {
    let mut builder = http2::Builder::new(streams);
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(options.http2_streams)
        .max_header_list_size(REQUEST_HEADER_BYTES as u32)
        .max_send_buf_size(HTTP2_SEND_BUFFER)
        .keep_alive_interval(options.header_timeout)
        .keep_alive_timeout(options.header_timeout);
    builder
}

enum Protocol {
    Http1,
    Http2,
}

/// What the peer speaks, without taking anything from the socket.
async fn sniff(socket: &TcpStream) -> std::io::Result<Protocol> {
    // no method of ours begins like HTTP/2's preface
    const PREFACE: &[u8] = b"PRI";
    let mut seen = [0; PREFACE.len()];
    loop {
        let count = socket.peek(&mut seen).await?;
        match PREFACE.strip_prefix(&seen[..count]) {
            Some([]) => return Ok(Protocol::Http2),
            Some(_) if count > 0 => tokio::time::sleep(SNIFF_AGAIN).await,
            _ => return Ok(Protocol::Http1),
        }
    }
}

/// How far a connection was asked to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Open,
    Ending,
}

/// How hyper was done with a connection of HTTP/1.
enum Http1End<B> {
    Closed,
    /// An event stream is to be told.
    Stream(Box<(TcpStream, Response<B>)>),
}

impl<M, H, F, B> Shared<M, H>
where
    M: Meter,
    H: Fn(Request<Incoming>, SocketAddr) -> F + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BodyError> + Send,
{
    pub(crate) async fn serve_connection(self: &Arc<Self>, socket: TcpStream, peer: SocketAddr) {
        // small events must not wait for a full segment
        let is_set = socket
            .set_nodelay(true)
            .and_then(|()| SockRef::from(&socket).set_tcp_notsent_lowat(UNSENT_BYTES));
        if is_set.is_err() {
            return;
        }
        let old_at = Instant::now() + self.options.age;
        if let Some(tls) = &self.tls {
            return Box::pin(self.proved(tls, socket, peer, old_at)).await;
        }
        let sniffed = tokio::select! {
            sniffed = timeout(self.options.header_timeout, sniff(&socket)) => sniffed,
            () = self.stop.cancelled() => return,
        };
        let activity = Arc::new(Activity::default());
        match sniffed {
            Ok(Ok(Protocol::Http1)) => {
                // boxed: an event stream's task keeps no room for what was before it
                let asked = Box::pin(self.http1(socket, peer, &activity, old_at));
                if let Http1End::Stream(stream) = asked.await {
                    let (socket, answer) = *stream;
                    self.stream(socket, peer, activity, answer, old_at).await;
                }
            }
            Ok(Ok(Protocol::Http2)) => {
                let socket = Watched::new(socket, Arc::clone(&activity));
                Box::pin(self.http2(socket, peer, &activity, old_at)).await;
            }
            Ok(Err(_)) | Err(_) => {}
        }
    }

    async fn http1(
        &self,
        socket: TcpStream,
        peer: SocketAddr,
        activity: &Arc<Activity>,
        old_at: Instant,
    ) -> Http1End<Counted<B>> {
        let stream = Mutex::new(None);
        let kept = || stream.lock().unwrap_or_else(PoisonError::into_inner);
        let service = service_fn(|request: Request<Incoming>| {
            let (version, open) = (request.version(), Activity::begin(activity));
            let answer = (self.handle)(request, peer);
            Box::pin(async move {
                let answer = answer.await.map(|body| Counted::new(body, open));
                if event_stream::is_one(version, &answer) {
                    *kept() = Some(answer);
                    // the connection is taken from under this
                    match pending::<Infallible>().await {}
                }
                Ok::<_, Infallible>(answer)
            })
        });
        let io = TokioIo::new(Watched::new(socket, Arc::clone(activity)));
        let mut connection = self.http1.serve_connection(io, service);
        let answer = {
            let mut driving = pin!(self.drive(Pin::new(&mut connection), peer, activity, old_at));
            poll_fn(|cx| {
                let polled = driving.as_mut().poll(cx);
                match kept().take() {
                    Some(answer) => Poll::Ready(Some(answer)),
                    None => polled.map(|()| None),
                }
            })
            .await
        };
        match answer {
            Some(answer) => {
                let socket = connection.into_parts().io.into_inner().into_inner();
                Http1End::Stream(Box::new((socket, answer)))
            }
            None => Http1End::Closed,
        }
    }

    pub(crate) async fn http2<S>(
        self: &Arc<Self>,
        socket: S,
        peer: SocketAddr,
        activity: &Arc<Activity>,
        old_at: Instant,
    ) where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let service = service_fn({
            let (shared, activity) = (Arc::clone(self), Arc::clone(activity));
            move |request: Request<Incoming>| {
                let open = Activity::begin(&activity);
                let answer = (shared.handle)(request, peer);
                async move {
                    let answer = answer.await;
                    Ok::<_, Infallible>(answer.map(|body| Handed::new(Counted::new(body, open))))
                }
            }
        });
        let io = TokioIo::new(socket);
        let connection = pin!(self.http2.serve_connection(io, service));
        self.drive(connection, peer, activity, old_at).await;
    }

    /// Drives a connection to its end, and asks it to end when it is old, of no use, or the listener stops.
    pub(crate) async fn drive<C>(
        &self,
        mut connection: Pin<&mut C>,
        peer: SocketAddr,
        activity: &Activity,
        old_at: Instant,
    ) where
        C: GracefulConnection<Error = hyper::Error>,
    {
        let mut ticks = interval(self.options.header_timeout);
        ticks.reset();
        let mut age = pin!(sleep_until(old_at));
        let mut stage = Stage::Open;
        loop {
            let asked_to_end = tokio::select! {
                done = connection.as_mut() => {
                    if let Err(error) = done {
                        self.note_end(peer, &error);
                    }
                    return;
                }
                () = self.cut.cancelled() => return,
                () = age.as_mut() => match stage {
                    Stage::Open => true,
                    Stage::Ending => return,
                },
                () = self.stop.cancelled(), if stage == Stage::Open => true,
                _ = ticks.tick() => match activity.tick() {
                    Verdict::Busy => false,
                    Verdict::NeverSpoke => return,
                    Verdict::Idle if stage == Stage::Ending => return,
                    Verdict::Idle => true,
                },
            };
            if asked_to_end {
                // a head that is not whole yet is not waited for
                if activity.is_unused() {
                    return;
                }
                connection.as_mut().graceful_shutdown();
                stage = Stage::Ending;
                age.as_mut()
                    .reset(Instant::now() + self.options.last_requests);
            }
        }
    }

    async fn stream(
        &self,
        socket: TcpStream,
        peer: SocketAddr,
        activity: Arc<Activity>,
        answer: Response<Counted<B>>,
        old_at: Instant,
    ) {
        let latest = old_at + self.options.last_requests;
        tokio::select! {
            told = event_stream::tell(socket, activity, answer) => {
                if let Err(error) = told {
                    self.note_end(peer, &error);
                }
            }
            () = self.cut.cancelled() => {}
            () = sleep_until(latest) => {}
        }
    }

    fn note_end(&self, peer: SocketAddr, error: &(dyn std::error::Error + 'static)) {
        if socket::stalled(error) {
            self.meter.stalled();
        }
        // peers leave in every way; that is no trouble of ours
        debug!(listener = self.options.name, %peer, error = %Chain(error), "connection ended");
    }
}
