//! What the api's account may do, asked of the API server before anything needs it: a right that is missing is told by its name, and
//! not by the first session that fails.

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::Api;
use kube::api::PostParams;
use tokio::time::timeout;

use super::{CALL, KubernetesLifecycle, Unread};

/// What is done with pods.
const VERBS: [&str; 5] = ["create", "get", "list", "watch", "delete"];

/// A right that the account does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lacking {
    /// Where.
    pub namespace: String,
    /// To do what with pods.
    pub verb: &'static str,
}

/// Nobody said what the account may do.
#[derive(Debug, thiserror::Error)]
#[error("the rights in {namespace} could not be asked for")]
pub struct Unasked {
    namespace: String,
    #[source]
    source: Unread,
}

impl KubernetesLifecycle {
    /// Every right that is missing in the configured namespaces. Each question is bounded in time.
    ///
    /// # Errors
    /// At the first question that is not answered.
    pub async fn lacking(&self) -> Result<Vec<Lacking>, Unasked> {
        let mut lacking = Vec::new();
        for namespace in &self.namespaces {
            for verb in VERBS {
                let may = self.may(namespace, verb).await;
                let unasked = |source| Unasked {
                    namespace: namespace.clone(),
                    source,
                };
                if !may.map_err(unasked)? {
                    lacking.push(Lacking {
                        namespace: namespace.clone(),
                        verb,
                    });
                }
            }
        }
        Ok(lacking)
    }

    async fn may(&self, namespace: &str, verb: &str) -> Result<bool, Unread> {
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(ResourceAttributes {
                    namespace: Some(namespace.to_owned()),
                    verb: Some(verb.to_owned()),
                    resource: Some("pods".to_owned()),
                    ..ResourceAttributes::default()
                }),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        let reviews: Api<SelfSubjectAccessReview> = Api::all(self.client.clone());
        match timeout(CALL, reviews.create(&PostParams::default(), &review)).await {
            Ok(Ok(answer)) => Ok(answer.status.is_some_and(|status| status.allowed)),
            Ok(Err(error)) => Err(Unread::Refused(Box::new(error))),
            Err(_) => Err(Unread::Late),
        }
    }
}
