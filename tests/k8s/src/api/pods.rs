//! get, list, create, delete.

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde_json::{Value, json};

use super::{Body, Call, Failure, json_body};
use crate::node::{self, Order};
use crate::objects::{Key, has_fields, selects, uid_of};
use crate::world::{Deletion, World, now, random_uid};

/// What the API server takes as one object.
const OBJECT_BYTES: usize = 3 * 1024 * 1024;
const DEFAULT_GRACE: u64 = 30;
const NAME_BYTES: usize = 253;

pub(super) fn get(world: &World, call: &Call) -> Result<Response<Body>, Failure> {
    let key = key(call)?;
    let pod = world.pod(&key).ok_or_else(|| Failure::not_found(&key.1))?;
    Ok(json_body(StatusCode::OK, &pod))
}

pub(super) fn list(world: &World, call: &Call) -> Result<Response<Body>, Failure> {
    let limit = call
        .parameter("limit")
        .and_then(|l| l.parse::<usize>().ok())
        .filter(|l| *l > 0);
    let after = call
        .parameter("continue")
        .filter(|c| !c.is_empty())
        .and_then(|c| c.split_once('/'));
    let after = after.map(|(namespace, name)| (namespace.to_owned(), name.to_owned()));
    let (version, mut found) = world.with(|state| {
        let all = state
            .objects
            .iter()
            .filter(|(key, pod)| Some(*key) > after.as_ref() && wanted(call, key, pod));
        let found: Vec<(Key, Value)> = all.map(|(key, pod)| (key.clone(), pod.clone())).collect();
        (state.objects.version(), found)
    });
    let mut metadata = json!({"resourceVersion": version.to_string()});
    if let Some(limit) = limit.filter(|limit| found.len() > *limit) {
        metadata["remainingItemCount"] = json!(found.len() - limit);
        found.truncate(limit);
        metadata["continue"] = json!(found.last().map(|((ns, name), _)| format!("{ns}/{name}")));
    }
    let items: Vec<Value> = found.into_iter().map(|(_, pod)| pod).collect();
    let list = json!({"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": items});
    Ok(json_body(StatusCode::OK, &list))
}

/// Whether a list or watch asks for this pod.
pub(super) fn wanted(call: &Call, key: &Key, pod: &Value) -> bool {
    call.namespace.as_ref().is_none_or(|ns| *ns == key.0)
        && selects(call.parameter("labelSelector").unwrap_or_default(), pod)
        && has_fields(call.parameter("fieldSelector").unwrap_or_default(), pod)
}

pub(super) async fn create(
    world: &Arc<World>,
    call: &Call,
    request: Request<Incoming>,
) -> Result<Response<Body>, Failure> {
    let pod: Value = body(request)
        .await?
        .ok_or_else(|| Failure::bad_request("a body is required"))?;
    let namespace = call.namespace.clone().unwrap_or_default();
    let pod = store(world, &namespace, pod)?;
    Ok(json_body(StatusCode::CREATED, &pod))
}

/// Checks and stores a new pod, and tells the node.
pub(crate) fn store(world: &Arc<World>, namespace: &str, mut pod: Value) -> Result<Value, Failure> {
    let name = name_of(&pod)?;
    check(&name, namespace, &pod)?;
    let uid = random_uid();
    {
        let metadata = &mut pod["metadata"];
        metadata["name"] = json!(name);
        metadata["namespace"] = json!(namespace);
        metadata["uid"] = json!(uid);
        metadata["creationTimestamp"] = now();
    }
    pod["kind"] = json!("Pod");
    pod["apiVersion"] = json!("v1");
    pod["status"] = json!({"phase": "Pending", "qosClass": "BestEffort"});
    let spec = &mut pod["spec"];
    for (field, value) in [
        ("restartPolicy", json!("Always")),
        ("terminationGracePeriodSeconds", json!(DEFAULT_GRACE)),
        ("serviceAccountName", json!("default")),
        ("enableServiceLinks", json!(true)),
    ] {
        if spec[field].is_null() {
            spec[field] = value;
        }
    }
    let key = (namespace.to_owned(), name.clone());
    let pod = world.with(|state| {
        let Some(quota) = state.namespaces.get(namespace).copied() else {
            return Err(Failure::namespace_not_found(namespace));
        };
        if let Some(there) = state.objects.get(&key) {
            let dying = !there["metadata"]["deletionTimestamp"].is_null();
            return Err(if dying {
                Failure::being_deleted(&name)
            } else {
                Failure::already_exists(&name)
            });
        }
        let counts = |pod: &Value| {
            !matches!(
                pod["status"]["phase"].as_str(),
                Some("Succeeded" | "Failed")
            )
        };
        let used = state
            .objects
            .iter()
            .filter(|((ns, _), pod)| ns == namespace && counts(pod))
            .count();
        if let Some(limit) = quota.filter(|limit| used >= *limit) {
            return Err(Failure::quota(&name, used, limit));
        }
        state.objects.insert(key.clone(), pod);
        state
            .objects
            .get(&key)
            .cloned()
            .ok_or_else(|| Failure::not_found(&name))
    })?;
    node::begin(world, key, &pod);
    Ok(pod)
}

fn name_of(pod: &Value) -> Result<String, Failure> {
    if let Some(name) = pod["metadata"]["name"].as_str() {
        return Ok(name.to_owned());
    }
    let prefix = pod["metadata"]["generateName"].as_str();
    let prefix = prefix.ok_or_else(|| {
        Failure::invalid(
            "",
            "metadata.name: Required value: name or generateName is required",
        )
    })?;
    Ok(format!("{prefix}{}", &random_uid()[..5]))
}

fn check(name: &str, namespace: &str, pod: &Value) -> Result<(), Failure> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let edges = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if name.is_empty()
        || name.len() > NAME_BYTES
        || !name.chars().all(plain)
        || !name.starts_with(edges)
        || !name.ends_with(edges)
    {
        return Err(Failure::invalid(
            name,
            "metadata.name: Invalid value: a lowercase RFC 1123 subdomain is required",
        ));
    }
    let meant = pod["metadata"]["namespace"].as_str().unwrap_or(namespace);
    if meant != namespace {
        return Err(Failure::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    let containers = pod["spec"]["containers"]
        .as_array()
        .map_or(&[][..], Vec::as_slice);
    if containers.is_empty() {
        return Err(Failure::invalid(name, "spec.containers: Required value"));
    }
    let complete =
        |c: &Value| c["name"].is_string() && c["image"].as_str().is_some_and(|i| !i.is_empty());
    if !containers.iter().all(complete) {
        return Err(Failure::invalid(
            name,
            "spec.containers[0].image: Required value",
        ));
    }
    for (key, value) in pod["metadata"]["labels"].as_object().into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        let fine = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if value.len() > 63 || !value.chars().all(fine) {
            return Err(Failure::invalid(
                name,
                &format!("metadata.labels: Invalid value: \"{value}\" of {key}"),
            ));
        }
    }
    Ok(())
}

pub(super) async fn delete(
    world: &Arc<World>,
    call: &Call,
    request: Request<Incoming>,
) -> Result<Response<Body>, Failure> {
    let key = key(call)?;
    let options = body(request).await?.unwrap_or_default();
    let asked = call
        .parameter("gracePeriodSeconds")
        .and_then(|g| g.parse().ok());
    let grace = options["gracePeriodSeconds"].as_u64().or(asked);
    let uid = options["preconditions"]["uid"].as_str();
    let asked_for = Deletion {
        namespace: key.0.clone(),
        name: key.1.clone(),
        uid: uid.map(str::to_owned),
    };
    world.with(|state| state.deletions.push(asked_for));
    let version = options["preconditions"]["resourceVersion"].as_str();
    if let Some(pod) = world.pod(&key)
        && version.is_some_and(|v| pod["metadata"]["resourceVersion"] != v)
    {
        return Err(Failure::conflict(
            &key.1,
            version.unwrap_or_default(),
            "another resourceVersion",
        ));
    }
    let pod = remove(world, &key, uid, grace)?;
    Ok(json_body(StatusCode::OK, &pod))
}

/// Deletes as the API server does: at once without a node or grace, else by the node after the grace.
pub(crate) fn remove(
    world: &Arc<World>,
    key: &Key,
    uid: Option<&str>,
    grace: Option<u64>,
) -> Result<Value, Failure> {
    let (grace, pod) = world.with(|state| {
        let pod = state
            .objects
            .get(key)
            .ok_or_else(|| Failure::not_found(&key.1))?
            .clone();
        let found = uid_of(&pod).to_owned();
        if let Some(wanted) = uid.filter(|uid| *uid != found) {
            return Err(Failure::conflict(&key.1, wanted, &found));
        }
        let default = pod["spec"]["terminationGracePeriodSeconds"]
            .as_u64()
            .unwrap_or(DEFAULT_GRACE);
        let grace = grace.unwrap_or(default);
        let on_node = !pod["spec"]["nodeName"].is_null() && state.lives.contains_key(&found);
        let ended = matches!(
            pod["status"]["phase"].as_str(),
            Some("Succeeded" | "Failed")
        );
        if grace == 0 || !on_node || ended {
            let gone = state.objects.remove(key, &found);
            return Ok((grace, gone.unwrap_or(pod)));
        }
        state
            .objects
            .update(key, &found, |pod| node::mark_deleted(pod, grace));
        Ok((grace, state.objects.get(key).cloned().unwrap_or(pod)))
    })?;
    let order = Order::Delete {
        grace: Duration::from_secs(grace),
    };
    world.order_uid(uid_of(&pod), order);
    Ok(pod)
}

fn key(call: &Call) -> Result<Key, Failure> {
    match (&call.namespace, &call.name) {
        (Some(namespace), Some(name)) => Ok((namespace.clone(), name.clone())),
        _ => Err(Failure::bad_request("a name is required")),
    }
}

/// `None` for an empty one.
async fn body(request: Request<Incoming>) -> Result<Option<Value>, Failure> {
    let body = Limited::new(request.into_body(), OBJECT_BYTES)
        .collect()
        .await;
    let bytes = body
        .map_err(|_| Failure::bad_request("the body cannot be read"))?
        .to_bytes();
    if bytes.is_empty() {
        return Ok(None);
    }
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(|e| Failure::bad_request(format!("the object provided is unrecognized: {e}")))
}
