//! What this process's account may do, asked of the API server before anything needs it: a right that is missing is told by its name, and
//! not by the first session that fails.

use std::fmt;
use std::time::Duration;

use bex_store::ClusterRights;
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::{error, info, warn};

/// How often is asked again until everything is given.
const AGAIN: Duration = Duration::from_secs(5);
/// One answer: a healthy API server needs milliseconds.
const ANSWER: Duration = Duration::from_secs(3);

/// Something that is done in a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Right {
    /// What is done.
    pub verb: &'static str,
    /// With what.
    pub resource: &'static str,
    /// With which part of it.
    pub subresource: Option<&'static str>,
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        match self.subresource {
            Some(part) => write!(f, "/{part}"),
            None => Ok(()),
        }
    }
}

/// What is needed, and where.
pub struct Rights {
    client: Client,
    namespaces: Vec<String>,
    needed: &'static [Right],
}

/// What the cluster says to one question.
enum May {
    Yes,
    No,
    /// No answer, or one that could not be made.
    Unknown,
}

impl Rights {
    /// Each of `needed` in each of `namespaces`.
    pub fn new(client: Client, namespaces: Vec<String>, needed: &'static [Right]) -> Self {
        Self {
            client,
            namespaces,
            needed,
        }
    }

    /// Asks until every right is given, and tells what it hears. Each question is bounded in time.
    pub async fn tell(self, say: watch::Sender<ClusterRights>) {
        loop {
            let before = say.borrow().clone();
            let heard = self.ask(before).await;
            say.send_replace(heard.clone());
            if heard == ClusterRights::Given {
                info!("the cluster gives every right that is needed");
                return;
            }
            sleep(AGAIN).await;
        }
    }

    /// One round. What is denied and was not told by `before` is logged with its namespace.
    pub async fn ask(&self, before: ClusterRights) -> ClusterRights {
        let (mut denied, mut lines, mut unknown) = (Vec::new(), Vec::new(), false);
        'all: for namespace in &self.namespaces {
            for needed in self.needed {
                match self.may(namespace, needed).await {
                    May::Yes => {}
                    May::No => {
                        lines.push((namespace, needed));
                        let right = needed.to_string();
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
                error!(namespace, %right, "the cluster does not give a right that is needed");
            }
            if heard == ClusterRights::Unknown {
                warn!("nobody tells what may be done in the cluster");
            }
        }
        heard
    }

    async fn may(&self, namespace: &str, right: &Right) -> May {
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(ResourceAttributes {
                    namespace: Some(namespace.to_owned()),
                    verb: Some(right.verb.to_owned()),
                    resource: Some(right.resource.to_owned()),
                    subresource: right.subresource.map(str::to_owned),
                    ..ResourceAttributes::default()
                }),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        let reviews: Api<SelfSubjectAccessReview> = Api::all(self.client.clone());
        let answer = timeout(ANSWER, reviews.create(&PostParams::default(), &review)).await;
        match answer.map(|answer| answer.map(|review| review.status)) {
            Ok(Ok(Some(status))) if status.allowed => May::Yes,
            Ok(Ok(Some(status))) if status.evaluation_error.is_none() => May::No,
            Ok(Ok(_) | Err(_)) | Err(_) => May::Unknown,
        }
    }
}
