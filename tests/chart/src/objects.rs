//! Rendered objects, and what they are asked for again and again.

use serde_json::Value;

/// Every object of a rendered text.
///
/// # Errors
/// What is not YAML.
pub fn parse(text: &str) -> anyhow::Result<Vec<Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text)?;
    Ok(documents.into_iter().filter(|d| !d.is_null()).collect())
}

/// A text within an object, or nothing.
pub fn at<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or("")
}

/// The items of a list, or none.
pub fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

/// Kind, namespace and name.
pub fn name(object: &Value) -> String {
    format!(
        "{} {}/{}",
        at(object, "/kind"),
        at(object, "/metadata/namespace"),
        at(object, "/metadata/name")
    )
}

/// Those of a kind.
pub fn of_kind<'a>(objects: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    objects.iter().filter(move |o| at(o, "/kind") == kind)
}

/// The pod templates of the objects, each with the name of what has it; a bare pod is its own.
pub fn pods(objects: &[Value]) -> Vec<(String, &Value)> {
    let template = |kind| match kind {
        "Deployment" | "Job" => Some("/spec/template"),
        "Pod" => Some(""),
        _ => None,
    };
    let kinds = ["Deployment", "Job", "Pod"];
    objects
        .iter()
        .filter_map(|object| {
            let kind = kinds.into_iter().find(|k| *k == at(object, "/kind"))?;
            Some((name(object), object.pointer(template(kind)?)?))
        })
        .collect()
}
