//! Sandboxes that are pods.
//!
//! A pod is read before anything is asked of it, and again when a process in it has ended. What counts is its UID, phase, deletion
//! and its container's state; an address that it still shows means nothing, as another pod may have it by now. Processes run by
//! `pods/exec` over one WebSocket each (`upgrade`, `channel`). What the cluster says of their end is never taken for an end: only the
//! end mark in the output is. Texts of the cluster repeat argv and are neither logged nor returned.

mod afterwards;
mod channel;
mod pod;
mod reach;
mod status;
mod upgrade;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bex_cluster::{ClientError, Right, Rights};
use bex_proto::exec::{Operation, SandboxRequest};
use bex_proto::launch::pod_of;
use bex_proto::limits;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use tokio_util::io::StreamReader;
use tracing::{error, warn};

use crate::sandbox::{ExecPipe, ExecStartError, Look, TargetRef, Targets, reads, request_frame};
use afterwards::PodProcess;
use pod::{Alive, Sight};

pub use channel::Pace;
pub use reach::{LoopbackPods, Reach};

/// One read of a pod: a healthy API server needs milliseconds.
const LOOK_TIMEOUT: Duration = Duration::from_secs(3);
/// From the request to the upgraded connection: the runtime starts the process in that time.
const START_TIMEOUT: Duration = Duration::from_secs(15);
/// A namespace is a DNS label.
const LABEL_BYTES: usize = 63;

/// What is done in a namespace. An exec needs both verbs from 1.35 on.
const NEEDED: [Right; 3] = [
    Right {
        verb: "get",
        resource: "pods",
        subresource: None,
    },
    Right {
        verb: "get",
        resource: "pods",
        subresource: Some("exec"),
    },
    Right {
        verb: "create",
        resource: "pods",
        subresource: Some("exec"),
    },
];

/// What the kind needs to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubernetesConfig {
    /// Credentials and address; without it those that the cluster gives to every pod.
    pub kubeconfig: Option<PathBuf>,
    /// Where pods are.
    pub reach: Reach,
    /// Where rights are asked for; none of them is asked for where this is empty.
    pub namespaces: Vec<String>,
    /// The driver's binary inside a sandbox's container; absolute.
    pub driver_bin: String,
    /// The driver's directory inside a sandbox's container; absolute.
    pub driver_dir: String,
}

/// The pods of a cluster.
#[derive(Clone)]
pub struct KubernetesTargets {
    client: Client,
    reach: Reach,
    namespaces: Arc<[String]>,
    /// The driver's binary, its subcommand and directory, all inside the container.
    argv: Arc<[String]>,
    pace: Pace,
}

impl std::fmt::Debug for KubernetesTargets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KubernetesTargets")
            .field("reach", &self.reach)
            .finish_non_exhaustive()
    }
}

impl KubernetesTargets {
    /// Reads the credentials; connects on first use.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn new(config: KubernetesConfig) -> Result<Self, ClientError> {
        let transport = config.reach.transport();
        let client = bex_cluster::connect(config.kubeconfig.as_deref(), transport).await?;
        let argv = [&*config.driver_bin, "exec", "--dir", &*config.driver_dir];
        Ok(Self {
            client,
            reach: config.reach,
            namespaces: config.namespaces.into(),
            argv: argv.map(str::to_owned).into(),
            pace: Pace::default(),
        })
    }

    /// What must be given for all of this.
    pub fn rights(&self) -> Rights {
        Rights::new(self.client.clone(), self.namespaces.to_vec(), &NEEDED)
    }

    /// Other times than the real ones, for tests.
    #[must_use]
    pub fn with_pace(mut self, pace: Pace) -> Self {
        self.pace = pace;
        self
    }

    /// Reads the pod. Bounded by [`LOOK_TIMEOUT`].
    async fn sight(&self, target: &TargetRef) -> Sight {
        if !is_ours(target) {
            return Sight::Gone(pod::Why::Foreign);
        }
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &target.namespace);
        match tokio::time::timeout(LOOK_TIMEOUT, pods.get_opt(&target.pod)).await {
            Ok(Ok(Some(pod))) => pod::judge(&pod, target),
            Ok(Ok(None)) => Sight::Gone(pod::Why::Deleted),
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 401 | 403) => {
                // until somebody grants it nothing works in this namespace
                error!(
                    namespace = target.namespace,
                    status = status.code,
                    "the gateway may not get pods"
                );
                Sight::Unknown
            }
            Ok(Err(kube::Error::Api(status))) => {
                warn!(session = %target.session, status = status.code, "a pod cannot be read");
                Sight::Unknown
            }
            Ok(Err(error)) => {
                warn!(session = %target.session, %error, "a pod cannot be read");
                Sight::Unknown
            }
            Err(_) => {
                warn!(session = %target.session, "the api server does not answer in time");
                Sight::Unknown
            }
        }
    }

    /// The pod, when a process may be started in it for `operation`.
    async fn enter(
        &self,
        target: &TargetRef,
        operation: &Operation,
    ) -> Result<Alive, ExecStartError> {
        match self.sight(target).await {
            Sight::Alive(alive) if reads(operation) || !alive.terminating => Ok(alive),
            Sight::Alive(_) | Sight::Gone(_) => Err(ExecStartError::Gone),
            Sight::NotYet | Sight::Unknown => Err(ExecStartError::NotReachable),
        }
    }
}

#[async_trait]
impl Targets for KubernetesTargets {
    async fn look(&self, target: &TargetRef) -> Look {
        let alive = match self.sight(target).await {
            Sight::Alive(alive) => alive,
            Sight::NotYet => return Look::NotYet,
            Sight::Gone(_) => return Look::Gone,
            Sight::Unknown => return Look::Unknown,
        };
        let ip = match alive.ready_at {
            Some(ip) => ip,
            // it will not become ready any more
            None if alive.terminating => return Look::Leaving,
            None => return Look::NotYet,
        };
        if !self.reach.allows(ip) {
            warn!(session = %target.session, %ip, "a pod's address is in none of the configured ranges");
            return Look::Unknown;
        }
        Look::Running {
            address: SocketAddr::new(ip, limits::DRIVER_PORT),
            terminating: alive.terminating,
        }
    }

    async fn exec(
        &self,
        target: &TargetRef,
        request: SandboxRequest,
    ) -> Result<ExecPipe, ExecStartError> {
        let alive = self.enter(target, &request.operation).await?;
        let upgrade = upgrade::open(&self.client, target, &self.argv);
        let opened = match tokio::time::timeout(START_TIMEOUT, upgrade).await {
            Ok(opened) => opened,
            Err(_) => Err(upgrade::Refused::Late),
        };
        let socket = match opened {
            Ok(socket) => socket,
            Err(refused) => return Err(self.refused(target, refused).await),
        };
        let (output, ended) = channel::start(socket, request_frame(&request).freeze(), self.pace);
        Ok(ExecPipe {
            output: Box::pin(StreamReader::new(output.boxed())),
            process: Box::new(PodProcess::new(
                self.clone(),
                target.clone(),
                alive.container_id,
                ended,
            )),
        })
    }
}

impl KubernetesTargets {
    /// What a refusal means is for the pod to say, not for its text: the same dead container is refused in several ways.
    async fn refused(&self, target: &TargetRef, refused: upgrade::Refused) -> ExecStartError {
        match &refused {
            upgrade::Refused::Subprotocol => {
                error!(
                    namespace = target.namespace,
                    "the cluster knows neither v5 nor v4 of the exec subprotocol"
                );
                return ExecStartError::Unsupported;
            }
            upgrade::Refused::Forbidden(lacking) => {
                error!(namespace = target.namespace, %lacking, "the gateway may not exec");
            }
            _ => {
                if let Sight::Gone(_) = self.sight(target).await {
                    return ExecStartError::Gone;
                }
            }
        }
        ExecStartError::Start(std::io::Error::other(refused))
    }
}

/// Whether the names are such as the api gives. No other name ever becomes part of a path.
fn is_ours(target: &TargetRef) -> bool {
    target.pod == pod_of(&target.session, target.generation) && is_label(&target.namespace)
}

/// Whether a text can be a namespace.
pub(crate) fn is_label(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    (1..=LABEL_BYTES).contains(&text.len()) && text.bytes().all(plain)
}
