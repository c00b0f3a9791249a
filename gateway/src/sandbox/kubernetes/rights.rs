//! What the gateway's account may do, asked of the API server before anything needs it: a role that is missing is told by its name, and not
//! by the first session that cannot be read.

use std::time::Duration;

use bex_store::ClusterRights;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::Api;
use kube::api::PostParams;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{error, info, warn};

use super::{KubernetesTargets, LOOK_TIMEOUT};

/// What is done in a namespace: resource, subresource, verb. An exec needs both verbs from 1.35 on.
const NEEDED: [(&str, Option<&str>, &str); 3] = [
    ("pods", None, "get"),
    ("pods", Some("exec"), "get"),
    ("pods", Some("exec"), "create"),
];
/// How often is asked again until everything is given.
const AGAIN: Duration = Duration::from_secs(5);

/// What the cluster says to one question.
enum May {
    Yes,
    No,
    /// No answer, or one that could not be made.
    Unknown,
}

impl KubernetesTargets {
    /// Asks until every right is given in every configured namespace, and tells what it hears. Each question is bounded in time.
    pub async fn tell_rights(self, say: watch::Sender<ClusterRights>) {
        loop {
            let before = say.borrow().clone();
            let heard = self.rights(before).await;
            say.send_replace(heard.clone());
            if heard == ClusterRights::Given {
                info!("the gateway may look at pods and enter them");
                return;
            }
            sleep(AGAIN).await;
        }
    }

    /// One round. What was said before is not said again.
    async fn rights(&self, before: ClusterRights) -> ClusterRights {
        let (mut denied, mut lines, mut unknown) = (Vec::new(), Vec::new(), false);
        'all: for namespace in self.namespaces.iter() {
            for needed in NEEDED {
                match self.may(namespace, needed).await {
                    May::Yes => {}
                    May::No => {
                        let right = name(needed);
                        lines.push((namespace, right.clone()));
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
            for (namespace, right) in lines {
                error!(namespace, right, "the gateway may not do this");
            }
            if heard == ClusterRights::Unknown {
                warn!("nobody tells what the gateway may do");
            }
        }
        heard
    }

    async fn may(
        &self,
        namespace: &str,
        (resource, subresource, verb): (&str, Option<&str>, &str),
    ) -> May {
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(ResourceAttributes {
                    namespace: Some(namespace.to_owned()),
                    verb: Some(verb.to_owned()),
                    resource: Some(resource.to_owned()),
                    subresource: subresource.map(str::to_owned),
                    ..ResourceAttributes::default()
                }),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        let reviews: Api<SelfSubjectAccessReview> = Api::all(self.client.clone());
        let answer = timeout(
            LOOK_TIMEOUT,
            reviews.create(&PostParams::default(), &review),
        )
        .await;
        match answer.map(|answer| answer.map(|review| review.status)) {
            Ok(Ok(Some(status))) if status.allowed => May::Yes,
            Ok(Ok(Some(status))) if status.evaluation_error.is_none() => May::No,
            _ => May::Unknown,
        }
    }
}

fn name((resource, subresource, verb): (&str, Option<&str>, &str)) -> String {
    match subresource {
        Some(sub) => format!("{verb} {resource}/{sub}"),
        None => format!("{verb} {resource}"),
    }
}
