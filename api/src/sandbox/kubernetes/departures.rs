//! Sandboxes that leave though nobody here asked: each is told of once when its deletion begins and once when it has ended, so that
//! what can still be read is read at once. Only a hint: whoever hears it looks for himself, and one that is lost costs a tick.

use std::collections::HashMap;
use std::time::Duration;

use futures::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, WatchEvent, WatchParams};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::pod::Sight;
use super::{CALL, KubernetesLifecycle, manifest, pod};
use crate::clock;
use crate::sandbox::SandboxName;

/// First and last delay between attempts to watch.
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// The longest one watch lasts; the server ends it, and we do a little later.
const WATCH_SECONDS: u32 = 290;
const WATCH: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 10);

/// How far a pod's leaving was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Staying,
    Leaving,
    Ended,
}

/// What one namespace's watch remembers, by UID.
#[derive(Debug, Default)]
struct Known(HashMap<String, (SandboxName, Stage)>);

impl Known {
    /// The sandbox, when this is news of its leaving.
    fn note(&mut self, pod: &Pod, stage: Stage) -> Option<SandboxName> {
        let name = manifest::name_of(pod)?;
        let uid = name.pod_uid.clone()?;
        let before = self.0.insert(uid, (name.clone(), stage));
        let before = before.map_or(Stage::Staying, |(_, stage)| stage);
        (stage > before).then_some(name)
    }

    /// What was known and is not there any more. Forgets it.
    fn only(&mut self, there: &[Pod]) -> Vec<SandboxName> {
        let is_there = |uid: &String| there.iter().any(|p| p.metadata.uid.as_ref() == Some(uid));
        let gone = self.0.extract_if(|uid, _| !is_there(uid));
        gone.filter(|(_, (_, stage))| *stage < Stage::Ended)
            .map(|(_, (name, _))| name)
            .collect()
    }

    fn forget(&mut self, pod: &Pod) {
        self.0
            .remove(pod.metadata.uid.as_deref().unwrap_or_default());
    }
}

fn stage_of(pod: &Pod) -> Stage {
    let has_ended = pod::judge(pod) == Sight::Ended;
    match (has_ended, pod.metadata.deletion_timestamp.is_some()) {
        (true, _) => Stage::Ended,
        (false, true) => Stage::Leaving,
        (false, false) => Stage::Staying,
    }
}

impl KubernetesLifecycle {
    /// Watches all namespaces until cancelled.
    pub async fn departures(self, say: mpsc::Sender<SandboxName>, cancel: CancellationToken) {
        let mut watches = JoinSet::new();
        for namespace in self.namespaces.clone() {
            let (pods, say) = (self.pods(&namespace), say.clone());
            watches.spawn(cancel.clone().run_until_cancelled_owned(async move {
                let mut known = Known::default();
                let mut failures = 0;
                loop {
                    match once(&pods, &mut known, &say).await {
                        Ok(()) => failures = 0,
                        Err(error) => {
                            tracing::warn!(namespace, error = %bex_proto::Chain(&*error), "the pods of a namespace can not be watched");
                            failures += 1;
                        }
                    }
                    sleep(clock::backoff(BACKOFF, failures)).await;
                }
            }));
        }
        while watches.join_next().await.is_some() {}
    }
}

type Trouble = Box<dyn std::error::Error + Send + Sync>;

/// One list, and the watch that goes on from it.
async fn once(
    pods: &Api<Pod>,
    known: &mut Known,
    say: &mpsc::Sender<SandboxName>,
) -> Result<(), Trouble> {
    let listed = ListParams::default().labels(&manifest::selector());
    let there = timeout(CALL, pods.list(&listed)).await??;
    let mut news = known.only(&there.items);
    news.extend(
        there
            .items
            .iter()
            .filter_map(|p| known.note(p, stage_of(p))),
    );
    tell(say, news).await;
    let version = there.metadata.resource_version.unwrap_or_default();
    let params = WatchParams::default()
        .labels(&manifest::selector())
        .timeout(WATCH_SECONDS);
    let events = timeout(CALL, pods.watch(&params, &version)).await??;
    pin_mut!(events);
    // one that says nothing for longer than it may last is dead
    while let Ok(Some(event)) = timeout(WATCH, events.next()).await {
        let news = match event? {
            WatchEvent::Added(pod) | WatchEvent::Modified(pod) => known.note(&pod, stage_of(&pod)),
            WatchEvent::Deleted(pod) => {
                let news = known.note(&pod, Stage::Ended);
                known.forget(&pod);
                news
            }
            WatchEvent::Bookmark(_) => None,
            // too old: listed again
            WatchEvent::Error(_) => return Ok(()),
        };
        tell(say, news).await;
    }
    Ok(())
}

async fn tell(say: &mpsc::Sender<SandboxName>, news: impl IntoIterator<Item = SandboxName>) {
    for sandbox in news {
        tracing::debug!(session = %sandbox.session, generation = %sandbox.generation, "a pod leaves");
        // nobody listens any more: this process ends
        let _ = say.send(sandbox).await;
    }
}
