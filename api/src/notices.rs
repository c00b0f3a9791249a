//! Fan-out of the store's one listener within this process. Nothing polls per client: a handler that waits for a settle
//! and both loops hear the same notices.

use bex_store::listen::{Event, Listener};
use bex_store::wake::Channel;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio_util::sync::CancellationToken;

/// Notices a slow subscriber may be behind; then it is told to look at everything.
const QUEUE: usize = 1024;

/// Where notices are heard. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Notices {
    events: broadcast::Sender<Event>,
}

impl Default for Notices {
    fn default() -> Self {
        Self {
            events: broadcast::Sender::new(QUEUE),
        }
    }
}

impl Notices {
    /// Passes on what the listener says until cancelled.
    pub async fn pump(self, mut listener: Listener, cancel: CancellationToken) {
        while let Some(Some(event)) = cancel.run_until_cancelled(listener.next()).await {
            // nobody may be subscribed just now
            let _ = self.events.send(event);
        }
    }

    /// Everything from now on.
    pub fn subscribe(&self) -> Subscription {
        Subscription {
            events: self.events.subscribe(),
        }
    }
}

/// One subscriber's end.
#[derive(Debug)]
pub struct Subscription {
    events: broadcast::Receiver<Event>,
}

impl Subscription {
    /// The next notice; [`Event::Resumed`] after missed ones. Pends for ever once the process shuts down.
    pub async fn next(&mut self) -> Event {
        match self.events.recv().await {
            Ok(event) => event,
            Err(RecvError::Lagged(_)) => Event::Resumed,
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }

    /// Waits until something about `about` was said, or may have been missed.
    pub async fn heard(&mut self, channel: Channel, about: &str) {
        loop {
            match self.next().await {
                Event::Resumed => return,
                Event::Notified {
                    channel: c,
                    payload,
                } if c == channel && payload == about => return,
                Event::Notified { .. } => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notified(payload: usize) -> Event {
        Event::Notified {
            channel: Channel::Settled,
            payload: payload.to_string(),
        }
    }

    #[tokio::test]
    async fn a_subscriber_hears_its_own_or_that_it_missed_something() {
        let notices = Notices::default();
        let mut one = notices.subscribe();
        for n in 0..3 {
            notices.events.send(notified(n)).expect("one subscriber");
        }
        one.heard(Channel::Settled, "1").await;
        assert_eq!(one.next().await, notified(2));
        for n in 0..=QUEUE {
            notices.events.send(notified(n)).expect("one subscriber");
        }
        assert_eq!(one.next().await, Event::Resumed);
    }
}
