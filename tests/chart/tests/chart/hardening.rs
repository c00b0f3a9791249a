//! What pods may, and where secrets are.

use bex_testchart::helm::{self, VALUES};
use bex_testchart::objects::{at, items, of_kind, pods};
use bex_testchart::{tables, text};
use serde_json::{Value, json};

/// The components that speak to the cluster's API.
const KNOWN_TO_THE_CLUSTER: [&str; 2] = ["api", "gateway"];
/// Parts of names of variables that hold a secret.
const SECRET: [&str; 7] = [
    "KEYS",
    "DATABASE_URL",
    "DIRECT_URL",
    "TOKEN",
    "PASSWORD",
    "SECRET",
    "ACCESS_KEY",
];
/// Variables that name a file, which is a secret's own.
const PATHS: [&str; 1] = ["BEX_SERVICE_TOKENS"];

fn every_pod(check: impl Fn(&str, &Value)) {
    for values in VALUES {
        let objects = helm::render(values, &[]).unwrap();
        let pods = pods(&objects);
        assert_eq!(
            pods.len(),
            4,
            "{values}: api, gateway, migration, smoke test"
        );
        for (owner, pod) in pods {
            check(&format!("{values}: {owner}"), pod);
        }
    }
}

#[test]
fn pods_are_nobody_and_may_nothing() {
    every_pod(|owner, pod| {
        let spec = &pod["spec"];
        let security = &spec["securityContext"];
        assert_eq!(security["runAsNonRoot"], true, "{owner}");
        assert!(security["runAsUser"].as_u64().unwrap() > 0, "{owner}");
        assert_eq!(
            security["seccompProfile"],
            json!({"type": "RuntimeDefault"}),
            "{owner}"
        );
        for shared in ["hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"] {
            assert!(spec.get(shared).is_none(), "{owner}: {shared}");
        }
        assert_eq!(spec["enableServiceLinks"], false, "{owner}");
        let component = at(pod, "/metadata/labels/app.kubernetes.io~1component");
        let token = KNOWN_TO_THE_CLUSTER.contains(&component);
        assert_eq!(spec["automountServiceAccountToken"], token, "{owner}");
        for volume in items(&spec["volumes"]) {
            assert!(volume.get("hostPath").is_none(), "{owner}");
        }
        assert_eq!(items(&spec["containers"]).len(), 1, "{owner}");
        let container = &spec["containers"][0];
        let security = &container["securityContext"];
        assert_eq!(security["allowPrivilegeEscalation"], false, "{owner}");
        assert_eq!(security["readOnlyRootFilesystem"], true, "{owner}");
        assert_eq!(
            security["capabilities"],
            json!({"drop": ["ALL"]}),
            "{owner}"
        );
        assert!(
            container["resources"]["limits"]["memory"].is_string(),
            "{owner}"
        );
        for mount in items(&container["volumeMounts"]) {
            let name = at(mount, "/name");
            let volume = items(&spec["volumes"]).iter().find(|v| v["name"] == name);
            // what may be written is bounded, and gone with the pod
            let bounded = volume.unwrap().pointer("/emptyDir/sizeLimit").is_some();
            assert!(bounded || mount["readOnly"] == true, "{owner}: {name}");
        }
        let image = at(container, "/image");
        let pinned = image.contains("@sha256:") || image.rsplit('/').next().unwrap().contains(':');
        assert!(pinned && !image.ends_with(":latest"), "{owner}: {image}");
    });
}

#[test]
fn servers_are_probed_where_they_answer() {
    for values in VALUES {
        let objects = helm::render(values, &[]).unwrap();
        for deployment in of_kind(&objects, "Deployment") {
            let container = &deployment["spec"]["template"]["spec"]["containers"][0];
            for (probe, path) in [
                ("startupProbe", "/healthz"),
                ("livenessProbe", "/healthz"),
                ("readinessProbe", "/readyz"),
            ] {
                assert_eq!(
                    container[probe]["httpGet"],
                    json!({"path": path, "port": "admin"})
                );
            }
            assert!(
                items(&container["ports"])
                    .iter()
                    .any(|p| p["name"] == "admin")
            );
        }
    }
}

#[test]
fn secrets_are_only_referred_to() {
    for values in VALUES {
        let objects = helm::render(values, &[]).unwrap();
        assert_eq!(of_kind(&objects, "Secret").count(), 0);
    }
    let is_secret =
        |name: &str| !PATHS.contains(&name) && SECRET.iter().any(|part| name.contains(part));
    every_pod(|owner, pod| {
        let env = items(&pod["spec"]["containers"][0]["env"]);
        for variable in env {
            let name = at(variable, "/name");
            let literal = at(variable, "/value");
            assert!(!literal.contains("postgres:"), "{owner}: {name}");
            let reference = variable.pointer("/valueFrom/secretKeyRef");
            assert_eq!(reference.is_some(), is_secret(name), "{owner}: {name}");
        }
        assert!(
            env.iter().any(|e| is_secret(at(e, "/name"))),
            "{owner} knows no secret at all"
        );
    });
}

#[test]
fn every_variable_is_one_of_the_binaries() {
    let of = |document| tables::rows(&text(document).unwrap());
    let documented: Vec<String> = of("docs/operations.md")
        .iter()
        .chain(&of("docs/packages.md"))
        .flat_map(|row| tables::code(&row[0]))
        .chain(["BEX_DATABASE_DIRECT_URL", "BEX_SMOKE_TOKEN", "RUST_LOG"].map(str::to_owned))
        .collect();
    every_pod(|owner, pod| {
        for variable in items(&pod["spec"]["containers"][0]["env"]) {
            let name = at(variable, "/name");
            assert!(documented.iter().any(|d| d == name), "{owner}: {name}");
        }
    });
}
