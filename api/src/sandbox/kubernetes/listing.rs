//! A namespace's pods, by one bounded list.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use tokio::time::timeout;

use super::manifest::selector;
use super::{CALL, KubernetesLifecycle, Look, SandboxName, Unread, is_the_one, look_of};

/// Pods of one list page.
const PAGE: u32 = 500;
/// Pages of one namespace; what is behind them is not known.
const PAGES: usize = 20;

/// A namespace's pods by name.
pub(super) struct Pods {
    pub found: BTreeMap<String, Pod>,
    end: ListEnd,
}

/// Whether a list came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListEnd {
    /// What is not in it is not there.
    Seen,
    /// There are more pods.
    Behind,
}

impl Pods {
    pub fn look(&self, sandbox: &SandboxName) -> Look {
        match (self.found.get(&sandbox.pod), self.end) {
            (None, ListEnd::Behind) => Look::Unknown,
            (pod, _) => look_of(pod.filter(|pod| is_the_one(pod, sandbox))),
        }
    }
}

impl KubernetesLifecycle {
    pub(super) async fn list_one(&self, namespace: &str) -> Result<Pods, Unread> {
        let pods = self.pods(namespace);
        let mut params = ListParams::default().labels(&selector()).limit(PAGE);
        let mut listed = Pods {
            found: BTreeMap::new(),
            end: ListEnd::Behind,
        };
        for _ in 0..PAGES {
            let page = match timeout(CALL, pods.list(&params)).await {
                Ok(Ok(page)) => page,
                Ok(Err(error)) => return Err(Unread::Refused(Box::new(error))),
                Err(_) => return Err(Unread::Late),
            };
            let named = |pod: Pod| Some((pod.metadata.name.clone()?, pod));
            listed
                .found
                .extend(page.items.into_iter().filter_map(named));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => {
                    listed.end = ListEnd::Seen;
                    break;
                }
            }
        }
        if listed.end == ListEnd::Behind {
            tracing::warn!(
                namespace,
                pods = listed.found.len(),
                "a namespace has more pods than are listed"
            );
        }
        Ok(listed)
    }
}
