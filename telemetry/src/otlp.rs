//! Ended spans as OTLP writes them in JSON: ids in hexadecimal, times as texts of nanoseconds.

use std::time::{SystemTime, UNIX_EPOCH};

use bex_proto::trace::{SpanId, TraceContext};
use serde_json::{Value, json};

use crate::Attribute;

/// Attributes of one span; every caller has fewer.
const ATTRIBUTES: usize = 8;
/// Characters of one value; ids and codes are shorter.
const VALUE_CHARS: usize = 128;
/// SPAN_KIND_INTERNAL: which process it was stands in the resource.
const KIND: u8 = 1;

/// A span that is over.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) name: &'static str,
    pub(crate) context: TraceContext,
    pub(crate) parent: Option<SpanId>,
    pub(crate) began: SystemTime,
    pub(crate) ended: SystemTime,
    pub(crate) attributes: Vec<(&'static str, String)>,
}

/// Bounded copies.
pub(crate) fn attributes(of: &[Attribute<'_>]) -> Vec<(&'static str, String)> {
    of.iter()
        .take(ATTRIBUTES)
        .map(|(key, value)| (*key, value.to_string().chars().take(VALUE_CHARS).collect()))
        .collect()
}

/// An ExportTraceServiceRequest.
pub(crate) fn request(service: &str, spans: &[Ended]) -> Value {
    let spans: Vec<Value> = spans.iter().map(span).collect();
    json!({"resourceSpans": [{
        "resource": {"attributes": [attribute("service.name", service)]},
        "scopeSpans": [{
            "scope": {"name": "bex", "version": env!("CARGO_PKG_VERSION")},
            "spans": spans,
        }],
    }]})
}

fn span(ended: &Ended) -> Value {
    let attributes: Vec<Value> = ended
        .attributes
        .iter()
        .map(|(key, value)| attribute(key, value))
        .collect();
    json!({
        "traceId": ended.context.trace.to_string(),
        "spanId": ended.context.span.to_string(),
        "parentSpanId": ended.parent.map(|id| id.to_string()).unwrap_or_default(),
        "name": ended.name,
        "kind": KIND,
        "startTimeUnixNano": nanos(ended.began),
        "endTimeUnixNano": nanos(ended.ended.max(ended.began)),
        "attributes": attributes,
    })
}

fn attribute(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

fn nanos(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_nanos().to_string()
}
