//! The API server's socket: accepts, speaks TLS where asked, can be killed and started again on its port.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::{ServerConfig, crypto::aws_lc_rs};
use tokio_util::sync::CancellationToken;

use crate::api;
use crate::cluster::ClusterError;
use crate::world::World;

/// A whole request head; the real limit is 1 MiB.
const HEAD_BYTES: usize = 1024 * 1024 + 64 * 1024;

/// See the module's text.
pub(crate) struct Server {
    world: Arc<World>,
    pub(crate) address: SocketAddr,
    tls: Option<TlsAcceptor>,
    /// Ends the present accept loop and all of its connections.
    running: Mutex<CancellationToken>,
}

impl Server {
    pub(crate) async fn start(
        world: Arc<World>,
        tls: Option<TlsAcceptor>,
    ) -> Result<Self, ClusterError> {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .map_err(ClusterError::Socket)?;
        let address = listener.local_addr().map_err(ClusterError::Socket)?;
        let server = Self {
            world,
            address,
            tls,
            running: Mutex::default(),
        };
        server.serve(listener);
        Ok(server)
    }

    fn serve(&self, listener: TcpListener) {
        let token = self.world.stop.child_token();
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = token.clone();
        let (world, tls) = (Arc::clone(&self.world), self.tls.clone());
        tokio::spawn(async move {
            loop {
                let socket = tokio::select! {
                    accepted = listener.accept() => accepted,
                    () = token.cancelled() => return,
                };
                let Ok((socket, _)) = socket else { continue };
                let _ = socket.set_nodelay(true);
                let (world, tls, token) = (Arc::clone(&world), tls.clone(), token.clone());
                tokio::spawn(async move {
                    let talk = async {
                        match tls {
                            None => talk(socket, world).await,
                            Some(tls) => {
                                if let Ok(socket) = tls.accept(socket).await {
                                    talk(socket, world).await;
                                }
                            }
                        }
                    };
                    tokio::select! {
                        () = talk => {}
                        () = token.cancelled() => {}
                    }
                });
            }
        });
    }

    /// Nothing listens and every connection ends, as after SIGKILL.
    pub(crate) fn kill(&self) {
        self.running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .cancel();
    }

    /// Listens again.
    pub(crate) async fn start_again(&self) -> Result<(), ClusterError> {
        let listener = TcpListener::bind(self.address)
            .await
            .map_err(ClusterError::Socket)?;
        self.serve(listener);
        Ok(())
    }
}

async fn talk(socket: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, world: Arc<World>) {
    let service = service_fn(move |request| {
        let world = Arc::clone(&world);
        async move { Ok::<_, Infallible>(api::answer(world, request).await) }
    });
    let connection = http1::Builder::new()
        // a 101 has none, and nobody reads the others'
        .auto_date_header(false)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(socket), service)
        .with_upgrades();
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a connection of the double broke");
    }
}

/// A certificate for 127.0.0.1 and the authority it can be checked by.
pub(crate) fn identity() -> Result<(TlsAcceptor, String), ClusterError> {
    let made = |e: rcgen::Error| ClusterError::Certificate(e.to_string());
    let ca_key = rcgen::KeyPair::generate().map_err(made)?;
    let mut ca = rcgen::CertificateParams::new(Vec::new()).map_err(made)?;
    ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    ca.distinguished_name
        .push(rcgen::DnType::CommonName, "testk8s");
    let authority = ca.self_signed(&ca_key).map_err(made)?;
    let issuer = rcgen::Issuer::new(ca, ca_key);
    let key = rcgen::KeyPair::generate().map_err(made)?;
    let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
    let certificate = rcgen::CertificateParams::new(names)
        .and_then(|params| params.signed_by(&key, &issuer))
        .map_err(made)?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map(|builder| builder.with_no_client_auth())
        .and_then(|builder| builder.with_single_cert(vec![certificate.der().clone()], key))
        .map_err(|e| ClusterError::Certificate(e.to_string()))?;
    Ok((TlsAcceptor::from(Arc::new(config)), authority.pem()))
}
