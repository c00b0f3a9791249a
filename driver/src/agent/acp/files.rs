//! Files that an agent reads and writes through the driver: text within its working directory.
//!
//! Only offered where agent and driver are the same user anyway: a check of a path cannot keep a link from being changed behind
//! it, so that a more powerful driver could be led out of the directory.

use std::path::{Component, Path, PathBuf};

use agent_client_protocol::Error;
use agent_client_protocol::v1::schema::{
    ReadTextFileRequest, ReadTextFileResponse, WriteTextFileRequest, WriteTextFileResponse,
};
use tokio::io::AsyncReadExt;

use crate::bounds::AGENT_FILE_BYTES;

/// The files of one directory.
#[derive(Debug, Clone)]
pub struct Files(PathBuf);

impl Files {
    /// Files within a directory.
    pub fn new(workdir: PathBuf) -> Self {
        Self(workdir)
    }

    /// A text file, or the lines asked for.
    pub async fn read(&self, request: ReadTextFileRequest) -> Result<ReadTextFileResponse, Error> {
        let path = self.resolve(&request.path).await?;
        let file = tokio::fs::File::open(&path).await.map_err(refusal)?;
        let (mut bounded, mut text) = (file.take(AGENT_FILE_BYTES + 1), String::new());
        bounded.read_to_string(&mut text).await.map_err(refusal)?;
        if bounded.limit() == 0 {
            return Err(Error::invalid_params().data("the file is too large"));
        }
        let text = match (request.line, request.limit) {
            (None, None) => text,
            (line, limit) => text
                .split_inclusive('\n')
                .skip(line.unwrap_or(1).saturating_sub(1) as usize)
                .take(limit.map_or(usize::MAX, |limit| limit as usize))
                .collect(),
        };
        Ok(ReadTextFileResponse::new(text))
    }

    /// Writes a text file; directories on the way to it are made.
    pub async fn write(
        &self,
        request: WriteTextFileRequest,
    ) -> Result<WriteTextFileResponse, Error> {
        let path = self.inside(&request.path)?;
        if let Some(parent) = path.parent() {
            tokio::fs::create_dir_all(parent).await.map_err(refusal)?;
            self.resolve(parent).await?;
        }
        if tokio::fs::symlink_metadata(&path).await.is_ok() {
            self.resolve(&path).await?;
        }
        tokio::fs::write(&path, request.content)
            .await
            .map_err(refusal)?;
        Ok(WriteTextFileResponse::new())
    }

    /// A path in the directory, as it is written.
    fn inside(&self, path: &Path) -> Result<PathBuf, Error> {
        let path = self.0.join(path);
        let climbs = path
            .components()
            .any(|part| matches!(part, Component::ParentDir));
        if climbs || !path.starts_with(&self.0) {
            return Err(Error::invalid_params().data("outside the working directory"));
        }
        Ok(path)
    }

    /// A path in the directory whose links do not lead out of it.
    async fn resolve(&self, path: &Path) -> Result<PathBuf, Error> {
        let path = self.inside(path)?;
        let root = tokio::fs::canonicalize(&self.0).await.map_err(refusal)?;
        let real = tokio::fs::canonicalize(&path).await.map_err(refusal)?;
        if real.starts_with(root) {
            Ok(real)
        } else {
            Err(Error::invalid_params().data("outside the working directory"))
        }
    }
}

fn refusal(cause: std::io::Error) -> Error {
    Error::invalid_params().data(cause.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn files_stay_within_the_directory() {
        let root = tempfile::tempdir().expect("a directory");
        let work = root.path().join("work");
        std::fs::create_dir(&work).expect("a directory");
        std::fs::write(root.path().join("secret"), "s").expect("a file");
        std::os::unix::fs::symlink("../secret", work.join("link")).expect("a link");
        let files = Files::new(work.clone());
        let write = WriteTextFileRequest::new("s", work.join("a/b.txt"), "1\n2\n3\n");
        files.write(write).await.expect("written");
        let mut read = ReadTextFileRequest::new("s", work.join("a/b.txt"));
        read.line = Some(2);
        read.limit = Some(1);
        assert_eq!(files.read(read).await.expect("read").content, "2\n");
        let large = std::fs::File::create(work.join("large")).expect("a file");
        for (size, fits) in [(AGENT_FILE_BYTES, true), (AGENT_FILE_BYTES + 1, false)] {
            large.set_len(size).expect("a size");
            let read = files.read(ReadTextFileRequest::new("s", "large")).await;
            assert_eq!(read.is_ok(), fits, "{size} bytes");
        }
        for path in ["link", "../secret", "/etc/hostname"] {
            assert!(
                files
                    .read(ReadTextFileRequest::new("s", path))
                    .await
                    .is_err(),
                "{path} is read"
            );
            assert!(
                files
                    .write(WriteTextFileRequest::new("s", path, "x"))
                    .await
                    .is_err(),
                "{path} is written"
            );
        }
    }
}
