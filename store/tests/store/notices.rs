//! Notices, heard both ways.

use std::time::Duration;

use bex_proto::SessionId;
use bex_store::DbConfig;
use bex_store::listen::{Event, Listener, Source};
use bex_store::wake::Channel;

use crate::support::*;

async fn next(listener: &mut Listener) -> Event {
    tokio::time::timeout(Duration::from_secs(20), listener.next())
        .await
        .unwrap()
        .unwrap()
}

async fn hears(store: &Store, source: Source) {
    let mut listener = Listener::start(source).unwrap();
    assert_eq!(
        next(&mut listener).await,
        Event::Resumed,
        "first of all: look at everything"
    );
    let session = SessionId::random();
    store.db.notify(Channel::Wake, &session).await.unwrap();
    let heard = Event::Notified {
        channel: Channel::Wake,
        payload: session.to_string(),
    };
    assert_eq!(next(&mut listener).await, heard);
    let created = store.create().await;
    let heard = Event::Notified {
        channel: Channel::Dispatch,
        payload: created.to_string(),
    };
    assert_eq!(next(&mut listener).await, heard);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_listener_hears_what_commits() {
    let store = Store::new().await;
    hears(
        &store,
        Source::Listen(DbConfig::new(&store.database.url, "listener")),
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_poller_hears_the_same() {
    let store = Store::new().await;
    hears(&store, Source::Poll(store.db.clone())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_broken_listener_says_that_everything_must_be_looked_at() {
    let store = Store::new().await;
    let mut listener =
        Listener::start(Source::Listen(DbConfig::new(&store.database.url, "doomed"))).unwrap();
    assert_eq!(next(&mut listener).await, Event::Resumed);
    store.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'doomed'",
    );
    assert_eq!(next(&mut listener).await, Event::Resumed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn append_sends_no_notice_and_settle_does() {
    let store = Store::new().await;
    let session = store.running().await;
    let count = || {
        store
            .sql("SELECT count(*) FROM changes")
            .parse::<u32>()
            .unwrap()
    };
    let before = count();
    store.append(&session, &parts(0..3)).await;
    assert_eq!(count(), before);
    store
        .settle(
            &session,
            Some(&end_of(3)),
            bex_store::settle::SandboxAfter::Idle,
        )
        .await;
    assert_eq!(
        store.sql("SELECT channel || payload FROM changes ORDER BY id DESC LIMIT 1"),
        format!("bex_settled{session}")
    );
    store.sql("UPDATE changes SET at = now() - interval '2 minutes'");
    assert_eq!(
        store.db.trim_changes().await.unwrap(),
        u64::from(before) + 1
    );
}
