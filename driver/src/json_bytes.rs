//! How long a value is as JSON, without writing it.

use std::io;

use serde::Serialize;

/// The bytes of `value` as JSON. What cannot be written is counted as far as it went.
pub fn json_bytes(value: &impl Serialize) -> usize {
    let mut count = Count(0);
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

struct Count(usize);

impl io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
