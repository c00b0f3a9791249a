//! A gateway that watches turns: its own tail and tee over a model of its connection to the driver, which breaks, repeats and
//! loses what it likes.

use std::sync::Arc;
use std::time::Duration;

use bex_gateway::hub::Speech;
use bex_gateway::hub::store::SpeechStore;
use bex_gateway::hub::tail::{SourceEnd, Tail};
use bex_gateway::hub::tee::{self, TeeProgress};
use bex_gateway::metrics::HubMetrics;
use bex_proto::ids::PartId;
use bex_proto::transcript::{Part, inspect};
use bex_proto::{Generation, PartIndex, SessionId, TurnNo, limits};
use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::process::Tees;
use crate::rng::Rng;
use crate::sandbox::{Streamed, World};

/// How a driver's stream is damaged, of a thousand.
#[derive(Debug, Clone, Copy, Default)]
pub struct Noise {
    /// It breaks and is dialled again.
    pub breaks: u32,
    /// Parts come twice.
    pub repeats: u32,
    /// Parts never come: the driver's ids jump.
    pub loses: u32,
}

/// One gateway process, as far as it watches one turn.
pub struct Watcher {
    pub store: Tees,
    pub world: Arc<World>,
    pub rng: Arc<Rng>,
    pub noise: Arc<dyn Fn() -> Noise + Send + Sync>,
}

/// A silent driver's target and turn are looked at after this.
const LOOK_AGAIN: Duration = Duration::from_secs(15);

impl Watcher {
    /// Reads one turn to its end and stores it.
    pub async fn watch(&self, session: &SessionId, life: Generation, turn: TurnNo) -> TeeProgress {
        let speech = Speech {
            session: session.clone(),
            turn,
            generation: life,
        };
        let (progress, _) = watch::channel(TeeProgress::default());
        let (tail, metrics) = (Tail::default(), HubMetrics::default());
        let source = async {
            let end = self.source(&tail, &speech).await;
            tail.finish(end);
        };
        let tee = tee::run(&tail, &self.store, &speech, &progress, &metrics);
        tokio::join!(source, tee);
        *progress.borrow()
    }

    async fn source(&self, tail: &Tail, speech: &Speech) -> SourceEnd {
        let began = Instant::now();
        let base = loop {
            match self.store.contiguous_end(speech).await {
                Ok(base) => break base,
                Err(_) if began.elapsed() >= limits::SOURCE_RETRY => return SourceEnd::Lost,
                Err(_) => sleep(Duration::from_millis(500)).await,
            }
        };
        tail.begin(base);
        let mut next = base.0;
        loop {
            match self
                .world
                .stream(&speech.session, speech.generation, speech.turn, next)
            {
                Streamed::Gone => return SourceEnd::Gone,
                Streamed::Done => return SourceEnd::Done,
                Streamed::Nothing(mut changed) => {
                    let silent = timeout(LOOK_AGAIN, changed.changed()).await.is_err();
                    if silent && self.store.is_settled(speech).await.unwrap_or(false) {
                        return SourceEnd::Gone;
                    }
                    sleep(self.rng.millis(0, 20)).await;
                }
                Streamed::Parts(parts) => {
                    let noise = (self.noise)();
                    if self.rng.chance(noise.breaks) {
                        sleep(self.rng.millis(100, 3000)).await;
                        continue;
                    }
                    for (index, text) in parts {
                        if self.rng.chance(noise.loses) {
                            next = index + 1;
                            continue;
                        }
                        let part = Arc::new(part(speech.turn, index, text));
                        if self.rng.chance(noise.repeats) {
                            tail.push([Arc::clone(&part)]);
                        }
                        tail.push([part]);
                        next = index + 1;
                    }
                }
            }
        }
    }
}

/// A part as the wire has it.
pub fn part(turn: TurnNo, index: u32, text: Bytes) -> Part {
    Part {
        id: PartId {
            turn,
            index: PartIndex(index),
        },
        head: inspect(&text).expect("drivers say parts"),
        bytes: text,
        spoken_at: None,
    }
}
