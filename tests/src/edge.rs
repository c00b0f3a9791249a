//! Debian's nginx in front of a listener, configured as its package configures it.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use bex_testpg::certs::Issued;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::eventually;

/// The package's own configuration.
const DEBIAN_CONFIG: &str = "/etc/nginx/nginx.conf";
/// The longest nginx takes to listen.
const LISTENS: Duration = Duration::from_secs(20);

/// A running nginx.
pub struct Edge {
    master: Child,
    _dir: TempDir,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Edge {
    /// Puts nginx in front of `upstream`. Of the package's configuration only the places of its files are changed, and the site is
    /// one `proxy_pass` without further words: buffering, HTTP version, compression and time limits are the defaults. Its logs
    /// go to `logs`.
    ///
    /// # Errors
    /// When nginx is not installed as Debian installs it, or does not begin to listen.
    pub async fn start(upstream: SocketAddr, logs: &Path) -> anyhow::Result<Self> {
        Self::site(upstream, logs, None).await
    }

    /// The same, over TLS with this certificate.
    ///
    /// # Errors
    /// As [`Edge::start`].
    pub async fn start_tls(
        upstream: SocketAddr,
        logs: &Path,
        identity: &Issued,
    ) -> anyhow::Result<Self> {
        Self::site(upstream, logs, Some(identity)).await
    }

    async fn site(
        upstream: SocketAddr,
        logs: &Path,
        identity: Option<&Issued>,
    ) -> anyhow::Result<Self> {
        let dir = tempfile::tempdir()?;
        let address = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let listen = match identity {
            None => format!("listen {address};"),
            Some(identity) => {
                let (certificate, key) = (dir.path().join("tls.crt"), dir.path().join("tls.key"));
                std::fs::write(&certificate, &identity.certificate)?;
                std::fs::write(&key, &identity.key)?;
                let (certificate, key) = (certificate.display(), key.display());
                format!(
                    "listen {address} ssl; ssl_certificate {certificate}; ssl_certificate_key {key};"
                )
            }
        };
        let site = format!("server {{ {listen} location / {{ proxy_pass http://{upstream}; }} }}");
        let config = config(dir.path(), logs, &site)?;
        Self::run(dir, address, &config).await
    }

    /// Runs nginx with a whole configuration that makes it listen on `address` and write below `dir`.
    ///
    /// # Errors
    /// When it is not installed, or does not begin to listen.
    pub async fn run(dir: TempDir, address: SocketAddr, config: &str) -> anyhow::Result<Self> {
        let file = dir.path().join("nginx.conf");
        std::fs::write(&file, config)?;
        let errors = std::fs::File::create(dir.path().join("stderr"))?;
        let master = Command::new("nginx")
            .args(["-g", "daemon off;", "-c"])
            .arg(&file)
            .stdin(Stdio::null())
            .stderr(errors)
            .spawn()
            .context("cannot start nginx; `scripts/setup nginx` installs it on Debian")?;
        let mut edge = Self {
            master,
            _dir: dir,
            address,
        };
        let listens = eventually("nginx listens", LISTENS, async || {
            if edge.master.try_wait().ok()?.is_some() {
                return Some(false);
            }
            TcpStream::connect(address).await.ok().map(|_| true)
        });
        let listens = listens.await?;
        let complaint = std::fs::read_to_string(edge._dir.path().join("stderr"));
        ensure!(listens, "nginx ended: {}", complaint.unwrap_or_default());
        Ok(edge)
    }

    /// The master and its workers.
    pub fn pids(&self) -> Vec<u32> {
        let master = self.master.id();
        let children = format!("/proc/{master}/task/{master}/children");
        let children = std::fs::read_to_string(children).unwrap_or_default();
        let workers = children.split_whitespace().filter_map(|w| w.parse().ok());
        std::iter::once(master).chain(workers).collect()
    }
}

impl Drop for Edge {
    fn drop(&mut self) {
        // a master that is killed leaves its workers behind
        let pid = i32::try_from(self.master.id()).map(Pid::from_raw);
        if pid.is_ok_and(|pid| kill(pid, Signal::SIGTERM).is_ok()) {
            let _ = self.master.wait();
        }
    }
}

/// Whether nginx can be used here; where it is missing, says so.
///
/// # Panics
/// In CI, where nothing may be skipped.
#[expect(clippy::print_stderr, reason = "a skip must be seen")]
pub fn is_installed() -> bool {
    let mut asked = Command::new("nginx");
    let answer = asked.arg("-v").stderr(Stdio::null()).status();
    if Path::new(DEBIAN_CONFIG).is_file() && answer.is_ok_and(|status| status.success()) {
        return true;
    }
    let in_ci = std::env::var("CI").is_ok_and(|v| v == "true");
    assert!(!in_ci, "nginx is missing, and in CI nothing is skipped");
    eprintln!("skipped: Debian's nginx is not installed; `scripts/setup nginx` does that");
    false
}

/// The package's configuration with other places, and with `site` where it includes the enabled sites.
fn config(dir: &Path, logs: &Path, site: &str) -> anyhow::Result<String> {
    let mut config = std::fs::read_to_string(DEBIAN_CONFIG)
        .with_context(|| format!("cannot read {DEBIAN_CONFIG}"))?;
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|kind| format!("{kind}_temp_path {}/{kind};\n", dir.display()))
        .collect();
    let changes = [
        ("pid /run/nginx.pid;", format!("pid {}/pid;", dir.display())),
        ("/var/log/nginx/", format!("{}/nginx-", logs.display())),
        ("include /etc/nginx/conf.d/*.conf;", temporary),
        ("include /etc/nginx/sites-enabled/*;", site.to_owned()),
    ];
    for (from, to) in changes {
        ensure!(
            config.contains(from),
            "{DEBIAN_CONFIG} is not as Debian ships it: no `{from}`"
        );
        config = config.replace(from, &to);
    }
    Ok(config)
}
