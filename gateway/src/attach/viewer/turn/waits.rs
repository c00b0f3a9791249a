//! What a turn's viewer waits for, and how long.

use std::time::Duration;

use bex_proto::{Chain, limits};
use bex_store::wake::Channel;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::Showing;
use crate::attach::viewer::{Stop, Viewer};
use crate::hub::tail::SourceEnd;
use crate::hub::tee::TeeProgress;

/// How often a stream looks for its sandbox, or for harvested parts of a driver that cannot be followed, beside being woken.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// What ended a wait for the next part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Woken {
    ByTail,
    ByNotice,
}

impl Viewer {
    /// The next part is not spoken yet.
    pub(super) async fn wait(&mut self, showing: &mut Showing) -> Result<(), Stop> {
        self.unfold(showing.turn());
        self.pages.rest();
        match &mut showing.live {
            Some(live) if live.source.tail.end() == Some(SourceEnd::Unnumbered) => {
                self.announce(Channel::Wake).await?;
                let seat = &mut self.seat;
                let woken = async {
                    tokio::select! { () = seat.changed() => {}, () = sleep(LOOK_AGAIN) => {} }
                };
                self.out.quietly(woken).await?;
            }
            Some(live) => {
                let seat = &mut self.seat;
                let woken = async {
                    tokio::select! {
                        _ = live.changed.changed() => Woken::ByTail,
                        () = seat.changed() => Woken::ByNotice,
                    }
                };
                if self.out.quietly(woken).await? == Woken::ByTail {
                    return Ok(());
                }
            }
            None => {
                let latest = self.begun_at + limits::SANDBOX_WAIT;
                if Instant::now() >= latest {
                    return Err(Stop::NoSandbox);
                }
                let seat = &mut self.seat;
                let woken = async {
                    tokio::select! { () = seat.changed() => {}, () = sleep_until(latest.min(Instant::now() + LOOK_AGAIN)) => {} }
                };
                self.out.quietly(woken).await?;
            }
        }
        // a settle, or the sandbox
        self.look_again(showing).await
    }

    /// Parts are being harvested or appended.
    pub(super) async fn wait_for_store(
        &mut self,
        showing: &mut Showing,
        until: Instant,
    ) -> Result<(), Stop> {
        self.pages.rest();
        let seat = &mut self.seat;
        let tee = showing.live.as_mut().map(|live| &mut live.tee);
        let woken = async {
            tokio::select! {
                () = seat.changed() => {}
                () = progress(tee) => {}
                () = sleep_until(until) => {}
            }
        };
        self.out.quietly(woken).await?;
        Ok(())
    }

    /// The turn's speech is over: gives tee and settle [`limits::END_WAIT`] in all.
    pub(super) async fn wait_for_settle(&mut self, showing: &mut Showing) -> Result<(), Stop> {
        let until = Instant::now() + limits::END_WAIT;
        self.announce(Channel::Wake).await?;
        loop {
            self.look_again(showing).await?;
            let flushed = showing
                .live
                .as_ref()
                .is_none_or(|live| live.tee.borrow().end.is_some());
            if (flushed && !showing.known.settled.is_open()) || Instant::now() >= until {
                return Ok(());
            }
            self.wait_for_store(showing, until).await?;
        }
    }

    /// Tells the api; trouble is logged, as a tick does the same later.
    pub(super) async fn announce(&mut self, channel: Channel) -> Result<(), Stop> {
        let (db, session) = (self.db.clone(), self.claims.ses.clone());
        let telling = Box::pin(tokio::time::timeout(
            limits::ADMISSION_TIMEOUT,
            async move { db.notify(channel, &session).await },
        ));
        match self.out.quietly(telling).await? {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(session = %self.claims.ses, error = %Chain(&error), "a notice could not be sent");
            }
            Err(_) => tracing::warn!(session = %self.claims.ses, "sending a notice took too long"),
        }
        Ok(())
    }
}

/// A tee that ended wakes nobody any more, nor does one that broke off without saying so.
async fn progress(tee: Option<&mut watch::Receiver<TeeProgress>>) {
    if let Some(tee) = tee
        && tee.borrow().end.is_none()
        && tee.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_tee_wakes_only_while_it_goes_on() {
        let (said, mut tee) = watch::channel(TeeProgress::default());
        assert!(progress(Some(&mut tee)).now_or_never().is_none());
        said.send_modify(|progress| progress.appends = 1);
        assert!(progress(Some(&mut tee)).now_or_never().is_some());
        drop(said);
        assert!(progress(Some(&mut tee)).now_or_never().is_none());
        assert!(progress(None).now_or_never().is_none());
    }
}
