//! What the api's account may do, asked of the API server before anything needs it: a right that is missing is told by its name, and
//! not by the first session that fails.

use std::time::Duration;

use bex_store::ClusterRights;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::Api;
use kube::api::PostParams;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::{CALL, KubernetesLifecycle};

/// What is done with pods.
const VERBS: [&str; 5] = ["create", "get", "list", "watch", "delete"];
/// How often is asked again until everything is given.
const AGAIN: Duration = Duration::from_secs(5);

/// What the cluster says to one question.
enum May {
    Yes,
    No,
    /// No answer, or one that could not be made.
    Unknown,
}

impl KubernetesLifecycle {
    /// Asks until every right is given in every configured namespace, and tells what it hears. Each question is bounded in time.
    pub async fn tell_rights(self, say: watch::Sender<ClusterRights>) {
        loop {
            let before = say.borrow().clone();
            let heard = self.rights(before).await;
            say.send_replace(heard.clone());
            if heard == ClusterRights::Given {
                return;
            }
            sleep(AGAIN).await;
        }
    }

    /// One round. What is denied and was not told by `before` is logged with its namespace.
    pub async fn rights(&self, before: ClusterRights) -> ClusterRights {
        let (mut denied, mut lines, mut unknown) = (Vec::new(), Vec::new(), false);
        'all: for namespace in &self.namespaces {
            for verb in VERBS {
                match self.may(namespace, verb).await {
                    May::Yes => {}
                    May::No => {
                        lines.push((namespace, verb));
                        let right = format!("{verb} pods");
                        if !denied.contains(&right) {
                            denied.push(right);
                        }
                    }
                    May::Unknown => {
                        unknown = true;
                        break 'all;
                    }
                }
            }
        }
        let heard = match (denied.is_empty(), unknown) {
            (false, _) => ClusterRights::Lacking(denied),
            (true, true) => ClusterRights::Unknown,
            (true, false) => ClusterRights::Given,
        };
        if heard != before {
            for (namespace, verb) in lines {
                tracing::error!(namespace, verb, "the api may not do this with pods");
            }
            if heard == ClusterRights::Unknown {
                tracing::warn!("nobody tells what the api may do");
            }
        }
        heard
    }

    async fn may(&self, namespace: &str, verb: &str) -> May {
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
        let answer = timeout(CALL, reviews.create(&PostParams::default(), &review)).await;
        match answer.map(|answer| answer.map(|review| review.status)) {
            Ok(Ok(Some(status))) if status.allowed => May::Yes,
            Ok(Ok(Some(status))) if status.evaluation_error.is_none() => May::No,
            _ => May::Unknown,
        }
    }
}
