//! Whether a bucket removes packages by itself.

use object_store::ClientOptions;
use object_store::aws::AwsAuthorizer;
use object_store::client::{HttpConnector, HttpRequestBody, ReqwestConnector};

use super::super::subject::KEY_PREFIX;
use super::S3Objects;

/// An answer that is longer is none of these.
const ANSWER_BYTES: usize = 1024 * 1024;

impl S3Objects {
    /// Asks for the bucket's rules; `None` when they may not be read, or cannot.
    pub(super) async fn expiry_is_set(&self, days: u32) -> Option<bool> {
        let answer = self.lifecycle().await?;
        let is_set = expires(&answer, days);
        if !is_set {
            tracing::error!(
                bucket = self.config.bucket,
                prefix = KEY_PREFIX,
                days,
                "the bucket does not remove packages: it needs a lifecycle rule"
            );
        }
        Some(is_set)
    }

    async fn lifecycle(&self) -> Option<String> {
        let provider = self.config.credentials.provider()?;
        let credential = provider.get_credential().await.ok()?;
        let (bucket, region) = (&self.config.bucket, &self.config.region);
        let url = match &self.config.endpoint {
            Some(endpoint) => format!("{endpoint}/{bucket}?lifecycle="),
            None => format!("https://{bucket}.s3.{region}.amazonaws.com/?lifecycle="),
        };
        let request = http::Request::get(&url).body(HttpRequestBody::empty());
        let mut request = request.ok()?;
        AwsAuthorizer::new(&credential, "s3", region)
            .try_authorize(&mut request, None)
            .ok()?;
        let options = ClientOptions::new().with_allow_http(url.starts_with("http://"));
        let client = ReqwestConnector::default().connect(&options).ok()?;
        let response = client.execute(request).await.ok()?;
        // no rule at all is said with a 404
        match response.status().as_u16() {
            200 => {
                let bytes = response.into_body().bytes().await.ok()?;
                (bytes.len() <= ANSWER_BYTES).then(|| String::from_utf8_lossy(&bytes).into_owned())
            }
            404 => Some(String::new()),
            _ => None,
        }
    }
}

/// Whether a rule that is on removes every package after so many days or fewer. XML that is written in any other way than S3 writes it
/// has no such rule.
fn expires(answer: &str, days: u32) -> bool {
    answer.split("<Rule>").skip(1).any(|rule| {
        let rule = rule.split("</Rule>").next().unwrap_or_default();
        let value = |tag: &str| {
            let (_, rest) = rule.split_once(&format!("<{tag}>"))?;
            Some(rest.split_once(&format!("</{tag}>"))?.0)
        };
        let expiration = value("Expiration").unwrap_or_default();
        let after = expiration
            .split_once("<Days>")
            .and_then(|(_, rest)| rest.split_once("</Days>")?.0.parse::<u32>().ok());
        value("Status") == Some("Enabled")
            && value("Prefix").is_none_or(|prefix| KEY_PREFIX.starts_with(prefix))
            && !rule.contains("<Tag>")
            && !rule.contains("ObjectSize")
            && after.is_some_and(|after| (1..=days).contains(&after))
    })
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
        assert!(expires(&rule(good), 7));
        assert!(expires(
            &rule(&good.replace(
                "<Filter><Prefix>ORG#</Prefix></Filter>",
                "<Filter></Filter>"
            )),
            7
        ));
        for bad in [
            good.replace("Enabled", "Disabled"),
            good.replace("ORG#", "eval-runs/"),
            good.replace("<Days>7", "<Days>8"),
            good.replace("Expiration", "NoncurrentVersionExpiration"),
            good.replace("</Filter>", "<Tag><Key>a</Key></Tag></Filter>"),
            String::new(),
        ] {
            assert!(!expires(&rule(&bad), 7), "{bad}");
        }
        assert!(!expires("", 7));
    }
}
