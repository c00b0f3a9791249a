//! From a proved token's claims to a caller.

use std::collections::BTreeSet;

use bex_proto::limits;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{OidcRules, Refusal};
use crate::auth::{Caller, Role, Workspaces};

/// How the api names itself in tickets; nobody else may.
const OWN_SUBJECTS: &str = "system:";

/// The claims that give rights. Each holds a text of words with spaces between, or a list of words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimNames {
    /// Workspace ids.
    pub workspaces: String,
    /// `viewer`, `operator`, `admin`.
    pub role: String,
}

/// What is read of a token.
#[derive(Deserialize)]
pub(super) struct Claims {
    /// Compared before; that it is one text, as the standard has it, is asked for here.
    #[serde(rename = "iss")]
    _iss: String,
    sub: String,
    #[serde(flatten)]
    others: Map<String, Value>,
}

impl Claims {
    /// Words that are no workspace id or no role give nothing; of several roles the highest holds. A token never acts for
    /// every workspace: only a service token does.
    pub(super) fn caller(self, rules: &OidcRules) -> Result<Caller, Refusal> {
        let odd = self.sub.is_empty()
            || self.sub.len() > limits::WORD_BYTES
            || self.sub.chars().any(char::is_control);
        if odd || self.sub.starts_with(OWN_SUBJECTS) || rules.reserved.contains(&self.sub) {
            return Err(Refusal::Subject);
        }
        let names = &rules.claims;
        let workspaces: BTreeSet<_> = words(self.others.get(&names.workspaces))
            .filter_map(|word| word.parse().ok())
            .collect();
        let role = words(self.others.get(&names.role))
            .filter_map(Role::from_word)
            .max()
            .ok_or(Refusal::NoRights)?;
        if workspaces.is_empty() {
            return Err(Refusal::NoRights);
        }
        Ok(Caller {
            subject: self.sub,
            workspaces: Workspaces::Some(workspaces),
            role,
        })
    }
}

fn words(claim: Option<&Value>) -> impl Iterator<Item = &str> {
    let (text, list) = match claim {
        Some(Value::String(text)) => (text.as_str(), [].as_slice()),
        Some(Value::Array(list)) => ("", list.as_slice()),
        _ => ("", [].as_slice()),
    };
    text.split_ascii_whitespace()
        .chain(list.iter().filter_map(Value::as_str))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn caller(claims: Value) -> Result<Caller, Refusal> {
        let rules = OidcRules {
            issuer: String::new(),
            audiences: Vec::new(),
            claims: ClaimNames {
                workspaces: "workspaces".into(),
                role: "https://bex.example/role".into(),
            },
            reserved: BTreeSet::from(["svc:ci".to_owned()]),
        };
        let mut claims = claims;
        claims["iss"] = json!("https://issuer.example");
        let claims: Claims = serde_json::from_value(claims).expect("claims");
        claims.caller(&rules)
    }

    #[test]
    fn rights_are_words_in_a_text_or_a_list() {
        let role = "https://bex.example/role";
        for (workspaces, roles) in [
            (json!("team-a team-b"), json!("operator")),
            (
                json!(["team-a", "team-b", "*", "Not one!", 7]),
                json!(["viewer", "operator", "x"]),
            ),
        ] {
            let given = caller(json!({"sub": "u1", "workspaces": workspaces, role: roles}));
            let given = given.expect("a caller");
            assert_eq!((given.subject.as_str(), given.role), ("u1", Role::Operator));
            let ids = ["team-a", "team-b"].map(|id| id.parse().expect("an id"));
            assert_eq!(given.workspaces, Workspaces::Some(ids.into()));
        }
    }

    #[test]
    fn nothing_is_given_by_missing_or_odd_claims() {
        let role = "https://bex.example/role";
        for claims in [
            json!({"sub": "u1"}),
            json!({"sub": "u1", "workspaces": ["team-a"]}),
            json!({"sub": "u1", role: "admin"}),
            json!({"sub": "u1", "workspaces": "*", role: "admin"}),
            json!({"sub": "u1", "workspaces": {"team-a": true}, role: "admin"}),
            json!({"sub": "u1", "workspaces": ["team-a"], role: "Admin"}),
        ] {
            assert_eq!(caller(claims.clone()), Err(Refusal::NoRights), "{claims}");
        }
        for sub in [
            "",
            "svc:ci",
            "system:agent-session-completer",
            "a\nb",
            &"x".repeat(256),
        ] {
            let claims = json!({"sub": sub, "workspaces": "team-a", role: "viewer"});
            assert_eq!(caller(claims), Err(Refusal::Subject), "{sub}");
        }
    }
}
