//! Who may reach whom. The table is the promise; the rendered policies are judged by the rules that clusters go by, for every pair.

use bex_testchart::helm::{self, NAMESPACE};
use bex_testchart::network::{End, Port, Protocol, allows, lets_in, lets_out};
use bex_testchart::objects::{at, items, of_kind};
use serde_json::{Value, json};

type Table = &'static [(&'static str, u16, &'static [&'static str])];

/// Everything turned on.
const FULL: Table = &[
    ("api", 8080, &["ingress", "smoke"]),
    ("api", 9080, &["prometheus"]),
    ("gateway", 8083, &["ingress", "smoke"]),
    ("gateway", 8081, &["api"]),
    ("gateway", 8084, &["prometheus"]),
    ("sandbox-a", 8787, &["gateway"]),
    ("sandbox-b", 8787, &["gateway"]),
    ("database", 5432, &["api", "gateway", "migrate"]),
    ("broker", 8443, &["sandbox-a", "sandbox-b", OPEN]),
    (
        "dns",
        53,
        &[
            "api",
            "gateway",
            "migrate",
            "smoke",
            "sandbox-a",
            "sandbox-b",
            OPEN,
        ],
    ),
    ("cluster-api", 443, &["api", "gateway", OPEN]),
    ("cluster-api", 6443, &["api", "gateway", OPEN]),
    ("issuer", 443, &["api", "sandbox-a", "sandbox-b", OPEN]),
    ("bucket", 443, &["sandbox-a", "sandbox-b", OPEN]),
    ("bucket", 9000, &["api", OPEN]),
    ("internet", 443, &["sandbox-a", "sandbox-b", OPEN]),
    ("collector", 4318, &["api", "gateway", OPEN]),
];

/// The least. What is not this installation's is open to those who are not, and the database and the cluster's API may be anywhere.
const MINIMAL: Table = &[
    ("api", 8080, &["ingress", "smoke"]),
    ("api", 9080, &["prometheus"]),
    ("gateway", 8083, &["ingress", "smoke"]),
    ("gateway", 8081, &["api"]),
    ("gateway", 8084, &["prometheus"]),
    ("sandbox-a", 8787, &["gateway"]),
    ("database", 5432, &["api", "gateway", "migrate", OPEN]),
    ("broker", 8443, &[OPEN]),
    (
        "dns",
        53,
        &["api", "gateway", "migrate", "smoke", "sandbox-a", OPEN],
    ),
    ("cluster-api", 443, &["api", "gateway", OPEN]),
    ("cluster-api", 6443, &["api", "gateway", OPEN]),
    ("issuer", 443, &["api", "gateway", OPEN]),
    ("bucket", 443, &["api", "gateway", OPEN]),
    ("bucket", 9000, &[OPEN]),
    ("internet", 443, &["api", "gateway", OPEN]),
    ("collector", 4318, &[OPEN]),
];

/// Stands for everybody of [`OUTSIDERS`]: what this chart does not close, they reach.
const OPEN: &str = "(others)";
/// Who is not of this installation.
const OUTSIDERS: [&str; 10] = [
    "stranger",
    "other",
    "ingress",
    "prometheus",
    "dns",
    "database",
    "broker",
    "collector",
    "node",
    "internet",
];
/// Ports that are tried everywhere, whether anybody listens or not.
const TRIED: [u16; 15] = [
    22, 53, 80, 443, 4318, 5432, 6443, 8080, 8081, 8083, 8084, 8443, 8787, 9000, 9080,
];

fn ends(component: fn(&'static str) -> Vec<(&'static str, &'static str)>) -> Vec<End> {
    let end = |name, namespace, labels, ip: &str| End {
        name,
        namespace,
        labels,
        ip: ip.parse().unwrap(),
    };
    let ours = |name, ip| end(name, Some(NAMESPACE), component(name), ip);
    let sandbox = |name, namespace, ip| {
        let labels = vec![
            ("app.kubernetes.io/managed-by", "bex-api"),
            ("app.kubernetes.io/name", "bex-sandbox"),
        ];
        end(name, Some(namespace), labels, ip)
    };
    let pod = |name, namespace, label, ip| end(name, Some(namespace), vec![label], ip);
    vec![
        ours("api", "10.1.0.1"),
        ours("gateway", "10.1.0.2"),
        ours("migrate", "10.1.0.3"),
        ours("smoke", "10.1.0.4"),
        // of the release, but nothing that is known
        ours("unknown", "10.1.0.5"),
        sandbox("sandbox-a", "team-a-sandbox", "10.1.1.1"),
        sandbox("sandbox-b", "team-b-sandbox", "10.1.1.2"),
        // in a sandbox namespace, but not of the api
        pod(
            "intruder",
            "team-a-sandbox",
            ("app", "intruder"),
            "10.1.1.3",
        ),
        pod("stranger", NAMESPACE, ("app", "stranger"), "10.1.0.9"),
        // wears the gateway's labels in another namespace
        End {
            name: "other",
            ..end("other", Some("other"), component("gateway"), "10.1.2.1")
        },
        pod(
            "ingress",
            "ingress-nginx",
            ("app", "controller"),
            "10.1.3.1",
        ),
        pod(
            "prometheus",
            "monitoring",
            ("app", "prometheus"),
            "10.1.3.2",
        ),
        pod("dns", "kube-system", ("k8s-app", "kube-dns"), "10.1.3.3"),
        pod("database", "database", ("app", "postgres"), "10.1.3.4"),
        pod(
            "broker",
            "platform",
            ("app", "credential-broker"),
            "10.1.3.5",
        ),
        pod("collector", "telemetry", ("app", "collector"), "10.1.3.6"),
        end("cluster-api", None, vec![], "10.0.0.1"),
        end("node", None, vec![], "10.2.0.1"),
        end("metadata", None, vec![], "169.254.169.254"),
        end("issuer", None, vec![], "203.0.113.9"),
        end("bucket", None, vec![], "203.0.114.9"),
        end("internet", None, vec![], "198.51.100.7"),
    ]
}

fn labels(component: &'static str) -> Vec<(&'static str, &'static str)> {
    vec![
        ("app.kubernetes.io/name", "bex"),
        ("app.kubernetes.io/instance", "bex"),
        ("app.kubernetes.io/component", component),
    ]
}

/// Every connection that is let through, of those that matter: to something of this installation, or from it, or as the table names it.
fn matrix(policies: &[&Value], table: Table, has_b: bool) -> Vec<String> {
    let mut ends = ends(labels);
    ends.retain(|end| has_b || end.name != "sandbox-b");
    let is_ours = |end: &End| !OUTSIDERS.contains(&end.name);
    let is_addressed = |end: &End| end.namespace.is_some() && is_ours(end);
    let mut found = Vec::new();
    for to in &ends {
        for number in TRIED {
            let listed = table
                .iter()
                .any(|(name, port, _)| *name == to.name && *port == number);
            for from in &ends {
                // things without a policy reach each other as they like, which is nobody's business here
                if !(listed || is_addressed(to) || is_addressed(from))
                    || from.namespace.is_none() && !is_addressed(to)
                {
                    continue;
                }
                let protocol = if number == 53 {
                    Protocol::Udp
                } else {
                    Protocol::Tcp
                };
                if allows(policies, from, to, Port { number, protocol }) {
                    found.push(format!("{} -> {}:{number}", from.name, to.name));
                }
            }
        }
    }
    found.sort();
    found
}

/// The same list from a table. `wide` are connections of ours to everything that is outside of every policy.
fn expected(table: Table, wide: &[(&str, &[u16])], has_b: bool) -> Vec<String> {
    let mut ends = ends(labels);
    ends.retain(|end| has_b || end.name != "sandbox-b");
    let pods_outside = |end: &End| OUTSIDERS.contains(&end.name) && end.namespace.is_some();
    let mut lines = Vec::new();
    for (to, port, froms) in table {
        for from in *froms {
            if *from == OPEN {
                for end in ends.iter().filter(|end| pods_outside(end)) {
                    lines.push(format!("{} -> {to}:{port}", end.name));
                }
            } else {
                lines.push(format!("{from} -> {to}:{port}"));
            }
        }
    }
    for (from, ports) in wide {
        for to in ends
            .iter()
            .filter(|end| end.namespace.is_none() || OUTSIDERS.contains(&end.name))
        {
            lines.extend(
                ports
                    .iter()
                    .map(|port| format!("{from} -> {}:{port}", to.name)),
            );
        }
    }
    lines.sort();
    lines.dedup();
    lines
}

fn policies(objects: &[Value]) -> Vec<&Value> {
    of_kind(objects, "NetworkPolicy").collect()
}

/// The release is named otherwise there, so its pods are too.
fn full() -> Vec<Value> {
    helm::render("full", &[]).unwrap()
}

#[test]
fn everything_turned_on_lets_through_what_the_table_says() {
    let objects = full();
    let got = matrix(&policies(&objects), FULL, true);
    // sandboxes reach what is outside of the cluster at 443, and nothing of the cluster, the nodes or the cloud
    let wide: Vec<String> = expected(FULL, &[], true);
    assert_eq!(got, wide);
}

#[test]
fn the_least_lets_through_what_the_table_says() {
    let objects = helm::render("minimal", &[]).unwrap();
    let got = matrix(&policies(&objects), MINIMAL, false);
    let anywhere: &[(&str, &[u16])] = &[
        ("api", &[443, 5432, 6443]),
        ("gateway", &[443, 5432, 6443]),
        ("migrate", &[5432]),
    ];
    assert_eq!(got, expected(MINIMAL, anywhere, false));
}

/// Each change of any policy that could matter is seen by some pair of ends: without this the tables above could be blind. Here each end is
/// judged for itself, as one that lets too much through is not excused by the other.
#[test]
fn every_rule_matters() {
    let objects = full();
    let all = policies(&objects);
    let ends: Vec<End> = ends(labels).into_iter().chain(mimics()).collect();
    let mut unseen = Vec::new();
    let mut tried = 0;
    for (n, policy) in all.iter().enumerate() {
        let whole = sides(&all, &ends, at(policy, "/metadata/namespace"));
        for (change, changed) in changes(policy) {
            let mut others: Vec<&Value> = all.clone();
            match &changed {
                Some(changed) => others[n] = changed,
                None => drop(others.remove(n)),
            }
            tried += 1;
            if sides(&others, &ends, at(policy, "/metadata/namespace")) == whole {
                unseen.push(format!("{} {change}", bex_testchart::objects::name(policy)));
            }
        }
    }
    assert!(tried > 100, "{tried}");
    assert!(
        unseen.is_empty(),
        "{} of {tried}: {unseen:#?}",
        unseen.len()
    );
}

/// Pods that look like others in one respect and are not: what a selector that lost a half would take.
fn mimics() -> Vec<End> {
    let mut octet = 0;
    let mut pod = |name, namespace, labels| {
        octet += 1;
        End {
            name,
            namespace: Some(namespace),
            labels,
            ip: format!("10.1.9.{octet}").parse().unwrap(),
        }
    };
    let mut found = Vec::new();
    for component in ["api", "gateway", "migrate", "smoke"] {
        found.push(pod("mimic", "other", labels(component)));
    }
    for label in [
        ("k8s-app", "kube-dns"),
        ("app", "postgres"),
        ("app", "credential-broker"),
        ("app", "collector"),
        ("app.kubernetes.io/managed-by", "bex-api"),
    ] {
        found.push(pod("mimic", "other", vec![label]));
    }
    for namespace in [
        "kube-system",
        "database",
        "platform",
        "telemetry",
        "team-a-sandbox",
        "team-b-sandbox",
    ] {
        found.push(pod("neighbour", namespace, vec![("app", "neighbour")]));
    }
    found
}

/// What each end within a namespace lets out and in.
fn sides(policies: &[&Value], ends: &[End], namespace: &str) -> Vec<bool> {
    let mut found = Vec::new();
    for own in ends.iter().filter(|end| end.namespace == Some(namespace)) {
        for peer in ends {
            for number in TRIED {
                let protocol = if number == 53 {
                    Protocol::Udp
                } else {
                    Protocol::Tcp
                };
                let port = Port { number, protocol };
                found.push(lets_out(policies, own, peer, port));
                found.push(lets_in(policies, peer, own, port));
            }
        }
    }
    found
}

/// Every way in which a policy may be broken: it is lost, or a rule, or a peer; or a rule takes any peer, any port, any namespace, any pod.
fn changes(policy: &Value) -> Vec<(String, Option<Value>)> {
    let mut found = vec![("is gone".to_owned(), None)];
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for (r, rule) in items(&policy["spec"][direction]).iter().enumerate() {
            let mut edited = |what: String, edit: &dyn Fn(&mut Value)| {
                let mut changed = policy.clone();
                edit(&mut changed["spec"][direction]);
                found.push((format!("{direction} {r} {what}"), Some(changed)));
            };
            edited("is lost".to_owned(), &|rules| {
                drop(rules.as_array_mut().unwrap().remove(r))
            });
            for part in [peers, "ports"] {
                edited(format!("takes any of {part}"), &|rules| {
                    rules[r][part] = json!([])
                });
            }
            for (p, peer) in items(&rule[peers]).iter().enumerate() {
                // an empty list would mean everybody
                let nobody = json!({"ipBlock": {"cidr": "192.0.2.1/32"}});
                edited(format!("lost peer {p}"), &|rules| {
                    rules[r][peers][p] = nobody.clone()
                });
                for selector in ["namespaceSelector", "podSelector"] {
                    if peer.get(selector).is_some() {
                        let any = |rules: &mut Value| rules[r][peers][p][selector] = json!({});
                        edited(format!("takes any {selector} as peer {p}"), &any);
                    }
                }
            }
        }
    }
    found
}
