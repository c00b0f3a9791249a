//! The second look at a finished package: its bytes are read again from the file, line by line, and the gate sees every one of them.
//!
//! What is not built as a package is built is refused too: nothing is let through for being where nobody looks.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};

use bex_redact::{Gate, Refused};
use serde::de::IgnoredAny;
use tokio_util::sync::CancellationToken;

use super::PackageFault;
use super::document::{MAX_WRITTEN, alone};

/// The id of what is not built as a package is.
const STRUCTURE: &str = "package-structure";

/// Reads a package to its end, or until nobody waits for that any more.
pub(super) fn check(
    gate: &Gate,
    package: impl Read,
    given_up: &CancellationToken,
) -> Result<(), PackageFault> {
    let mut found = BTreeSet::new();
    let mut reader = BufReader::with_capacity(256 * 1024, package);
    let (mut line, mut open) = (Vec::new(), Vec::new());
    let mut over = false;
    loop {
        if given_up.is_cancelled() {
            return Err(PackageFault::TooSlow);
        }
        line.clear();
        // with its comma and its end
        let read = (&mut reader)
            .take(MAX_WRITTEN as u64 + 2)
            .read_until(b'\n', &mut line);
        if read.map_err(PackageFault::Spool)? == 0 {
            break;
        }
        let _alone = alone(line.len());
        // others may have taken long
        if given_up.is_cancelled() {
            return Err(PackageFault::TooSlow);
        }
        let looked = if over {
            Err(structure())
        } else {
            look(gate, line.trim_ascii_end(), &mut open)
        };
        if let Err(refused) = looked {
            found.extend(refused.ids);
        }
        over = open.is_empty();
    }
    if !over {
        found.insert(STRUCTURE.to_owned());
    }
    if found.is_empty() {
        Ok(())
    } else {
        Err(PackageFault::Gate(found))
    }
}

fn structure() -> Refused {
    Refused {
        ids: BTreeSet::from([STRUCTURE.to_owned()]),
    }
}

/// Looks at one line; `open` is what it stands in.
fn look(gate: &Gate, line: &[u8], open: &mut Vec<u8>) -> Result<(), Refused> {
    let line = line.strip_suffix(b",").unwrap_or(line);
    let document;
    let json = match (line, open.last()) {
        (b"{", None) => {
            open.push(b'{');
            return Ok(());
        }
        (b"}", Some(b'{')) | (b"]", Some(b'[')) => {
            open.pop();
            return Ok(());
        }
        ([b'{', ..], Some(b'[')) => line,
        ([b'"', ..], Some(b'{')) => {
            if let [key @ .., b':', bracket @ (b'{' | b'[')] = line {
                let key = key.strip_prefix(b"\"").and_then(|k| k.strip_suffix(b"\""));
                if key.is_some_and(|key| key.iter().all(u8::is_ascii_alphabetic)) {
                    open.push(*bracket);
                    return Ok(());
                }
            }
            // with its key, which says what it is
            document = [b"{", line, b"}"].concat();
            &document[..]
        }
        _ => return Err(structure()),
    };
    if serde_json::from_slice::<IgnoredAny>(json).is_err() {
        return Err(structure());
    }
    gate.check([json])
}

#[cfg(test)]
mod tests {
    use bex_redact::Profile;

    use super::*;

    fn ids(package: &str) -> Vec<String> {
        let gate = Gate::new(Profile::Package).expect("it serves");
        match check(&gate, package.as_bytes(), &CancellationToken::new()) {
            Ok(()) => Vec::new(),
            Err(PackageFault::Gate(ids)) => ids.into_iter().collect(),
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn every_line_is_looked_at() {
        let clean =
            "{\n\"a\":\"x\",\n\"b\":[\n{\"c\":1},\n{\"c\":2}\n],\n\"d\":{\n\"e\":null\n}\n}\n";
        assert_eq!(ids(clean), Vec::<String>::new());
        let token = "ghp_canary0123456789abcdefghijklmnopqrst";
        for place in ["\"x\"", "1", "2", "null"] {
            let planted = clean.replacen(place, &format!("\"{token}\""), 1);
            let found = ids(&planted);
            assert!(
                found.contains(&"github-token".to_owned()),
                "{place}: {found:?}"
            );
        }
        // only its key tells
        let planted = clean.replace("\"e\":null", "\"password\":\"hunter2hunter2\"");
        assert!(!ids(&planted).is_empty());
        let without = clean.replace("\"e\":null", "\"word\":\"hunter2hunter2\"");
        assert_eq!(ids(&without), Vec::<String>::new());
    }

    #[test]
    fn what_is_not_built_as_a_package_is_refused() {
        for bad in [
            "",
            "{",
            "{\n\"a\":1\n",
            "[\n]\n",
            "{\n}\n{\n}\n",
            "{\n}\nx",
            "{\n\"a\":[\n]\n]\n",
            "{\n\"a\":[\n\"x\"\n]\n}\n",
            "{\n\"a\":{\"b\n}\n",
            "{\n\"a\":\n1\n}\n",
            "{\n{}\n}\n",
            "{ \"a\": 1 }",
        ] {
            assert_eq!(ids(bad), [STRUCTURE], "{bad:?}");
        }
    }
}
