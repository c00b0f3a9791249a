//! A pod's status as the kubelet writes it.

use serde_json::{Value, json};

use super::containers::{BoxState, Bx, Ended, Pod};
use super::files::word;
use crate::world::now;

pub(super) fn status(pod: &Pod) -> Value {
    let phase = phase(pod);
    let mut status =
        json!({"phase": phase, "qosClass": "BestEffort", "conditions": conditions(pod, phase)});
    if let Some((reason, message)) = pod.failed {
        status["reason"] = json!(reason);
        status["message"] = json!(message);
    }
    if !pod.is_scheduled {
        return status;
    }
    status["hostIP"] = json!("127.0.0.1");
    status["startTime"] = pod.began.clone();
    if let Some(ip) = pod.ip {
        // kept also when the pod has ended and the address is another pod's
        status["podIP"] = json!(ip);
        status["podIPs"] = json!([{"ip": ip}]);
    }
    let of = |is_init: bool| -> Vec<Value> {
        let boxes = pod.boxes.iter().filter(|b| b.is_init == is_init);
        boxes.map(container).collect()
    };
    if pod.boxes.iter().any(|b| b.is_init) {
        status["initContainerStatuses"] = json!(of(true));
    }
    status["containerStatuses"] = json!(of(false));
    status
}

fn phase(pod: &Pod) -> &'static str {
    let policy = word(&pod.spec["spec"]["restartPolicy"]);
    let mains = || pod.boxes.iter().filter(|b| !b.is_init);
    let code = |b: &Bx| match &b.state {
        BoxState::Ended(ended) => Some(ended.code),
        _ => None,
    };
    let stays = |code: i32| policy == "Never" || (policy == "OnFailure" && code == 0);
    let init_failed = pod
        .boxes
        .iter()
        .any(|b| b.is_init && code(b).is_some_and(|c| c != 0 && stays(c)));
    if pod.failed.is_some() || init_failed {
        return "Failed";
    }
    let over = mains().all(|b| code(b).is_some_and(stays));
    if over {
        return if mains().all(|b| code(b) == Some(0)) {
            "Succeeded"
        } else {
            "Failed"
        };
    }
    // what was started once is never Pending again
    if mains().all(|b| b.id.is_some()) {
        "Running"
    } else {
        "Pending"
    }
}

fn conditions(pod: &Pod, phase: &str) -> Value {
    let condition = |kind: &str, holds: bool, reason: &str| {
        let mut one = json!({"type": kind, "status": if holds { "True" } else { "False" },
            "lastProbeTime": null, "lastTransitionTime": now()});
        if !holds {
            one["reason"] = json!(reason);
        }
        one
    };
    if !pod.is_scheduled {
        let mut unscheduled = condition("PodScheduled", false, "Unschedulable");
        unscheduled["message"] =
            json!("0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector.");
        return json!([unscheduled]);
    }
    let ready = phase == "Running" && pod.boxes.iter().filter(|b| !b.is_init).all(|b| b.ready);
    let why = match phase {
        "Succeeded" => "PodCompleted",
        "Failed" => "PodFailed",
        _ => "ContainersNotReady",
    };
    let has_ended = matches!(phase, "Succeeded" | "Failed");
    let initialized = pod
        .boxes
        .iter()
        .filter(|b| b.is_init)
        .all(|b| matches!(&b.state, BoxState::Ended(e) if e.code == 0));
    json!([
        condition("PodReadyToStartContainers", !has_ended, ""),
        condition("Initialized", initialized, "ContainersNotInitialized"),
        condition("Ready", ready, why),
        condition("ContainersReady", ready, why),
        condition("PodScheduled", true, ""),
    ])
}

fn container(bx: &Bx) -> Value {
    let state = match &bx.state {
        BoxState::Waiting(reason, message) if message.is_empty() => {
            json!({"waiting": {"reason": reason}})
        }
        BoxState::Waiting(reason, message) => {
            json!({"waiting": {"reason": reason, "message": message}})
        }
        BoxState::Running { since } => json!({"running": {"startedAt": since}}),
        BoxState::Ended(ended) => terminated(ended),
    };
    let mut status = json!({
        "name": word(&bx.spec["name"]),
        "image": word(&bx.spec["image"]),
        "imageID": "",
        "ready": bx.ready || (bx.is_init && matches!(&bx.state, BoxState::Ended(e) if e.code == 0)),
        "started": bx.runs(),
        "restartCount": bx.restarts,
        "state": state,
        "lastState": bx.last.as_ref().map_or(json!({}), terminated),
    });
    if let Some(id) = &bx.id {
        status["containerID"] = json!(id);
    }
    status
}

fn terminated(ended: &Ended) -> Value {
    json!({"terminated": {"exitCode": ended.code, "reason": ended.reason, "containerID": ended.id,
        "startedAt": ended.began, "finishedAt": ended.ended}})
}
