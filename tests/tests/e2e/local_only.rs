//! The two tests that sandboxes in pods cannot pass: the api refuses drivers of the old form there ("pods run no drivers of the old
//! form"), so that nothing of that form could be shown. Every other test runs with both kinds, see `SANDBOX`; the stage of pods leaves
//! this module out by its name.

use bex_tests::stack::SandboxKind;

use super::recordings::{nobody_watched, watched_by_many};

const OLD_FORM: &str = "play-legacy";

/// Fails where these tests were not left out.
fn is_local() {
    assert_eq!(SandboxKind::chosen().unwrap(), SandboxKind::Local);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_old_form_of_log_and_stream_replays_whole_too() {
    is_local();
    nobody_watched(OLD_FORM).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn viewers_of_the_old_form_see_the_same() {
    is_local();
    watched_by_many(OLD_FORM).await;
}
