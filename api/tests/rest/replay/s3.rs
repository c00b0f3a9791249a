//! A bucket, by its real protocol: the server checks signatures and expiry.

use std::time::Duration;

use bex_api::package::UrlTtl;
use bex_tests3::{KEY_ID, SECRET, Writes};
use http::{Method, StatusCode};
use serde_json::json;

use super::executions::{Execution, remote_session};
use super::*;

#[tokio::test]
async fn packages_lie_where_they_should_encrypted_and_one_each() {
    let s3 = S3::start().await.unwrap();
    let world = world(Place::of(&s3)).await;
    let session = world.spoken(PARTS).await;
    let run = world.sql("SELECT run_id FROM turns");
    let execution = Execution::record(&world, "demo");
    let mut keys = Vec::new();
    for (kind, id) in [
        ("execution", execution.id),
        ("conversation", session.to_string()),
        ("run", run),
    ] {
        let answer = world.get(VIEWER, &by(kind, &id)).await.ok(200);
        let again = world.get(VIEWER, &by(kind, &id)).await.ok(200);
        assert_eq!(
            (&again["packageId"], &again["sha256"]),
            (&answer["packageId"], &answer["sha256"])
        );
        let name = answer["packageId"].as_str().unwrap();
        let key = format!("ORG#demo/{kind}-{id}/{name}.json");
        let fetched = world.fetch(answer["url"].as_str().unwrap()).await;
        assert_eq!(
            (fetched.status, sha256_hex(&fetched.body)),
            (200, answer["sha256"].as_str().unwrap().to_owned())
        );
        assert_eq!(naming::check(&fetched.body).unwrap().name.as_str(), name);
        assert_eq!(std::fs::read(s3.path(&key)).unwrap(), fetched.body);
        keys.push(key);
    }
    keys.sort();
    assert_eq!(s3.keys(), keys, "nothing else, and each once");
    let puts: Vec<_> = s3
        .asked()
        .into_iter()
        .filter(|a| a.method == Method::PUT)
        .collect();
    assert_eq!(puts.len(), 6);
    for put in puts {
        assert_eq!(put.headers["x-amz-server-side-encryption"], "AES256");
        assert!(!put.headers.contains_key("x-amz-acl"));
    }
    assert_eq!(
        world.sql("SELECT count(*) FROM audit_events WHERE action = 'package.ask'"),
        "6"
    );
}

#[tokio::test]
async fn a_url_is_good_for_one_object_one_method_and_its_time() {
    let s3 = S3::start().await.unwrap();
    let ttl = UrlTtl::at_most(Duration::from_secs(2));
    let world = world(Place {
        ttl,
        ..Place::of(&s3)
    })
    .await;
    let ours = async || {
        let session = world.spoken(PARTS).await;
        let answer = world
            .get(VIEWER, &by("conversation", &session))
            .await
            .ok(200);
        (session, answer)
    };
    let (_, other) = ours().await;
    let (_, answer) = ours().await;
    let url = answer["url"].as_str().unwrap();
    assert!(answer["expiresInSeconds"].as_u64().unwrap() <= 2);
    assert!(url.contains("X-Amz-Expires=2"), "{url}");
    assert_eq!(world.fetch(url).await.status, 200);
    let (path, query) = url.split_once('?').unwrap();
    let (other, _) = other["url"].as_str().unwrap().split_once('?').unwrap();
    for bad in [
        path.to_owned(),
        format!("{other}?{query}"),
        url.replace("X-Amz-Expires=2", "X-Amz-Expires=200"),
        url.replace("X-Amz-Signature=", "X-Amz-Signature=0"),
        url.replace(
            &format!("X-Amz-Credential={KEY_ID}"),
            "X-Amz-Credential=AKIAOTHEROTHEROTHER0",
        ),
    ] {
        assert_ne!(bad, url);
        let answer = world.fetch(&bad).await;
        assert!(
            (400..500).contains(&answer.status),
            "{bad}: {}",
            answer.status
        );
    }
    for method in [Method::PUT, Method::DELETE, Method::HEAD] {
        let request = http::Request::builder().method(method.clone()).uri(url);
        let answer = world
            .send(request.body(http_body_util::Full::default()).unwrap())
            .await;
        assert!(
            (400..500).contains(&answer.status),
            "{method}: {}",
            answer.status
        );
    }
    assert_eq!(s3.keys().len(), 2, "nothing was removed or written");
    let mut ended = false;
    for _ in 0..200 {
        if world.fetch(url).await.status == 403 {
            ended = true;
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(ended, "it was good for longer than it said");
}

/// A URL ends with the credentials that signed it.
#[tokio::test]
async fn credentials_that_end_sooner_shorten_it() {
    let s3 = S3::start().await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("credentials.json");
    let write = |seconds: i64| {
        let end =
            jiff::Timestamp::from_second(jiff::Timestamp::now().as_second() + seconds).unwrap();
        let text = json!({"Version": 1, "AccessKeyId": KEY_ID, "SecretAccessKey": SECRET, "SessionToken": "t0ken", "Expiration": end.to_string()});
        std::fs::write(&file, text.to_string()).unwrap();
        end
    };
    write(3600);
    let place = Place {
        bucket: Some((s3.endpoint(), Credentials::File(file.clone()))),
        ..Place::here()
    };
    let world = world(place).await;
    let session = world.spoken(PARTS).await;
    let path = by("conversation", &session);
    let long = world.get(VIEWER, &path).await.ok(200);
    assert!(
        (290..=300).contains(&long["expiresInSeconds"].as_u64().unwrap()),
        "{long}"
    );
    let end = write(60);
    let short = world.get(VIEWER, &path).await.ok(200);
    let seconds = short["expiresInSeconds"].as_u64().unwrap();
    assert!((50..=60).contains(&seconds), "{short}");
    let expires: jiff::Timestamp = short["expiresAt"].as_str().unwrap().parse().unwrap();
    assert!(expires <= end, "{short}");
    let url = short["url"].as_str().unwrap();
    let said = url
        .split("X-Amz-Expires=")
        .nth(1)
        .unwrap()
        .split('&')
        .next()
        .unwrap();
    assert!(said.parse::<u64>().unwrap() <= 60, "{url}");
    assert!(url.contains("X-Amz-Security-Token=t0ken"));
    assert_eq!(world.fetch(url).await.status, 200);
    // nothing can be signed: nothing is stored
    let before = s3.asked().len();
    write(2);
    world.get(VIEWER, &path).await.refused("internal");
    write(-60);
    world.get(VIEWER, &path).await.refused("internal");
    std::fs::write(&file, "{}").unwrap();
    let problem = world.get(VIEWER, &path).await.refused("internal");
    assert_eq!(problem.get("detail"), None);
    assert_eq!(
        s3.asked().len(),
        before,
        "the bucket was not asked for anything"
    );
    world.counted(r#"package_asks_total{result="object_store_failed"}"#, 3);
}

#[tokio::test]
async fn a_bucket_that_fails_or_is_away_gives_no_url_and_keeps_nothing() {
    let s3 = S3::start().await.unwrap();
    let world = world(Place::of(&s3)).await;
    let small = by("conversation", world.spoken(PARTS).await);
    // large enough for an upload in parts
    let large = by(
        "conversation",
        remote_session(&world, "demo", 1000, &"word ".repeat(2000)),
    );
    for status in [
        StatusCode::FORBIDDEN,
        StatusCode::NOT_FOUND,
        StatusCode::SERVICE_UNAVAILABLE,
    ] {
        s3.writes(Writes::Refused(status));
        for path in [&small, &large] {
            let answer = world.get(VIEWER, path).await;
            let problem = answer.refused("internal");
            assert_eq!((problem.get("url"), problem.get("detail")), (None, None));
        }
    }
    assert_eq!((s3.keys(), s3.unfinished()), (Vec::<String>::new(), 0));
    assert_eq!(world.spooled(), Vec::<PathBuf>::new());
    s3.writes(Writes::Done);
    world.get(VIEWER, &small).await.ok(200);
    let answer = world.get(VIEWER, &large).await.ok(200);
    let fetched = world.fetch(answer["url"].as_str().unwrap()).await;
    assert!(fetched.body.len() > 9_000_000, "{}", fetched.body.len());
    assert_eq!(answer["sha256"], sha256_hex(&fetched.body));
    assert!(
        s3.asked()
            .iter()
            .any(|a| a.uri.query().is_some_and(|q| q.contains("partNumber=2")))
    );
    assert_eq!(s3.unfinished(), 0);
    drop(s3);
    world.get(VIEWER, &small).await.refused("internal");
}

/// A caller waits for so long and no longer, and what was begun is given up.
#[tokio::test]
async fn a_bucket_that_never_answers_is_not_waited_for() {
    let s3 = S3::start().await.unwrap();
    let world = world(Place::of(&s3)).await;
    let small = by("conversation", world.spoken(PARTS).await);
    let large = by(
        "conversation",
        remote_session(&world, "demo", 1000, &"word ".repeat(2000)),
    );
    s3.writes(Writes::Hang);
    let asked = std::time::Instant::now();
    let (small, large) = tokio::join!(world.get(VIEWER, &small), world.get(VIEWER, &large));
    let took = asked.elapsed();
    small.refused("internal");
    large.refused("internal");
    // the upload's time, the build's, and one for giving up
    assert!(took < Duration::from_secs(25), "{took:?}");
    assert_eq!((s3.keys(), s3.unfinished()), (Vec::<String>::new(), 0));
    assert!(s3.asked().iter().any(|a| a.method == Method::DELETE));
    assert_eq!(world.spooled(), Vec::<PathBuf>::new());
    world.counted(r#"package_asks_total{result="object_store_failed"}"#, 2);
}

/// The local store's route knows no bucket's objects.
#[tokio::test]
async fn objects_of_a_bucket_are_not_served_here() {
    let s3 = S3::start().await.unwrap();
    let world = world(Place::of(&s3)).await;
    let answer = world
        .get(
            "",
            "/replay/objects/ORG%23demo/a/b?expires=1&kid=u&signature=00",
        )
        .await;
    answer.refused("not_found");
}
