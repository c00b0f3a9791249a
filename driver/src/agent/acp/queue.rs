//! What an agent has sent and nobody has said yet, bounded in messages and in bytes. When it is full, the agent waits.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::client::FromAgent;
use crate::bounds::{AGENT_QUEUE, AGENT_QUEUE_BYTES};
use crate::json_bytes::json_bytes;

/// The connection's end.
#[derive(Clone)]
pub struct Sender {
    send: mpsc::Sender<Queued>,
    room: Arc<Semaphore>,
}

/// The speaker's end.
pub struct Receiver(mpsc::Receiver<Queued>);

struct Queued {
    message: FromAgent,
    /// Given back when the message is taken.
    _room: OwnedSemaphorePermit,
}

/// An empty queue.
pub fn queue() -> (Sender, Receiver) {
    let (send, messages) = mpsc::channel(AGENT_QUEUE);
    let room = Arc::new(Semaphore::new(AGENT_QUEUE_BYTES));
    (Sender { send, room }, Receiver(messages))
}

impl Sender {
    /// Adds a message when there is room for it. It is let go when nobody listens any more.
    pub async fn send(&self, message: FromAgent) {
        let bytes = match &message {
            FromAgent::Update(update) => json_bytes(update),
            FromAgent::Permission(request, _) => json_bytes(request),
        };
        // a message that grew over the bound by its escapes has the queue for itself
        let bytes = u32::try_from(bytes.clamp(1, AGENT_QUEUE_BYTES)).unwrap_or(u32::MAX);
        let Ok(room) = Arc::clone(&self.room).acquire_many_owned(bytes).await else {
            return;
        };
        let queued = Queued {
            message,
            _room: room,
        };
        // fails only when nobody speaks any more
        let _ = self.send.send(queued).await;
    }

    /// Waits until there is room; behind a message that waits for room itself.
    pub async fn has_room(&self) {
        let _ = self.room.acquire().await;
        let _ = self.send.reserve().await;
    }
}

impl Receiver {
    /// The next message; `None` when the connection is over.
    pub async fn recv(&mut self) -> Option<FromAgent> {
        self.0.recv().await.map(|queued| queued.message)
    }

    /// The next message that is there already.
    pub fn try_recv(&mut self) -> Option<FromAgent> {
        self.0.try_recv().ok().map(|queued| queued.message)
    }
}
