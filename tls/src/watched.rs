//! What is built from files, and built again when their content changed.

use std::fmt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::pem::{Pem, TlsError};

/// How often the files are looked at, at most.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);

type Build<T, const N: usize> = Box<dyn Fn(&[Pem; N]) -> Result<T, TlsError> + Send + Sync>;

/// A `T` made of `N` files. Nothing looks at them by itself: whoever asks for the current one does, so a change is taken up by the
/// first connection, or the first scrape, after it.
pub struct Watched<T, const N: usize> {
    what: &'static str,
    paths: [PathBuf; N],
    build: Build<T, N>,
    state: Mutex<State<T>>,
    failures: AtomicU64,
}

struct State<T> {
    current: Arc<T>,
    /// Of what was found last, good or not, so that a fault is told once.
    found: Found,
    looked: Instant,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Found {
    Content([u8; 32]),
    Nothing(TlsError),
}

impl<T, const N: usize> fmt::Debug for Watched<T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watched")
            .field("what", &self.what)
            .field("paths", &self.paths)
            .finish_non_exhaustive()
    }
}

impl<T, const N: usize> Watched<T, N> {
    /// Reads the files and builds. `what` names them in logs.
    ///
    /// # Errors
    /// When they cannot be used now: a process does not start on that.
    pub fn open(
        what: &'static str,
        paths: [PathBuf; N],
        build: impl Fn(&[Pem; N]) -> Result<T, TlsError> + Send + Sync + 'static,
    ) -> Result<Self, TlsError> {
        let files = read(&paths)?;
        let current = Arc::new(build(&files)?);
        Ok(Self {
            what,
            paths,
            build: Box::new(build),
            state: Mutex::new(State {
                current,
                found: Found::Content(digest(&files)),
                looked: Instant::now(),
            }),
            failures: AtomicU64::new(0),
        })
    }

    /// What the files say now, or what they said when they last fitted together. Reads a few small files at most once in
    /// [`LOOK_EVERY`].
    pub fn current(&self) -> Arc<T> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.looked.elapsed() >= LOOK_EVERY {
            state.looked = Instant::now();
            self.look(&mut state);
        }
        Arc::clone(&state.current)
    }

    /// How often changed files could not be used.
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    fn look(&self, state: &mut State<T>) {
        let files = read(&self.paths);
        let found = match &files {
            Ok(files) => Found::Content(digest(files)),
            Err(error) => Found::Nothing(error.clone()),
        };
        if found == state.found {
            return;
        }
        state.found = found;
        match files.and_then(|files| (self.build)(&files)) {
            Ok(built) => {
                state.current = Arc::new(built);
                info!(what = self.what, "changed TLS files are in use");
            }
            Err(error) => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                warn!(what = self.what, %error, "changed TLS files cannot be used, the earlier ones stay");
            }
        }
    }
}

fn read<const N: usize>(paths: &[PathBuf; N]) -> Result<[Pem; N], TlsError> {
    let files: Vec<Pem> = paths
        .iter()
        .map(|path| Pem::read(path))
        .collect::<Result<_, _>>()?;
    Ok(files.try_into().expect("as many files as paths"))
}

fn digest<const N: usize>(files: &[Pem; N]) -> [u8; 32] {
    let mut digest = Sha256::new();
    for file in files {
        digest.update((file.bytes().len() as u64).to_be_bytes());
        digest.update(file.bytes());
    }
    digest.finalize().into()
}
