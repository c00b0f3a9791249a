//! A cluster, a pod of our session in it, and the listener.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bex_gateway::sandbox::kubernetes::{
    KubernetesConfig, KubernetesTargets, LoopbackPods, Pace, Reach,
};
use bex_proto::driver::DriverKey;
use bex_proto::exec::{ExecCode, ExecError, FrameKind, LogWindow, Operation, WindowHeader};
use bex_proto::launch::{
    AgentSpec, CONTAINER, Isolation, LAUNCH_FILE, Launch, POD_DRIVER_BIN, POD_DRIVER_DIR, pod_of,
};
use bex_proto::transcript::sha256_hex;
use bex_proto::{SessionId, TurnNo};
use bex_testk8s::{Cluster, ExecSeen, Image, Options, Style, rights};
use serde_json::{Value, json};

use crate::house::{Answer, GENERATION, House, body, eventually, ring};
use crate::real::driver_bin;

pub const NS: &str = "demo-sandbox";
pub const IMAGE: &str = "sandbox:1";
/// The gateway's service account.
pub const GATEWAY: (&str, &str) = ("bex", "gateway");
/// Both ways in which clusters end an exec, and the two in which v5 is served.
pub const STYLES: [Style; 3] = [Style::V1_36, Style::V1_34, Style::V1_29];
/// Every answer is there by then, whatever happens: a start may take 15 s and a look 3 s, each twice.
const ANSWERED: Duration = Duration::from_secs(40);
/// Short enough for tests; the proportions are those of the real ones.
pub const PACE: Pace = Pace {
    ping: Duration::from_millis(200),
    silence: Duration::from_millis(1000),
    close: Duration::from_millis(500),
    lag: Duration::from_millis(1500),
};

pub struct World {
    pub cluster: Cluster,
    pub house: House,
    pub session: SessionId,
    pub pod: String,
    pub uid: String,
}

impl World {
    /// The same in a cluster of this release.
    pub async fn of(style: Style) -> Self {
        Self::new(Options {
            style,
            ..Options::default()
        })
        .await
    }

    /// With a pod that runs nothing but what is exec'd.
    pub async fn new(options: Options) -> Self {
        let world = Self::without_pod(options).await;
        let pod = world_pod(&world.session);
        world.with_pod(pod).await
    }

    pub async fn without_pod(options: Options) -> Self {
        let cluster = Cluster::start(options).await.expect("a cluster");
        cluster.namespace(NS);
        cluster.image(IMAGE, Image::pause().file(POD_DRIVER_BIN, driver_bin()));
        cluster.grant(NS, GATEWAY, rights::GATEWAY);
        Self::over(cluster).await
    }

    /// The listener, as the service account `gateway` of `bex`.
    pub async fn over(cluster: Cluster) -> Self {
        let session = SessionId::random();
        let targets = KubernetesTargets::new(config(&cluster))
            .await
            .expect("a client");
        let house = House::over(Arc::new(targets.with_pace(PACE)), session.clone()).await;
        Self {
            pod: pod_of(&session, GENERATION),
            cluster,
            house,
            session,
            uid: "none".into(),
        }
    }

    pub async fn with_pod(mut self, pod: Value) -> Self {
        let made = self.cluster.create(NS, pod).expect("made");
        self.uid = uid(&made);
        self.cluster.ready(NS, &self.pod).await;
        write_json(&self.driver_dir().join(LAUNCH_FILE), &launch(&self.session));
        self
    }

    /// The driver's directory on this machine.
    pub fn driver_dir(&self) -> PathBuf {
        let pod = self.cluster.pod(NS, &self.pod).expect("the pod");
        self.cluster.pod_dir(&pod).join("volumes/driver")
    }

    /// A finished log of turn 1 with about so many bytes; its text.
    pub fn log(&self, bytes: usize) -> Vec<u8> {
        let mut log =
            json!({"type": "log", "generation": GENERATION, "logId": "l1", "turn": 1}).to_string();
        log.push('\n');
        let mut n = 0_u64;
        while log.len() < bytes {
            // no two lines are alike, so that no shift goes unseen
            let text = format!("{n:08}").repeat(100);
            let part = json!({"type": "text-delta", "id": "t", "delta": text});
            log +=
                &json!({"type": "ui-message", "turn": 1, "partIndex": n, "part": part}).to_string();
            log.push('\n');
            n += 1;
        }
        std::fs::write(self.driver_dir().join("session-1.jsonl"), &log).expect("a file");
        log.into_bytes()
    }

    pub async fn call(&self, operation: &Operation) -> Answer {
        self.call_as(operation, &self.uid, CONTAINER).await
    }

    /// With a ticket for another pod UID or container.
    pub async fn call_as(&self, operation: &Operation, uid: &str, container: &str) -> Answer {
        let ticket = self.ticket(operation, uid, container);
        let asked = self.house.ask(Some(&ticket), body(operation));
        let answer = tokio::time::timeout(ANSWERED, asked).await;
        answer.expect("an answer within the deadline")
    }

    /// Waits until no process of any exec lives and no connection of one is open.
    pub async fn nothing_is_left(&self) {
        let is_over =
            |exec: &Arc<ExecSeen>| exec.counts().disconnected && exec.processes().is_empty();
        eventually(|| self.cluster.execs().iter().all(is_over)).await;
    }

    pub fn ticket(&self, operation: &Operation, uid: &str, container: &str) -> String {
        let mut claims = self.house.claims(operation);
        claims.pod_uid = uid.to_owned();
        claims.container = container.to_owned();
        claims.sign(&self.house.ring)
    }

    /// The only exec so far.
    pub fn exec(&self) -> Arc<ExecSeen> {
        let execs = self.cluster.execs();
        assert_eq!(execs.len(), 1, "{execs:?}");
        execs[0].clone()
    }

    /// Reads a window as the api does: continues from the bytes it has, and proves the whole by the first header. Gives the bytes and
    /// the failures that were met.
    pub async fn harvest(&self) -> (Vec<u8>, Vec<ExecCode>) {
        let (mut bytes, mut failures) = (Vec::new(), Vec::new());
        let mut first: Option<LogWindow> = None;
        loop {
            assert!(failures.len() < 40, "it never ends: {failures:?}");
            if !failures.is_empty() {
                // the step of a bounded retry: a server that restarts refuses for a while
                tokio::time::sleep(Duration::from_millis(25)).await;
            }
            let answer = self.call(&read(bytes.len() as u64)).await;
            if answer.status != 200 {
                failures.push(ExecCode::ExecTransport);
                assert_eq!(answer.problem().1, "exec_transport");
                continue;
            }
            let frames = answer.frames();
            if frames[0].kind == FrameKind::Header {
                let header: WindowHeader =
                    serde_json::from_slice(&frames[0].payload).expect("a header");
                let window = header.log.expect("a log");
                assert_eq!(window.offset, bytes.len() as u64);
                first.get_or_insert(window);
            }
            for frame in frames.iter().filter(|f| f.kind == FrameKind::Stdout) {
                bytes.extend_from_slice(&frame.payload);
            }
            if frames.last().is_some_and(|f| f.kind == FrameKind::Exit) {
                break;
            }
            let last = frames.last().expect("a last frame");
            let error: ExecError = serde_json::from_slice(&last.payload).expect("an error");
            failures.push(error.code);
        }
        let first = first.expect("a header");
        assert_eq!(
            (first.length, first.sha256),
            (bytes.len() as u64, sha256_hex(&bytes))
        );
        (bytes, failures)
    }
}

pub fn config(cluster: &Cluster) -> KubernetesConfig {
    let network = cluster.pod_network().parse().expect("a range");
    KubernetesConfig {
        kubeconfig: Some(cluster.kubeconfig("bex", "gateway").expect("a kubeconfig")),
        reach: Reach::new(vec![network], LoopbackPods::Allowed),
        namespaces: vec![NS.into()],
        driver_bin: POD_DRIVER_BIN.into(),
        driver_dir: POD_DRIVER_DIR.into(),
    }
}

pub fn uid(pod: &Value) -> String {
    pod["metadata"]["uid"].as_str().expect("a uid").to_owned()
}

/// A pod as the api makes one, but with a container that only waits.
pub fn world_pod(session: &SessionId) -> Value {
    json!({"metadata": {"name": pod_of(session, GENERATION)},
        "spec": {"restartPolicy": "Never",
            "volumes": [{"name": "driver", "emptyDir": {}}, {"name": "work", "emptyDir": {}}],
            "containers": [{"name": CONTAINER, "image": IMAGE, "volumeMounts": [
                {"name": "driver", "mountPath": POD_DRIVER_DIR}, {"name": "work", "mountPath": "/work"}]}]}})
}

pub fn launch(session: &SessionId) -> Launch {
    let key = DriverKey::derive(ring("d1", 'd').signing_key().1, session, GENERATION);
    Launch {
        session: session.clone(),
        workspace: "demo".parse().expect("an id"),
        generation: GENERATION,
        key: key.to_hex(),
        listen: "0.0.0.0:8787".parse().expect("an address"),
        dir: POD_DRIVER_DIR.into(),
        workdir: "/tmp".into(),
        agent: AgentSpec::Command {
            argv: vec!["/bin/cat".into()],
            env: Default::default(),
            credential_files: Vec::new(),
        },
        secrets: Default::default(),
        legacy: None,
        isolation: Isolation::None,
    }
}

pub fn write_json<T: serde::Serialize>(path: &std::path::Path, value: &T) {
    std::fs::write(path, serde_json::to_vec(value).expect("plain data")).expect("a file");
}

pub fn read(offset: u64) -> Operation {
    Operation::ReadTranscript {
        turn: TurnNo(1),
        offset,
    }
}

pub fn run(script: &str, stdin: Option<&str>) -> Operation {
    Operation::Run {
        argv: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
        stdin: stdin.map(str::to_owned),
    }
}
