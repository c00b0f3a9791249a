//! A long conversation costs time and disk, not memory.

use super::executions::{long_session, remote_session};
use super::*;

/// Peak memory of this process, in KiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_messages_are_never_in_memory() {
    // with the bounds that hold for everybody
    let world = world(Place::here()).await;
    let warm = remote_session(&world, "demo", 600, "warm");
    world.package(&by("conversation", &warm)).await;
    let text = "some words that say nothing, ".repeat(3);
    let session = long_session(&world, "demo", 500, 100_000, &text);
    let (before, started) = (peak(), std::time::Instant::now());
    let asked = world.get(VIEWER, &by("conversation", &session)).await;
    let published = asked.ok(200);
    let grown = peak() - before;
    let key = world
        .stored()
        .into_iter()
        .find(|k| k.contains(&session))
        .unwrap();
    let bytes = std::fs::metadata(world.packages_dir.path().join("objects").join(&key))
        .unwrap()
        .len();
    println!(
        "{bytes} bytes in {:?}, {grown} KiB more at the peak",
        started.elapsed()
    );
    assert!(bytes > 30_000_000, "{bytes} bytes");
    assert!(
        grown < 48 * 1024,
        "{grown} KiB more for a package of {bytes} bytes"
    );
    let file = std::fs::File::open(world.packages_dir.path().join("objects").join(&key)).unwrap();
    let lines = std::io::BufRead::lines(std::io::BufReader::new(file));
    let messages = lines
        .filter(|l| l.as_ref().unwrap().starts_with(r#"{"position""#))
        .count();
    assert_eq!(messages, 100_000);
    let name = published["packageId"].as_str().unwrap();
    assert!(key.ends_with(&format!("{name}.json")));
}
