//! Plays a recorded UI message stream.

use std::path::PathBuf;
use std::time::Duration;

use async_trait::async_trait;
use bex_proto::launch::Pace;
use bex_proto::sse::{DONE, Event, Splitter};
use tokio::fs::File;
use tokio::io::AsyncReadExt;
use tokio::time::Instant;

use super::{Agent, Outcome, Prompt, StopSignal};
use crate::sink::TurnSink;

const READ_BYTES: usize = 64 * 1024;
/// Parts between two looks at the stop signal and at other tasks when there is no pace.
const YIELD_EVERY: u32 = 64;

/// Says a recording's data events, whatever the prompt is.
#[derive(Debug)]
pub struct Player {
    file: PathBuf,
    pace: Pace,
}

impl Player {
    /// A player of one recording.
    pub fn new(file: PathBuf, pace: Pace) -> Self {
        Self { file, pace }
    }

    async fn play(&self, sink: &mut TurnSink) -> std::io::Result<()> {
        let mut file = File::open(&self.file).await?;
        let (mut splitter, mut chunk) = (Splitter::new(), vec![0; READ_BYTES]);
        let (start, mut said) = (Instant::now(), 0u32);
        loop {
            let length = file.read(&mut chunk).await?;
            if length == 0 {
                return Ok(());
            }
            splitter.push(&chunk[..length]);
            while let Some(event) = splitter.next_event() {
                if matches!(&event, Event::Data { data, .. } if data == DONE) {
                    return Ok(());
                }
                self.wait(start, said).await;
                match event {
                    Event::Data { data, .. } => sink.say(data),
                    Event::Oversized { bytes, .. } => sink.say_oversized(bytes),
                }
                said = said.wrapping_add(1);
            }
        }
    }

    /// Waits until part number `said` is due. Due times are counted from the start, so that delays do not add up.
    async fn wait(&self, start: Instant, said: u32) {
        match self.pace {
            Pace::Max if said.is_multiple_of(YIELD_EVERY) => tokio::task::yield_now().await,
            Pace::Max => {}
            Pace::PartsPerSecond(rate) => {
                let due = Duration::from_secs_f64(f64::from(said) / f64::from(rate.max(1)));
                tokio::time::sleep_until(start + due).await;
            }
        }
    }
}

#[async_trait]
impl Agent for Player {
    async fn speak(&mut self, _: Prompt, sink: &mut TurnSink, stop: StopSignal) -> Outcome {
        tokio::select! {
            biased;
            () = stop.any() => Outcome::Stopped,
            played = self.play(sink) => match played {
                Ok(()) => Outcome::Succeeded,
                Err(cause) => Outcome::Failed(format!("the recording cannot be read: {cause}")),
            },
        }
    }
}
