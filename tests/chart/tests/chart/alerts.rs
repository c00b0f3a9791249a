//! Every alert fires when it should and is quiet when it should be, as Prometheus itself sees it.

use bex_testchart::objects::{at, items, of_kind};
use bex_testchart::{helm, promtool};
use serde_json::{Value, json};

/// What is played to one alert for three hours, a value a minute: each line a series, its values when the alert fires, and those when it is
/// quiet. One without values is not there; a series is of the pod `p` unless it says another.
struct Case {
    alert: &'static str,
    of: Of,
    series: &'static str,
}

/// One of the two that are played.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Play {
    Fires,
    Quiet,
}

/// What an alert is about, which its labels say.
#[derive(Clone, Copy)]
enum Of {
    /// A metric that is nowhere.
    Nothing,
    Namespace,
    /// The named one, when it fires.
    Pod(&'static str),
}

const CASES: &[Case] = &[
    Case {
        alert: "BexApiDown",
        of: Of::Nothing,
        series: r#"
            bex_gateway_streams      | 1x180 |
            bex_api_http_connections |       | 0x180"#,
    },
    Case {
        alert: "BexGatewayDown",
        of: Of::Nothing,
        series: r#"
            bex_api_http_connections | 0x180 |
            bex_gateway_streams      |       | 0x180"#,
    },
    Case {
        alert: "BexApiErrors",
        of: Of::Namespace,
        series: r#"
            bex_api_http_requests_total{status="503"} | 0+3x180  | 0+1x180
            bex_api_http_requests_total{status="200"} | 0+97x180 | 0+99x180"#,
    },
    Case {
        alert: "BexDatabaseCrowded",
        of: Of::Pod("g"),
        // quiet: it is well again and again
        series: r#"
            bex_api_db_waiting              | 0x180 | 0x180
            bex_gateway_db_waiting{pod="g"} | 1x180 | 0+1x5 0+1x5 0x170"#,
    },
    Case {
        alert: "BexCompleterStuck",
        of: Of::Namespace,
        series: r#"
            bex_api_completer_ticks_total{result="ok"}    | 0+4x90 360x90 | 0+4x180
            bex_api_completer_ticks_total{result="error"} | 0x90 0+4x90   |"#,
    },
    Case {
        alert: "BexDispatcherStuck",
        of: Of::Namespace,
        series: r#"
            bex_api_dispatcher_ticks_total{result="ok"} | 0+4x90 360x90 | 0+4x180"#,
    },
    Case {
        alert: "BexRoundsFail",
        of: Of::Namespace,
        series: r#"
            bex_api_completer_rounds_total{result="timed_out"} | 0+3x180 |
            bex_api_completer_rounds_total{result="done"}      | 0+7x180 | 0+9x180
            bex_api_completer_rounds_total{result="failed"}    |         | 0+1x180"#,
    },
    Case {
        alert: "BexTurnsWait",
        of: Of::Namespace,
        series: r#"
            bex_api_dispatch_outbox_oldest_seconds | 0x160 301x20 | 299x180"#,
    },
    Case {
        alert: "BexSandboxesFail",
        of: Of::Namespace,
        series: r#"
            bex_api_dispatches_total{result="failed"} | 0x170 0+1x10 | 0+1x90 90x90"#,
    },
    Case {
        alert: "BexTurnsTruncated",
        of: Of::Namespace,
        series: r#"
            bex_api_turns_settled_total{verdict="truncated",reason="sandbox_lost"} | 0+1x180 | 0+1x180
            bex_api_turns_settled_total{verdict="complete",reason="none"}          | 0+9x180 | 0+99x180"#,
    },
    Case {
        alert: "BexDigestMismatch",
        of: Of::Namespace,
        series: r#"
            bex_api_turns_settled_total{verdict="truncated",reason="digest_mismatch"} | 0x178 1x2 |
            bex_api_turns_settled_total{verdict="truncated",reason="sandbox_lost"}    |           | 0+1x180"#,
    },
    Case {
        alert: "BexHarvestLags",
        of: Of::Namespace,
        series: r#"
            bex_api_harvest_lag_seconds_bucket{le="60"}   | 0+9x180  | 0+98x180
            bex_api_harvest_lag_seconds_bucket{le="120"}  | 0+10x180 | 0+100x180
            bex_api_harvest_lag_seconds_bucket{le="+Inf"} | 0+10x180 | 0+100x180"#,
    },
    Case {
        alert: "BexTeesEndEarly",
        of: Of::Namespace,
        series: r#"
            bex_gateway_tee_ends_total{result="stalled"} | 0+2x180 |
            bex_gateway_tee_ends_total{result="flushed"} | 0+8x180 | 0+99x180
            bex_gateway_tee_ends_total{result="failed"}  |         | 0+1x180"#,
    },
    Case {
        alert: "BexStreamsFull",
        of: Of::Pod("p"),
        series: r#"
            bex_gateway_stream_places | 9001x180 | 9000x180"#,
    },
    Case {
        alert: "BexAttachRefused",
        of: Of::Namespace,
        series: r#"
            bex_gateway_attach_refused_total{code="unavailable"}    | 0+1x180 |
            bex_gateway_attach_refused_total{code="ticket_invalid"} |         | 0+1x180"#,
    },
    Case {
        alert: "BexReplayCrowded",
        of: Of::Pod("p"),
        series: r#"
            bex_gateway_replay_free_bytes | 262144x180 | 67108864x180"#,
    },
    Case {
        alert: "BexExecFails",
        of: Of::Namespace,
        series: r#"
            bex_gateway_exec_total{op="observe",result="exec_transport"} | 0+2x180 |
            bex_gateway_exec_total{op="observe",result="ok"}             | 0+8x180 | 0+99x180
            bex_gateway_exec_total{op="observe",result="exec_timeout"}   |         | 0+1x180"#,
    },
    Case {
        alert: "BexExecRefused",
        of: Of::Namespace,
        series: r#"
            bex_gateway_exec_refused_total{code="ticket_invalid"} | 0+1x180 |
            bex_gateway_exec_refused_total{code="ticket_used"}    |         | 0+1x180"#,
    },
    Case {
        alert: "BexOrphans",
        of: Of::Namespace,
        series: r#"
            bex_api_orphans_removed_total | 0+1x180 | 0+1x90 90x90"#,
    },
    Case {
        alert: "BexSweepsFail",
        of: Of::Namespace,
        series: r#"
            bex_api_sweeps_total{result="error"} | 0+1x180 | 0+1x180
            bex_api_sweeps_total{result="ok"}    |         | 0+2x180"#,
    },
    Case {
        alert: "BexHousekeepingFails",
        of: Of::Namespace,
        series: r#"
            bex_api_housekeeping_ticks_total{result="ok"}    | 0x180   | 0+1x180
            bex_api_housekeeping_ticks_total{result="error"} | 0+1x180 | 0x180"#,
    },
    Case {
        alert: "BexRetentionFails",
        of: Of::Namespace,
        series: r#"
            bex_api_retention_ticks_total{result="ok"} | 0x180 | 0+1x180"#,
    },
    Case {
        alert: "BexStatementsFail",
        of: Of::Namespace,
        // quiet: nothing is stated without keys
        series: r#"
            bex_api_proof_ticks_total{result="ok"}    | 0x180   | 0x180
            bex_api_proof_ticks_total{result="error"} | 0+4x180 | 0x180"#,
    },
    Case {
        alert: "BexPackageForeignRow",
        of: Of::Namespace,
        series: r#"
            bex_api_package_foreign_rows_total{table="findings"} | 0+1x180 | 1x180"#,
    },
    Case {
        alert: "BexPackagesRefused",
        of: Of::Namespace,
        series: r#"
            bex_api_package_asks_total{result="gate_refused"} | 0+1x180 | 0x180
            bex_api_package_asks_total{result="ok"}           | 0+1x180 | 0+1x180"#,
    },
    Case {
        alert: "BexPackagesStay",
        of: Of::Namespace,
        // quiet: not known
        series: r#"
            bex_api_package_expiry | 0x180 | -1x180"#,
    },
    Case {
        alert: "BexIssuerAway",
        of: Of::Namespace,
        series: r#"
            bex_api_oidc_fetches_total{result="failed"} | 0+1x180 | 0+1x180
            bex_api_oidc_fetches_total{result="ok"}     | 7x180   | 0+1x180"#,
    },
    Case {
        alert: "BexExecCertificateEnds",
        of: Of::Pod("p"),
        // the clock begins at 0, and a week is 604 800 s; quiet: without TLS
        series: r#"
            bex_api_exec_tls_not_after_seconds              | 608000x180 | 0x180
            bex_gateway_exec_tls_not_after_seconds{pod="g"} | 700000x180 | 700000x180"#,
    },
    Case {
        alert: "BexSpansLost",
        of: Of::Namespace,
        series: r#"
            bex_api_otlp_spans_total{result="failed"}              | 0+1x180 | 5x180
            bex_gateway_otlp_spans_total{result="dropped",pod="g"} | 0+1x180 |
            bex_api_otlp_spans_total{result="sent"}                |         | 0+1x180"#,
    },
];

fn rules() -> Vec<Value> {
    let objects = helm::render("full", &[]).unwrap();
    let rules = of_kind(&objects, "PrometheusRule").next().unwrap();
    items(&rules["spec"]["groups"][0]["rules"]).to_vec()
}

/// The series as Prometheus keeps it: with the labels that the cluster's discovery gives it.
fn scraped(series: &str) -> String {
    let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
    let mut labels = vec![labels.trim_end_matches('}').to_owned()];
    labels.retain(|label| !label.is_empty());
    labels.push(r#"namespace="plane""#.to_owned());
    if !series.contains("pod=") {
        labels.push(r#"pod="p""#.to_owned());
    }
    format!("{name}{{{}}}", labels.join(","))
}

fn test(case: &Case, rule: &Value, play: Play) -> Value {
    let mut input = Vec::new();
    for line in case.series.trim().lines() {
        let columns: Vec<_> = line.split('|').map(str::trim).collect();
        let [series, fires, quiet] = columns[..] else {
            panic!("three columns: {line}")
        };
        let values = match play {
            Play::Fires => fires,
            Play::Quiet => quiet,
        };
        if !values.is_empty() {
            input.push(json!({"series": scraped(series), "values": values}));
        }
    }
    let severity = at(rule, "/labels/severity");
    let labels = match case.of {
        Of::Nothing => json!({"severity": severity}),
        Of::Namespace => json!({"severity": severity, "namespace": "plane"}),
        Of::Pod(pod) => json!({"severity": severity, "namespace": "plane", "pod": pod}),
    };
    let annotations = json!({
        "summary": at(rule, "/annotations/summary").replace("{{ $labels.pod }}", at(&labels, "/pod")),
        "runbook_url": at(rule, "/annotations/runbook_url"),
    });
    let expected = json!([{"exp_labels": labels, "exp_annotations": annotations}]);
    json!({"interval": "1m", "input_series": input, "alert_rule_test": [{
        "eval_time": "3h", "alertname": case.alert,
        "exp_alerts": if play == Play::Fires { expected } else { json!([]) }}]})
}

#[test]
fn every_alert_fires_when_it_should_and_only_then() {
    let rules = rules();
    let named: Vec<_> = rules.iter().map(|rule| at(rule, "/alert")).collect();
    let cases: Vec<_> = CASES.iter().map(|case| case.alert).collect();
    assert_eq!(cases, named, "one case for each alert, in their order");
    for (case, rule) in CASES.iter().zip(&rules) {
        let tests = [test(case, rule, Play::Fires), test(case, rule, Play::Quiet)];
        promtool::play(std::slice::from_ref(rule), &tests).unwrap();
    }
}

#[test]
fn an_alert_that_is_quiet_for_ever_would_be_found() {
    let (case, mut rule) = (&CASES[4], rules().swap_remove(4));
    assert_eq!(at(&rule, "/alert"), "BexCompleterStuck");
    let mistyped = at(&rule, "/expr").replace("\"ok\"", "\"okay\"");
    rule["expr"] = json!(mistyped);
    let test = test(case, &rule, Play::Fires);
    let fault = promtool::play(&[rule], &[test]).unwrap_err().to_string();
    assert!(fault.contains("BexCompleterStuck"), "{fault}");
}
