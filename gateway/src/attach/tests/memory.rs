//! What a viewer keeps while nothing happens: its task is as large as the largest thing it ever waits for.

use bex_telemetry::Span;
use jiff::Timestamp;

use super::super::cursor::Wish;
use super::super::phases::Phases;
use super::super::plan::{Plan, Planned};
use super::super::viewer::Ends;
use super::super::*;
use super::rig::*;

/// The task of a stream; 16 KiB is what a viewer may cost in all, its connection's buffers included.
const STREAM_TASK: usize = 6 * 1024;
/// The task of a request that is not answered yet.
const REQUEST_TASK: usize = 4 * 1024;

#[tokio::test]
async fn tasks_of_viewers_are_small() {
    let rig = Rig::new().await;
    let session = rig.create().await;
    let ticket = read_ticket(&session);
    let handling = Arc::clone(&rig.attach)
        .handle(ticket.request(), "127.0.0.1:5".parse().expect("an address"));
    let size = size_of_val(&handling);
    assert!(size <= REQUEST_TASK, "a request's task has {size} bytes");
    let planned = Plan::make(&rig.db, &ticket.claims, Wish::default()).await;
    let Ok(Planned::Show(plan)) = planned else {
        panic!("something is there to be shown")
    };
    let audit = admission::redeem(&rig.db, &ticket.claims, "test", "::1", Timestamp::now()).await;
    let ends = Ends {
        revoked: CancellationToken::new(),
        drain: CancellationToken::new(),
    };
    let (out, _body) = body::stream(());
    let phases = Phases::of(Span::asked(&session, None));
    let viewer = rig
        .attach
        .viewer(&plan, Wish::default(), ticket.claims, out, phases);
    let size = size_of_val(&viewer.run(plan, ends, audit.expect("a row")));
    assert!(size <= STREAM_TASK, "a stream's task has {size} bytes");
}
