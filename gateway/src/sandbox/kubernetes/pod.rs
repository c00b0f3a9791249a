//! What a pod's status says about one sandbox life. Pure.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};

use crate::sandbox::TargetRef;

/// What is to be seen of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Sight {
    /// The very pod, and its container runs.
    Alive(Alive),
    /// The container was never started.
    NotYet,
    /// The life is over.
    Gone(Why),
    /// Nobody can say.
    Unknown,
}

/// A running container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Alive {
    /// Another one, in the same pod, is another life of its files and processes.
    pub(super) container_id: String,
    /// The pod's address while it is Ready. An address that a pod merely still has is nobody's.
    pub(super) ready_at: Option<IpAddr>,
    /// Whether it is being deleted.
    pub(super) terminating: bool,
}

/// Why a life is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// No such pod, or another one of its name.
    Deleted,
    /// Its activeDeadlineSeconds.
    Deadline,
    /// The container ended, whether or not it will be started again.
    ContainerEnded,
    /// The target's names are not such as the api gives.
    Foreign,
}

pub(super) fn judge(pod: &Pod, target: &TargetRef) -> Sight {
    if pod.metadata.uid.as_deref() != Some(&*target.pod_uid) {
        return Sight::Gone(Why::Deleted);
    }
    let terminating = pod.metadata.deletion_timestamp.is_some();
    let Some(status) = &pod.status else {
        return Sight::NotYet;
    };
    match status.phase.as_deref() {
        Some("Succeeded" | "Failed") => {
            let deadline = status.reason.as_deref() == Some("DeadlineExceeded");
            return Sight::Gone(if deadline {
                Why::Deadline
            } else {
                Why::ContainerEnded
            });
        }
        Some("Pending" | "Running") => {}
        _ => return Sight::Unknown,
    }
    if !has_container(pod, &target.container) {
        // the ticket is wrong, not the sandbox gone
        return Sight::Unknown;
    }
    let statuses = status.container_statuses.iter().flatten();
    match statuses.into_iter().find(|s| s.name == target.container) {
        Some(container) => look_at(container, status, terminating),
        None => not_started(terminating),
    }
}

fn has_container(pod: &Pod, name: &str) -> bool {
    let spec = pod.spec.iter();
    spec.flat_map(|s| &s.containers).any(|c| c.name == name)
}

fn look_at(container: &ContainerStatus, status: &PodStatus, terminating: bool) -> Sight {
    let state = container.state.as_ref();
    if state.is_some_and(|s| s.terminated.is_some()) {
        return Sight::Gone(Why::ContainerEnded);
    }
    if state.is_some_and(|s| s.running.is_some()) && status.phase.as_deref() == Some("Running") {
        return match &container.container_id {
            Some(id) => Sight::Alive(Alive {
                container_id: id.clone(),
                ready_at: ready_at(container, status),
                terminating,
            }),
            None => Sight::Unknown,
        };
    }
    // waiting: in back-off after an end, or before the first start
    let ended = container.restart_count > 0
        || container
            .last_state
            .as_ref()
            .is_some_and(|s| s.terminated.is_some());
    if ended {
        return Sight::Gone(Why::ContainerEnded);
    }
    not_started(terminating)
}

/// What is being deleted is not started any more.
fn not_started(terminating: bool) -> Sight {
    if terminating {
        Sight::Gone(Why::Deleted)
    } else {
        Sight::NotYet
    }
}

fn ready_at(container: &ContainerStatus, status: &PodStatus) -> Option<IpAddr> {
    let mut conditions = status.conditions.iter().flatten();
    let ready = conditions.any(|c| c.type_ == "Ready" && c.status == "True");
    if !(ready && container.ready) {
        return None;
    }
    status.pod_ip.as_deref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use bex_proto::{Generation, SessionId};
    use serde_json::{Value, json};

    use super::*;

    fn target() -> TargetRef {
        TargetRef {
            session: SessionId::random(),
            generation: Generation(1),
            namespace: "demo-sandbox".into(),
            pod: "p".into(),
            pod_uid: "u1".into(),
            container: "main".into(),
            legacy: false,
            driver_kid: "d1".into(),
        }
    }

    /// A pod as the record has it, its ready condition last.
    fn pod(phase: &str, state: Value, last: Value, ready: bool) -> Value {
        json!({
            "metadata": {"name": "p", "uid": "u1"},
            "spec": {"containers": [{"name": "side"}, {"name": "main"}]},
            "status": {
                "phase": phase, "podIP": "10.244.7.54",
                "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}],
                "containerStatuses": [{"name": "main", "containerID": "containerd://c1", "ready": ready, "image": "", "imageID": "",
                    "restartCount": i32::from(last != json!({})), "state": state, "lastState": last}],
            },
        })
    }

    fn see(pod: &Value) -> Sight {
        judge(
            &serde_json::from_value(pod.clone()).expect("a pod"),
            &target(),
        )
    }

    fn alive(ready_at: Option<&str>, terminating: bool) -> Sight {
        Sight::Alive(Alive {
            container_id: "containerd://c1".into(),
            ready_at: ready_at.map(|ip| ip.parse().expect("an address")),
            terminating,
        })
    }

    #[test]
    fn each_recorded_state_is_judged() {
        let running = json!({"running": {"startedAt": "2026-11-30T10:00:00Z"}});
        let ended = |code: i32| json!({"terminated": {"exitCode": code, "reason": "Error"}});
        let waiting = |reason: &str| json!({"waiting": {"reason": reason}});
        let none = json!({});
        for (what, pod, seen) in [
            (
                "ready",
                pod("Running", running.clone(), none.clone(), true),
                alive(Some("10.244.7.54"), false),
            ),
            (
                "not ready",
                pod("Running", running.clone(), none.clone(), false),
                alive(None, false),
            ),
            (
                "succeeded",
                pod("Succeeded", ended(0), none.clone(), false),
                Sight::Gone(Why::ContainerEnded),
            ),
            (
                "failed",
                pod("Failed", ended(3), none.clone(), false),
                Sight::Gone(Why::ContainerEnded),
            ),
            (
                "between crash and back-off",
                pod("Running", ended(1), none.clone(), false),
                Sight::Gone(Why::ContainerEnded),
            ),
            (
                "back-off",
                pod("Running", waiting("CrashLoopBackOff"), ended(1), false),
                Sight::Gone(Why::ContainerEnded),
            ),
            (
                "no image",
                pod("Pending", waiting("ErrImagePull"), none.clone(), false),
                Sight::NotYet,
            ),
            (
                "being made",
                pod("Pending", waiting("PodInitializing"), none.clone(), false),
                Sight::NotYet,
            ),
            (
                "restarted in place",
                pod("Running", running.clone(), ended(137), true),
                alive(Some("10.244.7.54"), false),
            ),
            (
                "no phase",
                pod("Unknown", running.clone(), none.clone(), true),
                Sight::Unknown,
            ),
        ] {
            assert_eq!(see(&pod), seen, "{what}");
        }
    }

    #[test]
    fn a_retained_address_of_a_pod_that_is_not_ready_is_nobodys() {
        let mut failed = pod("Running", json!({"running": {}}), json!({}), true);
        failed["status"]["conditions"][0]["status"] = json!("Unknown");
        assert_eq!(see(&failed), alive(None, false), "the node is lost");
    }

    #[test]
    fn another_uid_is_another_sandbox_and_deletion_is_seen() {
        let mut other = pod("Running", json!({"running": {}}), json!({}), true);
        other["metadata"]["uid"] = json!("u2");
        assert_eq!(see(&other), Sight::Gone(Why::Deleted));
        let mut dying = pod("Running", json!({"running": {}}), json!({}), true);
        dying["metadata"]["deletionTimestamp"] = json!("2026-11-30T10:00:00Z");
        assert_eq!(see(&dying), alive(Some("10.244.7.54"), true));
        let mut never = pod(
            "Pending",
            json!({"waiting": {"reason": "ContainerCreating"}}),
            json!({}),
            false,
        );
        never["metadata"]["deletionTimestamp"] = json!("2026-11-30T10:00:00Z");
        assert_eq!(see(&never), Sight::Gone(Why::Deleted));
        let mut late = pod(
            "Failed",
            json!({"terminated": {"exitCode": 137}}),
            json!({}),
            false,
        );
        late["status"]["reason"] = json!("DeadlineExceeded");
        assert_eq!(see(&late), Sight::Gone(Why::Deadline));
    }

    #[test]
    fn a_container_that_the_pod_does_not_have_says_nothing_about_the_pod() {
        let mut pod = pod("Running", json!({"running": {}}), json!({}), true);
        pod["spec"]["containers"] = json!([{"name": "side"}]);
        assert_eq!(see(&pod), Sight::Unknown);
    }
}
