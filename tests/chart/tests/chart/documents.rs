//! Documents that describe the chart or what it watches are current.

use std::collections::{BTreeMap, BTreeSet};

use bex_testchart::objects::{at, items, of_kind};
use bex_testchart::{helm, promtool, readme, tables, text};
use serde_json::{Value, json};

/// What a counter's name has in the text that is scraped and not in the table.
const SUFFIXES: [&str; 4] = ["_bucket", "_count", "_sum", "_total"];

fn known_metrics() -> BTreeSet<String> {
    let rows = tables::rows(&text("docs/metrics.md").unwrap());
    rows.iter().flat_map(|row| tables::code(&row[0])).collect()
}

/// Every word of a query that is a metric of ours.
fn metrics_of(query: &str) -> Vec<String> {
    let words = query.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words
        .filter(|w| w.starts_with("bex_"))
        .map(str::to_owned)
        .collect()
}

fn is_known(known: &BTreeSet<String>, metric: &str) -> bool {
    let bare = SUFFIXES
        .iter()
        .filter_map(|suffix| metric.strip_suffix(suffix));
    known.contains(metric) || bare.into_iter().any(|bare| known.contains(bare))
}

fn rules() -> Vec<Value> {
    let objects = helm::render("full", &[]).unwrap();
    let rules = of_kind(&objects, "PrometheusRule").next().unwrap();
    items(&rules["spec"]["groups"][0]["rules"]).to_vec()
}

#[test]
fn the_readme_is_what_the_values_say() {
    let expected = readme::generate(&text("charts/bex/values.yaml").unwrap()).unwrap();
    let found = text("charts/bex/README.md").unwrap();
    assert!(
        found == expected,
        "charts/bex/README.md is old: run scripts/chart readme"
    );
}

#[test]
fn the_schema_knows_every_value_and_no_other() {
    let schema: Value =
        serde_json::from_str(&text("charts/bex/values.schema.json").unwrap()).unwrap();
    let values: Value = serde_saphyr::from_str(&text("charts/bex/values.yaml").unwrap()).unwrap();
    fn compare(at: &str, schema: &Value, values: &Value, faults: &mut Vec<String>) {
        let Some(properties) = schema["properties"].as_object() else {
            return;
        };
        let Some(values) = values.as_object().filter(|v| !v.is_empty()) else {
            return;
        };
        for (key, schema) in properties.iter().filter(|(key, _)| *key != "global") {
            match values.get(key) {
                Some(value) => compare(&format!("{at}/{key}"), schema, value, faults),
                None => faults.push(format!("{at}/{key} is not in values.yaml")),
            }
        }
    }
    let mut faults = Vec::new();
    compare("", &schema, &values, &mut faults);
    assert_eq!(faults, [""; 0]);
}

#[test]
fn every_alert_watches_a_metric_that_exists_and_has_an_entry_in_the_runbook() {
    let known = known_metrics();
    let rules = rules();
    assert!(rules.len() >= 10, "{}", rules.len());
    for rule in &rules {
        let named = metrics_of(at(rule, "/expr"));
        assert!(!named.is_empty(), "{}", at(rule, "/alert"));
        for metric in named {
            assert!(
                is_known(&known, &metric),
                "{}: {metric}",
                at(rule, "/alert")
            );
        }
        let link = at(rule, "/annotations/runbook_url");
        let anchor = format!("#{}", at(rule, "/alert").to_lowercase());
        assert!(link.ends_with(&anchor), "{link}");
    }
    let alerts: Vec<_> = rules
        .iter()
        .map(|rule| at(rule, "/alert").to_owned())
        .collect();
    let runbook = text("docs/runbook.md").unwrap();
    // it may say more than what to do when an alert fires
    let mut entries = tables::headings(&runbook, 2);
    entries.retain(|heading| heading.starts_with("Bex"));
    assert_eq!(
        entries, alerts,
        "docs/runbook.md has one entry per alert, in their order"
    );
}

#[test]
fn the_dashboard_shows_metrics_that_exist() {
    queries_of_the_dashboard();
}

/// Each names metrics that exist, and none else.
fn queries_of_the_dashboard() -> Vec<String> {
    let known = known_metrics();
    let objects = helm::render("full", &[]).unwrap();
    let mut maps = of_kind(&objects, "ConfigMap");
    let map = maps
        .find(|m| at(m, "/metadata/name").ends_with("-dashboard"))
        .unwrap();
    assert_eq!(at(map, "/metadata/labels/grafana_dashboard"), "1");
    let dashboard: Value = serde_json::from_str(at(map, "/data/bex.json")).unwrap();
    let queries: Vec<_> = items(&dashboard["panels"])
        .iter()
        .flat_map(|panel| items(&panel["targets"]))
        .map(|target| at(target, "/expr").to_owned())
        .collect();
    assert!(queries.len() >= 10, "{}", queries.len());
    for query in &queries {
        let named = metrics_of(query);
        assert!(!named.is_empty(), "{query}");
        for metric in named {
            assert!(is_known(&known, &metric), "{query}: {metric}");
        }
    }
    queries
}

#[test]
fn every_query_is_one_for_prometheus() {
    let panels = queries_of_the_dashboard();
    let panels = panels.iter().enumerate();
    let panels = panels.map(|(n, query)| json!({"record": format!("panel:{n}"), "expr": query}));
    let mut all = rules();
    all.extend(panels);
    promtool::check(&all).unwrap();
    for wrong in [
        "rate(bex_gateway_streams)",
        "sum by pod (bex_gateway_streams",
    ] {
        let rule = json!({"record": "wrong", "expr": wrong});
        assert!(promtool::check(&[rule]).is_err(), "{wrong}");
    }
}

/// A word that no label has makes a query that never finds anything.
#[test]
fn queries_ask_for_values_that_labels_have() {
    let codes: BTreeSet<String> = tables::rows(&text("docs/errors.md").unwrap())
        .iter()
        .flat_map(|row| tables::code(&row[0]))
        .collect();
    let mut words: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for row in tables::rows(&text("docs/metrics.md").unwrap()) {
        let labels = row[2].split(';').filter_map(|l| l.trim().split_once(": "));
        for (label, values) in labels {
            let known = words.entry(label.trim_matches('`').to_owned()).or_default();
            match values {
                "errors.md" => known.extend(codes.iter().cloned()),
                "HTTP" => drop(known.insert("5..".to_owned())),
                _ => known.extend(values.split_whitespace().map(str::to_owned)),
            }
        }
    }
    let mut queries = queries_of_the_dashboard();
    queries.extend(rules().iter().map(|rule| at(rule, "/expr").to_owned()));
    let mut asked = 0;
    for query in &queries {
        for (label, value) in matchers(query) {
            // what the cluster's discovery gives, and names, which are looked at elsewhere
            if ["namespace", "__name__"].contains(&label.as_str()) {
                continue;
            }
            for word in value.split('|') {
                asked += 1;
                let known = words.get(&label);
                assert!(
                    known.is_some_and(|k| k.contains(word)),
                    "{query}: no {label} is ever {word}"
                );
            }
        }
    }
    assert!(asked > 20, "{asked}");
}

/// Label and value of every matcher.
fn matchers(query: &str) -> Vec<(String, String)> {
    let braces = query.split('{').skip(1).filter_map(|r| r.split_once('}'));
    let each = braces.flat_map(|(within, _)| within.split("\",").map(str::trim));
    each.filter_map(|matcher| {
        let (label, value) = matcher.split_once('=')?;
        let value = value.trim_matches(['~', '"']);
        Some((label.trim_end_matches('!').to_owned(), value.to_owned()))
    })
    .collect()
}

#[test]
fn the_autoscaler_goes_by_a_metric_that_exists() {
    let objects = helm::render("full", &[]).unwrap();
    let scaler = of_kind(&objects, "HorizontalPodAutoscaler").next().unwrap();
    let metric = at(scaler, "/spec/metrics/0/pods/metric/name");
    assert!(known_metrics().contains(metric), "{metric}");
}
