//! Many viewers of one session, some of them slow and one that takes nothing: one connection at the driver, all bytes right, nobody
//! waits for anybody.

use std::net::SocketAddr;
use std::time::Duration;

use bex_proto::{PartId, SessionId};
use bex_tests::client::{Ending, NewSession, Viewer};
use bex_tests::eventually;
use bex_tests::scenario::{STEP, saw_everything, settled, stored};
use bex_tests::stack::WORKSPACE;
use bex_tests::tally::Parts;
use bex_tests::{Stack, StackOptions};
use futures::future::try_join_all;

use super::tickets::to_read;

const QUICK: usize = 89;
const SLOW: usize = 10;
/// More than the kernel takes for a reader that does not read.
const HISTORY: &str = "long history parts=1600 size=4000";
/// Half of it is spoken before the gate is opened.
const LIVE: &str = "live parts=400 pace=100 size=60 gate=go";
/// Between two events of a slow reader: a quarter of a second's worth of the history each second.
const SLOWNESS: Duration = Duration::from_millis(250);

async fn open(stack: &Stack, session: &SessionId, n: usize, cursor: Option<PartId>) -> Viewer {
    let ticket = to_read(stack, session, &format!("svc:viewer-{}", n % 10));
    let to = stack.addresses.attach;
    Viewer::open_at(to, session, &ticket, cursor).await.unwrap()
}

/// Established connections of this machine to an address.
fn connections_to(to: SocketAddr) -> usize {
    let SocketAddr::V4(to) = to else {
        panic!("local drivers listen on IPv4");
    };
    let remote = format!(
        "{:08X}:{:04X}",
        u32::from_le_bytes(to.ip().octets()),
        to.port()
    );
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let established = |line: &&str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        fields.get(2) == Some(&remote.as_str()) && fields.get(3) == Some(&"01")
    };
    table.lines().filter(established).count()
}

/// Reads an event now and then until `done`, then the rest at once.
async fn slowly(
    viewer: &mut Viewer,
    done: &tokio::sync::watch::Receiver<bool>,
) -> anyhow::Result<Ending> {
    let mut pace = tokio::time::interval(SLOWNESS);
    while !*done.borrow() {
        pace.tick().await;
        if viewer.next().await?.is_none() {
            break;
        }
    }
    viewer.to_end().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_viewers_read_one_driver() {
    let stack = Stack::start(StackOptions::default()).await.unwrap();
    let api = stack.operator();
    let new = NewSession::new(WORKSPACE, "demo", HISTORY);
    let session = api.create(&new).await.unwrap();
    settled(&api, &session, 1).await.unwrap();
    let history = stored(&api, &session).await.unwrap();
    let middle = history.last().unwrap().0;
    let begun = api.begin_turn(&session, LIVE).await.unwrap();
    assert_eq!(begun.status, 201, "{}", begun.json());

    let mut stalled = open(&stack, &session, 0, None).await;
    let (mut slow, mut quick) = (Vec::new(), Vec::new());
    for n in 0..SLOW {
        slow.push(open(&stack, &session, n, None).await);
    }
    for n in 0..QUICK {
        quick.push(open(&stack, &session, n, Some(middle)).await);
    }
    let driver = stack.sandboxes.newest(&session).unwrap().address;
    let (told, done) = tokio::sync::watch::channel(false);
    let reading_slowly = try_join_all(slow.iter_mut().map(|v| slowly(v, &done)));
    let reading = async {
        let half = |e: &bex_tests::client::Event| e.id.is_some_and(|id| id.index.0 > 200);
        try_join_all(quick.iter_mut().map(|v| v.until(half))).await?;
        assert_eq!(connections_to(driver), 1, "of {} viewers", QUICK + SLOW + 1);
        stack.open_gate(&session, "go")?;
        let ends = try_join_all(quick.iter_mut().map(Viewer::to_end)).await?;
        assert!(ends.iter().all(|end| *end == Ending::Done), "{ends:?}");
        // nobody waited for the slow ones, or for the one that takes nothing
        told.send_replace(true);
        anyhow::Ok(())
    };
    let (ends, read) = tokio::join!(reading_slowly, reading);
    read.unwrap();
    assert!(ends.unwrap().iter().all(|end| *end == Ending::Done));
    settled(&api, &session, 2).await.unwrap();
    let stored = stored(&api, &session).await.unwrap();
    let live: Parts = stored
        .iter()
        .filter(|(id, _)| *id > middle)
        .cloned()
        .collect();
    quick
        .iter()
        .for_each(|v| saw_everything(&live, &v.parts()).unwrap());
    slow.iter()
        .for_each(|v| saw_everything(&stored, &v.parts()).unwrap());

    let ended = format!(
        "SELECT count(*) FROM stream_audit WHERE session_id = '{session}' AND closed_at IS NULL"
    );
    eventually("the stalled viewer is ended", STEP, async || {
        (stack.sql(&ended).ok()?.trim() == "0").then_some(())
    })
    .await
    .unwrap();
    let results = format!(
        "SELECT result, count(*) FROM stream_audit WHERE session_id = '{session}' GROUP BY 1 ORDER BY 1"
    );
    let results = stack.sql(&results).unwrap();
    // the connection's own guard may be the one that ends it
    let ends = ["stalled", "left"].map(|word| format!("done|{}\n{word}|1", QUICK + SLOW));
    assert!(ends.iter().any(|end| end == results.trim()), "{results}");
    assert_eq!(stalled.to_end().await.unwrap(), Ending::Cut);
    let cursor = stalled.cursor().unwrap();
    let mut rest = open(&stack, &session, 0, Some(cursor)).await;
    assert_eq!(rest.to_end().await.unwrap(), Ending::Done);
    let mut seen = stalled.parts();
    seen.extend(rest.parts());
    saw_everything(&stored, &seen).unwrap();
    stack.stop().await.unwrap();
}
