//! Hearing notices: one LISTEN connection per process, proved alive by a notification to itself
//! ([`bex_proto::limits::LISTEN_PROOF`]); without a listen URL the `changes` table is polled. Whatever happened while nobody heard is covered by
//! [`Event::Resumed`]: look at everything again.

mod connection;
mod poll;

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::config::{ConfigError, DbConfig};
use crate::pool::Db;
use crate::wake::Channel;

/// First and last delay between attempts to connect.
const RECONNECT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// Notices a slow receiver may be behind; then they are dropped and it is told to look at everything.
const QUEUE: usize = 1024;

/// What a listener says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A notice. Handling it must be idempotent: it may come twice.
    Notified {
        /// What about.
        channel: Channel,
        /// A session id, for [`Channel::Revoked`] a workspace id.
        payload: String,
    },
    /// Notices may have been missed: check everything now. Also the first event of every listener.
    Resumed,
}

/// Where notices come from.
#[derive(Debug, Clone)]
pub enum Source {
    /// A session connection: not through a transaction-pooling pgbouncer.
    Listen(DbConfig),
    /// Polling, with the ordinary pool.
    Poll(Db),
}

/// A running listener; dropped, it stops.
#[derive(Debug)]
pub struct Listener {
    events: mpsc::Receiver<Event>,
    task: JoinHandle<()>,
}

impl Listener {
    /// Starts listening in a task of its own. It reconnects for ever.
    ///
    /// # Errors
    /// When the configuration is unsafe or unusable; not when the server is away.
    pub fn start(source: Source) -> Result<Self, ConfigError> {
        let (sender, events) = mpsc::channel(QUEUE);
        let outlet = Outlet {
            sender,
            missed: false,
        };
        let task = match source {
            Source::Listen(config) => {
                let (pg, tls) = config.parse()?;
                tokio::spawn(connection::run(pg, tls, outlet))
            }
            Source::Poll(db) => tokio::spawn(poll::run(db, outlet)),
        };
        Ok(Self { events, task })
    }

    /// The next event. `None` never comes while the listener lives.
    pub async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The sending side: never blocks, never grows; what does not fit is summed up in one `Resumed`.
struct Outlet {
    sender: mpsc::Sender<Event>,
    missed: bool,
}

impl Outlet {
    fn send(&mut self, event: Event) {
        if self.missed {
            self.missed = self.sender.try_send(Event::Resumed).is_err();
        }
        if !self.missed {
            self.missed = self.sender.try_send(event).is_err();
        }
    }

    /// Tries to deliver an owed `Resumed`.
    fn settle_debt(&mut self) {
        if self.missed {
            self.missed = self.sender.try_send(Event::Resumed).is_err();
        }
    }

    fn resumed(&mut self) {
        self.missed = self.sender.try_send(Event::Resumed).is_err();
    }
}
