//! What channel 3 says.

use serde_json::{Value, json};

use super::Protocol;

/// How an exec ended, as far as the cluster tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Status {
    Exit(i32),
    /// Something between the API server and the runtime.
    Internal(String),
}

impl Status {
    pub(crate) fn json(&self, protocol: Protocol, argv: &[String]) -> Value {
        match self {
            Self::Exit(0) => json!({"metadata": {}, "status": "Success"}),
            Self::Exit(code) => {
                let what = match protocol {
                    Protocol::V5 => format!("command terminated with exit code {code}"),
                    // v4 repeats the whole argv
                    Protocol::V4 => format!(
                        "error executing command [{}], exit code {code}",
                        argv.join(" ")
                    ),
                };
                json!({"metadata": {}, "status": "Failure",
                    "message": format!("command terminated with non-zero exit code: {what}"),
                    "reason": "NonZeroExitCode",
                    "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]}})
            }
            Self::Internal(what) => json!({"metadata": {}, "status": "Failure",
                "message": format!("Internal error occurred: {what}"),
                "reason": "InternalError",
                "details": {"causes": [{"message": what}]}, "code": 500}),
        }
    }
}
