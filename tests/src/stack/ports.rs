//! Ports that stay free while a process is restarted.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use anyhow::bail;

/// Below the range from which the system takes ports for outgoing connections, so that none of those sits on ours while a
/// process is down.
const RANGE: std::ops::Range<u16> = 12_000..32_000;
const ATTEMPTS: u32 = 100;

/// A loopback address nobody listens on.
pub(super) fn free() -> anyhow::Result<SocketAddr> {
    for _ in 0..ATTEMPTS {
        let mut random = [0u8; 2];
        getrandom::fill(&mut random).expect("the operating system has randomness");
        let port = RANGE.start + u16::from_be_bytes(random) % (RANGE.end - RANGE.start);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    bail!("no free loopback port in {RANGE:?}")
}
