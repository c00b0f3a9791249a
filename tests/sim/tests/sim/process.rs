//! A process: what of it dies at once, and what happens to each call it makes.
//!
//! A process that dies makes no call any more, but what it asked for may still be done, much later.

mod sandbox;
mod store;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::Notify;
use tokio::time::sleep;

pub use sandbox::{Damage, Sandboxes};
pub use store::{Calls, Tees};

/// Whom a call asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    Store,
    /// Into a sandbox, through the gateway.
    Exec,
    /// Whoever makes and removes sandboxes.
    Lifecycle,
}

/// What happens to one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Well,
    /// It never arrives, and its caller is told so.
    Refused,
    /// It is done, and its caller is told that it failed.
    AnswerLost,
    /// Its caller is told that it failed, and so much later it is done.
    Late(Duration),
    /// It is done twice.
    Twice,
    /// Its process dies before it arrives.
    DiesBefore,
    /// Its process dies when it is done.
    DiesAfter,
    /// Its process dies, and so much later it is done.
    DiesAndLate(Duration),
}

/// Decides over calls.
pub trait Fates: Send + Sync {
    /// How long the call takes, and what becomes of it.
    fn fate(&self, process: &str, peer: Peer, call: &'static str) -> (Duration, Fate);
}

/// One life of one process.
pub struct Process {
    pub name: String,
    fates: Arc<dyn Fates>,
    dead: AtomicBool,
    died: Notify,
}

impl Process {
    pub fn new(name: impl Into<String>, fates: Arc<dyn Fates>) -> Arc<Self> {
        Arc::new(Self {
            name: name.into(),
            fates,
            dead: AtomicBool::new(false),
            died: Notify::new(),
        })
    }

    /// Dies now.
    pub fn kill(&self) {
        self.dead.store(true, Ordering::Relaxed);
        self.died.notify_one();
    }

    /// Comes back when the process died.
    pub async fn died(&self) {
        self.died.notified().await;
    }

    async fn never<T>(&self) -> T {
        std::future::pending().await
    }

    /// Makes one call: what `effect` does, at its fate's mercy. A caller that is told of a failure gets `failed`.
    async fn call<T: Send + 'static>(
        &self,
        peer: Peer,
        name: &'static str,
        effect: impl Fn() -> BoxFuture<'static, T>,
        failed: impl FnOnce() -> T,
    ) -> T {
        if self.dead.load(Ordering::Relaxed) {
            return self.never().await;
        }
        let (takes, fate) = self.fates.fate(&self.name, peer, name);
        // on the way there
        if !takes.is_zero() {
            sleep(takes / 2).await;
        }
        if self.dead.load(Ordering::Relaxed) {
            return self.never().await;
        }
        let answer = match fate {
            Fate::Well => effect().await,
            Fate::Refused => failed(),
            Fate::AnswerLost => {
                effect().await;
                failed()
            }
            Fate::Twice => {
                let first = effect().await;
                effect().await;
                first
            }
            Fate::Late(by) => {
                later(by, effect());
                failed()
            }
            Fate::DiesBefore => {
                self.kill();
                return self.never().await;
            }
            Fate::DiesAfter => {
                effect().await;
                self.kill();
                return self.never().await;
            }
            Fate::DiesAndLate(by) => {
                later(by, effect());
                self.kill();
                return self.never().await;
            }
        };
        if !takes.is_zero() {
            sleep(takes / 2).await;
        }
        if self.dead.load(Ordering::Relaxed) {
            return self.never().await;
        }
        answer
    }
}

fn later<T: Send + 'static>(by: Duration, effect: BoxFuture<'static, T>) {
    tokio::spawn(async move {
        sleep(by).await;
        effect.await;
    });
}
