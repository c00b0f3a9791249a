//! What a process holds: memory, files, threads, and what it says about itself.

use std::net::SocketAddr;

use anyhow::Context;
use bex_tests::bench::sink;
use tokio::io::AsyncReadExt;

pub const KIB: f64 = 1024.0;
pub const MIB: f64 = 1024.0 * 1024.0;

/// Resident memory in bytes; what several processes share is divided among them.
pub fn memory(pids: &[u32]) -> anyhow::Result<u64> {
    let mut sum = 0;
    for pid in pids {
        let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"));
        let kib = line.and_then(|rest| rest.split_whitespace().next());
        sum += kib.context("no Pss in smaps_rollup")?.parse::<u64>()? * 1024;
    }
    Ok(sum)
}

/// Open files.
pub fn files(pid: u32) -> anyhow::Result<usize> {
    Ok(std::fs::read_dir(format!("/proc/{pid}/fd"))?.count())
}

/// Threads.
pub fn threads(pid: u32) -> anyhow::Result<usize> {
    Ok(std::fs::read_dir(format!("/proc/{pid}/task"))?.count())
}

/// Bytes that the kernel holds for all sockets of this machine, sent and not yet taken among them.
pub fn sockets() -> anyhow::Result<u64> {
    const PAGE: u64 = 4096;
    let text = std::fs::read_to_string("/proc/net/sockstat")?;
    let words: Vec<&str> = text
        .lines()
        .find_map(|line| line.strip_prefix("TCP:"))
        .context("no TCP in sockstat")?
        .split_whitespace()
        .collect();
    let at = words.iter().position(|word| *word == "mem");
    let pages = at.and_then(|at| words.get(at + 1)).context("no mem")?;
    Ok(pages.parse::<u64>()? * PAGE)
}

/// A gauge or counter of the gateway's metrics, if it has one of that name.
pub async fn metric(admin: SocketAddr, name: &str) -> anyhow::Result<Option<f64>> {
    let (mut stream, mut text) = sink::open(admin, "/metrics", &[]).await?;
    stream.read_to_end(&mut text).await?;
    let text = String::from_utf8_lossy(&text);
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    Ok(line.map(str::parse).transpose()?)
}
