//! Following one pod until something about it is decided.

use std::ops::ControlFlow;
use std::time::Duration;

use futures::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{WatchEvent, WatchParams};
use tokio::time::{Instant, sleep, timeout_at};

use super::KubernetesLifecycle;

/// Between a watch that ended and the next look.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Nothing was decided in time.
#[derive(Debug)]
pub(super) struct Late;

/// Shows every state of the pod of `first`'s name to `decide`, `None` for its absence, beginning with `first`. A watch that breaks is
/// begun again with a look; trouble with the API server decides nothing.
pub(super) async fn follow<T>(
    lifecycle: &KubernetesLifecycle,
    namespace: &str,
    first: Pod,
    until: Instant,
    mut decide: impl FnMut(Option<&Pod>) -> ControlFlow<T>,
) -> Result<T, Late> {
    let pods = lifecycle.pods(namespace);
    let name = first.metadata.name.clone().unwrap_or_default();
    let mut version = first.metadata.resource_version.clone();
    if let ControlFlow::Break(decided) = decide(Some(&first)) {
        return Ok(decided);
    }
    loop {
        if let Some(version) = version.take() {
            let left = until.saturating_duration_since(Instant::now());
            let seconds = u32::try_from(left.as_secs()).unwrap_or(u32::MAX).max(1);
            let params = WatchParams::default()
                .fields(&format!("metadata.name={name}"))
                .timeout(seconds.min(WatchParams::default().timeout.unwrap_or(290)));
            if let Ok(Ok(events)) = timeout_at(until, pods.watch(&params, &version)).await {
                pin_mut!(events);
                while let Ok(Some(event)) = timeout_at(until, events.next()).await {
                    let decided = match event {
                        Ok(WatchEvent::Added(pod) | WatchEvent::Modified(pod)) => {
                            decide(Some(&pod))
                        }
                        Ok(WatchEvent::Deleted(_)) => decide(None),
                        Ok(WatchEvent::Bookmark(_)) => ControlFlow::Continue(()),
                        // too old, or broken: looked at again
                        Ok(WatchEvent::Error(_)) | Err(_) => break,
                    };
                    if let ControlFlow::Break(decided) = decided {
                        return Ok(decided);
                    }
                }
            }
        }
        if timeout_at(until, sleep(LOOK_EVERY)).await.is_err() {
            return Err(Late);
        }
        match timeout_at(until, lifecycle.read(namespace, &name)).await {
            Err(_) => return Err(Late),
            Ok(Err(error)) => {
                tracing::info!(namespace, pod = name, error = %bex_proto::Chain(&error), "a pod can not be read");
            }
            Ok(Ok(pod)) => {
                if let ControlFlow::Break(decided) = decide(pod.as_ref()) {
                    return Ok(decided);
                }
                version = pod.and_then(|pod| pod.metadata.resource_version);
            }
        }
    }
}
