//! Whether a bucket removes packages by itself.

use bex_proto::Chain;
use http_body_util::{BodyExt, Limited};
use object_store::aws::AwsAuthorizer;
use object_store::client::{HttpError, HttpRequestBody};
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::super::subject::KEY_PREFIX;
use super::S3Objects;

/// A bucket has a thousand rules at most.
const ANSWER_BYTES: usize = 1024 * 1024;

/// Why nothing is known of a bucket's rules.
#[derive(Debug, thiserror::Error)]
enum Unknown {
    #[error("there is nothing to sign with")]
    Credentials(#[source] object_store::Error),
    #[error("the request cannot be written")]
    Request(#[from] http::Error),
    #[error("the request cannot be signed")]
    Signature(#[source] object_store::Error),
    #[error("the bucket does not answer")]
    Connection(#[from] HttpError),
    #[error("the bucket answers {0}")]
    Status(u16),
    #[error("the answer cannot be read, or is too long")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("the answer is no list of rules")]
    Form(#[from] quick_xml::DeError),
}

/// A bucket's rules, as S3 writes them.
#[derive(Debug, Default, Deserialize)]
struct Rules {
    #[serde(rename = "Rule", default)]
    rules: Vec<Rule>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Rule {
    status: String,
    /// Where it stood before there were filters.
    prefix: Option<String>,
    filter: Option<Filter>,
    expiration: Option<Expiration>,
}

/// What a rule is for. Whatever is not read here narrows nothing.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Filter {
    prefix: Option<String>,
    tag: Option<IgnoredAny>,
    object_size_greater_than: Option<IgnoredAny>,
    object_size_less_than: Option<IgnoredAny>,
    /// A prefix, and tags or sizes.
    and: Option<IgnoredAny>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Expiration {
    days: Option<u32>,
}

impl S3Objects {
    /// Asks for the bucket's rules; `None` when they may not be read, or cannot.
    pub(super) async fn expiry_is_set(&self, days: u32) -> Option<bool> {
        let bucket = self.config.bucket.as_str();
        let rules = match self.rules().await {
            Ok(rules) => rules,
            Err(unknown) => {
                tracing::warn!(bucket, error = %Chain(&unknown), "it is not known whether the bucket removes packages");
                return None;
            }
        };
        let is_set = rules.expire(days);
        if !is_set {
            tracing::error!(
                bucket,
                prefix = KEY_PREFIX,
                days,
                "the bucket does not remove packages: it needs a lifecycle rule"
            );
        }
        Some(is_set)
    }

    async fn rules(&self) -> Result<Rules, Unknown> {
        let credential = self.store.credentials().get_credential().await;
        let credential = credential.map_err(Unknown::Credentials)?;
        let (bucket, region) = (&self.config.bucket, &self.config.region);
        let url = match &self.config.endpoint {
            Some(endpoint) => format!("{endpoint}/{bucket}?lifecycle="),
            None => format!("https://{bucket}.s3.{region}.amazonaws.com/?lifecycle="),
        };
        let mut request = http::Request::get(&url).body(HttpRequestBody::empty())?;
        AwsAuthorizer::new(&credential, "s3", region)
            .try_authorize(&mut request, None)
            .map_err(Unknown::Signature)?;
        let response = self.client.execute(request).await?;
        match response.status().as_u16() {
            200 => {}
            // no rule at all is said like this
            404 => return Ok(Rules::default()),
            status => return Err(Unknown::Status(status)),
        }
        let body = Limited::new(response.into_body(), ANSWER_BYTES).collect();
        let body = body.await.map_err(Unknown::Body)?.to_bytes();
        Ok(quick_xml::de::from_reader(&*body)?)
    }
}

impl Rules {
    /// Whether a rule that is on removes every package after so many days or fewer.
    fn expire(&self, days: u32) -> bool {
        self.rules.iter().any(|rule| {
            let after = rule.expiration.as_ref().and_then(|e| e.days);
            rule.status == "Enabled"
                && rule.is_for_packages()
                && after.is_some_and(|after| (1..=days).contains(&after))
        })
    }
}

impl Rule {
    fn is_for_packages(&self) -> bool {
        let holds = |prefix: &Option<String>| {
            let prefix = prefix.as_deref().unwrap_or_default();
            KEY_PREFIX.starts_with(prefix)
        };
        let whole = |filter: &Filter| {
            let narrow = [
                &filter.tag,
                &filter.object_size_greater_than,
                &filter.object_size_less_than,
                &filter.and,
            ];
            holds(&filter.prefix) && narrow.iter().all(|n| n.is_none())
        };
        holds(&self.prefix) && self.filter.as_ref().is_none_or(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_must_be_on_and_name_packages() {
        let rule = |inner: &str| {
            format!(
                "<LifecycleConfiguration><Rule><ID>a</ID>{inner}</Rule></LifecycleConfiguration>"
            )
        };
        let good = "<Filter><Prefix>ORG#</Prefix></Filter><Status>Enabled</Status><Expiration><Days>7</Days></Expiration>";
        let expires = |answer: &str| {
            let rules: Rules = quick_xml::de::from_str(answer).expect("rules");
            rules.expire(7)
        };
        assert!(expires(&rule(good)));
        assert!(expires(&rule(&good.replace(
            "<Filter><Prefix>ORG#</Prefix></Filter>",
            "<Filter></Filter>"
        ))));
        let old = good.replace("Filter>", "Other>");
        assert!(expires(&rule(&format!("<Prefix></Prefix>{old}"))));
        for bad in [
            good.replace("Enabled", "Disabled"),
            good.replace("ORG#", "eval-runs/"),
            good.replace("<Days>7", "<Days>8"),
            good.replace("Expiration", "NoncurrentVersionExpiration"),
            good.replace("</Filter>", "<Tag><Key>a</Key></Tag></Filter>"),
            good.replace(
                "<Prefix>ORG#</Prefix>",
                "<And><Prefix>ORG#</Prefix><ObjectSizeLessThan>9</ObjectSizeLessThan></And>",
            ),
            good.replace("<Days>7</Days>", "<Date>2030-01-01T00:00:00Z</Date>"),
            format!("<Prefix>eval-runs/</Prefix>{old}"),
            "<Status>Enabled</Status>".to_owned(),
        ] {
            assert!(!expires(&rule(&bad)), "{bad}");
        }
        assert!(!expires("<LifecycleConfiguration/>"));
        assert!(quick_xml::de::from_str::<Rules>("no XML").is_err());
    }
}
