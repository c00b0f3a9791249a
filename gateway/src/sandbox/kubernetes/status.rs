//! What a cluster says of a process's end. Only its causes are read; its texts repeat argv and are forgotten here.

use serde::Deserialize;

/// How a process ended, as the cluster has it. `Success` is no proof that it ended, nor that its output is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    Success,
    /// A code of its own, or 128 and a signal's number.
    Exit(i32),
    /// Something between the API server and the runtime.
    Internal,
    /// Not a status.
    Unreadable,
}

/// The exit code of what was killed: with its container, its pod, for its memory.
pub(super) const KILLED: i32 = 137;

#[derive(Deserialize)]
struct Status {
    status: Option<String>,
    reason: Option<String>,
    details: Option<Details>,
}

#[derive(Deserialize)]
struct Details {
    #[serde(default)]
    causes: Vec<Cause>,
}

#[derive(Deserialize)]
struct Cause {
    reason: Option<String>,
    message: Option<String>,
}

impl Told {
    pub(super) fn parse(text: &[u8]) -> Self {
        let Ok(status) = serde_json::from_slice::<Status>(text) else {
            return Self::Unreadable;
        };
        match (status.status.as_deref(), status.reason.as_deref()) {
            (Some("Success"), _) => Self::Success,
            (Some("Failure"), Some("NonZeroExitCode")) => {
                let causes = status.details.into_iter().flat_map(|d| d.causes);
                let mut codes = causes.filter(|c| c.reason.as_deref() == Some("ExitCode"));
                let code = codes.next().and_then(|c| c.message?.parse().ok());
                code.map_or(Self::Unreadable, Self::Exit)
            }
            (Some("Failure"), _) => Self::Internal,
            _ => Self::Unreadable,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_read_and_nothing_else() {
        for (text, told) in [
            (r#"{"metadata":{},"status":"Success"}"#, Told::Success),
            (
                r#"{"metadata":{},"status":"Failure","message":"command terminated with non-zero exit code: error executing command [sh -c exit 3], exit code 3","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}"#,
                Told::Exit(3),
            ),
            (
                r#"{"metadata":{},"status":"Failure","message":"m","reason":"NonZeroExitCode","details":{"causes":[{"message":"x"},{"reason":"ExitCode","message":"137"}]}}"#,
                Told::Exit(KILLED),
            ),
            (
                r#"{"metadata":{},"status":"Failure","message":"Internal error occurred: exit code 3","reason":"InternalError","details":{"causes":[{"message":"m"}]},"code":500}"#,
                Told::Internal,
            ),
            (
                r#"{"status":"Failure","reason":"NonZeroExitCode"}"#,
                Told::Unreadable,
            ),
            (
                "command terminated with non-zero exit code",
                Told::Unreadable,
            ),
            ("", Told::Unreadable),
        ] {
            assert_eq!(Told::parse(text.as_bytes()), told, "{text}");
        }
    }
}
