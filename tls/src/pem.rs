//! From PEM files to what TLS works with.

use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use x509_cert::Certificate;
use x509_cert::der::Decode;

/// The largest file: every authority of a machine fits.
const FILE_BYTES: u64 = 1024 * 1024;

/// Why files are of no use. No text holds anything of a file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TlsError {
    /// The system.
    #[error("the file {path} cannot be read: {kind}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        kind: ErrorKind,
    },
    /// No PEM certificate, or one that cannot be used.
    #[error("the file {path} holds no usable certificate")]
    Certificate {
        /// The file.
        path: PathBuf,
    },
    /// No PEM key, or one of an unknown kind.
    #[error("the file {path} holds no usable private key")]
    Key {
        /// The file.
        path: PathBuf,
    },
    /// A certificate with another one's key, or of a kind TLS does not know.
    #[error("certificate and key do not belong together")]
    Mismatch,
    /// The authorities.
    #[error("the authorities cannot be used")]
    Authorities,
    /// A name that no certificate can have.
    #[error("must be a DNS name or an address")]
    Name,
}

/// One file's content.
#[derive(Clone)]
pub struct Pem {
    path: PathBuf,
    bytes: Vec<u8>,
}

/// A certificate chain with its key.
#[derive(Debug)]
pub struct Identity {
    /// The end's own certificate first.
    pub chain: Vec<CertificateDer<'static>>,
    /// Its key.
    pub key: PrivateKeyDer<'static>,
    /// Until when it is valid, seconds of Unix time.
    pub not_after: i64,
}

impl std::fmt::Debug for Pem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pem")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Pem {
    /// Reads a file.
    ///
    /// # Errors
    /// When it cannot be read, or is larger than any such file.
    pub fn read(path: &Path) -> Result<Self, TlsError> {
        let unreadable = |kind| TlsError::Unreadable {
            path: path.to_owned(),
            kind,
        };
        let file = std::fs::File::open(path).map_err(|e| unreadable(e.kind()))?;
        let mut bytes = Vec::new();
        file.take(FILE_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(|e| unreadable(e.kind()))?;
        if bytes.len() as u64 > FILE_BYTES {
            return Err(unreadable(ErrorKind::FileTooLarge));
        }
        Ok(Self {
            path: path.to_owned(),
            bytes,
        })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The authorities in it, at least one.
    ///
    /// # Errors
    /// When one of them is no certificate, or there is none.
    pub fn roots(&self) -> Result<RootCertStore, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in self.certificates()? {
            roots.add(certificate).map_err(|_| self.no_certificate())?;
        }
        Ok(roots)
    }

    /// The chain in it, with the key of another file.
    ///
    /// # Errors
    /// When either holds something else.
    pub fn identity(&self, key: &Self) -> Result<Identity, TlsError> {
        let chain = self.certificates()?;
        let own = chain.first().ok_or_else(|| self.no_certificate())?;
        let parsed = Certificate::from_der(own).map_err(|_| self.no_certificate())?;
        let not_after = parsed.tbs_certificate.validity.not_after;
        Ok(Identity {
            not_after: i64::try_from(not_after.to_unix_duration().as_secs()).unwrap_or(i64::MAX),
            chain,
            key: PrivateKeyDer::from_pem_slice(&key.bytes).map_err(|_| TlsError::Key {
                path: key.path.clone(),
            })?,
        })
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.bytes).collect();
        match found {
            Ok(found) if !found.is_empty() => Ok(found),
            _ => Err(self.no_certificate()),
        }
    }

    fn no_certificate(&self) -> TlsError {
        TlsError::Certificate {
            path: self.path.clone(),
        }
    }
}
