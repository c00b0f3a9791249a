//! The feed.

use http_body_util::Full;
use serde_json::{Value, json};

use crate::support::*;

fn seqs(page: &Value) -> Vec<i64> {
    page["parts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|part| part["seq"].as_i64().unwrap())
        .collect()
}

#[tokio::test]
async fn the_feed_is_read_in_the_order_of_storing_and_verbatim() {
    let world = World::new().await;
    let session = world.running().await;
    let feed = |query: &str| path(&session, &format!("/transcript{query}"));
    let empty = world.get(VIEWER, &feed("")).await.ok(200);
    assert_eq!(
        empty,
        json!({"parts": [], "nextAfterSeq": -1, "caughtUp": true})
    );
    world.append(&session, 2..5).await;
    world.append(&session, 0..2).await;
    let all = world.get(VIEWER, &feed("")).await;
    assert!(
        String::from_utf8_lossy(&all.body).contains(&text_of(3)),
        "not a byte of a part changes"
    );
    let all = all.ok(200);
    assert_eq!(seqs(&all), [0, 1, 2, 3, 4]);
    assert_eq!(
        (&all["parts"][0]["index"], &all["parts"][3]["index"]),
        (&json!(2), &json!(0))
    );
    assert_eq!(
        (&all["nextAfterSeq"], &all["caughtUp"]),
        (&json!(4), &json!(true))
    );
    // 0 is a cursor, not "from the start"
    assert_eq!(
        seqs(&world.get(VIEWER, &feed("?afterSeq=0")).await.ok(200)),
        [1, 2, 3, 4]
    );
    assert_eq!(
        seqs(
            &world
                .get(VIEWER, &feed("?afterSeq=-1&limit=2"))
                .await
                .ok(200)
        ),
        [0, 1]
    );
    let beyond = world.get(VIEWER, &feed("?afterSeq=99")).await.ok(200);
    assert_eq!(
        beyond,
        json!({"parts": [], "nextAfterSeq": 99, "caughtUp": true})
    );
    for bad in [
        "?afterSeq=x",
        "?afterSeq=-2",
        "?limit=0",
        "?limit=1001",
        "?afterSeq=1&afterSeq=2",
    ] {
        world
            .get(VIEWER, &feed(bad))
            .await
            .refused("invalid_request");
    }
    world
        .get(VIEWER, &feed("?after=1"))
        .await
        .refused("unknown_field");
    let shown = world.get(VIEWER, &path(&session, "")).await.ok(200);
    let bytes: usize = (0..5).map(|i| text_of(i).len()).sum();
    assert_eq!(
        shown["counters"],
        json!({"turns": 1, "parts": 5, "bytes": bytes, "promptBytes": 5})
    );
}

#[tokio::test]
async fn full_pages_never_change_and_others_are_asked_again() {
    let world = World::new().await;
    let session = world.running().await;
    world.append(&session, 0..4).await;
    let ask = async |query: &str, etag: &str| {
        let request = world.request(
            VIEWER,
            "GET",
            &path(&session, &format!("/transcript{query}")),
        );
        let request = if etag.is_empty() {
            request
        } else {
            request.header("if-none-match", etag)
        };
        world.send(request.body(Full::default()).unwrap()).await
    };
    let full = ask("?limit=2", "").await;
    assert_eq!(
        full.header("cache-control"),
        "private, max-age=31536000, immutable"
    );
    assert_eq!(full.header("vary"), "authorization");
    let full_tag = full.header("etag").to_owned();
    let open = ask("?limit=4", "").await;
    assert_eq!(open.header("cache-control"), "private, no-cache");
    let open_tag = open.header("etag").to_owned();
    for (query, tag) in [("?limit=2", &full_tag), ("?limit=4", &open_tag)] {
        let same = ask(query, tag).await;
        assert_eq!(
            (same.status, same.body.len(), same.header("etag")),
            (304, 0, tag.as_str())
        );
        // a cache keeps what the answer says of a page it holds
        assert!(same.header("cache-control").starts_with("private"));
        assert_eq!(same.header("vary"), "authorization");
    }
    world.append(&session, 4..5).await;
    let again = ask("?limit=2", "").await;
    assert_eq!(
        (again.header("etag"), &again.body),
        (full_tag.as_str(), &full.body)
    );
    // the same parts, but no longer the end
    let moved = ask("?limit=4", &open_tag).await;
    assert_ne!(moved.header("etag"), open_tag);
    assert_eq!(moved.ok(200)["caughtUp"], false);
}
