use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use super::*;
use crate::metrics::Metrics;

const ES256: Algorithm = Algorithm::ES256;

/// Publishes what it is told; `None` is an outage.
#[derive(Default)]
struct Published {
    kids: Mutex<Option<Vec<&'static str>>>,
    slow: Mutex<Duration>,
    reads: AtomicUsize,
}

#[async_trait]
impl JwksSource for Arc<Published> {
    async fn fetch(&self) -> Result<KeySet, FetchFault> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let slow = *self.slow.lock().expect("no panic");
        sleep(slow).await;
        let kids = self.kids.lock().expect("no panic").clone();
        let kids = kids.ok_or(FetchFault::Timeout)?;
        let keys: Vec<_> = kids
            .iter()
            .map(|kid| json!({"kty": "EC", "crv": "P-256", "kid": kid, "x": "AQAB", "y": "AQAB"}))
            .collect();
        Ok(KeySet::parse(json!({"keys": keys}).to_string().as_bytes())?)
    }
}

impl Published {
    fn say(&self, kids: Option<&[&'static str]>) {
        *self.kids.lock().expect("no panic") = kids.map(<[_]>::to_vec);
    }

    fn reads(&self) -> usize {
        self.reads.load(Ordering::Relaxed)
    }
}

fn started(kids: Option<&[&'static str]>) -> (Arc<Published>, Arc<KeyCache>) {
    let published = Arc::new(Published::default());
    published.say(kids);
    let source = Box::new(Arc::clone(&published));
    let (cache, refresher) = key_cache(source, Metrics::default().oidc);
    tokio::spawn(refresher.run(CancellationToken::new()));
    (published, Arc::new(cache))
}

async fn word(cache: &KeyCache, kid: &str) -> &'static str {
    match cache.find(kid, ES256).await {
        Lookup::Key(_) => "key",
        Lookup::OtherAlgorithm => "other algorithm",
        Lookup::Unknown => "unknown",
        Lookup::Unavailable => "unavailable",
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_question_waits_for_the_first_read() {
    let (published, cache) = started(Some(&["a"]));
    assert_eq!(word(&cache, "a").await, "key");
    assert!(matches!(
        cache.find("a", Algorithm::RS256).await,
        Lookup::OtherAlgorithm
    ));
    assert_eq!(word(&cache, "b").await, "unknown");
    assert_eq!(published.reads(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_new_key_is_found_and_a_withdrawn_one_forgotten() {
    let (published, cache) = started(Some(&["old"]));
    assert_eq!(word(&cache, "old").await, "key");
    published.say(Some(&["new"]));
    assert_eq!(
        word(&cache, "new").await,
        "unknown",
        "the last read is only just over"
    );
    sleep(MIN_PAUSE).await;
    assert_eq!(word(&cache, "new").await, "key");
    assert_eq!(word(&cache, "old").await, "unknown");
    assert_eq!(published.reads(), 2);
    // and without anybody asking
    published.say(Some(&["newest"]));
    sleep(REFRESH + MIN_PAUSE).await;
    assert_eq!(published.reads(), 3);
    assert_eq!(word(&cache, "new").await, "unknown");
}

#[tokio::test(start_paused = true)]
async fn however_many_unknown_keys_are_named_the_issuer_is_asked_rarely() {
    let (published, cache) = started(Some(&["a"]));
    assert_eq!(word(&cache, "a").await, "key");
    let began = Instant::now();
    *published.slow.lock().expect("no panic") = Duration::from_secs(1);
    let mut words = std::collections::BTreeMap::<_, usize>::new();
    while began.elapsed() < MIN_PAUSE * 5 {
        let asked = (0..WAITERS * 2).map(|n| {
            let cache = Arc::clone(&cache);
            tokio::spawn(async move { word(&cache, &format!("unknown-{n}")).await })
        });
        for asked in asked.collect::<Vec<_>>() {
            *words.entry(asked.await.expect("no panic")).or_default() += 1;
        }
        assert_eq!(word(&cache, "a").await, "key", "known keys need nobody");
        sleep(Duration::from_millis(250)).await;
    }
    assert!(
        (2..=6).contains(&published.reads()),
        "{}",
        published.reads()
    );
    // more than may wait are told at once
    assert!(words["unavailable"] >= WAITERS, "{words:?}");
    assert!(words["unknown"] > WAITERS, "{words:?}");
}

#[tokio::test(start_paused = true)]
async fn an_outage_keeps_known_keys_and_leaves_others_open() {
    let (published, cache) = started(Some(&["a"]));
    assert_eq!(word(&cache, "a").await, "key");
    published.say(None);
    sleep(MIN_PAUSE).await;
    assert_eq!(word(&cache, "b").await, "unavailable");
    assert_eq!(word(&cache, "a").await, "key");
    sleep(STALE).await;
    assert_eq!(word(&cache, "a").await, "unavailable", "not for ever");
    published.say(Some(&["b"]));
    sleep(RETRY + MIN_PAUSE).await;
    assert_eq!(word(&cache, "b").await, "key");
}

#[tokio::test(start_paused = true)]
async fn an_issuer_that_is_away_at_the_start_is_found_later() {
    let (published, cache) = started(None);
    assert_eq!(word(&cache, "a").await, "unavailable");
    published.say(Some(&["a"]));
    sleep(MIN_PAUSE).await;
    assert_eq!(word(&cache, "a").await, "key");
    assert_eq!(published.reads(), 2);
}
