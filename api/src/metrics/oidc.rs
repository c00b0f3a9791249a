//! Access tokens, and the keys that prove them.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// How something ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

/// See the module's text.
#[derive(Debug, Clone)]
pub struct OidcMetrics {
    tokens: Family<ResultLabel, Counter>,
    fetches: Family<ResultLabel, Counter>,
    keys: Gauge,
}

impl OidcMetrics {
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self {
            tokens: Family::default(),
            fetches: Family::default(),
            keys: Gauge::default(),
        };
        registry.register(
            "oidc_tokens",
            "Access tokens that were checked",
            metrics.tokens.clone(),
        );
        registry.register(
            "oidc_fetches",
            "Reads of the issuer's key set",
            metrics.fetches.clone(),
        );
        registry.register(
            "oidc_keys",
            "Usable keys of the last set that was read",
            metrics.keys.clone(),
        );
        metrics
    }

    /// A token was judged: `accepted`, or why not.
    pub fn judged(&self, result: &'static str) {
        self.tokens.get_or_create(&ResultLabel { result }).inc();
    }

    /// The key set was read, with this many usable keys, or not.
    pub fn fetched(&self, keys: Option<usize>) {
        let result = if keys.is_some() { "ok" } else { "failed" };
        self.fetches.get_or_create(&ResultLabel { result }).inc();
        if let Some(keys) = keys {
            self.keys.set(i64::try_from(keys).unwrap_or(i64::MAX));
        }
    }
}
