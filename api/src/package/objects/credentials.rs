//! What requests to a bucket are signed with, and how long that is good: a URL ends with the credentials that signed it, whatever it
//! says itself.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;
use serde::Deserialize;

/// A file that is larger holds no credentials.
const FILE_BYTES: u64 = 64 * 1024;
/// What object_store's own providers keep in store: they fetch anew when less is left.
const AMBIENT: Duration = Duration::from_secs(300);

/// Where credentials come from.
#[derive(Clone)]
pub enum Credentials {
    /// A user's key, which does not end, or one with a session token, which does.
    Fixed {
        /// `AWS_ACCESS_KEY_ID`
        key_id: String,
        /// `AWS_SECRET_ACCESS_KEY`
        secret: String,
        /// `AWS_SESSION_TOKEN` and `AWS_CREDENTIAL_EXPIRATION`
        session: Option<(String, Timestamp)>,
    },
    /// A file as `credential_process` prints it, read for each signature: whoever renews it only has to replace it.
    File(PathBuf),
    /// A web identity token, a container's or a machine's role.
    Ambient,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Fixed { .. } => "Fixed",
            Self::File(_) => "File",
            Self::Ambient => "Ambient",
        })
    }
}

/// Why there are none.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsFault {
    /// The file cannot be read.
    #[error("the file of credentials cannot be read: {0}")]
    Unreadable(std::io::ErrorKind),
    /// It holds none.
    #[error("the file of credentials is not as credential_process prints it")]
    Malformed,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Printed {
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
    expiration: Option<Timestamp>,
}

impl Credentials {
    /// How long a signature made now is good; `None` for ever.
    ///
    /// # Errors
    /// When there are no credentials.
    pub(super) async fn remaining(
        &self,
        now: Timestamp,
    ) -> Result<Option<Duration>, CredentialsFault> {
        let until =
            |end: Timestamp| Duration::try_from(end.duration_since(now)).unwrap_or_default();
        Ok(match self {
            Self::Fixed { session, .. } => session.as_ref().map(|(_, end)| until(*end)),
            Self::File(path) => read(path).await?.expiration.map(until),
            Self::Ambient => Some(AMBIENT),
        })
    }

    /// As object_store asks for them; `None` leaves it to its own providers.
    pub(super) fn provider(
        &self,
    ) -> Option<Arc<dyn CredentialProvider<Credential = AwsCredential>>> {
        match self {
            Self::Ambient => None,
            Self::Fixed { .. } | Self::File(_) => Some(Arc::new(self.clone())),
        }
    }
}

#[async_trait]
impl CredentialProvider for Credentials {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let failed = |source: CredentialsFault| object_store::Error::Generic {
            store: "S3",
            source: Box::new(source),
        };
        let credential = match self {
            Self::Fixed {
                key_id,
                secret,
                session,
            } => AwsCredential {
                key_id: key_id.clone(),
                secret_key: secret.clone(),
                token: session.as_ref().map(|(token, _)| token.clone()),
            },
            Self::File(path) => {
                let printed = read(path).await.map_err(failed)?;
                AwsCredential {
                    key_id: printed.access_key_id,
                    secret_key: printed.secret_access_key,
                    token: printed.session_token,
                }
            }
            // never asked: object_store has its own
            Self::Ambient => return Err(failed(CredentialsFault::Malformed)),
        };
        Ok(Arc::new(credential))
    }
}

/// A session token without an end is taken for one that has ended: nobody could say how long a URL is good.
async fn read(path: &std::path::Path) -> Result<Printed, CredentialsFault> {
    let unreadable = |e: std::io::Error| CredentialsFault::Unreadable(e.kind());
    let meta = tokio::fs::metadata(path).await.map_err(unreadable)?;
    if meta.len() > FILE_BYTES {
        return Err(CredentialsFault::Malformed);
    }
    let text = tokio::fs::read(path).await.map_err(unreadable)?;
    // serde's own words could repeat a secret
    let printed: Printed =
        serde_json::from_slice(&text).map_err(|_| CredentialsFault::Malformed)?;
    if printed.session_token.is_some() && printed.expiration.is_none() {
        return Err(CredentialsFault::Malformed);
    }
    Ok(printed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_is_read_anew_and_says_when_it_ends() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("credentials.json");
        let credentials = Credentials::File(path.clone());
        let now = Timestamp::from_second(1_000).expect("a time");
        assert!(credentials.remaining(now).await.is_err(), "not there yet");
        let write = |text: &str| std::fs::write(&path, text).expect("it is written");
        write(
            r#"{"Version":1,"AccessKeyId":"a","SecretAccessKey":"s3cret","SessionToken":"t","Expiration":"1970-01-01T00:18:00Z"}"#,
        );
        let left = credentials.remaining(now).await.expect("it reads");
        assert_eq!(left, Some(Duration::from_secs(80)));
        let late = Timestamp::from_second(2_000).expect("a time");
        let left = credentials.remaining(late).await.expect("it reads");
        assert_eq!(left, Some(Duration::ZERO));
        let given = credentials.get_credential().await.expect("it reads");
        assert_eq!(
            (given.key_id.as_str(), given.token.as_deref()),
            ("a", Some("t"))
        );
        write(r#"{"Version":1,"AccessKeyId":"b","SecretAccessKey":"s"}"#);
        assert_eq!(credentials.remaining(now).await.expect("it reads"), None);
        assert_eq!(
            credentials.get_credential().await.expect("it reads").key_id,
            "b"
        );
        for bad in [
            "",
            "{}",
            r#"{"AccessKeyId":"b","SecretAccessKey":"s3cret","SessionToken":"t"}"#,
        ] {
            write(bad);
            let error = credentials.remaining(now).await.expect_err("it is none");
            assert!(!format!("{error} {error:?}").contains("s3cret"));
        }
        assert_eq!(format!("{credentials:?}"), "File");
    }
}
