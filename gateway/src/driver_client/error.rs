//! What can go wrong between the gateway and a driver.

use std::io;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// The key that the sandbox's own was derived from is not in the ring: an operator removed it too early.
    #[error("driver key {0} is not in the ring")]
    UnknownKey(String),
    /// TCP.
    #[error("cannot connect to the driver")]
    Connect(#[source] io::Error),
    /// TCP, too slow.
    #[error("connecting to the driver took too long")]
    ConnectTimeout,
    /// HTTP.
    #[error("the driver's connection failed at once")]
    Handshake(#[source] hyper::Error),
    /// The peer did not prove to be the driver, or failed to answer.
    #[error("the driver's hello failed")]
    Hello(#[source] CallError),
}

/// Why a call has no good answer.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// 409: another turn runs, or the turn is older than the last one.
    #[error("the driver is busy with another turn")]
    Busy,
    /// 404: this generation will not speak the turn.
    #[error("the driver will not speak this turn")]
    NotSpoken,
    /// 401: the grant is not accepted.
    #[error("the driver refused the grant")]
    GrantRefused,
    /// 3xx: never followed.
    #[error("the driver answered with redirect {0}")]
    Redirected(u16),
    /// The answer proves nothing: the peer is not this sandbox's driver.
    #[error("the peer did not prove to be the driver")]
    Unproved,
    /// Any other status.
    #[error("the driver answered {0}")]
    Status(u16),
    /// No answer in time.
    #[error("the driver did not answer in time")]
    Timeout,
    /// The connection broke or what came is not HTTP within the bounds.
    #[error("the driver's connection broke")]
    Transport(#[source] hyper::Error),
    /// An answer that should be short is not.
    #[error("the driver's answer is too long")]
    AnswerTooLong,
}
