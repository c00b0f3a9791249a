//! A bucket, by its own protocol.

use std::fmt;
use std::fs::File;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::client::{HttpClient, HttpConnector, ReqwestConnector};
use object_store::path::Path;
use object_store::signer::Signer;
use object_store::{ClientOptions, MultipartUpload, ObjectStoreExt, PutPayload, RetryConfig};
use sha2::{Digest, Sha256};
use tokio::io::AsyncReadExt;
use tokio::time::{Instant, timeout, timeout_at};

use super::super::subject::ObjectKey;
use super::{Credentials, ObjectFault, SignedUrl, UrlTtl};

/// Bytes of one part, which is what of a package is in memory; what is smaller is stored in one request.
const PART: usize = 8 * 1024 * 1024;
/// For giving up an upload.
const ABORT: Duration = Duration::from_secs(3);
/// For one connection, and for one request.
const CONNECT: Duration = Duration::from_secs(3);
const REQUEST: Duration = Duration::from_secs(8);

/// How objects are encrypted where they lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Encryption {
    /// With the bucket's own keys.
    Aes256,
    /// With a key of the key management service.
    Kms {
        /// Which.
        key_id: String,
    },
}

/// A bucket.
#[derive(Debug, Clone)]
pub struct S3Config {
    /// Its name. It holds packages, no more.
    pub bucket: String,
    /// Where it is.
    pub region: String,
    /// Another service than AWS: scheme, host and port.
    pub endpoint: Option<String>,
    /// What requests are signed with.
    pub credentials: Credentials,
    /// How objects are encrypted.
    pub encryption: Encryption,
}

/// See the module's text.
pub struct S3Objects {
    pub(super) store: AmazonS3,
    /// For what the store has no call for.
    pub(super) client: HttpClient,
    pub(super) config: S3Config,
}

impl fmt::Debug for S3Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "S3Objects({})", self.config.bucket)
    }
}

impl S3Objects {
    /// Objects of a bucket; nothing is asked of it yet.
    ///
    /// # Errors
    /// When the configuration is unusable.
    pub fn new(config: S3Config) -> Result<Self, object_store::Error> {
        let builder = match config.credentials {
            Credentials::Ambient => AmazonS3Builder::from_env(),
            Credentials::Fixed { .. } | Credentials::File(_) => AmazonS3Builder::new(),
        };
        let retry = RetryConfig {
            max_retries: 2,
            retry_timeout: REQUEST,
            ..RetryConfig::default()
        };
        let options = ClientOptions::new()
            .with_connect_timeout(CONNECT)
            .with_timeout(REQUEST)
            .with_allow_http(
                config
                    .endpoint
                    .as_deref()
                    .is_some_and(|url| url.starts_with("http://")),
            );
        let mut builder = builder
            .with_bucket_name(&config.bucket)
            .with_region(&config.region)
            .with_retry(retry)
            .with_client_options(options.clone());
        if let Some(endpoint) = &config.endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        if let Some(provider) = config.credentials.provider() {
            builder = builder.with_credentials(provider);
        }
        builder = match &config.encryption {
            Encryption::Aes256 => {
                let key = "aws_server_side_encryption".parse::<AmazonS3ConfigKey>()?;
                builder.with_config(key, "AES256")
            }
            Encryption::Kms { key_id } => builder.with_sse_kms_encryption(key_id),
        };
        Ok(Self {
            store: builder.build()?,
            client: ReqwestConnector::default().connect(&options)?,
            config,
        })
    }

    pub(super) async fn sign(
        &self,
        key: &ObjectKey,
        ttl: UrlTtl,
    ) -> Result<SignedUrl, ObjectFault> {
        let now = Timestamp::now();
        let remaining = self.config.credentials.remaining(now).await?;
        let ttl = ttl.within(remaining).ok_or(ObjectFault::Expired)?;
        let path = path(key)?;
        let signed = self.store.signed_url(http::Method::GET, &path, ttl);
        let url = signed.await.map_err(ObjectFault::Store)?;
        // the signature counts from the whole second it was made in
        let end = now.as_second() + i64::try_from(ttl.as_secs()).unwrap_or(0);
        Ok(SignedUrl {
            url: url.into(),
            expires_at: Timestamp::from_second(end).map_err(|_| ObjectFault::Expired)?,
        })
    }

    pub(super) async fn put(
        &self,
        key: &ObjectKey,
        file: File,
        bytes: u64,
        until: Instant,
    ) -> Result<String, ObjectFault> {
        let path = path(key)?;
        let mut parts = Parts {
            file: tokio::fs::File::from_std(file),
            digest: Sha256::new(),
        };
        if bytes <= PART as u64 {
            let whole = parts.next().await?.unwrap_or_default();
            let put = self.store.put(&path, PutPayload::from_bytes(whole));
            timeout_at(until, put)
                .await
                .map_err(|_| ObjectFault::TooSlow)?
                .map_err(ObjectFault::Store)?;
        } else {
            let begun = timeout_at(until, self.store.put_multipart(&path)).await;
            let mut upload = begun
                .map_err(|_| ObjectFault::TooSlow)?
                .map_err(ObjectFault::Store)?;
            let done = timeout_at(until, send(upload.as_mut(), &mut parts)).await;
            if let Err(fault) = done.unwrap_or(Err(ObjectFault::TooSlow)) {
                // parts without an object cost money until somebody looks for them
                let _ = timeout(ABORT, upload.abort()).await;
                return Err(fault);
            }
        }
        Ok(hex::encode(parts.digest.finalize()))
    }

    pub(super) async fn remove(
        &self,
        key: &ObjectKey,
        within: Duration,
    ) -> Result<(), ObjectFault> {
        let path = path(key)?;
        match timeout(within, self.store.delete(&path)).await {
            Ok(Ok(()) | Err(object_store::Error::NotFound { .. })) => Ok(()),
            Ok(Err(error)) => Err(ObjectFault::Store(error)),
            Err(_) => Err(ObjectFault::TooSlow),
        }
    }
}

async fn send(upload: &mut dyn MultipartUpload, parts: &mut Parts) -> Result<(), ObjectFault> {
    while let Some(part) = parts.next().await? {
        upload
            .put_part(PutPayload::from_bytes(part))
            .await
            .map_err(ObjectFault::Store)?;
    }
    upload.complete().await.map_err(ObjectFault::Store)?;
    Ok(())
}

/// A file, part by part.
struct Parts {
    file: tokio::fs::File,
    digest: Sha256,
}

impl Parts {
    async fn next(&mut self) -> Result<Option<Bytes>, ObjectFault> {
        let mut part = Vec::new();
        let mut piece = (&mut self.file).take(PART as u64);
        let read = piece.read_to_end(&mut part).await;
        if read.map_err(ObjectFault::Directory)? == 0 {
            return Ok(None);
        }
        self.digest.update(&part);
        Ok(Some(part.into()))
    }
}

/// As it is: `Path::from` would write another character for the `#`.
fn path(key: &ObjectKey) -> Result<Path, ObjectFault> {
    Path::parse(key.as_str()).map_err(|e| ObjectFault::Store(e.into()))
}
