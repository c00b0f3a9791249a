//! nchan, the event-stream module of nginx, as Debian packages it.

use std::path::Path;
use std::time::Duration;

use bex_tests::bench::sink;
use bex_tests::edge::Edge;
use bex_tests::eventually;
use futures::{StreamExt, TryStreamExt, stream};

use crate::process::memory;

const MODULE: &str = "/usr/lib/nginx/modules/ngx_nchan_module.so";
const ARRIVING: usize = 32;

pub struct Nchan(Edge);

impl Nchan {
    /// `None` where the module is not installed.
    pub async fn start() -> anyhow::Result<Option<Self>> {
        if !Path::new(MODULE).is_file() {
            return Ok(None);
        }
        let dir = tempfile::tempdir()?;
        let address = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let path = dir.path().display();
        let config = format!(
            "load_module {MODULE}; worker_processes 1; pid {path}/pid; error_log {path}/error.log;
             events {{ worker_connections 16384; }}
             http {{ access_log off; client_body_temp_path {path}/b; proxy_temp_path {path}/p; fastcgi_temp_path {path}/f;
                     uwsgi_temp_path {path}/u; scgi_temp_path {path}/s;
                     server {{ listen {address} backlog=4096; location = /sub {{ nchan_subscriber eventsource; nchan_channel_id $arg_id; }} }} }}"
        );
        Ok(Some(Self(Edge::run(dir, address, &config).await?)))
    }

    /// Bytes a subscriber.
    pub async fn measure(&self, subscribers: usize, channels: usize) -> anyhow::Result<f64> {
        let mut open = self.subscribe(channels, channels).await?;
        let before = self.settled().await?;
        open.extend(self.subscribe(subscribers, channels).await?);
        let after = self.settled().await?;
        Ok(after.saturating_sub(before) as f64 / subscribers as f64)
    }

    async fn subscribe(
        &self,
        count: usize,
        channels: usize,
    ) -> anyhow::Result<Vec<tokio::net::TcpStream>> {
        let opening = (0..count).map(async |n| {
            let path = format!("/sub?id=c{}", n % channels);
            let headers = [("accept", "text/event-stream")];
            let (stream, _) = sink::open(self.0.address, &path, &headers).await?;
            anyhow::Ok(stream)
        });
        stream::iter(opening)
            .buffer_unordered(ARRIVING)
            .try_collect()
            .await
    }

    /// Memory once two looks agree.
    async fn settled(&self) -> anyhow::Result<u64> {
        let mut last = 0;
        let what = "nchan's memory has settled";
        eventually(what, Duration::from_secs(20), async || {
            let now = memory(&self.0.pids()).ok()?;
            let before = std::mem::replace(&mut last, now);
            (before == now).then_some(now)
        })
        .await
    }
}
