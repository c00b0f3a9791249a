//! From a session's agent request to everything its driver is given.

use std::collections::BTreeMap;
use std::sync::Arc;

use bex_proto::launch::AgentSpec;
use bex_proto::session::FailureReason;
use bex_store::sessions::AgentSpec as Request;

use crate::profiles::{ProfileFault, Profiles};
use crate::sandbox::Secrets;

/// What a deployment can run, and the secrets it may give. Cheap to clone.
#[derive(Clone)]
pub struct Plans {
    profiles: Arc<Profiles>,
    secrets: SecretSource,
}

/// Where credentials come from.
#[derive(Clone)]
enum SecretSource {
    /// Values by secretRef.
    Values(Arc<BTreeMap<String, String>>),
    /// The cluster: a secretRef is `<secret>/<key>`.
    Cluster,
}

/// What one sandbox runs.
#[derive(Clone)]
pub struct Plan {
    /// The agent.
    pub agent: AgentSpec,
    /// Its credentials.
    pub secrets: Secrets,
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
            secrets: SecretSource::Values(Arc::new(secrets)),
        }
    }

    /// Plans from these profiles, with credentials that only the cluster knows.
    pub fn with_cluster_secrets(profiles: Profiles) -> Self {
        Self {
            profiles: Arc::new(profiles),
            secrets: SecretSource::Cluster,
        }
    }

    /// What the request runs. Secret values are looked up now and never stored.
    ///
    /// # Errors
    /// See [`PlanFault`].
    pub fn plan(&self, request: &Request) -> Result<Plan, PlanFault> {
        let resolved = self.profiles.resolve(request)?;
        Ok(Plan {
            agent: resolved.agent,
            secrets: self.secrets(request)?,
            legacy: resolved.legacy,
        })
    }

    fn secrets(&self, request: &Request) -> Result<Secrets, PlanFault> {
        let missing = |name: &String| PlanFault::SecretMissing(name.clone());
        let env = request.env.iter();
        Ok(match &self.secrets {
            SecretSource::Values(known) => Secrets::Values(
                env.map(|env| match known.get(&env.secret_ref) {
                    Some(value) => Ok((env.name.clone(), value.clone())),
                    None => Err(missing(&env.name)),
                })
                .collect::<Result<_, _>>()?,
            ),
            SecretSource::Cluster => Secrets::References(
                env.map(|env| match env.secret_ref.parse() {
                    Ok(key) => Ok((env.name.clone(), key)),
                    Err(_) => Err(missing(&env.name)),
                })
                .collect::<Result<_, _>>()?,
            ),
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
            profiles.clone(),
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
            Secrets::Values(BTreeMap::from([("API_KEY".into(), "s3cret".into())]))
        );
        let fault = plans.plan(&request("vault/other")).err().expect("refused");
        assert_eq!(fault.reason(), FailureReason::SecretMissing);
        assert!(!fault.to_string().contains("vault"));

        let plans = Plans::with_cluster_secrets(profiles);
        let plan = plans.plan(&request("vault/key")).expect("a plan");
        let key = crate::sandbox::SecretKey {
            secret: "vault".into(),
            key: "key".into(),
        };
        assert_eq!(
            plan.secrets,
            Secrets::References(BTreeMap::from([("API_KEY".into(), key)]))
        );
        for bad in ["vault", "a/b/c", "/key", "vault/"] {
            assert!(plans.plan(&request(bad)).is_err(), "{bad}");
        }
    }
}
