//! Ports that stay free while a process is restarted.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use anyhow::Context;

use super::Addresses;

/// Below the range from which the system takes ports for outgoing connections, so that none of those sits on ours while a
/// process is down.
const RANGE: std::ops::Range<u16> = 12_000..32_000;
const ATTEMPTS: u32 = 100;

/// Five loopback addresses nobody listens on.
pub(super) fn pick() -> anyhow::Result<Addresses> {
    // held until all are chosen, so that no two are the same
    let mut held = Vec::new();
    let mut next = || -> anyhow::Result<SocketAddr> {
        let listener = (0..ATTEMPTS)
            .find_map(|_| TcpListener::bind(random()).ok())
            .with_context(|| format!("no free loopback port in {RANGE:?}"))?;
        let address = listener.local_addr()?;
        held.push(listener);
        Ok(address)
    };
    Ok(Addresses {
        api: next()?,
        api_admin: next()?,
        attach: next()?,
        exec: next()?,
        gateway_admin: next()?,
    })
}

fn random() -> SocketAddr {
    let mut random = [0u8; 2];
    getrandom::fill(&mut random).expect("the operating system has randomness");
    let port = RANGE.start + u16::from_be_bytes(random) % (RANGE.end - RANGE.start);
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}
