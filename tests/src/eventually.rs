//! The one way to wait here: look at a level until it is as wanted, for a bounded time.

use std::time::{Duration, Instant};

use anyhow::bail;

/// How often a level is looked at.
const POLL: Duration = Duration::from_millis(20);

/// Calls `look` until it gives something, at most for `bound`.
///
/// # Errors
/// When `bound` passes; the error says `what` was waited for.
pub async fn eventually<T>(
    what: &str,
    bound: Duration,
    mut look: impl AsyncFnMut() -> Option<T>,
) -> anyhow::Result<T> {
    let deadline = Instant::now() + bound;
    loop {
        if let Some(seen) = look().await {
            return Ok(seen);
        }
        if Instant::now() >= deadline {
            bail!("waited {bound:?} in vain: {what}");
        }
        tokio::time::sleep(POLL).await;
    }
}
