//! What a cluster's Service is: one address, and connections spread over those who are ready.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

/// See the module's text.
pub struct Service {
    /// Where it is.
    pub address: SocketAddr,
    // the lock is held while a connection is made, so that whoever was removed is given none any more
    ready: Arc<Mutex<Vec<SocketAddr>>>,
    task: JoinHandle<()>,
}

impl Service {
    pub async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let ready: Arc<Mutex<Vec<SocketAddr>>> = Arc::default();
        let task = tokio::spawn(forward(listener, Arc::clone(&ready)));
        Ok(Self {
            address,
            ready,
            task,
        })
    }

    pub async fn add(&self, backend: SocketAddr) {
        self.ready.lock().await.push(backend);
    }

    pub async fn remove(&self, backend: SocketAddr) {
        self.ready.lock().await.retain(|known| *known != backend);
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward(listener: TcpListener, ready: Arc<Mutex<Vec<SocketAddr>>>) {
    while let Ok((client, _)) = listener.accept().await {
        let ready = Arc::clone(&ready);
        // a connection that cannot be made is closed, and its client's call fails
        tokio::spawn(async move { carry(client, &ready).await.ok() });
    }
}

async fn carry(mut client: TcpStream, ready: &Mutex<Vec<SocketAddr>>) -> anyhow::Result<()> {
    let mut server = {
        let mut ready = ready.lock().await;
        let next = *ready.first().context("nobody is ready")?;
        ready.rotate_left(1);
        TcpStream::connect(next).await?
    };
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    tokio::io::copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}
