//! Who somebody is, and what the given Roles and RoleBindings let them do.

use std::collections::BTreeMap;

use serde_json::Value;

/// Somebody who sent a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Caller {
    /// A service account: namespace and name.
    Account(String, String),
    /// Nobody: no credentials at all.
    Anonymous,
}

impl Caller {
    /// The user name in messages.
    pub(crate) fn user(&self) -> String {
        match self {
            Self::Account(namespace, name) => format!("system:serviceaccount:{namespace}:{name}"),
            Self::Anonymous => "system:anonymous".to_owned(),
        }
    }
}

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) verb: &'a str,
    /// With its subresource: `pods/exec`.
    pub(crate) resource: &'a str,
    /// `None` for all namespaces.
    pub(crate) namespace: Option<&'a str>,
    pub(crate) name: Option<&'a str>,
}

/// Accounts and rules.
#[derive(Debug, Default)]
pub(crate) struct Access {
    tokens: BTreeMap<String, (String, String)>,
    /// By (kind, namespace or nothing, name).
    objects: BTreeMap<(String, String, String), Value>,
}

impl Access {
    pub(crate) fn add_token(&mut self, token: String, namespace: &str, account: &str) {
        self.tokens
            .insert(token, (namespace.to_owned(), account.to_owned()));
    }

    pub(crate) fn who(&self, token: &str) -> Option<Caller> {
        let (namespace, name) = self.tokens.get(token)?;
        Some(Caller::Account(namespace.clone(), name.clone()))
    }

    /// Keeps a Role, ClusterRole or binding; whether it was one.
    pub(crate) fn apply(&mut self, object: &Value) -> bool {
        let kind = text(&object["kind"]);
        if !matches!(
            kind,
            "Role" | "ClusterRole" | "RoleBinding" | "ClusterRoleBinding"
        ) {
            return false;
        }
        let namespace = if kind.starts_with("Cluster") {
            ""
        } else {
            text(&object["metadata"]["namespace"])
        };
        let key = (
            kind.to_owned(),
            namespace.to_owned(),
            text(&object["metadata"]["name"]).to_owned(),
        );
        self.objects.insert(key, object.clone());
        true
    }

    pub(crate) fn allows(&self, caller: &Caller, wanted: Wanted<'_>) -> bool {
        let Caller::Account(namespace, name) = caller else {
            return false;
        };
        self.objects.iter().any(|((kind, bound_in, _), binding)| {
            let reaches = match kind.as_str() {
                "ClusterRoleBinding" => true,
                "RoleBinding" => wanted.namespace == Some(bound_in),
                _ => return false,
            };
            reaches
                && names(binding, bound_in, namespace, name)
                && self
                    .role_of(binding, bound_in)
                    .is_some_and(|role| permits(role, wanted))
        })
    }

    fn role_of(&self, binding: &Value, bound_in: &str) -> Option<&Value> {
        let role = &binding["roleRef"];
        let kind = text(&role["kind"]);
        let namespace = if kind == "Role" { bound_in } else { "" };
        self.objects.get(&(
            kind.to_owned(),
            namespace.to_owned(),
            text(&role["name"]).to_owned(),
        ))
    }
}

fn names(binding: &Value, bound_in: &str, namespace: &str, name: &str) -> bool {
    let user = format!("system:serviceaccount:{namespace}:{name}");
    let group = format!("system:serviceaccounts:{namespace}");
    list(&binding["subjects"])
        .iter()
        .any(|subject| match text(&subject["kind"]) {
            "ServiceAccount" => {
                let of = subject["namespace"].as_str().unwrap_or(bound_in);
                of == namespace && text(&subject["name"]) == name
            }
            "User" => text(&subject["name"]) == user,
            "Group" => [
                group.as_str(),
                "system:serviceaccounts",
                "system:authenticated",
            ]
            .contains(&text(&subject["name"])),
            _ => false,
        })
}

fn permits(role: &Value, wanted: Wanted<'_>) -> bool {
    let has = |field: &Value, word: &str| list(field).iter().any(|w| w == word || w == "*");
    let subresource = wanted
        .resource
        .split_once('/')
        .map(|(_, sub)| format!("*/{sub}"));
    list(&role["rules"]).iter().any(|rule| {
        let resources = &rule["resources"];
        let limited = list(&rule["resourceNames"]);
        has(&rule["apiGroups"], "")
            && has(&rule["verbs"], wanted.verb)
            && (has(resources, wanted.resource)
                || subresource
                    .as_deref()
                    .is_some_and(|sub| has(resources, sub)))
            && (limited.is_empty()
                || wanted
                    .name
                    .is_some_and(|name| limited.iter().any(|n| n == name)))
    })
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_binding_reaches_its_namespace_and_no_other() {
        let mut access = Access::default();
        access.add_token("t".into(), "bex", "gateway");
        let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
            {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get", "create"]}]);
        access.apply(&json!({"kind": "ClusterRole", "metadata": {"name": "exec"}, "rules": rules}));
        access.apply(
            &json!({"kind": "RoleBinding", "metadata": {"name": "b", "namespace": "a-sandbox"},
            "subjects": [{"kind": "ServiceAccount", "name": "gateway", "namespace": "bex"}],
            "roleRef": {"kind": "ClusterRole", "name": "exec"}}),
        );
        let gateway = access.who("t").expect("known");
        let may = |verb, resource, namespace| {
            access.allows(
                &gateway,
                Wanted {
                    verb,
                    resource,
                    namespace,
                    name: Some("p"),
                },
            )
        };
        assert!(may("get", "pods", Some("a-sandbox")));
        assert!(may("create", "pods/exec", Some("a-sandbox")));
        assert!(!may("list", "pods", Some("a-sandbox")));
        assert!(!may("get", "pods", Some("b-sandbox")));
        assert!(!may("get", "pods", None));
        assert!(access.who("u").is_none());
    }
}
