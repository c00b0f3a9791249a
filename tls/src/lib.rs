//! TLS whose certificates, keys and authorities are files that may change while the process runs, as a cluster's secret mounts do.
//!
//! What it promises:
//!
//! - **Both sides are proved**, chain, dates and name, on every connection: there is no resumption, which would pass over it.
//! - **A change needs no restart.** Files are looked at when a connection begins, at most once in [`LOOK_EVERY`]; what does
//!   not fit together (a new certificate beside its old key) changes nothing until it does. Open connections live on.
//! - **No key is printed**, and none is kept but inside the TLS configuration.
//!
//! [`ServerTls`] and [`ClientTls`] are the two ends of one of our own connections; [`Watched`] and [`Pem`] are what they are made of,
//! for whoever needs less.

mod client;
mod peer;
mod pem;
mod server;
mod watched;

pub use client::{ClientFiles, ClientTls, ConnectFault};
pub use peer::peer_name;
pub use pem::{Identity, Pem, TlsError};
pub use server::{AcceptFault, ServerFiles, ServerTls};
pub use watched::{LOOK_EVERY, Watched};

use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::CryptoProvider;

/// From a connection's first byte to its proved peer.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// The one provider of cryptography.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}
