//! A connection whose client is proved before HTTP begins. What it speaks is agreed in the handshake; every bound is that of a plain
//! one, but event streams stay with hyper: whoever proves its clients has few of them.

use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use bex_tls::{AcceptFault, ServerTls};
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tracing::debug;

use crate::activity::Activity;
use crate::body::Counted;
use crate::socket::Watched;
use crate::{BodyError, Meter, Shared};

impl<M, H, F, B> Shared<M, H>
where
    M: Meter,
    H: Fn(Request<Incoming>, SocketAddr) -> F + Send + Sync + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<BodyError> + Send,
{
    pub(crate) async fn proved(
        self: &Arc<Self>,
        tls: &ServerTls,
        socket: TcpStream,
        peer: SocketAddr,
        old_at: Instant,
    ) {
        let activity = Arc::new(Activity::default());
        let socket = Watched::new(socket, Arc::clone(&activity));
        let place = self.unproved.enter();
        let proof = async {
            let socket = tls.accept(socket).await.map_err(AcceptFault::as_str)?;
            // with all connections open, a proved client waits with its place
            Ok((socket, self.permit().await))
        };
        let proved = tokio::select! {
            proved = proof => proved,
            () = place.sent_away() => Err("crowded"),
            () = self.stop.cancelled() => return,
        };
        drop(place);
        let (socket, _permit) = match proved {
            Ok(proved) => proved,
            Err(fault) => {
                self.meter.handshake(fault);
                debug!(listener = self.options.name, %peer, fault, "a connection was not taken");
                return;
            }
        };
        self.meter.handshake("ok");
        match socket.get_ref().1.alpn_protocol() {
            Some(b"h2") => self.http2(socket, peer, &activity, old_at).await,
            _ => self.http1_proved(socket, peer, &activity, old_at).await,
        }
    }

    async fn http1_proved<S>(
        self: &Arc<Self>,
        socket: S,
        peer: SocketAddr,
        activity: &Arc<Activity>,
        old_at: Instant,
    ) where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let service = service_fn(|request: Request<Incoming>| {
            let open = Activity::begin(activity);
            let answer = (self.handle)(request, peer);
            Box::pin(
                async move { Ok::<_, Infallible>(answer.await.map(|b| Counted::new(b, open))) },
            )
        });
        let connection = pin!(self.http1.serve_connection(TokioIo::new(socket), service));
        self.drive(connection, peer, activity, old_at).await;
    }
}
