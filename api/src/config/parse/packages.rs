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

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "abababababababababababababababababababababababababababababababab";

    fn read(args: PackageArgs) -> Result<Option<PackagesConfig>, Vec<&'static str>> {
        let mut faults = Faults::default();
        let ring = |byte: &str| KeyRing::parse(&format!("k:{}", byte.repeat(32))).expect("a ring");
        let keys = Keys {
            attach: ring("01"),
            exec: ring("02"),
            driver: ring("03"),
        };
        let args = ServeArgs {
            packages: args,
            ..ServeArgs::default()
        };
        let read = packages(&mut faults, &args, Some(&keys));
        let mut names: Vec<_> = faults.0.iter().map(|fault| fault.variable).collect();
        names.dedup();
        if names.is_empty() {
            Ok(read)
        } else {
            Err(names)
        }
    }

    fn local(dir: &Path) -> PackageArgs {
        PackageArgs {
            packages_store: Some("local".into()),
            packages_token_key: Some(KEY.into()),
            packages_dir: Some(dir.to_owned()),
            packages_public_url: Some("https://api.example/".into()),
            packages_url_keys: Some(format!("u:{KEY}")),
            ..PackageArgs::default()
        }
    }

    fn bucket() -> PackageArgs {
        PackageArgs {
            packages_store: Some("s3".into()),
            packages_token_key: Some(KEY.into()),
            packages_s3_bucket: Some("b".into()),
            packages_s3_region: Some("r".into()),
            ..PackageArgs::default()
        }
    }

    #[test]
    fn a_directory_or_a_bucket_or_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        assert!(matches!(read(PackageArgs::default()), Ok(None)));
        let Ok(Some(config)) = read(local(dir.path())) else {
            panic!("it is good");
        };
        assert!(
            matches!(&config.store, PackageStore::Local { public_url, .. } if public_url == "https://api.example")
        );
        assert_eq!(
            (config.ttl, config.profile),
            (UrlTtl::default(), Profile::Package)
        );
        assert!(!format!("{config:?}").contains("abab"));
        let more = PackageArgs {
            packages_url_seconds: Some("600".into()),
            packages_national_ids: Some("1".into()),
            packages_s3_endpoint: Some("http://127.0.0.1:9000/".into()),
            aws_access_key_id: Some("a".into()),
            aws_secret_access_key: Some("s3cret".into()),
            commit_sha: Some(" abc1234 ".into()),
            ..bucket()
        };
        let Ok(Some(config)) = read(more) else {
            panic!("it is good");
        };
        let PackageStore::S3(s3) = &config.store else {
            panic!("a bucket");
        };
        assert_eq!(s3.endpoint.as_deref(), Some("http://127.0.0.1:9000"));
        assert!(matches!(
            s3.credentials,
            Credentials::Fixed { session: None, .. }
        ));
        assert_eq!(
            (config.ttl, config.profile),
            (UrlTtl::default(), Profile::WithNationalIds)
        );
        assert_eq!(config.commit.as_deref(), Some("abc1234"));
        assert!(!format!("{config:?}").contains("s3cret"));
        let Ok(Some(config)) = read(PackageArgs {
            packages_s3_credentials: Some("/run/credentials".into()),
            packages_s3_kms_key: Some("k".into()),
            ..bucket()
        }) else {
            panic!("it is good");
        };
        let PackageStore::S3(s3) = config.store else {
            panic!("a bucket");
        };
        assert!(matches!(s3.credentials, Credentials::File(_)));
        assert_eq!(s3.encryption, Encryption::Kms { key_id: "k".into() });
    }

    #[test]
    fn what_cannot_work_is_refused_by_its_name() {
        let dir = tempfile::tempdir().expect("a directory");
        let text = |text: &str| Some(text.to_owned());
        for (args, names) in [
            (
                PackageArgs {
                    packages_store: text("disk"),
                    packages_token_key: text(KEY),
                    ..PackageArgs::default()
                },
                &["BEX_PACKAGES_STORE"][..],
            ),
            (
                PackageArgs {
                    packages_store: text("local"),
                    ..PackageArgs::default()
                },
                &[
                    "BEX_PACKAGES_DIR",
                    "BEX_PACKAGES_PUBLIC_URL",
                    "BEX_PACKAGES_URL_KEYS",
                    "BEX_PACKAGES_TOKEN_KEY",
                ],
            ),
            (
                PackageArgs {
                    packages_store: text("s3"),
                    ..PackageArgs::default()
                },
                &[
                    "BEX_PACKAGES_S3_BUCKET",
                    "BEX_PACKAGES_S3_REGION",
                    "BEX_PACKAGES_TOKEN_KEY",
                ],
            ),
            (
                PackageArgs {
                    packages_url_keys: Some(format!("u:{}", "02".repeat(32))),
                    ..local(dir.path())
                },
                &["BEX_PACKAGES_URL_KEYS"],
            ),
            (
                PackageArgs {
                    packages_public_url: text("ftp://x"),
                    ..local(dir.path())
                },
                &["BEX_PACKAGES_PUBLIC_URL"],
            ),
            (
                PackageArgs {
                    packages_dir: Some(dir.path().join("none")),
                    ..local(dir.path())
                },
                &["BEX_PACKAGES_DIR"],
            ),
            (
                PackageArgs {
                    packages_token_key: text("abab"),
                    ..bucket()
                },
                &["BEX_PACKAGES_TOKEN_KEY"],
            ),
            (
                PackageArgs {
                    packages_url_seconds: text("0"),
                    ..bucket()
                },
                &["BEX_PACKAGES_URL_SECONDS"],
            ),
            (
                PackageArgs {
                    packages_url_seconds: text("-5"),
                    ..bucket()
                },
                &["BEX_PACKAGES_URL_SECONDS"],
            ),
            (
                PackageArgs {
                    packages_url_seconds: text("abc"),
                    ..bucket()
                },
                &["BEX_PACKAGES_URL_SECONDS"],
            ),
            (
                PackageArgs {
                    packages_national_ids: text("yes"),
                    ..bucket()
                },
                &["BEX_PACKAGES_NATIONAL_IDS"],
            ),
            (
                PackageArgs {
                    commit_sha: text("main"),
                    ..bucket()
                },
                &["COMMIT_SHA"],
            ),
            (
                PackageArgs {
                    packages_s3_endpoint: text("http://objects.example"),
                    ..bucket()
                },
                &["BEX_PACKAGES_S3_ENDPOINT"],
            ),
            (
                PackageArgs {
                    packages_s3_endpoint: text("objects"),
                    ..bucket()
                },
                &["BEX_PACKAGES_S3_ENDPOINT"],
            ),
            (
                PackageArgs {
                    aws_access_key_id: text("a"),
                    ..bucket()
                },
                &["AWS_SECRET_ACCESS_KEY"],
            ),
            (
                PackageArgs {
                    aws_access_key_id: text("a"),
                    aws_secret_access_key: text("b"),
                    aws_session_token: text("c"),
                    ..bucket()
                },
                &["AWS_CREDENTIAL_EXPIRATION"],
            ),
        ] {
            assert_eq!(read(args).err().as_deref(), Some(names));
        }
    }
}
