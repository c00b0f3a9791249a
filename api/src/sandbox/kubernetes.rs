//! Sandboxes that are pods.
//!
//! ```text
//!   POST ─▶ there ─▶ watched until its driver answers                      (made)
//!     └─ there already: the same pod, by session and generation
//!   DELETE with the UID ─▶ watched until that UID is not there any more    (deleted)
//! ```
//! The api makes, reads and removes pods of the configured namespaces and does nothing else: it makes no namespace, no Secret, and never
//! execs. Every call is bounded: a pod that is still coming is asked for again. Only what the API server says is believed: an error
//! is never an absence.

mod departures;
mod listing;
mod manifest;
mod pod;
mod refusal;
mod template;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use bex_cluster::{ClientError, Right, Rights, Transport};
use bex_proto::launch::{CONTAINER, namespace_of, pod_of};
use bex_proto::session::FailureReason;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::{Api, Client};
use tokio::time::{Instant, timeout};

use super::{
    Again, CreateError, DeleteError, Deleted, Lifecycle, ListError, Look, Made, SandboxName,
    SandboxPlan, SecretKey, Secrets, TurnLife,
};
use pod::{Hold, Hope, Sight};

pub use manifest::DriverPlace;
pub use template::{AgentUser, AgentUsers, Template, TemplateFault};

/// What is done with pods.
const NEEDED: [Right; 5] = [
    on_pods("create"),
    on_pods("get"),
    on_pods("list"),
    on_pods("watch"),
    on_pods("delete"),
];
/// One answer of the API server.
const CALL: Duration = Duration::from_secs(10);
/// SIGTERM to SIGKILL of a pod that we remove: what it said was harvested, its driver has nothing more to do.
const GRACE_SECONDS: u32 = 2;

const fn on_pods(verb: &'static str) -> Right {
    Right {
        verb,
        resource: "pods",
        subresource: None,
    }
}

/// What the kind needs to know.
#[derive(Debug, Clone, PartialEq)]
pub struct KubernetesConfig {
    /// Credentials and address; without it those that the cluster gives to every pod.
    pub kubeconfig: Option<PathBuf>,
    /// How the API server may be reached.
    pub transport: Transport,
    /// Where sandboxes may be: one per workspace.
    pub namespaces: BTreeSet<String>,
    /// What pods are made from.
    pub template: Template,
    /// Where the driver is in them.
    pub driver: DriverPlace,
}

/// How long things take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// One create waits so long for its pod; the next goes on.
    pub slice: Duration,
    /// How old a pod may be whose node tries in vain to start it.
    pub hope: Duration,
    /// A deleted pod must be gone after this.
    pub gone: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            slice: Duration::from_secs(20),
            hope: Duration::from_secs(60),
            gone: Duration::from_secs(45),
        }
    }
}

/// See the module's text.
#[derive(Clone)]
pub struct KubernetesLifecycle {
    client: Client,
    namespaces: BTreeSet<String>,
    template: Template,
    driver: DriverPlace,
    pace: Pace,
}

impl std::fmt::Debug for KubernetesLifecycle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KubernetesLifecycle")
            .field("namespaces", &self.namespaces)
            .finish_non_exhaustive()
    }
}

/// Why a pod is not known.
#[derive(Debug, thiserror::Error)]
enum Unread {
    #[error("the API server refuses")]
    Refused(#[source] Box<kube::Error>),
    #[error("the API server does not answer in time")]
    Late,
}

impl KubernetesLifecycle {
    /// Reads the credentials; connects on first use.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn new(config: KubernetesConfig) -> Result<Self, ClientError> {
        let client = bex_cluster::connect(config.kubeconfig.as_deref(), config.transport).await?;
        Ok(Self {
            client,
            namespaces: config.namespaces,
            template: config.template,
            driver: config.driver,
            pace: Pace::default(),
        })
    }

    /// What must be given for all of this.
    pub fn rights(&self) -> Rights {
        let namespaces = self.namespaces.iter().cloned().collect();
        Rights::new(self.client.clone(), namespaces, &NEEDED)
    }

    /// Other times than the real ones, for tests.
    #[must_use]
    pub fn with_pace(mut self, pace: Pace) -> Self {
        self.pace = pace;
        self
    }

    fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// The pod, or that the API server says there is none.
    async fn read(&self, namespace: &str, pod: &str) -> Result<Option<Pod>, Unread> {
        let pods = self.pods(namespace);
        match timeout(CALL, pods.get(pod)).await {
            Ok(Ok(found)) => Ok(Some(found)),
            Ok(Err(error)) if is_absent(&error) => Ok(None),
            Ok(Err(error)) => Err(Unread::Refused(Box::new(error))),
            Err(_) => Err(Unread::Late),
        }
    }

    /// Asks for the pod, or finds the one that a call before asked for.
    async fn ask(
        &self,
        plan: &SandboxPlan,
        secrets: &BTreeMap<String, SecretKey>,
    ) -> Result<Pod, CreateError> {
        let pod = manifest::pod(plan, secrets, &self.template, &self.driver);
        let pods = self.pods(&namespace_of(&plan.workspace));
        let params = PostParams::default();
        let error = match timeout(CALL, pods.create(&params, &pod)).await {
            Ok(Ok(made)) => return Ok(made),
            Ok(Err(error)) => error,
            // it may have been made: the next call finds it
            Err(_) => return Err(failed("asking for the pod", io::ErrorKind::TimedOut.into())),
        };
        match error {
            kube::Error::Api(status) if status.is_already_exists() => self.found(plan).await,
            kube::Error::Api(status) => Err(refusal::of_create(&status, &plan.hidden())),
            other => Err(failed("asking for the pod", io::Error::other(other))),
        }
    }

    async fn found(&self, plan: &SandboxPlan) -> Result<Pod, CreateError> {
        let name = pod_of(&plan.session, plan.generation);
        let found = self.read(&namespace_of(&plan.workspace), &name).await;
        match found.map_err(|e| failed("reading the pod", io::Error::other(e)))? {
            Some(pod) if manifest::name_of(&pod).is_some() => Ok(pod),
            Some(_) => Err(CreateError::Impossible(
                "another program's pod has its name",
            )),
            None => Err(CreateError::Ended),
        }
    }

    /// What a pod that is being made comes to, when that is clear.
    fn came_to(&self, pod: &Pod, hidden: &[String]) -> ControlFlow<Result<Made, CreateError>> {
        match pod::judge(pod) {
            Sight::Ready => {
                let word = |text: &Option<String>| text.clone().unwrap_or_default();
                ControlFlow::Break(Ok(Made {
                    namespace: word(&pod.metadata.namespace),
                    pod: word(&pod.metadata.name),
                    pod_uid: word(&pod.metadata.uid),
                    container: CONTAINER.to_owned(),
                }))
            }
            Sight::Ended | Sight::Leaving => ControlFlow::Break(Err(CreateError::Ended)),
            Sight::Coming(Some(hold)) if self.is_hopeless(pod, &hold) => {
                ControlFlow::Break(Err(held(&hold, Again::Never, hidden)))
            }
            Sight::Coming(_) | Sight::Unknown => ControlFlow::Continue(()),
        }
    }

    fn is_hopeless(&self, pod: &Pod, hold: &Hold) -> bool {
        match hold.hope {
            Hope::None => true,
            Hope::Little => pod::age_of(pod, Timestamp::now()) >= self.pace.hope,
            Hope::Some => false,
        }
    }

    /// The very pod of the name, if it is there.
    async fn the_one(&self, sandbox: &SandboxName) -> Result<Option<Pod>, Unread> {
        let found = self.read(&sandbox.namespace, &sandbox.pod).await?;
        Ok(found.filter(|pod| is_the_one(pod, sandbox)))
    }
}

fn held(hold: &Hold, again: Again, hidden: &[String]) -> CreateError {
    CreateError::Refused {
        what: "the pod is not started",
        reason: hold.reason,
        again,
        source: io::Error::other(refusal::words(&hold.words, hidden)),
    }
}

fn failed(what: &'static str, source: io::Error) -> CreateError {
    CreateError::Failed { what, source }
}

/// Whether the API server itself says that there is no such pod; another 404 tells nothing.
fn is_absent(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404 && status.reason == "NotFound")
}

fn look_of(pod: Option<&Pod>) -> Look {
    match pod.map(pod::judge) {
        Some(Sight::Coming(_) | Sight::Ready | Sight::Leaving) => Look::Running,
        Some(Sight::Ended) | None => Look::Gone,
        Some(Sight::Unknown) => Look::Unknown,
    }
}

/// By UID where it is known, else by what the api wrote on it.
fn is_the_one(pod: &Pod, sandbox: &SandboxName) -> bool {
    match &sandbox.pod_uid {
        Some(uid) => pod.metadata.uid.as_ref() == Some(uid),
        None => manifest::name_of(pod).is_some_and(|name| {
            name.session == sandbox.session && name.generation == sandbox.generation
        }),
    }
}

#[async_trait]
impl Lifecycle for KubernetesLifecycle {
    fn kind(&self) -> &'static str {
        "kubernetes"
    }

    async fn create(&self, plan: &SandboxPlan) -> Result<Made, CreateError> {
        let namespace = namespace_of(&plan.workspace);
        if !self.namespaces.contains(&namespace) {
            return Err(CreateError::Refused {
                what: "the namespace of the workspace is none of the configured ones",
                reason: FailureReason::NamespaceMissing,
                again: Again::Never,
                source: io::ErrorKind::NotFound.into(),
            });
        }
        let none = BTreeMap::new();
        let secrets = match &plan.secrets {
            Secrets::References(references) => references,
            Secrets::Values(values) if values.is_empty() => &none,
            Secrets::Values(_) => {
                return Err(CreateError::Impossible("a pod's object holds no secrets"));
            }
        };
        let until = Instant::now() + self.pace.slice;
        let asked = self.ask(plan, secrets).await?;
        let (uid, hidden) = (asked.metadata.uid.clone(), plan.hidden());
        let mut last = None;
        let decided = watch::follow(self, &namespace, asked, until, |seen| match seen {
            Some(pod) if pod.metadata.uid == uid => {
                last = match pod::judge(pod) {
                    Sight::Coming(hold) => hold,
                    _ => None,
                };
                self.came_to(pod, &hidden)
            }
            // somebody deleted it
            _ => ControlFlow::Break(Err(CreateError::Ended)),
        });
        let decided = decided.await;
        decided.unwrap_or_else(|watch::Late| {
            let coming = Hold {
                reason: FailureReason::ProvisioningFailed,
                words: "it is still being started".to_owned(),
                hope: Hope::Some,
            };
            Err(held(
                &last.unwrap_or(coming),
                Again::WhileTimeLasts,
                &plan.hidden(),
            ))
        })
    }

    async fn look(&self, sandbox: &SandboxName) -> Look {
        match self.the_one(sandbox).await {
            Ok(pod) => look_of(pod.as_ref()),
            Err(error) => {
                tracing::warn!(session = %sandbox.session, generation = %sandbox.generation, error = %bex_proto::Chain(&error), "the pod can not be looked at");
                Look::Unknown
            }
        }
    }

    /// One list for each namespace, however many there are.
    async fn look_at_all(&self, sandboxes: &[SandboxName]) -> Vec<Look> {
        let mut listed = BTreeMap::new();
        for namespace in sandboxes
            .iter()
            .map(|s| &*s.namespace)
            .collect::<BTreeSet<_>>()
        {
            match self.list_one(namespace).await {
                Ok(pods) => drop(listed.insert(namespace, pods)),
                Err(error) => {
                    tracing::warn!(namespace, error = %bex_proto::Chain(&error), "the pods of a namespace can not be looked at");
                }
            }
        }
        let look = |sandbox: &SandboxName| match listed.get(&*sandbox.namespace) {
            Some(pods) => pods.look(sandbox),
            None => Look::Unknown,
        };
        sandboxes.iter().map(look).collect()
    }

    async fn turn_life(&self, sandbox: &SandboxName) -> TurnLife {
        match self.the_one(sandbox).await {
            Ok(Some(pod))
                if pod.metadata.deletion_timestamp.is_some()
                    || !pod::outlives_a_turn(&pod, Timestamp::now()) =>
            {
                TurnLife::TooShort
            }
            // what cannot be seen is not judged here
            Ok(_) | Err(_) => TurnLife::Enough,
        }
    }

    async fn delete(&self, sandbox: &SandboxName) -> Result<Deleted, DeleteError> {
        let refused = |what| move |source| DeleteError::Failed { what, source };
        let until = Instant::now() + self.pace.gone;
        let found = self.the_one(sandbox).await.map_err(io::Error::other);
        let Some(pod) = found.map_err(refused("looking for the pod"))? else {
            return Ok(Deleted);
        };
        let uid = pod.metadata.uid.clone();
        let params = DeleteParams {
            grace_period_seconds: Some(GRACE_SECONDS),
            preconditions: Some(Preconditions {
                uid: uid.clone(),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        let pods = self.pods(&sandbox.namespace);
        match timeout(CALL, pods.delete(&sandbox.pod, &params)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) if is_absent(&error) => return Ok(Deleted),
            // another pod has the name: looked at below
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => {}
            Ok(Err(error)) => return Err(refused("deleting the pod")(io::Error::other(error))),
            Err(_) => return Err(refused("deleting the pod")(io::ErrorKind::TimedOut.into())),
        }
        // the answer is the pod as it was; only its absence is its end
        let gone = watch::follow(self, &sandbox.namespace, pod, until, |seen| match seen {
            Some(pod) if pod.metadata.uid == uid => ControlFlow::Continue(()),
            _ => ControlFlow::Break(Deleted),
        });
        gone.await.map_err(|watch::Late| DeleteError::StillRunning)
    }

    async fn list(&self) -> Result<Vec<SandboxName>, ListError> {
        let mut all = Vec::new();
        let mut trouble = None;
        for namespace in &self.namespaces {
            match self.list_one(namespace).await {
                Ok(pods) => all.extend(pods.found.values().filter_map(manifest::name_of)),
                Err(error) => {
                    tracing::warn!(namespace, error = %bex_proto::Chain(&error), "the pods of a namespace can not be listed");
                    trouble = Some(error);
                }
            }
        }
        match trouble {
            Some(error) if all.is_empty() => Err(ListError(io::Error::other(error))),
            _ => Ok(all),
        }
    }
}
