//! Further gateways on the same store, and the graceful end of the first one.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::process::Process;
use super::{Addresses, GRACE, PORT_ATTEMPTS, READY, Stack, is_port_taken, ports};

/// Where a further gateway listens.
#[derive(Debug, Clone, Copy)]
pub struct Replica {
    /// Its attach listener.
    pub attach: SocketAddr,
    /// Its admin listener.
    pub admin: SocketAddr,
}

impl Stack {
    /// Starts a further gateway beside the first one: same store, same keys, other ports. It lives until the stack ends; the api
    /// goes on asking the first one.
    ///
    /// # Errors
    /// When it does not become ready.
    pub async fn add_gateway(&mut self) -> anyhow::Result<Replica> {
        let log = format!("bex-gateway-{}", self.replicas.len() + 2);
        let mut process = Process::logging_as(&log, "bex-gateway", &[], &self.dir);
        let mut attempts = 1..PORT_ATTEMPTS;
        loop {
            let addresses = Addresses {
                api: self.addresses.api,
                api_admin: self.addresses.api_admin,
                ..ports::pick()?
            };
            process.start_with(self.settings(&addresses).gateway()?)?;
            match process.ready(addresses.gateway_admin, READY).await {
                Err(error) if is_port_taken(&error) && attempts.next().is_some() => {
                    process.forget()?;
                }
                ready => {
                    self.replicas.push(process);
                    return ready.map(|()| Replica {
                        attach: addresses.attach,
                        admin: addresses.gateway_admin,
                    });
                }
            }
        }
    }

    /// SIGTERM to the first gateway; gives how long it took to end. [`Stack::restart_gateway`] starts it again.
    ///
    /// # Errors
    /// When it does not end within its grace with code 0.
    pub async fn terminate_gateway(&mut self) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        self.gateway.terminate();
        let code = self.gateway.ended(GRACE).await?;
        let code = code.context("the gateway did not run")?;
        ensure!(code == 0, "the gateway ended with {code} after SIGTERM");
        Ok(begun.elapsed())
    }
}
