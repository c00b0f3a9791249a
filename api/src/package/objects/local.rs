//! A directory: `ORG#<org>/<kind>-<id>/<packageId>.json` in it, and URLs that this process signs and checks.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bex_proto::ticket::KeyRing;
use hmac::{Hmac, KeyInit, Mac};
use jiff::Timestamp;
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;
use tokio_util::sync::CancellationToken;

use super::super::subject::{KEY_PREFIX, ObjectKey};
use super::{ObjectFault, SignedUrl, UrlTtl};

/// Bytes that are copied at once.
const COPY: usize = 256 * 1024;
/// Objects that one sweep removes.
const SWEEP: u64 = 10_000;
/// How often a directory is made that is taken away again.
const MAKINGS: usize = 100;

/// See the module's text.
pub struct LocalObjects {
    dir: PathBuf,
    public_url: String,
    keys: KeyRing,
}

/// Why the directory is of no use.
#[derive(Debug, thiserror::Error)]
pub enum LocalFault {
    /// It cannot be written.
    #[error("the directory cannot be written: {}", .0.kind())]
    Write(io::Error),
}

/// A URL that is good for nothing, whatever is wrong with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the URL is not good")]
pub struct UrlRefused;

impl std::fmt::Debug for LocalObjects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LocalObjects({})", self.dir.display())
    }
}

impl LocalObjects {
    /// Objects in a directory; `public_url` is where this api is reached, without a slash at its end.
    ///
    /// # Errors
    /// When nothing can be written there.
    pub fn open(dir: PathBuf, public_url: String, keys: KeyRing) -> Result<Self, LocalFault> {
        tempfile::tempfile_in(&dir).map_err(LocalFault::Write)?;
        Ok(Self {
            dir,
            public_url,
            keys,
        })
    }

    pub(super) fn sign(&self, key: &ObjectKey, ttl: UrlTtl) -> Result<SignedUrl, ObjectFault> {
        let ttl = ttl.within(None).ok_or(ObjectFault::Expired)?;
        let seconds = i64::try_from(ttl.as_secs()).unwrap_or(0);
        let expires = Timestamp::now().as_second() + seconds;
        let (kid, secret) = self.keys.signing_key();
        let signature = hex::encode(mac(secret, key, expires).finalize().into_bytes());
        let (base, path) = (&self.public_url, key.in_url());
        Ok(SignedUrl {
            url: format!(
                "{base}/replay/objects/{path}?expires={expires}&kid={kid}&signature={signature}"
            ),
            expires_at: Timestamp::from_second(expires).map_err(|_| ObjectFault::Expired)?,
        })
    }

    /// Whether a URL was signed here and is still good. The object's key is all of it that counts.
    ///
    /// # Errors
    /// When it is not.
    pub fn verify(
        &self,
        key: &ObjectKey,
        (expires, kid, signature): (i64, &str, &str),
        now: Timestamp,
    ) -> Result<(), UrlRefused> {
        let secret = self.keys.key(kid).ok_or(UrlRefused)?;
        let signature = hex::decode(signature).map_err(|_| UrlRefused)?;
        mac(secret, key, expires)
            .verify_slice(&signature)
            .map_err(|_| UrlRefused)?;
        if now.as_second() < expires {
            Ok(())
        } else {
            Err(UrlRefused)
        }
    }

    /// An object and its length; `None` when it is not there, or no longer.
    ///
    /// # Errors
    /// When the directory fails.
    pub async fn get(&self, key: &ObjectKey) -> Result<Option<(File, u64)>, ObjectFault> {
        let path = self.dir.join(key.as_str());
        off_thread(move || {
            let Some(file) = there(File::open(path))? else {
                return Ok(None);
            };
            let bytes = file.metadata()?.len();
            Ok(Some((file, bytes)))
        })
        .await
    }

    pub(super) async fn put(&self, key: &ObjectKey, file: File) -> Result<String, ObjectFault> {
        let path = self.dir.join(key.as_str());
        let given_up = CancellationToken::new();
        let _guard = given_up.clone().drop_guard();
        off_thread(move || put(&path, file, &given_up)).await
    }

    pub(super) async fn remove(&self, key: &ObjectKey) -> Result<(), ObjectFault> {
        let path = self.dir.join(key.as_str());
        off_thread(move || there(fs::remove_file(path)).map(drop)).await
    }

    pub(super) async fn sweep(&self, days: u32) -> Result<u64, ObjectFault> {
        let dir = self.dir.clone();
        let age = Duration::from_secs(u64::from(days) * 24 * 60 * 60);
        off_thread(move || sweep(&dir, SystemTime::now() - age)).await
    }
}

fn mac(secret: &[u8], key: &ObjectKey, expires: i64) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of every length");
    mac.update(format!("bex package url 1\nGET\n{key}\n{expires}").as_bytes());
    mac
}

async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, ObjectFault> {
    let done = tokio::task::spawn_blocking(work).await;
    done?.map_err(ObjectFault::Directory)
}

/// Writes beside the object and puts it in its place: whoever reads has one or the other, whole. Once nobody waits for it any more it
/// ends without.
fn put(path: &Path, mut from: File, given_up: &CancellationToken) -> io::Result<String> {
    let mut to = beside(path)?;
    let (mut digest, mut piece) = (Sha256::new(), vec![0; COPY]);
    loop {
        if given_up.is_cancelled() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let read = from.read(&mut piece)?;
        if read == 0 {
            break;
        }
        digest.update(&piece[..read]);
        to.write_all(&piece[..read])?;
    }
    to.persist(path).map_err(|e| e.error)?;
    Ok(hex::encode(digest.finalize()))
}

/// An empty file in an object's directory. A sweep may take the directory away before there is anything in it: then it is made again.
fn beside(path: &Path) -> io::Result<NamedTempFile> {
    let parent = path.parent().unwrap_or(path);
    let made = || {
        let mut dirs = DirBuilder::new();
        dirs.recursive(true).mode(0o700).create(parent)?;
        tempfile::Builder::new()
            .prefix(".writing-")
            .tempfile_in(parent)
    };
    let mut tries = (1..MAKINGS).map(|_| made());
    tries
        .find(|made| !matches!(made, Err(error) if is_taken_away(error)))
        .unwrap_or_else(made)
}

/// A directory that goes between two looks at it is said to be there already, or not to be there.
fn is_taken_away(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists
    )
}

/// Removes files that are older, and directories that are empty then. Other replicas do the same at the same time: what is gone meanwhile
/// is no fault. What fails is told at the end, and keeps nothing else.
fn sweep(dir: &Path, older_than: SystemTime) -> io::Result<u64> {
    let mut removed = 0;
    let mut failed = None;
    for workspace in fs::read_dir(dir)? {
        let Some(workspace) = passed(workspace, &mut failed) else {
            continue;
        };
        // whatever else lies here is not ours
        if !workspace
            .file_name()
            .as_encoded_bytes()
            .starts_with(KEY_PREFIX.as_bytes())
        {
            continue;
        }
        let mut remove = |object: &Path| -> io::Result<()> {
            if removed < SWEEP && remove_older(object, older_than)? {
                removed += 1;
            }
            Ok(())
        };
        for of in passed(listed(&workspace.path()), &mut failed).unwrap_or_default() {
            for object in passed(listed(&of), &mut failed).unwrap_or_default() {
                passed(remove(&object), &mut failed);
            }
            // one that is not empty stays
            let _ = fs::remove_dir(&of);
        }
        let _ = fs::remove_dir(workspace.path());
    }
    failed.map_or(Ok(removed), Err)
}

/// What came of one step; the first that failed is kept.
fn passed<T>(step: io::Result<T>, failed: &mut Option<io::Error>) -> Option<T> {
    step.map_err(|error| failed.get_or_insert(error)).ok()
}

/// What lies in a directory; nothing, when it is gone.
fn listed(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = there(fs::read_dir(dir))?.into_iter().flatten();
    entries.map(|entry| Ok(entry?.path())).collect()
}

fn remove_older(object: &Path, than: SystemTime) -> io::Result<bool> {
    let Some(about) = there(fs::symlink_metadata(object))? else {
        return Ok(false);
    };
    Ok(about.modified()? < than && there(fs::remove_file(object))?.is_some())
}

/// `None` for what is not there.
fn there<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Seek;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const KEY: &str = "ORG#demo/run-run-aaaaaaaaaaaaaaaaaaaa/pkg-bbbbbbbbbbbbbbbbbbbb.json";

    fn objects(dir: &Path) -> LocalObjects {
        let keys = format!("new:{},old:{}", "ab".repeat(32), "cd".repeat(32));
        let keys = KeyRing::parse(&keys).expect("a ring");
        LocalObjects::open(dir.to_owned(), "https://api.example".into(), keys).expect("it opens")
    }

    fn file(text: &str) -> File {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(text.as_bytes()).expect("it is written");
        file.rewind().expect("it is rewound");
        file
    }

    /// What a URL says: expiry, kid, signature.
    fn parts(url: &str) -> (i64, String, String) {
        let query = url.split_once('?').expect("a query").1;
        let value = |name: &str| {
            let pair = query.split('&').find_map(|pair| pair.strip_prefix(name));
            pair.expect("it stands there").to_owned()
        };
        let expires = value("expires=").parse().expect("a number");
        (expires, value("kid="), value("signature="))
    }

    #[test]
    fn a_url_is_good_for_one_key_until_its_time() {
        let dir = tempfile::tempdir().expect("a directory");
        let objects = objects(dir.path());
        let key: ObjectKey = KEY.parse().expect("a key");
        let now = Timestamp::now();
        let signed = objects.sign(&key, UrlTtl::default()).expect("it is signed");
        let prefix =
            "https://api.example/replay/objects/ORG%23demo/run-run-aaaaaaaaaaaaaaaaaaaa/pkg-";
        assert!(signed.url.starts_with(prefix), "{}", signed.url);
        let (expires, kid, signature) = parts(&signed.url);
        assert_eq!(signed.expires_at.as_second(), expires);
        assert!((299..=301).contains(&(expires - now.as_second())));
        let check = |key: &ObjectKey, expires, kid: &str, signature: &str, now| {
            objects.verify(key, (expires, kid, signature), now).is_ok()
        };
        assert!(check(&key, expires, &kid, &signature, now));
        let at = |second| Timestamp::from_second(second).expect("a time");
        assert!(check(&key, expires, &kid, &signature, at(expires - 1)));
        assert!(
            !check(&key, expires, &kid, &signature, at(expires)),
            "expired"
        );
        assert!(
            !check(&key, expires + 1, &kid, &signature, now),
            "prolonged"
        );
        assert!(!check(&key, expires, "old", &signature, now), "another kid");
        assert!(!check(&key, expires, "none", &signature, now), "no kid");
        assert!(!check(&key, expires, &kid, &signature[2..], now), "cut");
        assert!(!check(&key, expires, &kid, "", now) && !check(&key, expires, &kid, "zz", now));
        let other: ObjectKey = KEY.replace("demo", "acme").parse().expect("a key");
        assert!(
            !check(&other, expires, &kid, &signature, now),
            "another key"
        );
        for at in 0..signature.len() {
            let mut bytes = signature.clone().into_bytes();
            bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
            let tampered = String::from_utf8(bytes).expect("text");
            assert!(!check(&key, expires, &kid, &tampered, now), "digit {at}");
        }
        let shown = format!("{signed:?} {objects:?}");
        assert!(
            !shown.contains(&signature) && !shown.contains("abab"),
            "{shown}"
        );
    }

    #[tokio::test]
    async fn objects_are_put_whole_renewed_and_swept() {
        let dir = tempfile::tempdir().expect("a directory");
        let objects = objects(dir.path());
        let key: ObjectKey = KEY.parse().expect("a key");
        assert!(objects.get(&key).await.expect("it looks").is_none());
        let sha256 = objects.put(&key, file("hello")).await.expect("it is put");
        assert_eq!(sha256, bex_proto::transcript::sha256_hex(b"hello"));
        let path = dir.path().join(KEY);
        let mode = path.metadata().expect("it is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let (mut found, bytes) = objects
            .get(&key)
            .await
            .expect("it looks")
            .expect("it is there");
        let mut text = String::new();
        found.read_to_string(&mut text).expect("it reads");
        assert_eq!((text.as_str(), bytes), ("hello", 5));
        assert_eq!(objects.sweep(7).await.expect("it sweeps"), 0);
        let old = SystemTime::now() - Duration::from_secs(8 * 24 * 60 * 60);
        let age = || {
            File::options()
                .append(true)
                .open(&path)
                .and_then(|f| f.set_modified(old))
        };
        age().expect("it ages");
        objects
            .put(&key, file("hello"))
            .await
            .expect("it is renewed");
        assert_eq!(objects.sweep(7).await.expect("it sweeps"), 0);
        age().expect("it ages");
        fs::write(dir.path().join("kept"), "x").expect("it is written");
        assert_eq!(objects.sweep(7).await.expect("it sweeps"), 1);
        let left: Vec<_> = fs::read_dir(dir.path()).expect("it lists").collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[test]
    fn sweeps_and_uploads_in_one_directory_are_in_nobodys_way() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path();
        let path = |n: u8| dir.join(KEY.replace("pkg-b", &format!("pkg-{}", char::from(b'c' + n))));
        // they find each directory empty between two uploads
        let ended = CancellationToken::new();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !ended.is_cancelled() {
                        sweep(dir, SystemTime::UNIX_EPOCH).expect("nobody is in its way");
                    }
                });
            }
            let puts = [0, 1].map(|n| {
                scope.spawn(move || {
                    for _ in 0..500 {
                        let put = put(&path(n), file("hello"), &CancellationToken::new());
                        put.expect("nobody is in its way");
                        fs::remove_file(path(n)).expect("it is there");
                    }
                })
            });
            let puts = puts.map(std::thread::ScopedJoinHandle::join);
            ended.cancel();
            assert!(puts.iter().all(Result::is_ok));
        });
        assert_eq!(sweep(dir, SystemTime::UNIX_EPOCH).expect("it sweeps"), 0);
        assert_eq!(fs::read_dir(dir).expect("it lists").count(), 0);
    }

    #[test]
    fn replicas_that_sweep_together_remove_each_object_once() {
        let dir = tempfile::tempdir().expect("a directory");
        const OBJECTS: u32 = 600;
        for n in 0..OBJECTS {
            let of = dir.path().join(format!("{KEY_PREFIX}w{}/run-{n}", n % 7));
            fs::create_dir_all(&of).expect("it is made");
            fs::write(of.join("pkg-a.json"), "x").expect("it is written");
        }
        let later = SystemTime::now() + Duration::from_secs(60);
        let removed: Vec<u64> = std::thread::scope(|scope| {
            let sweeps = [0; 4].map(|_| scope.spawn(|| sweep(dir.path(), later)));
            let sweeps = sweeps.map(|s| s.join().expect("no panic"));
            sweeps
                .map(|removed| removed.expect("nobody is in its way"))
                .to_vec()
        });
        assert_eq!(
            removed.iter().sum::<u64>(),
            u64::from(OBJECTS),
            "{removed:?}"
        );
        assert_eq!(fs::read_dir(dir.path()).expect("it lists").count(), 0);
    }

    #[test]
    fn what_cannot_be_removed_keeps_nothing_else() {
        let dir = tempfile::tempdir().expect("a directory");
        let of = dir.path().join(format!("{KEY_PREFIX}a/run-1"));
        fs::create_dir_all(of.join("no-object")).expect("it is made");
        fs::write(dir.path().join(format!("{KEY_PREFIX}file")), "x").expect("it is written");
        let other = dir.path().join(format!("{KEY_PREFIX}z/run-1"));
        fs::create_dir_all(&other).expect("it is made");
        fs::write(other.join("pkg-a.json"), "x").expect("it is written");
        let later = SystemTime::now() + Duration::from_secs(60);
        assert!(
            sweep(dir.path(), later).is_err(),
            "somebody must look at it"
        );
        assert!(!other.exists(), "and what is behind it is gone");
    }

    #[test]
    fn what_nobody_waits_for_is_not_put() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join(KEY);
        let given_up = CancellationToken::new();
        given_up.cancel();
        let put = put(&path, file("hello"), &given_up);
        assert_eq!(put.map_err(|e| e.kind()), Err(io::ErrorKind::TimedOut));
        let left = fs::read_dir(path.parent().expect("a parent"));
        assert_eq!(left.expect("it lists").count(), 0);
    }
}
