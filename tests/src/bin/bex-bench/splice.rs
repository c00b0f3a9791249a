//! The gateway as a pipe: an unthrottled driver stream with the tee off, beside nginx with proxy_buffering off in front of the same source.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use bex_tests::eventually::eventually;
use bytes::Bytes;
use tempfile::TempDir;

use crate::RUNS;
use bex_tests::bench::database::Database;
use bex_tests::bench::fake_driver::{self, Script, framed};
use bex_tests::bench::gateway::{Gateway, Tee};
use bex_tests::bench::parts::{USUAL_LINES, parts_of_bytes};
use bex_tests::bench::report::{Figure, median};
use bex_tests::bench::sink;

const BYTES: usize = 64 * 1024 * 1024;
const MIB: f64 = 1024.0 * 1024.0;

pub async fn run(database: &Database) -> anyhow::Result<Vec<Figure>> {
    let body = Bytes::from(framed(&parts_of_bytes(1, BYTES, USUAL_LINES)).concat());
    let enough = body.len() as u64;
    let gateway = Gateway::start(database, Tee::Off).await?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let session = database.session(1).await?;
        let driver = fake_driver::start(
            session.clone(),
            Gateway::driver_key(&session)?,
            Script::Burst(body.clone()),
        )
        .await?;
        gateway.register(&session, driver)?;
        let sunk = gateway.drink(&session, enough).await?;
        ours.push(sunk.bytes as f64 / MIB / sunk.took.as_secs_f64());
        let nginx = Nginx::start(driver).await?;
        let sunk = sink::drink(nginx.address, "/raw", &[], enough).await?;
        theirs.push(sunk.bytes as f64 / MIB / sunk.took.as_secs_f64());
    }
    let (ours, theirs) = (median(ours), median(theirs));
    Ok(vec![Figure {
        name: "splice, tee off, one viewer",
        value: format!("{ours:.0} MiB/s"),
        beside: format!("nginx, proxy_buffering off: {theirs:.0} MiB/s"),
        floor: "≥ 200 MiB/s",
        holds: ours >= 200.0,
    }])
}

struct Nginx {
    child: Child,
    _dir: TempDir,
    address: SocketAddr,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Nginx {
    async fn start(upstream: SocketAddr) -> anyhow::Result<Self> {
        let dir = tempfile::tempdir()?;
        let address = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let path = dir.path().display();
        let config = format!(
            "daemon off; master_process off; pid {path}/pid; error_log {path}/error.log;
             events {{ worker_connections 64; }}
             http {{ access_log off; client_body_temp_path {path}/b; proxy_temp_path {path}/p; fastcgi_temp_path {path}/f;
                     uwsgi_temp_path {path}/u; scgi_temp_path {path}/s;
                     server {{ listen {address}; location / {{ proxy_pass http://{upstream}; proxy_http_version 1.1; proxy_buffering off; }} }} }}"
        );
        let file = dir.path().join("nginx.conf");
        std::fs::write(&file, config)?;
        let child = Command::new("nginx")
            .arg("-c")
            .arg(&file)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start nginx; `make bench` installs it on Debian, elsewhere install the package nginx")?;
        let nginx = Self {
            child,
            _dir: dir,
            address,
        };
        eventually("nginx listens", Duration::from_secs(10), || async {
            tokio::net::TcpStream::connect(address).await.ok()
        })
        .await?;
        Ok(nginx)
    }
}
