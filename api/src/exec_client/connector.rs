//! Connections to the gateway: plain on loopback, else each side proves itself first.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bex_tls::{ClientTls, ConnectFault};
use futures::future::BoxFuture;
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tower::Service;

use super::CONNECT_TIMEOUT;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("no connection")]
    Tcp(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("no proved connection")]
    Tls(#[source] ConnectFault),
}

/// Makes connections.
#[derive(Clone)]
pub(super) struct Connector {
    tcp: HttpConnector,
    tls: Option<Arc<ClientTls>>,
}

impl Connector {
    pub(super) fn new(tls: Option<Arc<ClientTls>>) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        tcp.set_nodelay(true);
        // an https URL needs a socket first, too
        tcp.enforce_http(false);
        Self { tcp, tls }
    }
}

impl Service<Uri> for Connector {
    type Response = Socket;
    type Error = ConnectError;
    type Future = BoxFuture<'static, Result<Socket, ConnectError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        self.tcp
            .poll_ready(cx)
            .map_err(|error| ConnectError::Tcp(error.into()))
    }

    fn call(&mut self, url: Uri) -> Self::Future {
        let (dialled, tls) = (self.tcp.call(url), self.tls.clone());
        Box::pin(async move {
            let socket = dialled
                .await
                .map_err(|error| ConnectError::Tcp(error.into()))?
                .into_inner();
            let io: Box<dyn Io> = match tls {
                None => Box::new(socket),
                Some(tls) => Box::new(tls.connect(socket).await.map_err(ConnectError::Tls)?),
            };
            Ok(Socket(TokioIo::new(io)))
        })
    }
}

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// One connection, of either kind.
pub(super) struct Socket(TokioIo<Box<dyn Io>>);

impl Connection for Socket {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl Write for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
