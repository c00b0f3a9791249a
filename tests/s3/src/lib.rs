//! A private S3 server: objects in a directory of its own, requests and URLs refused unless their signatures are right and they have
//! not expired. It remembers what it was asked, takes no writes when told so, and is gone with its connections when dropped.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s_fs::FileSystem;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

/// The one user's key.
pub const KEY_ID: &str = "AKIATESTTESTTESTTEST";
/// Its secret.
pub const SECRET: &str = "test-secret-of-the-private-s3-server";
/// Where it says it is.
pub const REGION: &str = "us-east-1";
/// The one bucket.
pub const BUCKET: &str = "packages";

/// A server.
pub struct S3 {
    dir: TempDir,
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

/// A request that it was sent.
#[derive(Debug, Clone)]
pub struct Asked {
    /// How.
    pub method: Method,
    /// For what.
    pub uri: Uri,
    /// With what.
    pub headers: HeaderMap,
}

struct Shared {
    service: S3Service,
    asked: Mutex<Vec<Asked>>,
    writes: Mutex<Writes>,
}

/// What becomes of writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writes {
    /// They are done.
    Done,
    /// They are answered with this status.
    Refused(StatusCode),
    /// An upload may begin; whatever has content is never answered.
    Hang,
}

impl Shared {
    fn remember(&self, asked: Asked) {
        let mut all = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(asked);
    }
}

impl S3 {
    /// A server with an empty bucket.
    ///
    /// # Errors
    /// When there is no port or no directory.
    pub async fn start() -> std::io::Result<Self> {
        let dir = tempfile::tempdir()?;
        std::fs::create_dir(dir.path().join(BUCKET))?;
        let files =
            FileSystem::new(dir.path()).map_err(|e| std::io::Error::other(format!("{e:?}")))?;
        let mut builder = S3ServiceBuilder::new(files);
        builder.set_auth(SimpleAuth::from_single(KEY_ID, SECRET));
        let shared = Arc::new(Shared {
            service: builder.build(),
            asked: Mutex::default(),
            writes: Mutex::new(Writes::Done),
        });
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self {
            dir,
            address,
            shared,
            accepting,
        })
    }

    /// Where it listens: scheme, host and port.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The keys of all objects, sorted.
    pub fn keys(&self) -> Vec<String> {
        let bucket = self.dir.path().join(BUCKET);
        let mut keys = Vec::new();
        let mut open = vec![bucket.clone()];
        while let Some(dir) = open.pop() {
            for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    open.push(path);
                } else if let Ok(key) = path.strip_prefix(&bucket) {
                    keys.push(key.to_string_lossy().into_owned());
                }
            }
        }
        keys.sort();
        keys
    }

    /// The file of an object.
    pub fn path(&self, key: &str) -> PathBuf {
        self.dir.path().join(BUCKET).join(key)
    }

    /// Parts of uploads that were neither completed nor given up.
    pub fn unfinished(&self) -> usize {
        let entries = std::fs::read_dir(self.dir.path());
        let names = entries
            .into_iter()
            .flatten()
            .flatten()
            .map(|e| e.file_name());
        names
            .filter(|name| name.to_string_lossy().starts_with(".upload"))
            .count()
    }

    /// What it was asked since it started.
    pub fn asked(&self) -> Vec<Asked> {
        let asked = self.shared.asked.lock();
        asked.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on.
    pub fn writes(&self, writes: Writes) {
        let now = self.shared.writes.lock();
        *now.unwrap_or_else(PoisonError::into_inner) = writes;
    }
}

impl Drop for S3 {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // they end with this task
    let mut connections = JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let service = service_fn(|request| answer(Arc::clone(&shared), request));
            let server = auto::Builder::new(TokioExecutor::new());
            let serving = server.serve_connection(TokioIo::new(socket), service);
            // whoever closes in the middle is told so by itself
            let _ = serving.await;
        });
    }
}

async fn answer(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<s3s::Body>, s3s::HttpError> {
    let asked = Asked {
        method: request.method().clone(),
        uri: request.uri().clone(),
        headers: request.headers().clone(),
    };
    let method = asked.method.clone();
    shared.remember(asked);
    let writes = *shared.writes.lock().unwrap_or_else(PoisonError::into_inner);
    match (writes, method) {
        (Writes::Refused(status), Method::PUT | Method::POST) => {
            let mut response = Response::new(s3s::Body::empty());
            *response.status_mut() = status;
            return Ok(response);
        }
        (Writes::Hang, Method::PUT) => std::future::pending().await,
        _ => {}
    }
    shared.service.call(request.map(s3s::Body::from)).await
}
