//! What wakes viewers of a session: notices of the store, handed to exactly those who watch it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// The sessions somebody watches in this process, agents' and remote ones by their ids.
#[derive(Debug, Default)]
pub struct Rooms(Mutex<HashMap<String, watch::Sender<()>>>);

/// One viewer's seat; a session without viewers is forgotten.
#[derive(Debug)]
pub struct Seat {
    rooms: Arc<Rooms>,
    session: String,
    changed: watch::Receiver<()>,
}

impl Rooms {
    /// Watches a session from now on.
    pub fn enter(self: &Arc<Self>, session: &str) -> Seat {
        let mut rooms = self.rooms();
        let room = rooms
            .entry(session.to_owned())
            .or_insert_with(|| watch::Sender::new(()));
        let changed = room.subscribe();
        drop(rooms);
        Seat {
            rooms: Arc::clone(self),
            session: session.to_owned(),
            changed,
        }
    }

    /// Something about this session changed.
    pub fn wake(&self, session: &str) {
        if let Some(room) = self.rooms().get(session) {
            room.send_replace(());
        }
    }

    /// Notices may have been missed: everybody looks again.
    pub fn wake_all(&self) {
        for room in self.rooms().values() {
            room.send_replace(());
        }
    }

    fn rooms(&self) -> MutexGuard<'_, HashMap<String, watch::Sender<()>>> {
        // a map of senders is consistent after any panic
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    /// Waits for the next notice after the last one seen.
    pub async fn changed(&mut self) {
        if self.changed.changed().await.is_err() {
            // the room lives as long as its seats, so this cannot be; waiting for ever is the safe reading
            std::future::pending().await
        }
    }

    /// Whether there was a notice since the last time it was asked or waited for.
    pub fn take_change(&mut self) -> bool {
        let changed = self.changed.has_changed().unwrap_or(false);
        self.changed.borrow_and_update();
        changed
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut rooms = self.rooms.rooms();
        // this seat's own receiver is still counted
        if rooms
            .get(&self.session)
            .is_some_and(|room| room.receiver_count() <= 1)
        {
            rooms.remove(&self.session);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_notice_reaches_its_session_only_and_empty_rooms_go() {
        let rooms = Arc::new(Rooms::default());
        let (a, b) = ("ags-a", "rms-b");
        let (mut first, mut second, mut other) = (rooms.enter(a), rooms.enter(a), rooms.enter(b));
        rooms.wake(a);
        first.changed().await;
        assert!(second.take_change() && !second.take_change());
        assert!(!first.take_change() && !other.take_change());
        rooms.wake_all();
        assert!(first.take_change() && other.take_change());
        drop(first);
        rooms.wake(a);
        assert!(second.take_change());
        drop((second, other));
        assert!(rooms.rooms().is_empty());
    }
}
