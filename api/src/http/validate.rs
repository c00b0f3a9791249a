//! Checks of a request's texts: lengths in bytes, no NUL (the store's text cannot hold it), and forms.

use bex_proto::limits;
use bex_store::words::Words;

use super::ApiError;

/// A required text.
pub fn text(field: &str, value: &str, most: usize) -> Result<(), ApiError> {
    if value.trim().is_empty() || value.len() > most {
        return Err(ApiError::invalid(format!(
            "{field} must have 1 to {most} bytes and not be blank"
        )));
    }
    no_nul(field, value)
}

/// A text that may be absent, but not blank.
pub fn optional(field: &str, value: Option<&str>, most: usize) -> Result<(), ApiError> {
    value.map_or(Ok(()), |value| text(field, value, most))
}

/// Words that are looked for in a list; none where nothing but spaces was given.
pub fn search(value: Option<&str>) -> Result<Words, ApiError> {
    let text = value.unwrap_or_default();
    if text.len() > limits::LIST_WORDS_BYTES {
        let most = limits::LIST_WORDS_BYTES;
        return Err(ApiError::invalid(format!("q may have {most} bytes")));
    }
    no_nul("q", text)?;
    Ok(Words::read(text))
}

/// A prompt.
pub fn prompt(value: &str) -> Result<(), ApiError> {
    text("prompt", value, limits::PROMPT_BYTES)
}

/// Program and arguments, or arguments only; single words may be empty.
pub fn words(field: &str, words: &[String]) -> Result<(), ApiError> {
    let bytes: usize = words.iter().map(String::len).sum();
    if words.len() > limits::ARGV_WORDS || bytes > limits::ARGV_BYTES {
        let most = format!(
            "{} words and {} bytes",
            limits::ARGV_WORDS,
            limits::ARGV_BYTES
        );
        return Err(ApiError::invalid(format!(
            "{field} may have at most {most}"
        )));
    }
    words.iter().try_for_each(|word| no_nul(field, word))
}

/// The name of an environment variable.
pub fn variable(field: &str, name: &str) -> Result<(), ApiError> {
    let first = name
        .bytes()
        .next()
        .is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    let rest = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if first && rest && name.len() <= limits::WORD_BYTES {
        Ok(())
    } else {
        Err(ApiError::invalid(format!(
            "{field} must be letters, digits and _, not beginning with a digit"
        )))
    }
}

fn no_nul(field: &str, value: &str) -> Result<(), ApiError> {
    if value.contains('\0') {
        return Err(ApiError::invalid(format!(
            "{field} must not have a NUL character"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_bounded_at_their_last_byte() {
        let at = "x".repeat(limits::PROMPT_BYTES);
        assert!(prompt(&at).is_ok());
        for bad in [format!("{at}x"), String::new(), " \n".into(), "a\0b".into()] {
            assert!(prompt(&bad).is_err(), "{} bytes", bad.len());
        }
        assert!(optional("title", None, 1).is_ok() && optional("title", Some(""), 1).is_err());
    }

    #[test]
    fn words_and_variables_have_forms() {
        assert!(words("args", &["".into(), "-x".into()]).is_ok());
        assert!(words("args", &vec![String::new(); limits::ARGV_WORDS + 1]).is_err());
        assert!(words("args", &["x".repeat(limits::ARGV_BYTES + 1)]).is_err());
        assert!(words("args", &["a\0".into()]).is_err());
        assert!(variable("name", "_A1").is_ok());
        for bad in ["", "1A", "A-B", "A=B", "Ä"] {
            assert!(variable("name", bad).is_err(), "{bad}");
        }
    }
}
