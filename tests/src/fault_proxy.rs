//! A TCP proxy whose network fails when it is told to.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// One piece of a stream.
const PIECE: usize = 64 * 1024;
/// The longest a connection to one upstream takes.
const CONNECT: Duration = Duration::from_secs(2);

/// What the network does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// It carries.
    Open,
    /// Connections break, new ones too.
    Cut,
    /// Connections stay, and nothing is carried until it is open again.
    Frozen,
}

/// Stands before one server, or before several that are alike.
#[derive(Debug)]
pub struct FaultProxy {
    /// Where it listens.
    pub address: SocketAddr,
    network: watch::Sender<Network>,
    accepts: JoinHandle<()>,
}

impl FaultProxy {
    /// Listens on a port of its own. Connections go to the upstreams in turn; one that does not take them is passed over.
    ///
    /// # Errors
    /// When there is no port.
    pub async fn start(upstreams: Vec<SocketAddr>) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.context("no free loopback port")?;
        let address = listener.local_addr()?;
        let network = watch::Sender::new(Network::Open);
        let accepts = tokio::spawn(accept(listener, Arc::from(upstreams), network.subscribe()));
        Ok(Self {
            address,
            network,
            accepts,
        })
    }

    /// Changes the weather. Cut, every connection of now is broken.
    pub fn set(&self, network: Network) {
        self.network.send_replace(network);
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.accepts.abort();
    }
}

async fn accept(
    listener: TcpListener,
    upstreams: Arc<[SocketAddr]>,
    network: watch::Receiver<Network>,
) {
    let next = Arc::new(AtomicUsize::new(0));
    loop {
        // the only errors are of connections that broke before they were taken
        let Ok((inbound, _)) = listener.accept().await else {
            continue;
        };
        let (upstreams, network, next) =
            (Arc::clone(&upstreams), network.clone(), Arc::clone(&next));
        tokio::spawn(async move {
            let mut broken = network.clone();
            tokio::select! {
                biased;
                _ = broken.wait_for(|network| *network == Network::Cut) => {}
                // whoever is at either end sees it break, as it should
                _ = carry(inbound, &upstreams, &next, network) => {}
            }
        });
    }
}

async fn carry(
    inbound: TcpStream,
    upstreams: &[SocketAddr],
    next: &AtomicUsize,
    mut network: watch::Receiver<Network>,
) -> anyhow::Result<()> {
    network
        .wait_for(|network| *network != Network::Frozen)
        .await?;
    let outbound = connect(upstreams, next.fetch_add(1, Ordering::Relaxed)).await?;
    inbound.set_nodelay(true)?;
    outbound.set_nodelay(true)?;
    let (from_client, to_client) = inbound.into_split();
    let (from_server, to_server) = outbound.into_split();
    tokio::try_join!(
        pump(from_client, to_server, network.clone()),
        pump(from_server, to_client, network),
    )?;
    Ok(())
}

async fn connect(upstreams: &[SocketAddr], first: usize) -> anyhow::Result<TcpStream> {
    for n in 0..upstreams.len() {
        let upstream = upstreams[(first + n) % upstreams.len()];
        if let Ok(Ok(outbound)) = timeout(CONNECT, TcpStream::connect(upstream)).await {
            return Ok(outbound);
        }
    }
    anyhow::bail!("no upstream takes a connection")
}

async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut network: watch::Receiver<Network>,
) -> anyhow::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        let length = from.read(&mut piece).await?;
        network
            .wait_for(|network| *network != Network::Frozen)
            .await?;
        if length == 0 {
            return Ok(to.shutdown().await?);
        }
        to.write_all(&piece[..length]).await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(20);
    const NOT_YET: Duration = Duration::from_millis(100);

    /// A server that says back what it hears.
    async fn echo() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = socket.into_split();
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                });
            }
        });
        address
    }

    async fn says_back(stream: &mut TcpStream) -> bool {
        let mut heard = [0; 5];
        let exchange = async {
            stream.write_all(b"hello").await?;
            stream.read_exact(&mut heard).await
        };
        matches!(timeout(SOON, exchange).await, Ok(Ok(_))) && &heard == b"hello"
    }

    #[tokio::test]
    async fn it_carries_freezes_and_cuts() {
        let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let proxy = FaultProxy::start(vec![nobody, echo().await]).await.unwrap();
        let mut stream = TcpStream::connect(proxy.address).await.unwrap();
        assert!(
            says_back(&mut stream).await,
            "a dead upstream is passed over"
        );

        proxy.set(Network::Frozen);
        stream.write_all(b"later").await.unwrap();
        let mut heard = [0; 5];
        let early = timeout(NOT_YET, stream.read_exact(&mut heard)).await;
        assert!(early.is_err(), "nothing is carried");
        proxy.set(Network::Open);
        timeout(SOON, stream.read_exact(&mut heard))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(&heard, b"later", "and nothing is lost");

        proxy.set(Network::Cut);
        let end = timeout(SOON, stream.read(&mut heard)).await.unwrap();
        assert!(matches!(end, Ok(0) | Err(_)));
        let mut refused = TcpStream::connect(proxy.address).await.unwrap();
        assert!(!says_back(&mut refused).await);
        proxy.set(Network::Open);
        let mut again = TcpStream::connect(proxy.address).await.unwrap();
        assert!(says_back(&mut again).await);
    }
}
