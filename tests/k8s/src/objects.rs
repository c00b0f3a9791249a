//! Pods as the API server keeps them: one version counter, one log of changes.

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Value, json};

/// Namespace and name.
pub(crate) type Key = (String, String);

/// Changes that watches can still be given; older ones are expired.
const LOG_CHANGES: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    Added,
    Modified,
    Deleted,
}

impl ChangeKind {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) version: u64,
    pub(crate) kind: ChangeKind,
    pub(crate) pod: Value,
}

/// The changes asked for are no longer known.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Expired {
    pub(crate) oldest: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Objects {
    version: u64,
    pods: BTreeMap<Key, Value>,
    log: VecDeque<Change>,
    /// Changes up to this version are forgotten.
    forgotten: u64,
}

impl Objects {
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Value> {
        self.pods.get(key)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Key, &Value)> {
        self.pods.iter()
    }

    /// Stores a pod under a new version. Replaces one of the same name.
    pub(crate) fn insert(&mut self, key: Key, pod: Value) {
        self.pods.insert(key.clone(), pod);
        self.note(&key, ChangeKind::Added);
    }

    /// Changes the pod of this UID; whether it was there and differs now.
    pub(crate) fn update(&mut self, key: &Key, uid: &str, change: impl FnOnce(&mut Value)) -> bool {
        let Some(pod) = self.pods.get_mut(key).filter(|pod| uid_of(pod) == uid) else {
            return false;
        };
        let before = pod.clone();
        change(pod);
        if *pod == before {
            return false;
        }
        self.note(key, ChangeKind::Modified);
        true
    }

    /// Removes the pod of this UID; the last thing said of it is its last state.
    pub(crate) fn remove(&mut self, key: &Key, uid: &str) -> Option<Value> {
        self.pods.get(key).filter(|pod| uid_of(pod) == uid)?;
        self.note(key, ChangeKind::Deleted);
        self.pods.remove(key)
    }

    /// What happened after `version`.
    pub(crate) fn since(&self, version: u64) -> Result<Vec<Change>, Expired> {
        if version < self.forgotten {
            return Err(Expired {
                oldest: self.forgotten,
            });
        }
        let newer = self.log.iter().filter(|change| change.version > version);
        Ok(newer.cloned().collect())
    }

    /// Forgets the log, so that every version of before is too old.
    pub(crate) fn expire(&mut self) {
        self.version += 1;
        self.log.clear();
        self.forgotten = self.version;
    }

    fn note(&mut self, key: &Key, kind: ChangeKind) {
        self.version += 1;
        let pod = self.pods.get_mut(key).expect("the pod was just written");
        pod["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.log.push_back(Change {
            version: self.version,
            kind,
            pod: pod.clone(),
        });
        if self.log.len() > LOG_CHANGES
            && let Some(oldest) = self.log.pop_front()
        {
            self.forgotten = oldest.version;
        }
    }
}

/// A pod's UID.
pub(crate) fn uid_of(pod: &Value) -> &str {
    pod["metadata"]["uid"].as_str().unwrap_or_default()
}

/// Whether `labels` of a pod satisfy an equality-based selector (`a=b,c!=d,e`).
pub(crate) fn selects(selector: &str, pod: &Value) -> bool {
    let label = |name: &str| pod["metadata"]["labels"][name.trim()].as_str();
    selector
        .split(',')
        .map(str::trim)
        .filter(|s| !s.is_empty())
        .all(|term| {
            if let Some((name, value)) = term.split_once("!=") {
                label(name) != Some(value.trim())
            } else if let Some((name, value)) = term.split_once('=') {
                label(name) == Some(value.trim_start_matches('=').trim())
            } else if let Some(name) = term.strip_prefix('!') {
                label(name).is_none()
            } else {
                label(term).is_some()
            }
        })
}

/// Whether a pod satisfies a field selector of `metadata.name`, `metadata.namespace`, `status.phase`, `spec.nodeName`.
pub(crate) fn has_fields(selector: &str, pod: &Value) -> bool {
    selector
        .split(',')
        .map(str::trim)
        .filter(|s| !s.is_empty())
        .all(|term| {
            let (path, wanted, equal) = match term.split_once("!=") {
                Some((path, wanted)) => (path, wanted, false),
                None => match term.split_once('=') {
                    Some((path, wanted)) => (path, wanted.trim_start_matches('='), true),
                    None => return false,
                },
            };
            let pointer = format!("/{}", path.trim().replace('.', "/"));
            let found = pod
                .pointer(&pointer)
                .and_then(Value::as_str)
                .unwrap_or_default();
            (found == wanted.trim()) == equal
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(uid: &str) -> Value {
        json!({"metadata": {"uid": uid, "name": "p", "labels": {"a": "1", "b": "2"}}, "status": {"phase": "Running"}})
    }

    #[test]
    fn every_change_has_a_version_of_its_own_until_it_expires() {
        let key = ("n".to_owned(), "p".to_owned());
        let mut objects = Objects::default();
        objects.insert(key.clone(), pod("u1"));
        assert!(objects.update(&key, "u1", |p| p["status"]["phase"] = json!("Failed")));
        assert!(
            !objects.update(&key, "u1", |p| p["status"]["phase"] = json!("Failed")),
            "nothing changed"
        );
        assert!(
            !objects.update(&key, "u2", |p| p["status"] = json!(1)),
            "another pod"
        );
        assert!(objects.remove(&key, "u2").is_none());
        assert!(objects.remove(&key, "u1").is_some());
        let kinds: Vec<_> = objects
            .since(0)
            .expect("known")
            .iter()
            .map(|c| (c.version, c.kind))
            .collect();
        let expected = [
            (1, ChangeKind::Added),
            (2, ChangeKind::Modified),
            (3, ChangeKind::Deleted),
        ];
        assert_eq!(kinds, expected);
        assert_eq!(objects.since(2).expect("known").len(), 1);
        objects.expire();
        assert_eq!(objects.since(2).err(), Some(Expired { oldest: 4 }));
        assert!(objects.since(4).expect("known").is_empty());
    }

    #[test]
    fn selectors_select() {
        let pod = pod("u");
        for (selector, selected) in [
            ("a=1", true),
            ("a==1,b=2", true),
            ("a!=1", false),
            ("c", false),
            ("!c,a", true),
            ("", true),
        ] {
            assert_eq!(selects(selector, &pod), selected, "{selector}");
        }
        for (selector, selected) in [
            ("metadata.name=p", true),
            ("status.phase!=Running", false),
            ("spec.nodeName=x", false),
        ] {
            assert_eq!(has_fields(selector, &pod), selected, "{selector}");
        }
    }
}
