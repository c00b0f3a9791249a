//! The pod of one sandbox. Pure.
//!
//! The launch file comes in by an annotation and a downward API volume, as the api may neither make Secrets nor exec: who may get the
//! namespace's pods can speak to its drivers as the gateway does. Credentials do not stand in it: the node takes them from Secrets
//! and gives them to the driver alone.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use bex_proto::launch::{
    CONTAINER, LAUNCH_FILE, Launch, POD_DRIVER_BIN, SECRET_VARIABLE, TOKEN_SEED_VARIABLE,
    namespace_of, pod_of,
};
use bex_proto::{Generation, SessionId, limits};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::template::Template;
use crate::sandbox::{SandboxName, SandboxPlan, SecretKey, Secrets};

/// Label of everything that this program makes and removes.
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const OURS: &str = "bex-api";
const SESSION: &str = "bex/session";
const GENERATION: &str = "bex/generation";
const WORKSPACE: &str = "bex/workspace";
const LAUNCH: &str = "bex/launch";
/// The agent's directory inside a container.
const WORK_DIR: &str = "/var/lib/bex/work";
/// The volume of a driver that an init container brings, and where that one sees it.
const BROUGHT: &str = "bin";
const BROUGHT_TO: &str = "/bex";
/// Nobody: who only copies a program.
const NOBODY: i64 = 65_532;

/// Selects the pods that this program made.
pub(super) fn selector() -> String {
    format!("{MANAGED_BY}={OURS}")
}

/// Where the driver is inside a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriverPlace {
    /// Its binary; absolute.
    pub bin: String,
    /// Its directory; absolute.
    pub dir: String,
}

impl DriverPlace {
    /// What its binary is in.
    fn home(&self) -> &str {
        match self.bin.rsplit_once('/') {
            Some((home, _)) if !home.is_empty() => home,
            _ => "/",
        }
    }
}

/// The pod, as the API server is asked for it.
pub(super) fn pod(
    plan: &SandboxPlan,
    secrets: &BTreeMap<String, SecretKey>,
    template: &Template,
    driver: &DriverPlace,
) -> Pod {
    let mut labels = template.labels.clone();
    labels.extend(
        [
            ("app.kubernetes.io/name", "bex-sandbox"),
            (MANAGED_BY, OURS),
            (SESSION, plan.session.as_str()),
            (GENERATION, &plan.generation.to_string()),
            (WORKSPACE, plan.workspace.as_str()),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned())),
    );
    let mut annotations = template.annotations.clone();
    annotations.insert(LAUNCH.to_owned(), launch(plan, template, driver));
    let seed = json!({"name": TOKEN_SEED_VARIABLE, "value": plan.token_seed.to_hex()});
    let given = secrets.iter().map(|(name, from)| {
        json!({"name": format!("{SECRET_VARIABLE}{name}"),
                "valueFrom": {"secretKeyRef": {"name": from.secret, "key": from.key}}})
    });
    let env: Vec<_> = std::iter::once(seed).chain(given).collect();
    let mut security = template.security_context.clone();
    security.seccomp_profile.get_or_insert_with(|| {
        serde_json::from_value(json!({"type": "RuntimeDefault"})).expect("a seccomp profile")
    });
    // beside what the driver itself writes, where its in-sandbox side looks for it
    let launch_file = format!("{}/{LAUNCH_FILE}", driver.dir);
    let mut volumes = vec![
        json!({"name": "driver", "emptyDir": {}}),
        json!({"name": "work", "emptyDir": {}}),
        // the driver's alone: it is the owner
        json!({"name": "launch", "downwardAPI": {"defaultMode": 0o400, "items": [{"path": LAUNCH_FILE,
            "fieldRef": {"fieldPath": format!("metadata.annotations['{LAUNCH}']")}}]}}),
    ];
    let mut mounts = vec![
        json!({"name": "driver", "mountPath": driver.dir}),
        json!({"name": "work", "mountPath": WORK_DIR}),
        json!({"name": "launch", "mountPath": launch_file, "subPath": LAUNCH_FILE, "readOnly": true}),
    ];
    let brings = template.driver_image.as_ref().map(|image| {
        volumes.push(json!({"name": BROUGHT, "emptyDir": {}}));
        mounts.push(json!({"name": BROUGHT, "mountPath": driver.home(), "readOnly": true}));
        json!({
            "name": "driver",
            "image": image,
            "imagePullPolicy": template.image_pull_policy,
            // where our own image has it
            "command": [POD_DRIVER_BIN, "install", BROUGHT_TO],
            "resources": template.resources,
            "securityContext": {"runAsUser": NOBODY, "runAsNonRoot": true, "allowPrivilegeEscalation": false, "privileged": false,
                "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}},
            "volumeMounts": [{"name": BROUGHT, "mountPath": BROUGHT_TO}],
        })
    });
    let pod = json!({
        "metadata": {"name": pod_of(&plan.session, plan.generation), "namespace": namespace_of(&plan.workspace),
            "labels": labels, "annotations": annotations},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "terminationGracePeriodSeconds": limits::SANDBOX_GRACE.as_secs(),
            "activeDeadlineSeconds": template.active_deadline_seconds,
            "runtimeClassName": template.runtime_class_name,
            "securityContext": security,
            "imagePullSecrets": template.image_pull_secrets,
            "nodeSelector": template.node_selector,
            "tolerations": template.tolerations,
            "priorityClassName": template.priority_class_name,
            "volumes": volumes,
            "initContainers": Vec::from_iter(brings),
            "containers": [{
                "name": CONTAINER,
                "image": template.image,
                "imagePullPolicy": template.image_pull_policy,
                "command": [driver.bin, "serve", "--launch", launch_file],
                "workingDir": WORK_DIR,
                "env": env,
                "resources": template.resources,
                "ports": [{"name": "driver", "containerPort": limits::DRIVER_PORT}],
                "readinessProbe": {"httpGet": {"path": "/healthz", "port": limits::DRIVER_PORT}, "periodSeconds": 1},
                // the driver changes users and ends their processes, and may do nothing else
                "securityContext": {"runAsUser": 0, "allowPrivilegeEscalation": false, "privileged": false,
                    "capabilities": {"drop": ["ALL"], "add": ["SETUID", "SETGID", "KILL"]}},
                "volumeMounts": mounts,
            }],
        },
    });
    serde_json::from_value(pod).expect("a pod of our own fields is a pod")
}

fn launch(plan: &SandboxPlan, template: &Template, driver: &DriverPlace) -> String {
    let launch = Launch {
        session: plan.session.clone(),
        workspace: plan.workspace.clone(),
        generation: plan.generation,
        key: plan.key.to_hex(),
        listen: SocketAddr::from((Ipv4Addr::UNSPECIFIED, limits::DRIVER_PORT)),
        dir: driver.dir.clone().into(),
        workdir: WORK_DIR.into(),
        agent: plan.agent.clone(),
        secrets: match &plan.secrets {
            Secrets::Values(values) => values.clone(),
            Secrets::References(_) => BTreeMap::new(),
        },
        legacy: plan.legacy.clone(),
        isolation: template.isolation(),
    };
    serde_json::to_string(&launch).expect("plain data")
}

/// Which sandbox a pod is, by labels and name. `None` for a pod that is not ours.
pub(super) fn name_of(pod: &Pod) -> Option<SandboxName> {
    let labels = pod.metadata.labels.as_ref()?;
    if labels.get(MANAGED_BY)? != OURS {
        return None;
    }
    let session: SessionId = labels.get(SESSION)?.parse().ok()?;
    let generation = Generation(labels.get(GENERATION)?.parse().ok()?);
    let name = pod.metadata.name.clone()?;
    (name == pod_of(&session, generation)).then_some(())?;
    Some(SandboxName {
        session,
        generation,
        namespace: pod.metadata.namespace.clone()?,
        pod: name,
        pod_uid: Some(pod.metadata.uid.clone()?),
    })
}

#[cfg(test)]
mod tests {
    use bex_proto::driver::{DriverKey, TokenSeed};
    use bex_proto::launch::{AgentSpec, POD_DRIVER_DIR};
    use serde_json::Value;

    use super::super::template::AgentUsers;
    use super::*;

    fn plan() -> SandboxPlan {
        let session = SessionId::random();
        SandboxPlan {
            workspace: "acme".parse().expect("an id"),
            generation: Generation(2),
            agent: AgentSpec::Command {
                argv: vec!["/bin/cat".into()],
                env: BTreeMap::new(),
                credential_files: Vec::new(),
            },
            secrets: Secrets::References(BTreeMap::new()),
            legacy: None,
            key: DriverKey::derive(b"ring", &session, Generation(2)),
            token_seed: TokenSeed::derive(b"ring", &session),
            session,
        }
    }

    fn made(plan: &SandboxPlan, template: &str) -> Value {
        let template = Template::parse(template, AgentUsers::Required).expect("a template");
        let key = SecretKey {
            secret: "git".into(),
            key: "token".into(),
        };
        let secrets = BTreeMap::from([("TOKEN".to_owned(), key)]);
        let driver = DriverPlace {
            bin: POD_DRIVER_BIN.into(),
            dir: POD_DRIVER_DIR.into(),
        };
        serde_json::to_value(pod(plan, &secrets, &template, &driver)).expect("plain data")
    }

    #[test]
    fn a_pod_follows_template_and_contract() {
        let plan = plan();
        let pod = made(
            &plan,
            r#"{"image":"r/sandbox:1","agentUser":{"uid":1000,"gid":1001},"runtimeClassName":"gvisor",
            "resources":{"limits":{"memory":"2Gi"}},"labels":{"team":"x"},"securityContext":{"fsGroupChangePolicy":"Always"}}"#,
        );
        let spec = &pod["spec"];
        assert_eq!(
            pod["metadata"]["name"],
            pod_of(&plan.session, plan.generation)
        );
        assert_eq!(pod["metadata"]["labels"]["team"], "x");
        for (path, value) in [
            ("/restartPolicy", json!("Never")),
            ("/automountServiceAccountToken", json!(false)),
            ("/activeDeadlineSeconds", json!(604_800)),
            ("/terminationGracePeriodSeconds", json!(60)),
            ("/runtimeClassName", json!("gvisor")),
            ("/securityContext/fsGroupChangePolicy", json!("Always")),
            (
                "/securityContext/seccompProfile/type",
                json!("RuntimeDefault"),
            ),
            ("/containers/0/resources/limits/memory", json!("2Gi")),
            (
                "/containers/0/command/3",
                json!("/var/lib/bex/driver/launch.json"),
            ),
            (
                "/containers/0/volumeMounts/2/mountPath",
                json!("/var/lib/bex/driver/launch.json"),
            ),
            (
                "/containers/0/securityContext/allowPrivilegeEscalation",
                json!(false),
            ),
            (
                "/containers/0/securityContext/capabilities/add",
                json!(["SETUID", "SETGID", "KILL"]),
            ),
            (
                "/containers/0/env/0",
                json!({"name": "BEX_TOKEN_SEED", "value": plan.token_seed.to_hex()}),
            ),
            (
                "/containers/0/env/1",
                json!({"name": "BEX_SECRET_TOKEN",
                "valueFrom": {"secretKeyRef": {"name": "git", "key": "token"}}}),
            ),
        ] {
            assert_eq!(spec.pointer(path), Some(&value), "{path}");
        }
        let launch: Launch = serde_json::from_str(
            pod["metadata"]["annotations"]["bex/launch"]
                .as_str()
                .expect("a text"),
        )
        .expect("a launch");
        assert!(launch.secrets.is_empty(), "no credential stands in a pod");
        assert_eq!(
            launch.isolation,
            bex_proto::launch::Isolation::User {
                uid: 1000,
                gid: 1001
            }
        );
    }

    #[test]
    fn a_driver_is_brought_where_the_image_has_none() {
        let template =
            r#"{"image":"agents","driverImage":"driver:2","agentUser":{"uid":1000,"gid":1001}}"#;
        let pod = made(&plan(), template);
        let spec = &pod["spec"];
        for (path, value) in [
            ("/initContainers/0/image", json!("driver:2")),
            (
                "/initContainers/0/command",
                json!(["/opt/bex/bex-driver", "install", "/bex"]),
            ),
            (
                "/initContainers/0/securityContext/runAsNonRoot",
                json!(true),
            ),
            (
                "/initContainers/0/volumeMounts",
                json!([{"name": "bin", "mountPath": "/bex"}]),
            ),
            (
                "/containers/0/volumeMounts/3",
                json!({"name": "bin", "mountPath": "/opt/bex", "readOnly": true}),
            ),
            ("/containers/0/command/0", json!("/opt/bex/bex-driver")),
            ("/containers/0/image", json!("agents")),
        ] {
            assert_eq!(spec.pointer(path), Some(&value), "{path}");
        }
        let plain = made(
            &plan(),
            r#"{"image":"i","agentUser":{"uid":1000,"gid":1001}}"#,
        );
        assert_eq!(plain["spec"]["volumes"].as_array().map(Vec::len), Some(3));
        assert!(plain.pointer("/spec/initContainers/0").is_none());
    }

    #[test]
    fn only_our_pods_are_named() {
        let plan = plan();
        let mut pod = made(
            &plan,
            r#"{"image":"i","agentUser":{"uid":1000,"gid":1001}}"#,
        );
        pod["metadata"]["uid"] = json!("u1");
        let named = |pod: &Value| name_of(&serde_json::from_value(pod.clone()).expect("a pod"));
        let name = named(&pod).expect("ours");
        assert_eq!(
            (name.session, name.namespace.as_str()),
            (plan.session, "acme-sandbox")
        );
        pod["metadata"]["name"] = json!("other");
        assert_eq!(
            named(&pod),
            None,
            "a copy under another name is not the sandbox"
        );
    }
}
