//! What tells of something that was deleted goes too.

use bex_proto::package::PackageKind;
use bex_store::packages::{PackageKey, Renewed};
use bex_tests3::Writes;
use jiff::Timestamp;

use super::executions::{Execution, remote_session};
use super::*;

/// Settles what is left of the sandbox, so that a session may be deleted.
fn sandboxes_are_gone(world: &World) {
    world.sql("UPDATE sandboxes SET state = 'gone'");
}

/// An upload that had begun before a deletion is over by now.
fn a_minute_passes(world: &World) {
    world.sql("UPDATE packages SET remove_at = remove_at - interval '1 minute'");
}

/// What failed is due again.
fn ten_minutes_pass(world: &World) {
    world.sql("UPDATE packages SET remove_at = remove_at - interval '10 minutes'");
}

/// The kinds of packages whose objects are there.
fn kinds(keys: &[String]) -> Vec<&str> {
    keys.iter()
        .map(|key| key.split('/').nth(1).unwrap().split('-').next().unwrap())
        .collect()
}

#[tokio::test]
async fn the_packages_of_a_deleted_session_go_and_others_stay() {
    let world = world(Place::here()).await;
    let agent = world.spoken(PARTS).await;
    let remote = remote_session(&world, "demo", 2, "hello");
    let run = world.sql(&format!(
        "SELECT run_id FROM turns WHERE session_id = '{agent}'"
    ));
    let named = Execution::record(&world, "demo");
    named.names(&world, agent.as_str());
    let other = Execution::record(&world, "demo");
    for path in [
        by("conversation", &agent),
        by("conversation", &remote),
        by("run", &run),
        by("execution", &named.id),
        by("execution", &other.id),
    ] {
        world.package(&path).await;
    }
    world.packager().sweep().await;
    assert_eq!(world.stored().len(), 5, "nothing was deleted");

    sandboxes_are_gone(&world);
    let url = world.package(&by("conversation", &agent)).await.answer;
    let gone = world.call(ADMIN, "DELETE", &path(&agent, "")).await;
    assert_eq!(gone.status, 204);
    world.packager().sweep().await;
    assert_eq!(world.stored().len(), 5, "one may still be on its way up");
    a_minute_passes(&world);
    world.packager().sweep().await;
    let left = world.stored();
    assert_eq!(kinds(&left), ["conversation", "execution"], "{left:?}");
    assert!(left[0].contains(&remote) && left[1].contains(&other.id));
    world
        .fetch(url["url"].as_str().unwrap())
        .await
        .refused("not_found");
    assert_eq!(world.sql("SELECT count(*) FROM packages"), "2");
    // an execution outlives its session, and its package says so
    let again = world.package(&by("execution", &named.id)).await;
    assert!(again.sections().to_string().contains("was deleted"));

    let remote_path = format!("/v1/remote-sessions/{remote}");
    let gone = world.call(ADMIN, "DELETE", &remote_path).await;
    assert_eq!(gone.status, 204);
    let execution = format!("/v1/executions/{}", other.id);
    let gone = world.call(ADMIN, "DELETE", &execution).await;
    assert_eq!(gone.status, 204);
    a_minute_passes(&world);
    world.packager().sweep().await;
    let left = world.stored();
    assert_eq!(left.len(), 1, "{left:?}");
    assert!(left[0].contains(&named.id));
}

#[tokio::test]
async fn a_bucket_s_objects_go_too_and_failures_are_tried_again() {
    let s3 = S3::start().await.unwrap();
    let world = world(Place::of(&s3)).await;
    let session = world.spoken(PARTS).await;
    world
        .get(VIEWER, &by("conversation", &session))
        .await
        .ok(200);
    sandboxes_are_gone(&world);
    let gone = world.call(ADMIN, "DELETE", &path(&session, "")).await;
    assert_eq!(gone.status, 204);
    a_minute_passes(&world);
    s3.writes(Writes::Refused(http::StatusCode::FORBIDDEN));
    world.packager().sweep().await;
    assert_eq!(s3.keys().len(), 1);
    s3.writes(Writes::Done);
    ten_minutes_pass(&world);
    world.packager().sweep().await;
    assert_eq!(s3.keys(), Vec::<String>::new());
    assert_eq!(world.sql("SELECT count(*) FROM packages"), "0");
    // one that is not there is removed
    world.packager().sweep().await;
}

/// A package that was built before something it tells of was deleted is not stored after it.
#[tokio::test]
async fn what_was_built_before_a_deletion_is_not_stored_after_it() {
    let world = world(Place::here()).await;
    let (gone, kept) = (world.spoken(PARTS).await, world.spoken(PARTS).await);
    let sources = [kept.to_string(), gone.to_string()];
    let key = PackageKey {
        workspace: "demo".parse().unwrap(),
        kind: PackageKind::Execution,
        id: "exe-1".into(),
        package: "pkg-abcdefghijklmnopqrst".parse().unwrap(),
    };
    let renew = async |sources: &[String]| {
        let renewed = world.db.renew_package(&key, sources, Timestamp::UNIX_EPOCH);
        renewed.await.unwrap()
    };
    assert_eq!(renew(&sources).await, Renewed::Since(Timestamp::UNIX_EPOCH));
    sandboxes_are_gone(&world);
    let deleted = world.call(ADMIN, "DELETE", &path(&gone, "")).await;
    assert_eq!(deleted.status, 204);
    assert_eq!(renew(&sources).await, Renewed::SourceGone);
    assert_eq!(
        renew(&sources[..1]).await,
        Renewed::Since(Timestamp::UNIX_EPOCH)
    );
    assert_eq!(
        world.sql("SELECT count(*) FROM packages WHERE remove_at IS NULL"),
        "1"
    );
    let mut elsewhere = key.clone();
    elsewhere.workspace = "other".parse().unwrap();
    let renewed = world
        .db
        .renew_package(&elsewhere, &sources[..1], Timestamp::UNIX_EPOCH);
    assert_eq!(renewed.await.unwrap(), Renewed::SourceGone);
}

/// Waits until a statement that holds `what` is under way, and in this state.
async fn is_under_way(world: &World, what: &str, state: &str) {
    let sql = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
            AND state = 'active' AND wait_event_type = '{state}' AND query LIKE '%{what}%'"
    );
    for _ in 0..1000 {
        if world.sql(&sql) != "0" {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("{what} is not under way");
}

/// Whoever records a package holds what it tells of until that is done.
#[tokio::test]
async fn a_deletion_waits_for_whoever_records_a_package() {
    let world = world(Place::here()).await;
    let session = world.spoken(PARTS).await;
    sandboxes_are_gone(&world);
    world.sql(
        "CREATE TABLE gate (open boolean);
         GRANT SELECT ON gate TO PUBLIC;
         CREATE FUNCTION wait_for_gate() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             FOR i IN 1..1000 LOOP
                 IF EXISTS (SELECT 1 FROM gate) THEN RETURN NEW; END IF;
                 PERFORM pg_sleep(0.01);
             END LOOP;
             RAISE 'nobody opened it';
         END $$;
         CREATE TRIGGER wait_for_gate BEFORE INSERT ON packages FOR EACH ROW EXECUTE FUNCTION wait_for_gate()",
    );
    let conversation = by("conversation", &session);
    let delete = async {
        is_under_way(&world, "INSERT INTO packages", "Timeout").await;
        let path = path(&session, "");
        let open = async {
            is_under_way(&world, "FOR UPDATE", "Lock").await;
            world.sql("INSERT INTO gate VALUES (true)");
        };
        tokio::join!(world.call(ADMIN, "DELETE", &path), open).0
    };
    let (asked, deleted) = tokio::join!(world.get(VIEWER, &conversation), delete);
    asked.ok(200);
    assert_eq!(deleted.status, 204);
    a_minute_passes(&world);
    world.packager().sweep().await;
    assert_eq!(world.stored(), Vec::<String>::new());
}

/// More than one batch of them.
#[tokio::test]
async fn those_that_cannot_be_removed_keep_no_other() {
    const STUCK: u32 = 150;
    let world = world(Place::here()).await;
    let other = Execution::record(&world, "demo");
    world.package(&by("execution", &other.id)).await;
    let path = format!("/v1/executions/{}", other.id);
    assert_eq!(world.call(ADMIN, "DELETE", &path).await.status, 204);
    a_minute_passes(&world);
    // something else stands in their places
    world.sql(&format!(
        "INSERT INTO packages (workspace_id, kind, id, package_id, generated_at, remove_at)
         SELECT 'demo', 'execution', 'exe-' || translate(lpad(n::text, 20, 'a'), '0189', 'bcde'), 'pkg-aaaaaaaaaaaaaaaaaaaa', now(), now() - interval '1 hour'
           FROM generate_series(1, {STUCK}) n"
    ));
    let objects = world.packages_dir.path().join("objects");
    let stuck = world.sql("SELECT 'ORG#demo/execution-' || id || '/' || package_id || '.json' FROM packages WHERE remove_at < now() - interval '30 minutes'");
    for key in stuck.lines() {
        std::fs::create_dir_all(objects.join(key)).unwrap();
    }
    assert_eq!(stuck.lines().count(), STUCK as usize);
    world.packager().sweep().await;
    assert_eq!(world.stored(), Vec::<String>::new());
    let left = "SELECT count(*) FROM packages";
    assert_eq!(world.sql(left), STUCK.to_string(), "they are tried again");
    for key in stuck.lines() {
        std::fs::remove_dir(objects.join(key)).unwrap();
    }
    ten_minutes_pass(&world);
    world.packager().sweep().await;
    assert_eq!(world.sql(left), "0");
}
