//! What a request asks for.

use http::{Method, Uri};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    List,
    Watch,
    Create,
    Delete,
    /// Update, patch, deletecollection: not known here.
    Other,
}

impl Verb {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Delete => "delete",
            Self::Other => "update",
        }
    }
}

/// A call about pods.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) verb: Verb,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) is_exec: bool,
    query: Vec<(String, String)>,
}

impl Call {
    /// `None` for a path that is not about pods.
    pub(crate) fn parse(method: &Method, uri: &Uri) -> Option<Self> {
        let path: Vec<&str> = uri.path().trim_matches('/').split('/').collect();
        let (namespace, name, is_exec) = match path[..] {
            ["api", "v1", "pods"] => (None, None, false),
            ["api", "v1", "namespaces", ns, "pods"] => (Some(ns), None, false),
            ["api", "v1", "namespaces", ns, "pods", name] => (Some(ns), Some(name), false),
            ["api", "v1", "namespaces", ns, "pods", name, "exec"] => (Some(ns), Some(name), true),
            _ => return None,
        };
        let query = parse_query(uri.query().unwrap_or_default());
        let watches = query
            .iter()
            .any(|(k, v)| k == "watch" && matches!(v.as_str(), "true" | "1"));
        let verb = match (method, name.is_some()) {
            (&Method::GET, true) => Verb::Get,
            (&Method::GET, false) if watches => Verb::Watch,
            (&Method::GET, false) => Verb::List,
            (&Method::POST, named) if named == is_exec => Verb::Create,
            (&Method::DELETE, true) => Verb::Delete,
            _ => Verb::Other,
        };
        Some(Self {
            verb,
            namespace: namespace.map(str::to_owned),
            name: name.map(str::to_owned),
            is_exec,
            query,
        })
    }

    pub(crate) fn resource(&self) -> &'static str {
        if self.is_exec { "pods/exec" } else { "pods" }
    }

    /// The last value of a parameter.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        self.query
            .iter()
            .rev()
            .find(|(k, _)| k == name)
            .map(|(_, v)| v.as_str())
    }

    pub(crate) fn parameters(&self, name: &str) -> Vec<String> {
        self.query
            .iter()
            .filter(|(k, _)| k == name)
            .map(|(_, v)| v.clone())
            .collect()
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        matches!(self.parameter(name), Some("true" | "1"))
    }
}

fn parse_query(query: &str) -> Vec<(String, String)> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        })
        .collect()
}

/// Form encoding: `+` is a space.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        match (first, hex.and_then(|two| u8::from_str_radix(two, 16).ok())) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            (b'+', _) => {
                bytes.push(b' ');
                rest = after;
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn argv_is_repeated_and_form_encoded() {
        let uri = "/api/v1/namespaces/n/pods/p/exec?command=sh&command=-c&command=a+b%0A%22%C3%A4%22%25%26%3D&stdout=true";
        let call = Call::parse(&Method::GET, &uri.parse().expect("a uri")).expect("a call");
        assert_eq!(call.parameters("command"), ["sh", "-c", "a b\n\"ä\"%&="]);
        assert!(call.is_exec && call.flag("stdout") && !call.flag("stdin"));
        assert_eq!((call.verb, call.resource()), (Verb::Get, "pods/exec"));
    }

    #[test]
    fn verbs_come_from_method_and_path() {
        for (method, path, verb) in [
            (Method::GET, "/api/v1/pods?watch=true", Verb::Watch),
            (Method::GET, "/api/v1/namespaces/n/pods", Verb::List),
            (Method::POST, "/api/v1/namespaces/n/pods", Verb::Create),
            (
                Method::POST,
                "/api/v1/namespaces/n/pods/p/exec",
                Verb::Create,
            ),
            (Method::DELETE, "/api/v1/namespaces/n/pods/p", Verb::Delete),
            (Method::DELETE, "/api/v1/namespaces/n/pods", Verb::Other),
            (Method::PATCH, "/api/v1/namespaces/n/pods/p", Verb::Other),
        ] {
            let call = Call::parse(&method, &path.parse().expect("a uri")).expect("a call");
            assert_eq!(call.verb, verb, "{method} {path}");
        }
        assert!(Call::parse(&Method::GET, &"/api/v1/secrets".parse().expect("a uri")).is_none());
    }
}
