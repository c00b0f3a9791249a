//! It lints, renders, and what it renders is what clusters take.

use bex_testchart::helm::{self, CLUSTERS, NAMESPACE, VALUES};
use bex_testchart::objects::{at, items, name, of_kind, pods};
use serde_json::{Value, json};

/// Of operators: no cluster has it by itself.
const FOREIGN: &str = "monitoring.coreos.com/v1";

#[test]
fn every_set_of_values_lints_and_is_valid_in_old_and_new_clusters() {
    for values in VALUES {
        helm::lint(values).unwrap();
        let mut objects = helm::render(values, &[]).unwrap();
        for foreign in objects.extract_if(.., |o| at(o, "/apiVersion") == FOREIGN) {
            helm::validate_foreign(&foreign).unwrap();
        }
        assert!(objects.len() > 20, "{values}: {} objects", objects.len());
        for version in CLUSTERS {
            helm::validate(&objects, version).unwrap();
        }
    }
}

#[test]
fn an_unknown_field_would_be_found() {
    let mut objects = helm::render("minimal", &[]).unwrap();
    let deployment = objects
        .iter_mut()
        .find(|o| at(o, "/kind") == "Deployment")
        .unwrap();
    deployment["spec"]["replica"] = json!(1);
    let fault = helm::validate(&objects, CLUSTERS[1])
        .unwrap_err()
        .to_string();
    assert!(fault.contains("replica"), "{fault}");

    let objects = helm::render("full", &[]).unwrap();
    for (kind, pointer, wrong) in [
        ("ServiceMonitor", "/spec/endpoints/0", "scrapeTimout"),
        ("PrometheusRule", "/spec/groups/0/rules/0", "annotation"),
    ] {
        let mut object = of_kind(&objects, kind).next().unwrap().clone();
        helm::validate_foreign(&object).unwrap();
        object.pointer_mut(pointer).unwrap()[wrong] = json!("1");
        let fault = helm::validate_foreign(&object).unwrap_err().to_string();
        assert!(fault.contains(wrong), "{fault}");
    }
    let mut object = of_kind(&objects, "PrometheusRule").next().unwrap().clone();
    object["spec"]["groups"][0]["rules"][0]["for"] = json!("5 min");
    assert!(helm::validate_foreign(&object).is_err());
}

#[test]
fn what_cannot_work_is_refused_with_its_name() {
    for (values, more, named) in [
        ("", vec![], "/sandboxes/namespaces"),
        ("", vec![], "/profiles"),
        ("minimal", vec!["--set=database.password=x"], "password"),
        (
            "minimal",
            vec!["--set=sandboxes.namespaces={kube-system}"],
            "/sandboxes/namespaces/0",
        ),
        (
            "minimal",
            vec!["--set=sandboxes.template.agentUser.uid=0"],
            "/sandboxes/template/agentUser/uid",
        ),
        (
            "minimal",
            vec!["--set=shutdown.drainSeconds=10"],
            "/shutdown/drainSeconds",
        ),
        (
            "minimal",
            vec!["--set-json=networkPolicies.attachClients=[]"],
            "/networkPolicies/attachClients",
        ),
        (
            "minimal",
            vec!["--set=auth.oidc.jwksUrl=http://issuer"],
            "/auth/oidc/jwksUrl",
        ),
        (
            "minimal",
            vec!["--set=traces.url=https://collector/v1/traces"],
            "/traces/url",
        ),
        (
            "minimal",
            vec!["--set=ingress.enabled=false"],
            "gateway.publicUrl is needed",
        ),
        (
            "minimal",
            vec!["--set=networkPolicies.database.isolate=true"],
            "podLabels is needed",
        ),
        ("tls", vec!["--set=ingress.controller=none"], "must differ"),
    ] {
        let fault = helm::render(values, &more).unwrap_err().to_string();
        assert!(fault.contains(named), "{more:?}: {fault}");
    }
}

#[test]
fn streams_of_one_session_meet_and_nothing_is_held_back() {
    for (values, key, hash, buffering) in [
        (
            "minimal",
            "nginx.ingress.kubernetes.io/upstream-hash-by",
            "$uri",
            "nginx.ingress.kubernetes.io/proxy-buffering=off",
        ),
        (
            "tls",
            "nginx.org/lb-method",
            "hash $uri consistent",
            "nginx.org/proxy-buffering=False",
        ),
    ] {
        let objects = helm::render(values, &[]).unwrap();
        let attach = of_kind(&objects, "Ingress")
            .find(|o| at(o, "/metadata/name") == "bex-attach")
            .unwrap();
        let annotations = &attach["metadata"]["annotations"];
        assert_eq!(annotations[key], hash);
        let (name, value) = buffering.split_once('=').unwrap();
        assert_eq!(annotations[name], value);
        let path = &attach["spec"]["rules"][0]["http"]["paths"][0];
        assert_eq!(path["path"], "/v1/(agent|remote)-sessions/[^/]+/stream");
        assert_eq!(
            path["backend"]["service"],
            json!({"name": "bex-gateway", "port": {"name": "attach"}})
        );
    }
}

#[test]
fn a_gateway_has_time_to_drain() {
    for values in VALUES {
        let objects = helm::render(values, &[]).unwrap();
        for deployment in of_kind(&objects, "Deployment") {
            let pod = &deployment["spec"]["template"]["spec"];
            let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap();
            let sleep = &pod["containers"][0]["lifecycle"]["preStop"]["sleep"]["seconds"];
            // docs/operations.md: 25 s from SIGTERM to SIGKILL
            assert!(
                grace >= sleep.as_u64().unwrap() + 25,
                "{}",
                name(deployment)
            );
            // a new pod serves before an old one goes
            assert_eq!(
                deployment["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"],
                0
            );
        }
    }
}

#[test]
fn the_schema_is_brought_up_to_date_first_and_can_reach_its_database() {
    let objects = helm::render("full", &[]).unwrap();
    let hook = |kind| {
        let mut found =
            of_kind(&objects, kind).filter(|o| at(o, "/metadata/name") == "transcripts-migrate");
        &found.next().unwrap()["metadata"]["annotations"]
    };
    for kind in ["Job", "NetworkPolicy"] {
        assert_eq!(hook(kind)["helm.sh/hook"], "pre-install,pre-upgrade");
    }
    let weight = |kind| {
        hook(kind)["helm.sh/hook-weight"]
            .as_str()
            .unwrap()
            .parse::<i32>()
            .unwrap()
    };
    assert!(weight("NetworkPolicy") < weight("Job"));
}

/// `bex-api smoke` with what an installation has; its token is a Secret's, and what it calls are this release's own Services.
#[test]
fn the_smoke_test_calls_this_release_with_a_token_of_a_secret() {
    let objects = helm::render(
        "full",
        &["--set=smoke.secret=ops", "--set=smoke.key=bearer"],
    )
    .unwrap();
    let pod = of_kind(&objects, "Pod").next().unwrap();
    assert_eq!(at(pod, "/metadata/annotations/helm.sh~1hook"), "test");
    assert_eq!(at(pod, "/spec/restartPolicy"), "Never");
    let container = &pod["spec"]["containers"][0];
    assert_eq!(
        container["args"],
        json!([
            "smoke",
            "--url=http://transcripts-api.plane.svc:8080",
            "--attach-url=http://transcripts-gateway.plane.svc:8083",
            "--workspace=team-a",
            "--profile=coder",
            "--prompt=Say hello and nothing else.",
            "--timeout=900",
        ])
    );
    assert_eq!(
        container["env"],
        json!([{"name": "BEX_SMOKE_TOKEN", "valueFrom": {"secretKeyRef": {"name": "ops", "key": "bearer"}}}])
    );
    let services: Vec<_> = of_kind(&objects, "Service").collect();
    for (name, port) in [("transcripts-api", 8080), ("transcripts-gateway", 8083)] {
        let service = services.iter().find(|s| at(s, "/metadata/name") == name);
        let ports = items(&service.unwrap()["spec"]["ports"]);
        assert!(ports.iter().any(|p| p["port"] == port), "{name}");
    }
    // the deadline of the pod is behind its own
    assert_eq!(pod["spec"]["activeDeadlineSeconds"], 960);
}

#[test]
fn what_names_another_object_finds_it() {
    for values in VALUES {
        let objects = helm::render(values, &[]).unwrap();
        let pods = pods(&objects);
        let selected = |selector: &Value| {
            let selector = selector.as_object().unwrap().clone();
            pods.iter()
                .filter(move |(_, pod)| {
                    selector
                        .iter()
                        .all(|(k, v)| pod["metadata"]["labels"][k] == *v)
                })
                .map(|(_, pod)| &pod["spec"])
                .collect::<Vec<_>>()
        };
        for service in of_kind(&objects, "Service") {
            let [pod] = selected(&service["spec"]["selector"])[..] else {
                panic!("{values}: {} selects not one kind of pod", name(service));
            };
            for port in items(&service["spec"]["ports"]) {
                let mut ports = items(&pod["containers"][0]["ports"]).iter();
                let target = ports.find(|p| p["name"] == port["targetPort"]).unwrap();
                assert_eq!(target["containerPort"], port["port"], "{}", name(service));
            }
        }
        for budget in of_kind(&objects, "PodDisruptionBudget") {
            assert_eq!(
                selected(&budget["spec"]["selector"]["matchLabels"]).len(),
                1,
                "{}",
                name(budget)
            );
        }
        for scaler in of_kind(&objects, "HorizontalPodAutoscaler") {
            let target = &scaler["spec"]["scaleTargetRef"]["name"];
            let deployment =
                of_kind(&objects, "Deployment").find(|d| d["metadata"]["name"] == *target);
            assert!(
                deployment.unwrap()["spec"].get("replicas").is_none(),
                "two would set how many there are"
            );
        }
        for (owner, pod) in &pods {
            let Some(account) = pod["spec"]["serviceAccountName"].as_str() else {
                continue;
            };
            let mut accounts = of_kind(&objects, "ServiceAccount");
            assert!(
                accounts.any(|a| at(a, "/metadata/name") == account),
                "{owner}"
            );
        }
        for ingress in of_kind(&objects, "Ingress") {
            let backend = ingress
                .pointer("/spec/rules/0/http/paths/0/backend/service")
                .unwrap();
            let service =
                of_kind(&objects, "Service").find(|s| s["metadata"]["name"] == backend["name"]);
            assert_eq!(
                service.unwrap()["spec"]["ports"][0]["name"],
                backend["port"]["name"]
            );
        }
        for monitor in of_kind(&objects, "ServiceMonitor") {
            assert_eq!(at(monitor, "/metadata/namespace"), NAMESPACE);
            let wanted = monitor["spec"]["selector"]["matchLabels"]
                .as_object()
                .unwrap();
            let found = of_kind(&objects, "Service").filter(|service| {
                wanted
                    .iter()
                    .all(|(k, v)| service["metadata"]["labels"][k] == *v)
            });
            let mut ports: Vec<_> = found
                .map(|s| s["spec"]["ports"][0]["port"].clone())
                .collect();
            ports.sort_by_key(Value::to_string);
            assert_eq!(ports, [json!(8084), json!(9080)]);
            assert_eq!(monitor["spec"]["endpoints"][0]["port"], "admin");
        }
    }
}

#[test]
fn the_binaries_are_told_what_the_values_say() {
    let objects = helm::render("full", &[]).unwrap();
    let config = of_kind(&objects, "ConfigMap")
        .find(|c| at(c, "/metadata/name") == "transcripts-api")
        .unwrap();
    let file =
        |name: &str| serde_json::from_str::<Value>(config["data"][name].as_str().unwrap()).unwrap();
    assert_eq!(
        file("template.json")["agentUser"],
        json!({"uid": 1000, "gid": 1000})
    );
    assert_eq!(
        file("profiles.json")["profiles"]["coder"]["agent"]["permissions"],
        "deny"
    );
    let variable = |component: &str, name: &str| {
        let deployment = of_kind(&objects, "Deployment")
            .find(|d| at(d, "/metadata/name") == component)
            .unwrap();
        let env = &deployment["spec"]["template"]["spec"]["containers"][0]["env"];
        items(env)
            .iter()
            .find(|e| e["name"] == name)
            .cloned()
            .unwrap_or_default()
    };
    let api = |name| variable("transcripts-api", name)["value"].clone();
    assert_eq!(
        api("BEX_SANDBOX_NAMESPACES"),
        "team-a-sandbox,team-b-sandbox"
    );
    assert_eq!(
        variable("transcripts-gateway", "BEX_SANDBOX_NAMESPACES")["value"],
        "team-a-sandbox,team-b-sandbox"
    );
    assert_eq!(
        api("BEX_EXEC_URL"),
        "https://transcripts-gateway-exec.plane.svc:8081"
    );
    assert_eq!(api("BEX_ATTACH_PUBLIC_URL"), "https://stream.bex.example");
    assert_eq!(api("BEX_IDLE_GRACE_MS"), "1800000");
    for component in ["transcripts-api", "transcripts-gateway"] {
        assert_eq!(
            variable(component, "BEX_OTLP_URL")["value"],
            "http://collector.telemetry.svc:4318/v1/traces"
        );
    }
    // each side asks for the other's name
    assert_eq!(
        variable("transcripts-gateway", "BEX_EXEC_TLS_CLIENT_NAME")["value"],
        "bex-api"
    );
    // a ring that is being rotated
    let ring = |component, name| variable(component, name)["valueFrom"]["secretKeyRef"].clone();
    assert_eq!(
        ring("transcripts-gateway", "BEX_ATTACH_KEYS"),
        json!({"name": "bex-keys", "key": "attach-next"})
    );
    assert_eq!(
        ring("transcripts-api", "BEX_ATTACH_KEYS"),
        json!({"name": "bex-keys", "key": "attach"})
    );
    let notes = helm::notes("minimal").unwrap();
    assert!(
        notes.contains("helm test bex")
            && notes.contains("WARNING: streams and tickets travel without TLS"),
        "{notes}"
    );
}
