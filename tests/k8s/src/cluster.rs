//! The handle of a test.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::api::Failure;
use crate::exec::ExecSeen;
use crate::faults::{ExecPlan, Refusal};
use crate::node::{IP_ANNOTATION, Order};
use crate::objects::{Key, uid_of};
use crate::options::{Image, Options, Transport};
use crate::server::{Server, identity};
use crate::world::{Deletion, Disaster, RequestSeen, World, now, random_hex, random_uid};

/// The longest that [`Cluster::eventually`] waits.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(10);

/// Why there is no cluster, or no pod.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// No directory, or no free network.
    #[error("the double cannot be set up")]
    Setup(#[source] std::io::Error),
    /// No port.
    #[error("the double cannot listen")]
    Socket(#[source] std::io::Error),
    /// No certificate.
    #[error("no certificate for the double: {0}")]
    Certificate(String),
    /// What the API server would answer.
    #[error("the API server refuses: {0}")]
    Refused(String),
}

/// A running double. Dropped, it takes all of its processes along.
pub struct Cluster {
    world: Arc<World>,
    server: Server,
    authority: Option<String>,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster")
            .field("url", &self.url())
            .finish_non_exhaustive()
    }
}

impl Cluster {
    /// Starts one, without namespaces, accounts or images.
    ///
    /// # Errors
    /// See [`ClusterError`].
    pub async fn start(options: Options) -> Result<Self, ClusterError> {
        let (tls, authority) = match options.transport {
            Transport::Plain => (None, None),
            Transport::Tls => {
                let (tls, authority) = identity()?;
                (Some(tls), Some(authority))
            }
        };
        let world = Arc::new(World::new(options).map_err(ClusterError::Setup)?);
        let server = Server::start(Arc::clone(&world), tls).await?;
        Ok(Self {
            world,
            server,
            authority,
        })
    }

    /// Where the API server listens.
    pub fn address(&self) -> SocketAddr {
        self.server.address
    }

    /// The API server's URL.
    pub fn url(&self) -> String {
        let scheme = if self.authority.is_some() {
            "https"
        } else {
            "http"
        };
        format!("{scheme}://{}", self.server.address)
    }

    /// The network of all pods of this cluster, as `127.a.b.0/24`.
    pub fn pod_network(&self) -> String {
        self.world.pod_network()
    }

    // --- what an administrator does

    /// Makes a namespace.
    pub fn namespace(&self, name: &str) {
        self.world
            .with(|state| state.namespaces.insert(name.to_owned(), None));
    }

    /// Makes a namespace with a quota of pods.
    pub fn namespace_with_quota(&self, name: &str, pods: usize) {
        self.world
            .with(|state| state.namespaces.insert(name.to_owned(), Some(pods)));
    }

    /// Keeps a Role, ClusterRole, RoleBinding, ClusterRoleBinding, Namespace, Secret (`stringData`) or a List of them; whether it was one.
    pub fn apply(&self, object: &Value) -> bool {
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let name = word(&object["metadata"]["name"]);
        match object["kind"].as_str() {
            Some("List") => object["items"]
                .as_array()
                .into_iter()
                .flatten()
                .all(|item| self.apply(item)),
            Some("Namespace") => {
                self.namespace(&name);
                true
            }
            Some("Secret") => {
                let key = (word(&object["metadata"]["namespace"]), name);
                self.world
                    .with(|state| state.secrets.insert(key, object["stringData"].clone()));
                true
            }
            _ => self.world.with(|state| state.access.apply(object)),
        }
    }

    /// A Role with these rules in `namespace`, bound to an account. `rules` is a list of (resource, verbs).
    pub fn grant(&self, namespace: &str, account: (&str, &str), rules: &[(&str, &[&str])]) {
        let name = format!("{}-{}", account.0, account.1);
        let rules: Vec<Value> = rules
            .iter()
            .map(|(resource, verbs)| json!({"apiGroups": [""], "resources": [resource], "verbs": verbs}))
            .collect();
        let metadata = json!({"name": name, "namespace": namespace});
        self.apply(&json!({"kind": "Role", "metadata": metadata, "rules": rules}));
        self.apply(&json!({"kind": "RoleBinding", "metadata": metadata,
            "subjects": [{"kind": "ServiceAccount", "name": account.1, "namespace": account.0}],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}}));
    }

    /// A new token of a service account; older ones stay good.
    pub fn token(&self, namespace: &str, account: &str) -> String {
        let token = random_hex();
        self.world
            .with(|state| state.access.add_token(token.clone(), namespace, account));
        token
    }

    /// A kubeconfig for a service account, with a new token.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn kubeconfig(&self, namespace: &str, account: &str) -> Result<PathBuf, ClusterError> {
        let mut cluster = json!({"server": self.url()});
        if let Some(authority) = &self.authority {
            let path = self.world.dir.path().join("authority.pem");
            std::fs::write(&path, authority).map_err(ClusterError::Setup)?;
            cluster["certificate-authority"] = json!(path);
        }
        let token = self.token(namespace, account);
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": namespace}}],
        });
        // JSON is YAML
        let path = self
            .world
            .dir
            .path()
            .join(format!("kubeconfig-{namespace}-{account}"));
        std::fs::write(&path, config.to_string()).map_err(ClusterError::Setup)?;
        Ok(path)
    }

    /// Makes an image known; images that are not cannot be pulled.
    pub fn image(&self, name: &str, image: Image) {
        self.world
            .with(|state| state.images.insert(name.to_owned(), image));
    }

    // --- pods

    /// A pod of one container `main` with restartPolicy Never, by an administrator.
    ///
    /// # Errors
    /// What the API server would answer.
    pub fn create_pod(
        &self,
        namespace: &str,
        name: &str,
        image: &str,
    ) -> Result<Value, ClusterError> {
        self.create(
            namespace,
            json!({"metadata": {"name": name},
            "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": image}]}}),
        )
    }

    /// Any pod, by an administrator. The annotation `testk8s/ip` chooses its address.
    ///
    /// # Errors
    /// What the API server would answer.
    pub fn create(&self, namespace: &str, pod: Value) -> Result<Value, ClusterError> {
        let refused =
            |failure: Failure| ClusterError::Refused(failure.object()["message"].to_string());
        crate::api::store(&self.world, namespace, pod).map_err(refused)
    }

    /// The annotation that chooses a pod's address.
    pub const IP_ANNOTATION: &'static str = IP_ANNOTATION;

    /// Stores a pod as it is, status and all, and runs nothing for it. Missing UID and namespace are given.
    pub fn put_pod(&self, namespace: &str, name: &str, mut pod: Value) -> Value {
        let metadata = &mut pod["metadata"];
        metadata["name"] = json!(name);
        metadata["namespace"] = json!(namespace);
        if metadata["uid"].is_null() {
            metadata["uid"] = json!(random_uid());
        }
        if metadata["creationTimestamp"].is_null() {
            metadata["creationTimestamp"] = now();
        }
        pod["kind"] = json!("Pod");
        pod["apiVersion"] = json!("v1");
        let key = key(namespace, name);
        self.world
            .with(|state| state.objects.insert(key, pod.clone()));
        pod
    }

    /// Changes what the API server says of a pod; its processes do not hear of it.
    pub fn edit_pod(&self, namespace: &str, name: &str, edit: impl FnOnce(&mut Value)) -> bool {
        let key = key(namespace, name);
        self.world.with(|state| {
            let uid = state.objects.get(&key).map(|pod| uid_of(pod).to_owned());
            uid.is_some_and(|uid| state.objects.update(&key, &uid, edit))
        })
    }

    /// The pod as the API server knows it.
    pub fn pod(&self, namespace: &str, name: &str) -> Option<Value> {
        self.world.pod(&key(namespace, name))
    }

    /// Every pod of a namespace.
    pub fn pods(&self, namespace: &str) -> Vec<Value> {
        self.world.with(|state| {
            let ours = state.objects.iter().filter(|((ns, _), _)| ns == namespace);
            ours.map(|(_, pod)| pod.clone()).collect()
        })
    }

    /// The directory of every pod's own, which is named as its UID.
    pub fn pods_dir(&self) -> &Path {
        self.world.dir.path()
    }

    /// The directory of a pod's volumes on this machine: `<dir>/volumes/<volume>`.
    pub fn pod_dir(&self, pod: &Value) -> PathBuf {
        self.world.pod_dir(uid_of(pod))
    }

    /// Deletes a pod by somebody else than the process under test; `grace` in seconds, the pod's own without it.
    pub fn delete_pod(&self, namespace: &str, name: &str, grace: Option<u64>) -> bool {
        crate::api::remove(&self.world, &key(namespace, name), None, grace).is_ok()
    }

    /// The first container ends with this exit code.
    pub fn finish(&self, namespace: &str, name: &str, code: i32) -> bool {
        self.world
            .order(&key(namespace, name), Order::Finish { code })
    }

    /// The first container is killed: 137, and what its restart policy says.
    pub fn kill_container(&self, namespace: &str, name: &str) -> bool {
        self.finish(namespace, name, crate::node::KILLED)
    }

    /// The first container is killed and started again in place: a new containerID, restartCount + 1, the same UID and address.
    pub fn restart_container(&self, namespace: &str, name: &str) -> bool {
        self.world.order(&key(namespace, name), Order::Restart)
    }

    /// The first container ends and waits in CrashLoopBackOff for ever; the phase stays Running and the address is kept.
    pub fn crash_loop(&self, namespace: &str, name: &str) -> bool {
        self.world.order(&key(namespace, name), Order::CrashLoop)
    }

    /// Waits until a pod is Running and Ready.
    pub async fn ready(&self, namespace: &str, name: &str) -> Value {
        self.eventually(namespace, name, |pod| {
            let conditions = pod["status"]["conditions"].as_array();
            conditions.is_some_and(|all| {
                all.iter()
                    .any(|c| c["type"] == "Ready" && c["status"] == "True")
            })
        })
        .await
    }

    /// Waits until a pod satisfies `level`; its state then.
    ///
    /// # Panics
    /// After 30 s.
    pub async fn eventually(
        &self,
        namespace: &str,
        name: &str,
        level: impl Fn(&Value) -> bool,
    ) -> Value {
        let until = tokio::time::Instant::now() + PATIENCE;
        loop {
            let pod = self.pod(namespace, name);
            if let Some(pod) = pod.as_ref().filter(|pod| level(pod)) {
                return pod.clone();
            }
            assert!(
                tokio::time::Instant::now() < until,
                "the level was never reached: {pod:?}"
            );
            tokio::time::sleep(LOOK).await;
        }
    }

    // --- faults

    /// What happens to the next exec. Plans are used up in order; without one an exec is healthy.
    pub fn next_exec(&self, plan: ExecPlan) {
        self.world.with(|state| state.plans.push_back(plan));
    }

    /// Refuses the next call of this verb on `pods` or `pods/exec`.
    pub fn refuse(&self, verb: &str, resource: &str, refusal: Refusal) {
        let order = (verb.to_owned(), resource.to_owned(), refusal);
        self.world.with(|state| state.refusals.push(order));
    }

    /// The API server is killed: every connection ends, without a status; processes go on.
    pub fn kill_api_server(&self) {
        self.server.kill();
        self.disaster(Disaster::ApiServer);
    }

    /// It listens again, on its old port.
    ///
    /// # Errors
    /// When the port was taken.
    pub async fn start_api_server(&self) -> Result<(), ClusterError> {
        self.server.start_again().await
    }

    /// Both, with some time between.
    ///
    /// # Panics
    /// When the port was taken.
    pub async fn restart_api_server(&self, away: Duration) {
        self.kill_api_server();
        tokio::time::sleep(away).await;
        self.start_api_server()
            .await
            .expect("the port is still free");
    }

    /// The kubelet is restarted: v4 and, from 1.36 on, v5 end without a status; before, v5 says Success.
    pub fn restart_kubelet(&self) {
        self.disaster(Disaster::Kubelet);
    }

    /// The container runtime is restarted: v5 says Success, v4 ends without a status; processes go on.
    pub fn restart_runtime(&self) {
        self.disaster(Disaster::Runtime);
    }

    /// Whether the node answers the API server.
    pub fn kubelet_listens(&self, listens: bool) {
        self.world.with(|state| state.kubelet_down = !listens);
    }

    fn disaster(&self, disaster: Disaster) {
        // nobody listens when no exec runs
        let _ = self.world.disasters.send(disaster);
    }

    /// Every resource version of before is too old for a watch.
    pub fn expire_watches(&self) {
        self.world.with(|state| state.objects.expire());
    }

    // --- what was seen

    /// Every answered call so far; an exec's is there from its 101 on, a watch's from its beginning.
    pub fn requests(&self) -> Vec<RequestSeen> {
        self.world.with(|state| state.requests.clone())
    }

    /// Every deletion that was asked for by the API.
    pub fn deletions(&self) -> Vec<Deletion> {
        self.world.with(|state| state.deletions.clone())
    }

    /// Every exec that was upgraded, oldest first.
    pub fn execs(&self) -> Vec<Arc<ExecSeen>> {
        self.world.with(|state| state.execs.clone())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.world.stop.cancel();
        for seen in self.execs() {
            seen.processes()
                .into_iter()
                .for_each(crate::node::kill_session);
        }
        // the tasks that would do it may never run again
        let lives = self.world.with(|state| std::mem::take(&mut state.lives));
        let leaders = lives.values().flat_map(|life| life.containers.values());
        leaders
            .filter_map(|live| live.pid)
            .for_each(crate::node::kill_session);
    }
}

fn key(namespace: &str, name: &str) -> Key {
    (namespace.to_owned(), name.to_owned())
}
