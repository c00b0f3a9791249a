//! From a session's agent request to everything its driver is given.

use std::collections::BTreeMap;
use std::sync::Arc;

use bex_proto::launch::AgentSpec;
use bex_proto::session::FailureReason;
use bex_store::sessions::AgentSpec as Request;

use crate::profiles::{ProfileFault, Profiles};

/// What a deployment can run, and the secrets it may give. Cheap to clone.
#[derive(Clone)]
pub struct Plans {
    profiles: Arc<Profiles>,
    secrets: Arc<BTreeMap<String, String>>,
}

/// What one sandbox runs.
#[derive(Clone)]
pub struct Plan {
    /// The agent.
    pub agent: AgentSpec,
    /// Its credentials by environment name.
    pub secrets: BTreeMap<String, String>,
    /// Whether its driver has the old form.
    pub legacy: bool,
}

/// Why nothing can run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanFault {
    /// The profile is not what it was when the session was created.
    #[error(transparent)]
    Profile(#[from] ProfileFault),
    /// A secretRef has no value.
    #[error("the secret of variable {0} has no value here")]
    SecretMissing(String),
}

impl PlanFault {
    /// What the session fails with.
    pub fn reason(&self) -> FailureReason {
        match self {
            Self::Profile(_) => FailureReason::ProfileUnknown,
            Self::SecretMissing(_) => FailureReason::SecretMissing,
        }
    }
}

impl Plans {
    /// Plans from these profiles and secret values by secretRef.
    pub fn new(profiles: Profiles, secrets: BTreeMap<String, String>) -> Self {
        Self {
            profiles: Arc::new(profiles),
            secrets: Arc::new(secrets),
        }
    }

    /// What the request runs. Secret values are looked up now and never stored.
    ///
    /// # Errors
    /// See [`PlanFault`].
    pub fn plan(&self, request: &Request) -> Result<Plan, PlanFault> {
        let resolved = self.profiles.resolve(request)?;
        let secrets = request
            .env
            .iter()
            .map(|env| match self.secrets.get(&env.secret_ref) {
                Some(value) => Ok((env.name.clone(), value.clone())),
                None => Err(PlanFault::SecretMissing(env.name.clone())),
            })
            .collect::<Result<_, _>>()?;
        Ok(Plan {
            agent: resolved.agent,
            secrets,
            legacy: resolved.legacy,
        })
    }
}

#[cfg(test)]
mod tests {
    use bex_store::sessions::SecretEnv;

    use super::*;
    use crate::profiles::Deployment;

    #[test]
    fn secrets_are_looked_up_by_reference() {
        let file = r#"{"profiles":{"a":{"agent":{"kind":"acp","argv":["/bin/agent"]}}}}"#;
        let profiles = Profiles::parse(file, Deployment::Local, None).expect("a profiles file");
        let plans = Plans::new(
            profiles,
            BTreeMap::from([("vault/key".into(), "s3cret".into())]),
        );
        let request = |secret_ref: &str| Request {
            profile: "a".into(),
            model: None,
            args: vec![],
            env: vec![SecretEnv {
                name: "API_KEY".into(),
                secret_ref: secret_ref.into(),
            }],
        };
        let plan = plans.plan(&request("vault/key")).expect("a plan");
        assert_eq!(
            plan.secrets,
            BTreeMap::from([("API_KEY".into(), "s3cret".into())])
        );
        let fault = plans.plan(&request("vault/other")).err().expect("refused");
        assert_eq!(fault.reason(), FailureReason::SecretMissing);
        assert!(!fault.to_string().contains("vault"));
    }
}
