//! Sandboxes that are pods.

use std::collections::BTreeSet;

use bex_cluster::Transport;
use bex_proto::launch::{POD_DRIVER_BIN, POD_DRIVER_DIR};

use super::{Faults, read_file};
use crate::config::{SandboxKind, ServeArgs};
use crate::profiles::Deployment;
use crate::sandbox::kubernetes::{AgentUsers, DriverPlace, KubernetesConfig, Template};

/// A namespace is a DNS label.
const LABEL_BYTES: usize = 63;
/// Each is watched by a connection of its own.
const NAMESPACES: usize = 1000;

pub(super) fn kubernetes(
    faults: &mut Faults,
    args: &ServeArgs,
    deployment: Deployment,
) -> Option<SandboxKind> {
    let (users, transport) = match deployment {
        Deployment::Local => (AgentUsers::Optional, Transport::Local),
        Deployment::Cluster => (AgentUsers::Required, Transport::Verified),
    };
    let path = faults.required("BEX_SANDBOX_TEMPLATE", &args.sandbox_template);
    let text = path.and_then(|path| faults.keep("BEX_SANDBOX_TEMPLATE", read_file(path)));
    let template =
        text.and_then(|text| faults.keep("BEX_SANDBOX_TEMPLATE", Template::parse(&text, users)));
    let namespaces = namespaces(faults, args);
    if args.kubeconfig.as_ref().is_some_and(|p| !p.is_absolute()) {
        faults.add("BEX_KUBECONFIG", "must be an absolute path");
    }
    if args.secrets_file.is_some() {
        faults.add(
            "BEX_SECRETS_FILE",
            "is for the local kind: pods take secrets from the cluster",
        );
    }
    let mut inside = |variable, given: &Option<String>, default: &str| {
        let path = given.clone().unwrap_or_else(|| default.to_owned());
        if !path.starts_with('/') {
            faults.add(variable, "must be an absolute path");
        }
        path
    };
    let driver = DriverPlace {
        bin: inside("BEX_POD_DRIVER_BIN", &args.pod_driver_bin, POD_DRIVER_BIN),
        dir: inside("BEX_POD_DRIVER_DIR", &args.pod_driver_dir, POD_DRIVER_DIR),
    };
    Some(SandboxKind::Kubernetes(Box::new(KubernetesConfig {
        kubeconfig: args.kubeconfig.clone(),
        transport,
        namespaces: namespaces?,
        template: template?,
        driver,
    })))
}

fn namespaces(faults: &mut Faults, args: &ServeArgs) -> Option<BTreeSet<String>> {
    let text = faults.required("BEX_SANDBOX_NAMESPACES", &args.sandbox_namespaces)?;
    let names: BTreeSet<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let fine = |name: &String| {
        (1..=LABEL_BYTES).contains(&name.len())
            && name.bytes().all(plain)
            && name.ends_with("-sandbox")
    };
    if !names.iter().all(fine) || names.len() > NAMESPACES {
        faults.add(
            "BEX_SANDBOX_NAMESPACES",
            "must be names like team-a-sandbox, with commas",
        );
        return None;
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn read(args: &ServeArgs, deployment: Deployment) -> Result<KubernetesConfig, Vec<String>> {
        let mut faults = Faults::default();
        match kubernetes(&mut faults, args, deployment) {
            Some(SandboxKind::Kubernetes(config)) if faults.0.is_empty() => Ok(*config),
            _ => Err(faults.0.iter().map(|f| f.variable.to_owned()).collect()),
        }
    }

    fn good(dir: &Path) -> ServeArgs {
        let template = dir.join("template.json");
        let text = r#"{"image":"r/sandbox:1","agentUser":{"uid":1000,"gid":1000}}"#;
        std::fs::write(&template, text).expect("written");
        ServeArgs {
            sandbox_template: Some(template),
            sandbox_namespaces: Some("a-sandbox, b-sandbox".into()),
            ..ServeArgs::default()
        }
    }

    #[test]
    fn a_cluster_needs_a_template_and_namespaces() {
        let dir = tempfile::tempdir().expect("a directory");
        let config = read(&good(dir.path()), Deployment::Cluster).expect("good");
        assert_eq!(config.transport, Transport::Verified);
        assert_eq!(config.namespaces.len(), 2);
        assert_eq!(config.driver.bin, POD_DRIVER_BIN);
        let bad = ServeArgs {
            sandbox_namespaces: Some("kube-system".into()),
            kubeconfig: Some("config".into()),
            secrets_file: Some("secrets.json".into()),
            pod_driver_dir: Some("driver".into()),
            sandbox_template: None,
            ..ServeArgs::default()
        };
        assert_eq!(
            read(&bad, Deployment::Cluster).expect_err("bad"),
            [
                "BEX_SANDBOX_TEMPLATE",
                "BEX_SANDBOX_NAMESPACES",
                "BEX_KUBECONFIG",
                "BEX_SECRETS_FILE",
                "BEX_POD_DRIVER_DIR",
            ]
        );
    }

    #[test]
    fn only_on_one_machine_agents_share_the_drivers_user() {
        let dir = tempfile::tempdir().expect("a directory");
        let args = good(dir.path());
        let template = args.sandbox_template.as_ref().expect("given");
        std::fs::write(template, r#"{"image":"r/sandbox:1"}"#).expect("written");
        assert!(read(&args, Deployment::Local).is_ok());
        assert_eq!(
            read(&args, Deployment::Cluster).expect_err("bad"),
            ["BEX_SANDBOX_TEMPLATE"]
        );
    }
}
