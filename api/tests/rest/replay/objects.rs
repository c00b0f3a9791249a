//! The local store's URLs.

use std::time::Duration;

use bex_api::package::UrlTtl;

use super::*;

async fn url(world: &World) -> String {
    let session = world.spoken(PARTS).await;
    let answer = world
        .get(VIEWER, &by("conversation", &session))
        .await
        .ok(200);
    answer["url"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_url_is_good_for_one_object_and_one_method() {
    let world = world(Place::here()).await;
    let (ours, other) = (url(&world).await, url(&world).await);
    let (path, query) = ours.split_once('?').unwrap();
    let good = world.fetch(&ours).await;
    assert_eq!(
        (good.status, good.header("content-type")),
        (200, "application/json")
    );
    assert_eq!(good.header("x-content-type-options"), "nosniff");
    assert!(good.header("content-disposition").contains("pkg-"));
    assert_eq!(
        world.fetch(&ours).await.body,
        good.body,
        "and again, until it expires"
    );
    let (other_path, _) = other.split_once('?').unwrap();
    let expires = query.split('&').next().unwrap();
    let other_digit = if query.ends_with('0') { '1' } else { '0' };
    for bad in [
        path.to_owned(),
        format!("{path}?"),
        format!("{other_path}?{query}"),
        format!("{}?{query}", path.replace("ORG%23demo", "ORG%23other")),
        format!("{}?{query}", path.replace("/pkg-", "/../pkg-")),
        format!("{}?{query}", path.replace(".json", "")),
        format!("{path}?{}", query.replace(expires, "expires=99999999999")),
        format!("{path}?{}", query.replace("kid=u", "kid=v")),
        format!("{path}?{}{other_digit}", &query[..query.len() - 1]),
        format!("{path}?{query}&x=1"),
        format!("{path}?{query}&{expires}"),
        format!("{path}?{}", query.replace("signature=", "signature=00")),
    ] {
        let answer = world.fetch(&bad).await;
        assert!(
            matches!(answer.status, 403 | 404),
            "{bad}: {}",
            answer.status
        );
        if answer.status == 403 {
            answer.refused("url_invalid");
        }
    }
    let here = ours
        .strip_prefix(&format!("http://{}", world.address))
        .unwrap();
    for method in ["HEAD", "POST", "PUT", "DELETE"] {
        for token in ["", ADMIN] {
            let answer = world.call(token, method, here).await;
            assert_eq!(answer.status, 405, "{method}");
        }
    }
    assert_eq!(world.fetch(&ours).await.status, 200);
    assert_eq!(
        world.sql("SELECT count(*) FROM audit_events WHERE action = 'package.fetch'"),
        "3"
    );
}

#[tokio::test]
async fn a_url_ends_and_so_does_an_object() {
    let ttl = UrlTtl::at_most(Duration::from_secs(1));
    let world = world(Place {
        ttl,
        ..Place::here()
    })
    .await;
    let ours = url(&world).await;
    let mut ended = false;
    for _ in 0..100 {
        let answer = world.fetch(&ours).await;
        if answer.status == 403 {
            answer.refused("url_invalid");
            ended = true;
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(ended, "it was good for longer than a second");
}

#[tokio::test]
async fn an_object_of_a_week_ago_is_gone_though_its_url_is_good() {
    let world = world(Place::here()).await;
    let ours = url(&world).await;
    let key = world.stored().remove(0);
    let path = world.packages_dir.path().join("objects").join(key);
    let old = std::time::SystemTime::now() - Duration::from_secs(8 * 24 * 60 * 60);
    std::fs::File::options()
        .append(true)
        .open(path)
        .unwrap()
        .set_modified(old)
        .unwrap();
    world.sql("UPDATE packages SET renewed_at = now() - interval '8 days'");
    world.packager().sweep().await;
    assert_eq!(world.stored(), Vec::<String>::new());
    assert_eq!(world.sql("SELECT count(*) FROM packages"), "0");
    world.fetch(&ours).await.refused("not_found");
    world.counted("package_expiry", 1);
}
