//! What `/metrics` says after a turn's whole way.

use std::sync::Arc;

use axum::body::Body;
use bex_api::admin::{Admin, router};
use bex_proto::session::Verdict;
use bex_proto::ticket::KeyRing;
use bex_store::{Readiness, Role};
use http_body_util::BodyExt;
use tower::ServiceExt;

use crate::support::{Stack, T1, speaks};
use crate::world::eventually;

async fn scraped(stack: &Stack) -> String {
    let ring = KeyRing::parse(&format!("k:{}", "ab".repeat(32))).expect("a ring");
    let admin = Arc::new(Admin::new(
        stack.db.clone(),
        Readiness::new(stack.db.clone(), Role::Api, &ring),
        Arc::clone(&stack.metrics),
        None,
    ));
    let request = http::Request::get("/metrics").body(Body::empty());
    let answer = router(admin)
        .oneshot(request.expect("a request"))
        .await
        .expect("it answers");
    let body = answer.into_body().collect().await.expect("a body");
    String::from_utf8(body.to_bytes().to_vec()).expect("a text")
}

/// The value of one sample.
fn sample(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| {
        line.strip_prefix("bex_api_")?
            .strip_prefix(name)?
            .strip_prefix(' ')
    });
    line.unwrap_or_else(|| panic!("{name} is not in {text}"))
        .parse()
        .expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turns_whole_way_is_counted() {
    let stack = Stack::new().await;
    stack.world.on_turn(speaks(40));
    let session = stack.create("new").await;
    stack.sql("UPDATE turns SET created_at = created_at - interval '1 minute'");
    let before = scraped(&stack).await;
    assert_eq!(sample(&before, "dispatch_outbox"), 1.0);
    assert!(sample(&before, "dispatch_outbox_oldest_seconds") >= 60.0);
    assert!(sample(&before, "db_connections") >= 1.0);
    assert_eq!(sample(&before, "db_waiting"), 0.0);

    let (dispatcher, completer) = (stack.dispatcher(), stack.completer("a"));
    let turn = stack.until_settled(&session, T1).await;
    assert_eq!(turn.verdict, Verdict::Complete);
    eventually("the round of the settle is counted", async || {
        scraped(&stack)
            .await
            .contains(r#"completer_rounds_total{result="done"}"#)
    })
    .await;
    dispatcher.stop().await;
    completer.stop().await;
    let after = scraped(&stack).await;
    let at = |name: &str| sample(&after, name);
    assert_eq!(at("dispatch_outbox"), 0.0);
    assert_eq!(at("dispatch_outbox_oldest_seconds"), 0.0);
    assert_eq!(at(r#"dispatches_total{result="delivered"}"#), 1.0);
    assert_eq!(
        at(r#"turns_settled_total{verdict="complete",reason="none"}"#),
        1.0
    );
    assert_eq!(at("harvest_parts_total"), 40.0);
    // each part is longer than its payload in the log
    assert!(at("harvest_bytes_total") > 40.0 * 50.0);
    assert_eq!(at("harvest_faults_total"), 0.0);
    assert!(at("harvest_lag_seconds_count") >= 1.0);
    assert!(at(r#"completer_ticks_total{result="ok"}"#) >= 1.0);
    assert!(at("completer_round_duration_seconds_count") >= 1.0);
    assert_eq!(at("turns_healed_total"), 0.0);
}
