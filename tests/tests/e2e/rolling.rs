//! A rolling update under load: two releases side by side on one database, the schema brought forward while both are asked, and the
//! old one drained. Nothing is lost, and no answer is an error; streams of the old gateway say where to go on, and do.
//!
//! `BEX_PREVIOUS_BIN_DIR` names the old release's programs (`make rolling` builds them); without it this release stands for both, and
//! then the migration has only the grants to do.

mod release;
mod service;
mod traffic;

use std::path::PathBuf;

use bex_tests::client::{NewSession, Viewer};
use bex_tests::scenario::{STEP, saw_everything, settled, stored};
use bex_tests::stack::{SandboxKind, WORKSPACE, bin_dir};
use bex_tests::{Stack, StackOptions, eventually};

use release::World;
use traffic::Traffic;

/// Sessions from beginning to end, in each stage.
const SESSIONS: usize = 4;

#[tokio::test(flavor = "multi_thread")]
async fn an_update_under_load_loses_nothing() {
    let options = StackOptions {
        kind: Some(SandboxKind::Local),
        ..StackOptions::default()
    };
    let mut stack = Stack::start(options).await.unwrap();
    let new_dir = bin_dir().unwrap();
    let old_dir = std::env::var_os("BEX_PREVIOUS_BIN_DIR").map_or(new_dir.clone(), PathBuf::from);
    let world = World::take_over(&mut stack).await.unwrap();

    world.migrate(&old_dir).unwrap();
    let old = world.start("old", &old_dir).await.unwrap();
    let api = world.operator(&stack);
    let traffic = Traffic::begin(&world, &api);
    traffic.ends(SESSIONS).await.unwrap();
    // one turn, and one stream, that last over all of it
    let new = NewSession::new(WORKSPACE, "demo", "over the update parts=60 gate=go");
    let long = api.create(&new).await.unwrap();
    let ticket = api.read_ticket(&long).await.unwrap();
    let opened = Viewer::open(world.attach.address, &long, &ticket.ticket).await;
    let mut viewer = opened.unwrap();
    viewer.until(|e| e.kind() == "text-delta").await.unwrap();

    world.migrate(&new_dir).unwrap();
    traffic.ends(SESSIONS).await.unwrap();
    let new = world.start("new", &new_dir).await.unwrap();
    traffic.ends(2 * SESSIONS).await.unwrap();

    eventually("the old gateway has streams", STEP, async || {
        (old.streams().await? > 0).then_some(())
    })
    .await
    .unwrap();
    world.end(old).await.unwrap();
    traffic.ends(SESSIONS).await.unwrap();
    let seen = traffic.stop().await.unwrap();
    assert!(seen.sessions >= 5 * SESSIONS, "{seen:?}");

    // the long one was begun by the old release and is ended by the new one
    let mut shown = Vec::new();
    stack.open_gate(&long, "go").unwrap();
    traffic::follow(&world, &api, &long, viewer, &mut shown)
        .await
        .unwrap();
    let turn = settled(&api, &long, 1).await.unwrap();
    assert_eq!(turn.verdict, "complete", "{turn:?}");
    saw_everything(&stored(&api, &long).await.unwrap(), &shown).unwrap();
    world.end(new).await.unwrap();
    stack.stop().await.unwrap();
}
