//! A double of a Kubernetes cluster: an API server for pods, a node that runs containers as local processes, and a `pods/exec` that
//! answers frame by frame as a real cluster was recorded to answer.
//!
//! It promises the behaviour that callers can see: statuses and bodies of refusals, RBAC from given Roles and RoleBindings,
//! resource versions, watches, graceful deletion, UID preconditions, pod phases and conditions, the WebSocket subprotocols
//! `v5.channel.k8s.io` and `v4.channel.k8s.io` with their statuses, and what is left running when a client goes away. It knows
//! pods only; there is no scheduler to configure, no tty, no SPDY, no PUT or PATCH.
//!
//! ```no_run
//! # async fn f() -> Result<(), bex_testk8s::ClusterError> {
//! use bex_testk8s::{Cluster, ExecPlan, Cut, Image, Options};
//! let cluster = Cluster::start(Options::default()).await?;
//! cluster.namespace("demo-sandbox");
//! // what a chart renders, as JSON: Role, RoleBinding, ClusterRole, ClusterRoleBinding, Namespace, Secret, List
//! cluster.apply(&serde_json::json!({"kind": "Role", "metadata": {"name": "r", "namespace": "demo-sandbox"}, "rules": []}));
//! let kubeconfig = cluster.kubeconfig("bex", "gateway")?; // a service account; KUBECONFIG of the process under test
//! cluster.image("sandbox:1", Image::program("/usr/bin/bex-driver").file("/opt/bex/bex-driver", "/usr/bin/bex-driver"));
//! let pod = cluster.create_pod("demo-sandbox", "p", "sandbox:1")?; // or by the API, from the process under test
//! cluster.ready("demo-sandbox", "p").await;
//! cluster.next_exec(ExecPlan::new().cut_after(9 << 20, Cut::FalseSuccess)); // the next exec only
//! cluster.restart_api_server(std::time::Duration::from_secs(1)).await;
//! # Ok(()) }
//! ```
//!
//! **Containers.** A pod's containers run as processes of this machine. Its file system is not real: in `command`, `args`, `env`
//! and an exec's argv every path below a volume's mount path or of an image's [`Image::file`] is replaced by the place on this
//! machine (also within longer texts, as in JSON), and `0.0.0.0:` by the pod's own address. Volumes: `emptyDir`, `downwardAPI`, `secret`.
//! What is not mapped is this machine's. A pod's IP is of `127.0.0.0/8` ([`Cluster::pod_network`]), so that every pod has its own
//! port 8787 and an address can be retained and reused. Exec'd processes are not killed when their client goes away, as in a real
//! cluster: their standard input ends, and what they write is no longer read. They end with their container, and with the cluster.
//!
//! **Life.** `create` by the API or [`Cluster::create_pod`] → Pending → image, secrets → Running → Ready (by its readiness probe, if any)
//! → Succeeded or Failed, or deleted: SIGTERM, grace, SIGKILL, gone. [`Cluster::put_pod`] stores any pod with any status, without processes.
//!
//! **Faults.** [`ExecPlan`] for single execs; [`Refusal`] for single API requests; [`Cluster::restart_api_server`],
//! [`Cluster::restart_kubelet`], [`Cluster::restart_runtime`], [`Cluster::expire_watches`] for all; [`Cluster::restart_container`],
//! [`Cluster::finish`], [`Cluster::kill_container`], [`Cluster::crash_loop`], [`Cluster::delete_pod`] for one pod. [`Style`] chooses the
//! release whose answers are given. What was seen is in [`Cluster::requests`] and [`Cluster::execs`].

mod access;
mod api;
mod cluster;
mod exec;
mod faults;
mod node;
mod objects;
mod options;
pub mod rights;
mod server;
mod world;

pub use cluster::{Cluster, ClusterError};
pub use exec::{ExecCounts, ExecSeen, frames};
pub use faults::{Cut, ExecPlan, Refusal, Stall};
pub use options::{Image, Options, Style, Transport};
pub use world::{Deletion, RequestSeen};
