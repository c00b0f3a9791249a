//! What every sandbox's pod is made from: a reviewed file, never a caller.

use std::collections::BTreeMap;
use std::time::Duration;

use bex_proto::launch::Isolation;
use k8s_openapi::api::core::v1::{
    LocalObjectReference, PodSecurityContext, ResourceRequirements, Toleration,
};
use serde::Deserialize;

/// A last resort against a pod that nobody removes: long after every session's own deadlines.
const ACTIVE_DEADLINE: Duration = Duration::from_secs(7 * 24 * 3600);
/// What is left of a pod's life when it may still be given a turn: longer than any turn runs.
pub(super) const TURN_LIFE: Duration = Duration::from_secs(24 * 3600);
/// A fresh pod must be able to take turns for a while.
const LEAST_DEADLINE: Duration = Duration::from_secs(2 * TURN_LIFE.as_secs());
/// Labels of the pods that the api itself gives.
const OUR_LABELS: [&str; 2] = ["bex/", "app.kubernetes.io/"];

/// The user of agents, another one than the driver's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentUser {
    /// User id; not 0.
    pub uid: u32,
    /// Group id; not 0.
    pub gid: u32,
}

/// See the module's text.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Template {
    /// The image; has the agents, and the driver unless `driver_image` brings it.
    pub image: String,
    /// The image of an init container that puts its driver beside what `image` has: for images of agents alone, or with an older driver.
    #[serde(default)]
    pub driver_image: Option<String>,
    /// `Always`, `IfNotPresent` or `Never`; the cluster's default without it.
    #[serde(default)]
    pub image_pull_policy: Option<String>,
    /// Secrets of the sandbox's namespace.
    #[serde(default)]
    pub image_pull_secrets: Vec<LocalObjectReference>,
    /// Requests and limits.
    #[serde(default)]
    pub resources: ResourceRequirements,
    /// `gvisor`, for instance.
    #[serde(default)]
    pub runtime_class_name: Option<String>,
    /// The pod's; seccomp is `RuntimeDefault` unless it says otherwise. The container's is given by the contract.
    #[serde(default)]
    pub security_context: PodSecurityContext,
    /// Who agents run as. Only on one machine may it be absent: agents then share the driver's user.
    #[serde(default)]
    pub agent_user: Option<AgentUser>,
    /// Further labels.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Further annotations.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// Which nodes.
    #[serde(default)]
    pub node_selector: BTreeMap<String, String>,
    /// Which taints are borne.
    #[serde(default)]
    pub tolerations: Vec<Toleration>,
    /// Which pods give way.
    #[serde(default)]
    pub priority_class_name: Option<String>,
    /// The pod's last resort.
    #[serde(default = "active_deadline")]
    pub active_deadline_seconds: i64,
}

/// Why a template is refused. No value of it is repeated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateFault {
    /// Not the expected JSON.
    #[error("is not a sandbox template: line {line}, column {column}")]
    Json {
        /// Where.
        line: usize,
        /// Where.
        column: usize,
    },
    /// No image, or an empty name for the driver's.
    #[error("the template names no image")]
    Image,
    /// Agents as root, or as the driver.
    #[error("the template must name an agentUser with a uid and a gid other than 0")]
    AgentUser,
    /// Too short for a turn.
    #[error("activeDeadlineSeconds must be at least {} s", LEAST_DEADLINE.as_secs())]
    Deadline,
    /// A label or annotation that the api gives.
    #[error("labels and annotations of bex/ and app.kubernetes.io/ are the api's")]
    OurLabel,
}

/// Whether agents must have a user of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentUsers {
    /// They must.
    Required,
    /// Not on one machine, whose sandboxes claim no protection.
    Optional,
}

fn active_deadline() -> i64 {
    ACTIVE_DEADLINE.as_secs().cast_signed()
}

impl Template {
    /// Reads a template's text.
    ///
    /// # Errors
    /// The first thing that is not acceptable.
    pub fn parse(text: &str, users: AgentUsers) -> Result<Self, TemplateFault> {
        let template: Self = serde_json::from_str(text).map_err(|e| TemplateFault::Json {
            line: e.line(),
            column: e.column(),
        })?;
        if template.image.is_empty() || template.driver_image.as_deref() == Some("") {
            return Err(TemplateFault::Image);
        }
        match template.agent_user {
            None if users == AgentUsers::Required => return Err(TemplateFault::AgentUser),
            Some(user) if user.uid == 0 || user.gid == 0 => return Err(TemplateFault::AgentUser),
            _ => {}
        }
        if template.active_deadline_seconds < LEAST_DEADLINE.as_secs().cast_signed() {
            return Err(TemplateFault::Deadline);
        }
        let mut keys = template.labels.keys().chain(template.annotations.keys());
        if keys.any(|key| OUR_LABELS.iter().any(|ours| key.starts_with(ours))) {
            return Err(TemplateFault::OurLabel);
        }
        Ok(template)
    }

    pub(super) fn isolation(&self) -> Isolation {
        match self.agent_user {
            Some(AgentUser { uid, gid }) => Isolation::User { uid, gid },
            None => Isolation::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_is_judged_before_any_pod_is_made() {
        let parse = |text: &str| Template::parse(text, AgentUsers::Required);
        let user = r#""agentUser":{"uid":1000,"gid":1000}"#;
        let good = parse(&format!(r#"{{"image":"i",{user}}}"#)).expect("good");
        assert_eq!(good.active_deadline_seconds, 7 * 24 * 3600);
        assert_eq!(
            good.isolation(),
            Isolation::User {
                uid: 1000,
                gid: 1000
            }
        );
        let bad = |rest: &str| parse(&format!(r#"{{"image":"i",{rest}}}"#)).expect_err("refused");
        for rest in [
            r#""agentUser":{"uid":0,"gid":1000}"#,
            r#""agentUser":{"uid":1000,"gid":0}"#,
        ] {
            assert_eq!(bad(rest), TemplateFault::AgentUser);
        }
        assert_eq!(
            parse(r#"{"image":"i"}"#).err(),
            Some(TemplateFault::AgentUser)
        );
        assert!(Template::parse(r#"{"image":"i"}"#, AgentUsers::Optional).is_ok());
        assert_eq!(
            bad(&format!(r#"{user},"activeDeadlineSeconds":90000"#)),
            TemplateFault::Deadline
        );
        assert_eq!(
            bad(&format!(r#"{user},"labels":{{"bex/session":"x"}}"#)),
            TemplateFault::OurLabel
        );
        assert!(matches!(
            bad(&format!(r#"{user},"command":["hunter2"]"#)),
            TemplateFault::Json { .. }
        ));
    }
}
