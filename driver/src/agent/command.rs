//! A plain program: the prompt is its standard input, its output is the answer.

use std::process::ExitStatus;

use async_trait::async_trait;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::child::{AgentChild, Spawn};
use super::pieces::Pieces;
use super::{Agent, Outcome, Prompt, StopSignal};
use crate::bounds::{AGENT_QUEUE, DRAIN_TIMEOUT, STOP_GRACE};
use crate::priming::{self, Told};
use crate::sink::TurnSink;

const READ_BYTES: usize = 16 * 1024;

/// Runs its program once a turn.
pub struct Program {
    spawn: Spawn,
}

/// A piece of output.
enum Said {
    Output(String),
    Error(String),
}

impl Program {
    /// A program that is started for every turn.
    pub fn new(spawn: Spawn) -> Self {
        Self { spawn }
    }
}

#[async_trait]
impl Agent for Program {
    async fn speak(&mut self, prompt: Prompt, sink: &mut TurnSink, stop: StopSignal) -> Outcome {
        priming::leave(&mut self.spawn, prompt.priming.as_deref());
        let mut running = match self.spawn.start() {
            Ok(running) => running,
            Err(cause) => {
                return Outcome::Failed(format!("the program cannot be started: {cause}"));
            }
        };
        let priming = prompt.priming.as_deref();
        let told = priming.and_then(|p| priming::told(prompt.turn, p));
        if let Some(told) = &told {
            sink.say_json(&told.part);
        }
        let said = pipe_streams(&mut running, input_of(prompt.text, told));
        let id = format!("t{}-0", sink.turn());
        sink.say_json(&json!({"type": "text-start", "id": id}));
        let ended = listen(&mut running, said, sink, &id, &stop).await;
        sink.say_json(&json!({"type": "text-end", "id": id}));
        match ended {
            Ok(_) if stop.asked.is_cancelled() || stop.now.is_cancelled() => Outcome::Stopped,
            Ok(status) if status.success() => Outcome::Succeeded,
            Ok(status) => Outcome::Failed(format!("the program ended with {status}")),
            Err(cause) => Outcome::Failed(format!("the program was lost: {cause}")),
        }
    }
}

fn input_of(prompt: String, told: Option<Told>) -> String {
    match told {
        Some(told) => format!("{}\n\n{prompt}", told.text),
        None => prompt,
    }
}

/// Feeds the input and gathers both outputs in the order in which they arrive. The queue closes when both are at their end.
fn pipe_streams(running: &mut AgentChild, input: String) -> mpsc::Receiver<Said> {
    let (say, said) = mpsc::channel(AGENT_QUEUE);
    if let Some(mut stdin) = running.child.stdin.take() {
        // a program may well end without reading its input
        tokio::spawn(async move { drop(stdin.write_all(input.as_bytes()).await) });
    }
    if let Some(stdout) = running.child.stdout.take() {
        tokio::spawn(read_pieces(stdout, Said::Output, say.clone()));
    }
    if let Some(stderr) = running.child.stderr.take() {
        tokio::spawn(read_pieces(stderr, Said::Error, say));
    }
    said
}

async fn read_pieces(
    mut stream: impl AsyncRead + Unpin,
    wrap: fn(String) -> Said,
    say: mpsc::Sender<Said>,
) {
    let (mut pieces, mut chunk) = (Pieces::default(), vec![0; READ_BYTES]);
    loop {
        let length = stream.read(&mut chunk).await.unwrap_or(0);
        pieces.push(&chunk[..length]);
        while let Some(piece) = pieces.next_piece() {
            if say.send(wrap(piece)).await.is_err() {
                return;
            }
        }
        if length == 0 {
            if let Some(rest) = pieces.rest() {
                let _ = say.send(wrap(rest)).await;
            }
            return;
        }
    }
}

/// Says output until the program ended and its output is read.
async fn listen(
    running: &mut AgentChild,
    mut said: mpsc::Receiver<Said>,
    sink: &mut TurnSink,
    id: &str,
    stop: &StopSignal,
) -> std::io::Result<ExitStatus> {
    let mut asked = false;
    let status = loop {
        tokio::select! {
            biased;
            () = stop.now.cancelled() => break running.kill().await?,
            () = stop.asked.cancelled(), if !asked => {
                asked = true;
                running.terminate();
            }
            () = sleep(STOP_GRACE), if asked => break running.kill().await?,
            Some(piece) = said.recv() => say(sink, id, piece),
            status = running.child.wait() => break status?,
        }
    };
    // what it left behind would hold the pipes open
    let _ = running.kill().await;
    let drain = async {
        while let Some(piece) = said.recv().await {
            say(sink, id, piece);
        }
    };
    // a child that left the group keeps its pipe; nobody waits for it
    let _ = timeout(DRAIN_TIMEOUT, drain).await;
    Ok(status)
}

fn say(sink: &mut TurnSink, id: &str, said: Said) {
    match said {
        Said::Output(text) => {
            sink.say_json(&json!({"type": "text-delta", "id": id, "delta": text}));
        }
        Said::Error(text) => sink.say_json(&json!({
            "type": "data-acp-terminal",
            "data": {"terminalId": format!("{id}-command"), "stream": "stderr", "output": text},
        })),
    }
}
