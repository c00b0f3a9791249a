//! An error with its causes, for one line of a log.
//!
//! Errors here print their own level only, and a log line shows nothing but what `Display` prints. Whoever logs an error
//! wraps it in [`Chain`], so that the line says why, not only what.

use std::error::Error;
use std::fmt;

/// Prints an error and every cause below it, outermost first, joined by `": "`.
///
/// A cause whose text the line already ends with is left out: some libraries print their cause themselves.
#[derive(Debug, Clone, Copy)]
pub struct Chain<'a>(pub &'a (dyn Error + 'a));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = self.0.to_string();
        f.write_str(&said)?;
        let mut next = self.0.source();
        while let Some(cause) = next {
            let text = cause.to_string();
            if !said.ends_with(&text) {
                write!(f, ": {text}")?;
                said = text;
            }
            next = cause.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Level(&'static str, Option<Box<Level>>);

    impl fmt::Display for Level {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Level {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|below| below as _)
        }
    }

    fn chain(levels: &[&'static str]) -> String {
        let error = levels
            .iter()
            .rev()
            .fold(None, |below, text| Some(Box::new(Level(text, below))))
            .expect("a test names a level");
        Chain(error.as_ref()).to_string()
    }

    #[test]
    fn every_cause_is_printed_once() {
        assert_eq!(chain(&["append failed"]), "append failed");
        assert_eq!(
            chain(&["append failed", "closed", "broken pipe"]),
            "append failed: closed: broken pipe"
        );
    }

    #[test]
    fn a_cause_its_owner_printed_is_not_repeated() {
        assert_eq!(
            chain(&[
                "append failed",
                "io: broken pipe",
                "broken pipe",
                "os error 32"
            ]),
            "append failed: io: broken pipe: os error 32"
        );
        assert_eq!(chain(&["x: y: z", "y: z", "z"]), "x: y: z");
    }
}
