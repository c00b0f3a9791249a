//! Replay packages: the variables as text, and what they say.

use std::path::PathBuf;

use bex_proto::ticket::KeyRing;
use bex_redact::Profile;
use clap::Args;

use crate::package::{S3Config, TokenSecret, UrlTtl};

/// Variables of packages.
#[derive(Clone, Default, Args)]
pub struct PackageArgs {
    /// Where packages lie: `local` or `s3`; without it there are none
    #[arg(long, env = "BEX_PACKAGES_STORE")]
    pub packages_store: Option<String>,
    /// Key of the tokens that stand for secrets, 32 bytes in hexadecimal digits
    #[arg(long, env = "BEX_PACKAGES_TOKEN_KEY", hide_env_values = true)]
    pub packages_token_key: Option<String>,
    /// Directory of packages, of the store `local`
    #[arg(long, env = "BEX_PACKAGES_DIR")]
    pub packages_dir: Option<PathBuf>,
    /// Where this api is reached, for URLs of the store `local`
    #[arg(long, env = "BEX_PACKAGES_PUBLIC_URL")]
    pub packages_public_url: Option<String>,
    /// Ring that signs URLs of the store `local`: `kid:hex,…`
    #[arg(long, env = "BEX_PACKAGES_URL_KEYS", hide_env_values = true)]
    pub packages_url_keys: Option<String>,
    /// How long URLs are good, seconds; 300 at most
    #[arg(long, env = "BEX_PACKAGES_URL_SECONDS")]
    pub packages_url_seconds: Option<String>,
    /// Directory in which packages are put together; the system's for temporary files when not said
    #[arg(long, env = "BEX_PACKAGES_SPOOL_DIR")]
    pub packages_spool_dir: Option<PathBuf>,
    /// `1` takes out national ids too
    #[arg(long, env = "BEX_PACKAGES_NATIONAL_IDS")]
    pub packages_national_ids: Option<String>,
    /// Bucket, of the store `s3`
    #[arg(long, env = "BEX_PACKAGES_S3_BUCKET")]
    pub packages_s3_bucket: Option<String>,
    /// Its region
    #[arg(long, env = "BEX_PACKAGES_S3_REGION")]
    pub packages_s3_region: Option<String>,
    /// Another service than AWS: https, or http on loopback
    #[arg(long, env = "BEX_PACKAGES_S3_ENDPOINT")]
    pub packages_s3_endpoint: Option<String>,
    /// Key of the key management service that objects are encrypted with, instead of the bucket's own
    #[arg(long, env = "BEX_PACKAGES_S3_KMS_KEY")]
    pub packages_s3_kms_key: Option<String>,
    /// JSON file of credentials as credential_process prints it; it is read for each signature
    #[arg(long, env = "BEX_PACKAGES_S3_CREDENTIALS")]
    pub packages_s3_credentials: Option<PathBuf>,
    /// Access key id, of the store `s3`; without one and without a file the machine's own role is taken
    #[arg(long, env = "AWS_ACCESS_KEY_ID", hide_env_values = true)]
    pub aws_access_key_id: Option<String>,
    /// Its secret
    #[arg(long, env = "AWS_SECRET_ACCESS_KEY", hide_env_values = true)]
    pub aws_secret_access_key: Option<String>,
    /// Its session token
    #[arg(long, env = "AWS_SESSION_TOKEN", hide_env_values = true)]
    pub aws_session_token: Option<String>,
    /// When that ends, RFC 3339
    #[arg(long, env = "AWS_CREDENTIAL_EXPIRATION")]
    pub aws_credential_expiration: Option<String>,
    /// The commit this program was built from; packages name it
    #[arg(long, env = "COMMIT_SHA")]
    pub commit_sha: Option<String>,
}

/// How packages are made and where they lie.
#[derive(Debug)]
pub struct PackagesConfig {
    /// Where they lie.
    pub store: PackageStore,
    /// Makes tokens.
    pub secret: TokenSecret,
    /// What is taken out.
    pub profile: Profile,
    /// Where they are put together.
    pub spool_dir: PathBuf,
    /// How long URLs are good at most.
    pub ttl: UrlTtl,
    /// The program's commit.
    pub commit: Option<String>,
}

/// Where packages lie.
#[derive(Debug)]
pub enum PackageStore {
    /// In a directory.
    Local {
        /// Which.
        dir: PathBuf,
        /// Where this api is reached.
        public_url: String,
        /// Signs URLs.
        keys: KeyRing,
    },
    /// In a bucket.
    S3(S3Config),
}
