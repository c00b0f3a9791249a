//! The chart's README: what it installs, and every value with the text that stands above it in values.yaml.

use std::fmt::Write;

use anyhow::{Context, ensure};
use serde_json::Value;

/// Spaces of a level.
const INDENT: usize = 2;

const HEAD: &str = "\
# bex

<!-- written by `scripts/chart readme` from values.yaml -->

The transcript plane on Kubernetes 1.30 or newer: api and gateway as deployments of their own, sandboxes as pods of namespaces that exist
already. The chart makes no Secret and no namespace.

```sh
kubectl create namespace bex
kubectl create namespace team-a-sandbox
kubectl -n bex create secret generic bex-database --from-literal=owner-url=… --from-literal=api-url=… --from-literal=api-listen-url=… \\
  --from-literal=gateway-url=… --from-literal=gateway-listen-url=…       # postgres://…?sslmode=require
kubectl -n bex create configmap bex-database-ca --from-file=ca.crt
kubectl -n bex create secret generic bex-keys \\
  --from-literal=attach=k1:$(openssl rand -hex 32) --from-literal=exec=k1:$(openssl rand -hex 32) --from-literal=driver=k1:$(openssl rand -hex 32)
kubectl apply -f certificates.yaml         # the Secrets bex-exec-api (DNS name bex-api) and bex-exec-gateway (bex-gateway-exec.bex.svc), by cert-manager
kubectl -n bex create secret generic bex-service-tokens --from-file=tokens.json
kubectl -n bex create secret generic bex-smoke --from-literal=token=…
helm install bex charts/bex -n bex -f my-values.yaml                       # charts/bex/ci/minimal.yaml is the least it may say
helm test bex -n bex --logs
```

The migration makes the group roles `bex_api` and `bex_gateway`; log-in roles in them are made once, by whoever owns the database
(docs/operations.md). On the very first installation they are needed before the servers start: migrate first, then install with
`migrate.enabled=false`, or make them while the servers are restarted until they may work.

| who | may reach |
|---|---|
| `networkPolicies.apiClients` | api 8080 |
| `networkPolicies.attachClients` | gateway 8083 |
| api | gateway 8081, database, cluster API, the issuer's keys, the collector of traces, names |
| gateway | sandboxes 8787, database, cluster API, the collector of traces, names |
| sandboxes | `sandboxes.egress`, names, and with `sandboxes.internet` what is outside |
| `networkPolicies.scrapers` | 9080, 8084 |

Everything else is denied. In each sandbox namespace the api's account may create, get, list, watch and delete pods, the gateway's get pods and enter
them; neither may anything anywhere else.

A key ring is rotated in three upgrades: the new ring under a new key of the Secret, named by `keys.gateway.…` first, by `keys.api.…` then, and at
last without the old key in both (docs/operations.md says when). An upgrade that names another key restarts the pods; for one that was changed
in place, change `api.restart` and `gateway.restart`.

A call into a sandbox goes by TLS in which both sides are proved, on every connection. Certificates are read again when their files change.

The autoscaler needs a metrics adapter that serves `bex_gateway_streams` of pods.

## Values

| value | default | what |
|---|---|---|
";

/// The README that belongs to the text of a values file.
///
/// # Errors
/// What is not YAML, and every value without a text.
pub fn generate(values: &str) -> anyhow::Result<String> {
    let defaults: Value = serde_saphyr::from_str(values)?;
    let mut text = HEAD.to_owned();
    let mut silent = Vec::new();
    for (path, about) in described(values) {
        let pointer = format!("/{}", path.replace('.', "/"));
        let default = defaults
            .pointer(&pointer)
            .with_context(|| format!("{path} is not where it seems to be"))?;
        if about.is_empty() {
            silent.push(path);
            continue;
        }
        let about = about.replace('|', "\\|");
        writeln!(text, "| `{path}` | `{default}` | {about} |")?;
    }
    ensure!(silent.is_empty(), "without a text: {}", silent.join(", "));
    Ok(text)
}

/// Every value that is no group of others, with the comment above it, in the order of the file.
fn described(values: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let mut path: Vec<&str> = Vec::new();
    let mut comment: Vec<&str> = Vec::new();
    let lines: Vec<&str> = values.lines().collect();
    let depth = |line: &str| line.len() - line.trim_start().len();
    let is_key = |line: &str| {
        let bare = line.trim_start();
        !bare.is_empty() && !bare.starts_with(['#', '-']) && bare.contains(':')
    };
    // below a value that was described everything is its default
    let mut within: Option<usize> = None;
    for (n, line) in lines.iter().enumerate() {
        let bare = line.trim_start();
        if within.is_some_and(|deep| depth(line) > deep) {
            continue;
        }
        if bare.is_empty() {
            comment.clear();
        } else if let Some(words) = bare.strip_prefix("# ") {
            comment.push(words);
        } else if is_key(line) {
            within = None;
            let (key, rest) = bare.split_once(':').expect("it has one");
            path.truncate(depth(line) / INDENT);
            path.push(key);
            let next = lines[n + 1..].iter().find(|l| !l.trim().is_empty());
            let is_group = rest.trim().is_empty()
                && next.is_some_and(|next| {
                    depth(next) > depth(line) && !next.trim_start().starts_with('-')
                });
            if !is_group {
                found.push((path.join("."), comment.join(" ")));
                within = Some(depth(line));
            }
            comment.clear();
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_has_the_comment_above_it() {
        let values = "# not this\n\na:\n  # of b\n  # more\n  b: 1\n  # of c\n  c:\n    - x: {y: 1}\n# of d\nd: [1, 2]\n";
        let found = described(values);
        let expected = [("a.b", "of b more"), ("a.c", "of c"), ("d", "of d")];
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for ((path, about), expected) in found.iter().zip(expected) {
            assert_eq!((path.as_str(), about.as_str()), expected);
        }
        let text = generate(values).expect("all have a text");
        assert!(text.ends_with("| `a.b` | `1` | of b more |\n| `a.c` | `[{\"x\":{\"y\":1}}]` | of c |\n| `d` | `[1,2]` | of d |\n"), "{text}");
        let silent = generate("a: 1\nb:\n  c: 2\n").expect_err("no texts");
        assert_eq!(silent.to_string(), "without a text: a, b.c");
    }
}
