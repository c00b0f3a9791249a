//! A package while it is written: one line for each member and each element, every one redacted by itself, off the threads that serve.
//!
//! ```text
//! {
//! "schemaVersion":"1.1.0",
//! "sections":{
//! "nodes":[
//! {…},
//! {…}
//! ],
//! …
//! ```
//!
//! So whoever reads it again never needs more than one line of it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bex_redact::Redactor;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::spool::{Built, Spool};
use super::{PackageFault, Workbench};

/// Bytes of one line: the text of one turn stands in it twice. Whoever reads a package holds a line of it.
pub(super) const MAX_LINE: usize = 32 * 1024 * 1024;
/// Bytes of one line as it is written.
pub(super) const MAX_WRITTEN: usize = 2 * MAX_LINE;
/// Lines that are longer are worked on one at a time in this process: each is held several times over then.
const LONG_LINE: usize = 4 * 1024 * 1024;

/// Waits for its turn where the line is a long one.
pub(super) fn alone(bytes: usize) -> Option<MutexGuard<'static, ()>> {
    static ALONE: Mutex<()> = Mutex::new(());
    (bytes > LONG_LINE).then(|| ALONE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Why there are lines.
const HELD: &str = "whoever lost a line of a document writes no other";

/// A document, or the elements of an array that is put into one later.
pub(super) struct Document {
    /// Taken while a line is made.
    lines: Option<Lines>,
}

struct Lines {
    redactor: Redactor,
    /// Set once nobody waits for the document any more.
    given_up: CancellationToken,
    spool: Spool,
    /// Whether the innermost open object or array has something in it.
    filled: Vec<bool>,
    count: u64,
}

impl Lines {
    /// Begins a line behind what stands there.
    fn begin(&mut self) -> Result<(), PackageFault> {
        let filled = self
            .filled
            .last_mut()
            .is_some_and(|f| std::mem::replace(f, true));
        self.spool.write(if filled { b",\n" } else { b"\n" })
    }

    fn line(&mut self, text: &[u8]) -> Result<(), PackageFault> {
        // whoever reads it again holds no more; tokens may be longer than what they stand for
        if text.len() > MAX_WRITTEN {
            return Err(PackageFault::TooLarge);
        }
        self.begin()?;
        self.count += 1;
        self.spool.write(text)
    }

    fn redacted(&mut self, key: Option<&str>, value: &str) -> Result<(), PackageFault> {
        if self.given_up.is_cancelled() {
            return Err(PackageFault::TooSlow);
        }
        if value.len() > MAX_LINE {
            return Err(PackageFault::TooLarge);
        }
        let _alone = alone(value.len());
        // others may have taken long
        if self.given_up.is_cancelled() {
            return Err(PackageFault::TooSlow);
        }
        let value = on_one_line(value);
        match key {
            None => {
                let clean = self.redactor.redact(value.as_bytes()).into_owned();
                self.line(&clean)
            }
            Some(key) => {
                // with its key, which says what it is
                let member = format!("{{\"{key}\":{value}}}");
                let clean = self.redactor.redact(member.as_bytes()).into_owned();
                let inner = clean.len().saturating_sub(1);
                self.line(clean.get(1..inner).unwrap_or_default())
            }
        }
    }

    fn open(&mut self, key: &str, bracket: &str) -> Result<(), PackageFault> {
        self.begin()?;
        self.spool
            .write(format!("\"{key}\":{bracket}").as_bytes())?;
        self.filled.push(false);
        Ok(())
    }

    fn close(&mut self, bracket: &[u8]) -> Result<(), PackageFault> {
        self.filled.pop();
        self.spool.write(b"\n")?;
        self.spool.write(bracket)
    }
}

/// JSON may be written over several lines, but its texts hold none: outside of them a line's end is a space.
fn on_one_line(value: &str) -> std::borrow::Cow<'_, str> {
    if value.contains(['\n', '\r']) {
        value.replace(['\n', '\r'], " ").into()
    } else {
        value.into()
    }
}

impl Document {
    /// An object in a new file.
    pub fn begin(bench: &Workbench) -> Result<Self, PackageFault> {
        let mut document = Self::elements(bench)?;
        if let Some(lines) = &mut document.lines {
            lines.spool.write(b"{")?;
        }
        Ok(document)
    }

    /// Elements of an array.
    pub fn elements(bench: &Workbench) -> Result<Self, PackageFault> {
        let lines = Lines {
            redactor: bench.redactor.clone(),
            given_up: bench.given_up.clone(),
            spool: Spool::create(&bench.spool_dir, bench.limit)?,
            filled: vec![false],
            count: 0,
        };
        Ok(Self { lines: Some(lines) })
    }

    async fn with<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Lines) -> Result<T, PackageFault> + Send + 'static,
    ) -> Result<T, PackageFault> {
        let mut lines = self.lines.take().expect(HELD);
        let done = tokio::task::spawn_blocking(move || {
            let done = work(&mut lines);
            (lines, done)
        });
        let (lines, done) = done.await?;
        self.lines = Some(lines);
        done
    }

    /// A member as it is: an id or a word of ours.
    pub async fn plain(
        &mut self,
        key: &'static str,
        value: &impl Serialize,
    ) -> Result<(), PackageFault> {
        let member = format!("\"{key}\":{}", text(value));
        self.with(move |lines| lines.line(member.as_bytes())).await
    }

    /// A member, redacted.
    pub async fn member(
        &mut self,
        key: &'static str,
        value: &impl Serialize,
    ) -> Result<(), PackageFault> {
        let value = text(value);
        self.with(move |lines| lines.redacted(Some(key), &value))
            .await
    }

    /// Opens an object under a key.
    pub async fn object(&mut self, key: &'static str) -> Result<(), PackageFault> {
        self.with(move |lines| lines.open(key, "{")).await
    }

    /// Opens an array under a key.
    pub async fn array(&mut self, key: &'static str) -> Result<(), PackageFault> {
        self.with(move |lines| lines.open(key, "[")).await
    }

    /// Closes an object.
    pub async fn end_object(&mut self) -> Result<(), PackageFault> {
        self.with(|lines| lines.close(b"}")).await
    }

    /// Closes an array.
    pub async fn end_array(&mut self) -> Result<(), PackageFault> {
        self.with(|lines| lines.close(b"]")).await
    }

    /// Elements, redacted.
    pub async fn items<T: Serialize + Send + 'static>(
        &mut self,
        items: Vec<T>,
    ) -> Result<(), PackageFault> {
        if items.is_empty() {
            return Ok(());
        }
        self.with(move |lines| {
            items
                .iter()
                .try_for_each(|item| lines.redacted(None, &text(item)))
        })
        .await
    }

    /// An array of elements that were written before.
    pub async fn array_of(
        &mut self,
        key: &'static str,
        mut elements: Document,
    ) -> Result<(), PackageFault> {
        let elements = elements.lines.take().expect(HELD);
        self.with(move |lines| {
            lines.open(key, "[")?;
            lines.spool.append(elements.spool)?;
            lines.close(b"]")
        })
        .await
    }

    /// Lines that were written.
    pub fn count(&self) -> u64 {
        self.lines.as_ref().map_or(0, |lines| lines.count)
    }

    /// Names and ends the document.
    pub async fn finish(
        mut self,
        generated_at: Timestamp,
        sources: Vec<String>,
    ) -> Result<Built, PackageFault> {
        let lines = self.lines.take().expect(HELD);
        let done = tokio::task::spawn_blocking(move || lines.spool.finish(generated_at, sources));
        done.await?
    }
}

fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("plain data always serialises")
}

/// Stored JSON as it is; what is none, which nobody stores, as a text.
pub(super) fn json(text: String) -> Box<RawValue> {
    match serde_json::from_str::<&RawValue>(&text) {
        Ok(_) => RawValue::from_string(text).expect("it was read just now"),
        Err(_) => serde_json::value::to_raw_value(&text).expect("a text always serialises"),
    }
}

/// The same of what may not be there.
pub(super) fn optional_json(text: Option<String>) -> Option<Box<RawValue>> {
    text.map(json)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use bex_redact::{Profile, TokenKey};

    use super::*;

    fn bench(dir: &Path, limit: u64) -> Workbench {
        Workbench {
            redactor: Redactor::new(Profile::Package, TokenKey::new(b"key")),
            spool_dir: dir.to_owned(),
            limit,
            commit: None,
            given_up: CancellationToken::new(),
        }
    }

    fn elements(dir: &Path) -> Document {
        Document::elements(&bench(dir, u64::MAX)).expect("a file")
    }

    #[tokio::test]
    async fn a_line_is_one_line_and_bounded() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut document = elements(dir.path());
        let pretty =
            json("{\n  \"a\": \"x\\ny\",\r\n  \"b\": 12345678901234567890123\n}".to_owned());
        document.items(vec![pretty]).await.expect("it is written");
        document
            .items(vec![json("no JSON".to_owned())])
            .await
            .expect("it is written");
        assert_eq!(document.count(), 2);
        let too_long = vec!["x".repeat(MAX_LINE)];
        let written = document.items(too_long).await;
        assert!(matches!(written, Err(PackageFault::TooLarge)));
        let mut whole = Document::begin(&bench(dir.path(), 1000)).expect("a file");
        let mut list = elements(dir.path());
        list.items(vec![
            json("{\n\"a\":1\n}".to_owned()),
            json("\"t\"".to_owned()),
        ])
        .await
        .expect("it is written");
        whole.array_of("list", list).await.expect("it fits");
        whole
            .member("password", &"hunter2hunter2")
            .await
            .expect("it fits");
        let built = whole
            .finish(Timestamp::UNIX_EPOCH, Vec::new())
            .await
            .expect("it ends");
        let text = std::io::read_to_string(built.file).expect("it reads");
        let list = "{\n\"list\":[\n{ \"a\":1 },\n\"t\"\n],\n\"password\":";
        let behind = text.strip_prefix(list).expect(&text);
        assert!(behind.starts_with("\"[redacted:sensitive-key:"), "{text}");
    }

    #[tokio::test]
    async fn a_document_that_was_given_up_ends_with_the_line() {
        let dir = tempfile::tempdir().expect("a directory");
        let bench = bench(dir.path(), u64::MAX);
        let mut document = Document::elements(&bench).expect("a file");
        document.items(vec![1]).await.expect("somebody waits");
        bench.given_up.cancel();
        let written = document.items(vec![2, 3]).await;
        assert!(matches!(written, Err(PackageFault::TooSlow)));
        assert_eq!(document.count(), 1);
    }
}
