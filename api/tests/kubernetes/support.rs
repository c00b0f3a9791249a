//! A cluster, the api's account in it, and what is asked of it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use bex_api::sandbox::kubernetes::{AgentUsers, DriverPlace, KubernetesConfig, Pace, Template};
use bex_api::sandbox::{KubernetesLifecycle, Made, SandboxName, SandboxPlan, Secrets};
use bex_cluster::Transport;
use bex_proto::driver::{DriverKey, TokenSeed};
use bex_proto::launch::{AgentSpec, POD_DRIVER_BIN, POD_DRIVER_DIR, namespace_of, pod_of};
use bex_proto::{Generation, SessionId};
use bex_testk8s::{Cluster, Image, Options, rights};
use serde_json::{Value, json};

pub const NS: &str = "acme-sandbox";
pub const IMAGE: &str = "sandbox:1";
pub const API: (&str, &str) = ("bex", "api");

/// The driver's binary beside the api's, or in `BEX_BIN_DIR`.
pub fn driver_bin() -> PathBuf {
    let beside = PathBuf::from(env!("CARGO_BIN_EXE_bex-api"));
    let dir =
        std::env::var_os("BEX_BIN_DIR").map_or_else(|| beside.with_file_name(""), PathBuf::from);
    let binary = dir.join("bex-driver");
    assert!(
        binary.exists(),
        "{} is missing: cargo build -p bex-driver",
        binary.display()
    );
    binary
}

/// A cluster with the namespace, the image and the api's rights.
pub async fn cluster() -> Cluster {
    let cluster = Cluster::start(Options::default()).await.unwrap();
    cluster.namespace(NS);
    cluster.image(IMAGE, Image::pause().file(POD_DRIVER_BIN, driver_bin()));
    cluster.grant(NS, API, rights::API);
    cluster
}

pub fn pace() -> Pace {
    Pace {
        slice: Duration::from_secs(20),
        hope: Duration::ZERO,
        gone: Duration::from_secs(20),
    }
}

pub async fn lifecycle(cluster: &Cluster) -> KubernetesLifecycle {
    lifecycle_with(cluster, &[NS], json!({"image": IMAGE})).await
}

pub async fn lifecycle_with(
    cluster: &Cluster,
    namespaces: &[&str],
    template: Value,
) -> KubernetesLifecycle {
    let config = KubernetesConfig {
        kubeconfig: Some(cluster.kubeconfig(API.0, API.1).unwrap()),
        transport: Transport::Local,
        namespaces: namespaces.iter().map(|&ns| ns.to_owned()).collect(),
        template: Template::parse(&template.to_string(), AgentUsers::Optional).unwrap(),
        driver: DriverPlace {
            bin: POD_DRIVER_BIN.into(),
            dir: POD_DRIVER_DIR.into(),
        },
    };
    KubernetesLifecycle::new(config)
        .await
        .unwrap()
        .with_pace(pace())
}

pub fn plan() -> SandboxPlan {
    let session = SessionId::random();
    SandboxPlan {
        workspace: "acme".parse().unwrap(),
        generation: Generation(1),
        agent: AgentSpec::Command {
            argv: vec!["/bin/cat".into()],
            env: BTreeMap::new(),
            credential_files: Vec::new(),
        },
        secrets: Secrets::References(BTreeMap::new()),
        legacy: None,
        key: DriverKey::derive(b"ring", &session, Generation(1)),
        token_seed: TokenSeed::derive(b"ring", &session),
        session,
    }
}

pub fn name(plan: &SandboxPlan, made: Option<&Made>) -> SandboxName {
    SandboxName {
        session: plan.session.clone(),
        generation: plan.generation,
        namespace: namespace_of(&plan.workspace),
        pod: pod_of(&plan.session, plan.generation),
        pod_uid: made.map(|made| made.pod_uid.clone()),
    }
}
