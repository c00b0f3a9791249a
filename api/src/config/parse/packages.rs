//! The variables of packages.

use std::path::Path;
use std::time::Duration;

use bex_proto::ticket::KeyRing;
use bex_redact::Profile;
use jiff::Timestamp;

use super::{Faults, directory, positive};
use crate::config::packages::{PackageArgs, PackageStore, PackagesConfig};
use crate::config::{Keys, ServeArgs};
use crate::package::{Credentials, Encryption, S3Config, TokenSecret, UrlTtl};

/// Nothing when they are off; the other variables are not looked at then, as charts set some for all.
pub(super) fn packages(
    faults: &mut Faults,
    args: &ServeArgs,
    keys: Option<&Keys>,
) -> Option<PackagesConfig> {
    let args = &args.packages;
    let store = match args.packages_store.as_deref() {
        None => return None,
        Some("local") => local(faults, args, keys),
        Some("s3") => s3(faults, args).map(PackageStore::S3),
        Some(_) => {
            faults.add("BEX_PACKAGES_STORE", "must be local or s3");
            None
        }
    };
    let secret = secret(faults, args);
    let ttl = match &args.packages_url_seconds {
        None => Some(UrlTtl::default()),
        Some(text) => positive(faults, "BEX_PACKAGES_URL_SECONDS", text)
            .map(|seconds| UrlTtl::at_most(Duration::from_secs(u64::from(seconds)))),
    };
    let spool_dir = match &args.packages_spool_dir {
        None => Some(std::env::temp_dir()),
        some => directory(faults, "BEX_PACKAGES_SPOOL_DIR", some),
    };
    let profile = profile(faults, args);
    let commit = commit(faults, args);
    Some(PackagesConfig {
        store: store?,
        secret: secret?,
        profile: profile?,
        spool_dir: spool_dir?,
        ttl: ttl?,
        commit: commit?,
    })
}

fn secret(faults: &mut Faults, args: &PackageArgs) -> Option<TokenSecret> {
    const NAME: &str = "BEX_PACKAGES_TOKEN_KEY";
    let text = faults.required(NAME, &args.packages_token_key)?;
    faults.keep(NAME, TokenSecret::parse(text))
}

fn profile(faults: &mut Faults, args: &PackageArgs) -> Option<Profile> {
    match args.packages_national_ids.as_deref() {
        None | Some("" | "0") => Some(Profile::Package),
        Some("1") => Some(Profile::WithNationalIds),
        Some(_) => {
            faults.add("BEX_PACKAGES_NATIONAL_IDS", "must be 1 or absent");
            None
        }
    }
}

/// The outer `None` is a fault.
#[expect(
    clippy::option_option,
    reason = "a fault, nothing said, something said"
)]
fn commit(faults: &mut Faults, args: &PackageArgs) -> Option<Option<String>> {
    let text = args
        .commit_sha
        .as_deref()
        .map(str::trim)
        .unwrap_or_default();
    let digits = text.bytes().all(|b| b.is_ascii_hexdigit());
    match text.len() {
        0 => Some(None),
        7..=64 if digits => Some(Some(text.to_owned())),
        _ => {
            faults.add("COMMIT_SHA", "must be 7 to 64 hexadecimal digits");
            None
        }
    }
}

fn local(faults: &mut Faults, args: &PackageArgs, keys: Option<&Keys>) -> Option<PackageStore> {
    let dir = directory(faults, "BEX_PACKAGES_DIR", &args.packages_dir);
    const URL: &str = "BEX_PACKAGES_PUBLIC_URL";
    let url = faults.required(URL, &args.packages_public_url);
    let url = url.and_then(|text| super::web_url(faults, URL, text));
    const KEYS: &str = "BEX_PACKAGES_URL_KEYS";
    let text = faults.required(KEYS, &args.packages_url_keys);
    let ring = text.and_then(|text| faults.keep(KEYS, KeyRing::parse(text)));
    if let (Some(ring), Some(keys)) = (&ring, keys)
        && [&keys.attach, &keys.exec, &keys.driver]
            .iter()
            .any(|other| ring.shares_a_key_with(other))
    {
        faults.add(KEYS, "shares a key with another ring");
    }
    Some(PackageStore::Local {
        dir: dir?,
        public_url: url?,
        keys: ring?,
    })
}

fn s3(faults: &mut Faults, args: &PackageArgs) -> Option<S3Config> {
    let bucket = faults.required("BEX_PACKAGES_S3_BUCKET", &args.packages_s3_bucket);
    let region = faults.required("BEX_PACKAGES_S3_REGION", &args.packages_s3_region);
    let endpoint = args.packages_s3_endpoint.as_deref().map(|text| {
        const NAME: &str = "BEX_PACKAGES_S3_ENDPOINT";
        let url = super::web_url(faults, NAME, text)?;
        let uri = url.parse::<hyper::Uri>().ok()?;
        let loopback = matches!(uri.host(), Some("127.0.0.1" | "[::1]" | "localhost"));
        if uri.scheme_str() == Some("http") && !loopback {
            faults.add(NAME, "must be https, or http on loopback");
        }
        Some(url)
    });
    let endpoint = match endpoint {
        None => None,
        Some(url) => Some(url?),
    };
    let credentials = credentials(faults, args);
    let encryption = match &args.packages_s3_kms_key {
        None => Encryption::Aes256,
        Some(key_id) => Encryption::Kms {
            key_id: key_id.clone(),
        },
    };
    Some(S3Config {
        bucket: bucket?.clone(),
        region: region?.clone(),
        endpoint,
        credentials: credentials?,
        encryption,
    })
}

fn credentials(faults: &mut Faults, args: &PackageArgs) -> Option<Credentials> {
    if let Some(path) = &args.packages_s3_credentials {
        return Some(Credentials::File(Path::new(path).to_owned()));
    }
    let Some(key_id) = args.aws_access_key_id.clone() else {
        return Some(Credentials::Ambient);
    };
    let secret = faults.required("AWS_SECRET_ACCESS_KEY", &args.aws_secret_access_key);
    let session = match &args.aws_session_token {
        None => Some(None),
        Some(token) => {
            // without it nobody could say how long a URL is good
            const NAME: &str = "AWS_CREDENTIAL_EXPIRATION";
            let end = faults.required(NAME, &args.aws_credential_expiration);
            let end = end.map(|text| text.parse::<Timestamp>());
            let end = end.and_then(|end| faults.keep(NAME, end.map_err(|_| "must be a time")));
            end.map(|end| Some((token.clone(), end)))
        }
    };
    Some(Credentials::Fixed {
        key_id,
        secret: secret?.clone(),
        session: session?,
    })
}
