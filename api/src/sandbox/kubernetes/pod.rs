//! What a pod's status says about its sandbox. Pure.

use std::time::Duration;

use bex_proto::launch::CONTAINER;
use bex_proto::session::FailureReason;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStateWaiting, ContainerStatus, Pod};

use super::template::TURN_LIFE;

/// Where a pod stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Sight {
    /// Its container was not started yet, or does not answer yet; what holds it, as far as it tells.
    Coming(Option<Hold>),
    /// Its driver answers.
    Ready,
    /// It is being deleted; its container still runs.
    Leaving,
    /// Its container ended, or will never be started.
    Ended,
    /// The cluster itself does not know.
    Unknown,
}

/// What keeps a pod from starting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hold {
    /// What people are told when it does not pass.
    pub(super) reason: FailureReason,
    /// The cluster's own words, for the log.
    pub(super) words: String,
    /// Whether it may pass.
    pub(super) hope: Hope,
}

/// Whether a hold may pass by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hope {
    /// Never.
    None,
    /// The node tries again; it mostly does not help.
    Little,
    /// Room may be made, for as long as a sandbox may take.
    Some,
}

pub(super) fn judge(pod: &Pod) -> Sight {
    let leaving = pod.metadata.deletion_timestamp.is_some();
    let not_started = |hold| {
        if leaving {
            Sight::Ended
        } else {
            Sight::Coming(hold)
        }
    };
    let Some(status) = &pod.status else {
        return not_started(None);
    };
    match status.phase.as_deref() {
        Some("Succeeded" | "Failed") => return Sight::Ended,
        Some("Pending" | "Running") | None => {}
        Some(_) => return Sight::Unknown,
    }
    let containers = status.container_statuses.iter().flatten();
    let Some(container) = containers.into_iter().find(|c| c.name == CONTAINER) else {
        return not_started(unscheduled(pod));
    };
    let state = container.state.as_ref();
    if state.is_some_and(|s| s.terminated.is_some()) {
        return Sight::Ended;
    }
    if state.is_some_and(|s| s.running.is_some()) {
        return match leaving {
            true => Sight::Leaving,
            false if is_ready(pod, container) => Sight::Ready,
            false => Sight::Coming(None),
        };
    }
    let ended_before = container.restart_count > 0
        || container
            .last_state
            .as_ref()
            .is_some_and(|s| s.terminated.is_some());
    if ended_before {
        return Sight::Ended;
    }
    // while an init container is waited for, it is that one that tells why
    let inits = status.init_container_statuses.iter().flatten();
    not_started(std::iter::once(container).chain(inits).find_map(held_by))
}

fn held_by(container: &ContainerStatus) -> Option<Hold> {
    waiting(container.state.as_ref()?.waiting.as_ref()?)
}

fn is_ready(pod: &Pod, container: &ContainerStatus) -> bool {
    let status = pod.status.iter();
    let mut conditions = status.flat_map(|s| s.conditions.iter().flatten());
    container.ready && conditions.any(|c| c.type_ == "Ready" && c.status == "True")
}

fn unscheduled(pod: &Pod) -> Option<Hold> {
    let status = pod.status.as_ref()?;
    let mut conditions = status.conditions.iter().flatten();
    let condition = conditions.find(|c| c.type_ == "PodScheduled" && c.status == "False")?;
    Some(Hold {
        reason: FailureReason::ClusterFull,
        words: condition.message.clone().unwrap_or_default(),
        hope: Hope::Some,
    })
}

fn waiting(waiting: &ContainerStateWaiting) -> Option<Hold> {
    let words = waiting.message.clone().unwrap_or_default();
    let (reason, hope) = match waiting.reason.as_deref()? {
        "ErrImageNeverPull" | "InvalidImageName" => (FailureReason::ImageUnavailable, Hope::None),
        "ErrImagePull" | "ImagePullBackOff" | "ImageInspectError" | "RegistryUnavailable" => {
            (FailureReason::ImageUnavailable, Hope::Little)
        }
        // the one configuration that differs from session to session
        "CreateContainerConfigError" if words.to_ascii_lowercase().contains("secret") => {
            (FailureReason::SecretMissing, Hope::Little)
        }
        "CreateContainerConfigError" | "CreateContainerError" | "RunContainerError" => {
            (FailureReason::SandboxRefused, Hope::Little)
        }
        _ => return None,
    };
    Some(Hold {
        reason,
        words,
        hope,
    })
}

/// Whether a pod lives long enough for one more turn.
pub(super) fn outlives_a_turn(pod: &Pod, now: Timestamp) -> bool {
    let deadline = pod.spec.as_ref().and_then(|s| s.active_deadline_seconds);
    let Some(deadline) = deadline.and_then(|s| u64::try_from(s).ok()) else {
        return true;
    };
    // counted from its start on a node
    let started = pod.status.as_ref().and_then(|s| s.start_time.as_ref());
    let lived = started.map_or(Duration::ZERO, |at| age(at.0, now));
    Duration::from_secs(deadline).saturating_sub(lived) >= TURN_LIFE
}

/// How long a pod has been there.
pub(super) fn age_of(pod: &Pod, now: Timestamp) -> Duration {
    let created = pod.metadata.creation_timestamp.as_ref();
    created.map_or(Duration::ZERO, |at| age(at.0, now))
}

fn age(since: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(phase: &str, state: Value, ready: bool) -> Value {
        json!({"metadata": {"name": "p", "uid": "u1"}, "spec": {"activeDeadlineSeconds": 604_800, "containers": []},
            "status": {"phase": phase, "podIP": "10.0.0.1",
                "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}],
                "containerStatuses": [{"name": CONTAINER, "image": "", "imageID": "", "ready": ready, "restartCount": 0, "state": state}]}})
    }

    fn see(pod: &Value) -> Sight {
        judge(&serde_json::from_value(pod.clone()).expect("a pod"))
    }

    fn reason(sight: Sight) -> Option<(FailureReason, Hope)> {
        match sight {
            Sight::Coming(hold) => hold.map(|h| (h.reason, h.hope)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_recorded_state_is_judged() {
        let running = json!({"running": {}});
        assert_eq!(see(&pod("Running", running.clone(), true)), Sight::Ready);
        assert_eq!(
            see(&pod("Running", running.clone(), false)),
            Sight::Coming(None)
        );
        for (phase, state) in [
            ("Succeeded", json!({"terminated": {"exitCode": 0}})),
            ("Failed", running.clone()),
            ("Running", json!({"terminated": {"exitCode": 1}})),
        ] {
            assert_eq!(see(&pod(phase, state, true)), Sight::Ended, "{phase}");
        }
        let mut again = pod("Running", json!({"waiting": {"reason": "x"}}), false);
        again["status"]["containerStatuses"][0]["lastState"] =
            json!({"terminated": {"exitCode": 1}});
        assert_eq!(see(&again), Sight::Ended, "in back-off");
        assert_eq!(see(&pod("Unknown", running, true)), Sight::Unknown);
    }

    #[test]
    fn deletion_is_no_end_while_the_container_runs() {
        let mut leaving = pod("Running", json!({"running": {}}), true);
        leaving["metadata"]["deletionTimestamp"] = json!("2026-11-30T10:00:00Z");
        assert_eq!(see(&leaving), Sight::Leaving);
        leaving["status"]["containerStatuses"][0]["state"] =
            json!({"waiting": {"reason": "ContainerCreating"}});
        assert_eq!(
            see(&leaving),
            Sight::Ended,
            "what is being deleted is not started any more"
        );
    }

    #[test]
    fn what_holds_a_pod_is_told() {
        let waiting = |why: &str, words: &str| {
            let state = json!({"waiting": {"reason": why, "message": words}});
            reason(see(&pod("Pending", state, false)))
        };
        assert_eq!(
            waiting("ImagePullBackOff", ""),
            Some((FailureReason::ImageUnavailable, Hope::Little))
        );
        assert_eq!(
            waiting("ErrImageNeverPull", ""),
            Some((FailureReason::ImageUnavailable, Hope::None))
        );
        assert_eq!(
            waiting("CreateContainerConfigError", "secret \"git\" not found"),
            Some((FailureReason::SecretMissing, Hope::Little))
        );
        assert_eq!(
            waiting("CreateContainerConfigError", "runAsNonRoot"),
            Some((FailureReason::SandboxRefused, Hope::Little))
        );
        assert_eq!(waiting("ContainerCreating", ""), None);
        let unscheduled = json!({"metadata": {}, "status": {"phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/1 nodes"}]}});
        assert_eq!(
            reason(see(&unscheduled)),
            Some((FailureReason::ClusterFull, Hope::Some))
        );
    }

    #[test]
    fn a_pod_with_less_than_a_day_takes_no_turn() {
        let mut pod = pod("Running", json!({"running": {}}), true);
        pod["status"]["startTime"] = json!("2026-11-01T00:00:00Z");
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        let at = |text: &str| outlives_a_turn(&pod, text.parse().expect("a time"));
        assert!(at("2026-11-01T00:00:00Z"));
        assert!(at("2026-11-07T00:00:00Z"));
        assert!(!at("2026-11-07T00:00:01Z"));
        assert!(!at("2026-12-01T00:00:00Z"));
    }
}
