//! Where packages lie: a directory that this process serves, or a bucket. Either gives URLs that are good for one object, to GET it, for
//! five minutes at most.

mod credentials;
mod lifecycle;
mod local;
mod s3;

use std::fmt;
use std::fs::File;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{Instant, timeout, timeout_at};

use super::ObjectKey;

pub use credentials::{Credentials, CredentialsFault};
pub use local::{LocalFault, LocalObjects, UrlRefused};
pub use s3::{Encryption, S3Config, S3Objects};

/// How long a URL is good at most, whatever is configured.
const LONGEST: Duration = Duration::from_secs(300);
/// A URL that is good for less is of no use: it ends while it is on its way.
const SHORTEST: Duration = Duration::from_secs(10);

/// For one round over a directory; a hung one must not keep what comes after it.
const SWEEP: Duration = Duration::from_secs(120);

/// How long URLs are good: the configuration may only shorten it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UrlTtl(Duration);

impl Default for UrlTtl {
    fn default() -> Self {
        Self(LONGEST)
    }
}

impl UrlTtl {
    /// What is asked for, as far as it may be.
    pub fn at_most(asked: Duration) -> Self {
        Self(asked.min(LONGEST))
    }

    /// As long as what it is signed with is good, in whole seconds; `None` when that is hardly at all.
    fn within(self, remaining: Option<Duration>) -> Option<Duration> {
        let ttl = remaining.map_or(self.0, |remaining| remaining.min(self.0));
        let ttl = Duration::from_secs(ttl.as_secs());
        (ttl >= SHORTEST.min(self.0)).then_some(ttl)
    }
}

/// Where an object is, for whoever has this.
#[derive(Clone, PartialEq, Eq)]
pub struct SignedUrl {
    /// The URL. It is never logged.
    pub url: String,
    /// From here on it is good for nothing.
    pub expires_at: Timestamp,
}

impl fmt::Debug for SignedUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SignedUrl(until {})", self.expires_at)
    }
}

/// Why an object is not where it should be.
#[derive(Debug, thiserror::Error)]
pub enum ObjectFault {
    /// The store did not take it.
    #[error("the object store failed")]
    Store(#[source] object_store::Error),
    /// It took too long.
    #[error("the object store is too slow")]
    TooSlow,
    /// The directory failed.
    #[error("the directory of packages failed")]
    Directory(#[source] std::io::Error),
    /// Nothing can be signed.
    #[error("there are no credentials to sign with")]
    Credentials(#[from] CredentialsFault),
    /// What it is signed with ends now.
    #[error("the credentials have expired, or are about to")]
    Expired,
    /// A step was lost.
    #[error("a step of the upload was lost")]
    Lost(#[from] tokio::task::JoinError),
}

/// Where packages lie.
#[derive(Debug)]
pub enum Objects {
    /// A directory of this machine, or one that every replica mounts.
    Local(LocalObjects),
    /// A bucket.
    S3(Box<S3Objects>),
}

impl Objects {
    /// A URL of an object, whether it is there or not.
    pub(super) async fn sign(
        &self,
        key: &ObjectKey,
        ttl: UrlTtl,
    ) -> Result<SignedUrl, ObjectFault> {
        match self {
            Self::Local(local) => local.sign(key, ttl),
            Self::S3(s3) => s3.sign(key, ttl).await,
        }
    }

    /// Stores a file of so many bytes, whole or not at all, within this time in all; its SHA-256.
    pub(super) async fn put(
        &self,
        key: &ObjectKey,
        file: File,
        bytes: u64,
        within: Duration,
    ) -> Result<String, ObjectFault> {
        let until = Instant::now() + within;
        match self {
            Self::Local(local) => timeout_at(until, local.put(key, file))
                .await
                .map_err(|_| ObjectFault::TooSlow)?,
            Self::S3(s3) => s3.put(key, file, bytes, until).await,
        }
    }

    /// Removes an object; one that is not there is removed.
    pub(super) async fn remove(
        &self,
        key: &ObjectKey,
        within: Duration,
    ) -> Result<(), ObjectFault> {
        match self {
            Self::Local(local) => timeout(within, local.remove(key))
                .await
                .map_err(|_| ObjectFault::TooSlow)?,
            Self::S3(s3) => s3.remove(key, within).await,
        }
    }

    /// Removes what nobody asked for in so many days; how many. A bucket does that by itself.
    pub(super) async fn sweep(&self, days: u32) -> Result<u64, ObjectFault> {
        match self {
            Self::Local(local) => timeout(SWEEP, local.sweep(days))
                .await
                .map_err(|_| ObjectFault::TooSlow)?,
            Self::S3(_) => Ok(0),
        }
    }

    /// Whether objects go by themselves after so many days; `None` where that cannot be asked.
    pub(super) async fn expiry_is_set(&self, days: u32) -> Option<bool> {
        match self {
            Self::Local(_) => Some(true),
            Self::S3(s3) => s3.expiry_is_set(days).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_good_for_the_shortest_of_all() {
        let seconds = Duration::from_secs;
        let ttl = |asked, remaining: Option<u64>| {
            let ttl = UrlTtl::at_most(seconds(asked)).within(remaining.map(seconds));
            ttl.map(|ttl| ttl.as_secs())
        };
        assert_eq!(UrlTtl::default().within(None), Some(seconds(300)));
        assert_eq!(ttl(600, None), Some(300));
        assert_eq!(ttl(120, None), Some(120));
        assert_eq!(ttl(300, Some(3600)), Some(300));
        assert_eq!(ttl(300, Some(42)), Some(42));
        assert_eq!(ttl(20, Some(42)), Some(20));
        assert_eq!(ttl(300, Some(9)), None);
        assert_eq!(ttl(300, Some(0)), None);
        assert_eq!(ttl(2, None), Some(2));
    }
}
