//! The reporter of a remote session: it runs a command on a machine that is not ours and reports what it prints.
//!
//! What it promises: **nothing is lost or told twice, whoever is killed.** The command's output goes into files of a state directory, with no
//! pipe in between, so a killed reporter holds nothing and the command does not notice. How the output is cut into events is written down
//! before an event is first sent ([`journal`]), so whatever is sent again is the same, byte for byte, and the service knows it. Started again
//! with the same state directory, a reporter goes on where the service says that it stands.
//!
//! Who does what: the [`runner`] is a process of its own that starts the command and waits for it; [`tail`] cuts what it prints; [`sender`] posts
//! it; [`commands`] takes what people say to the command; [`client`] is the way to the service. The token is in no environment, argument or log
//! line but the reporter's own.

pub mod arguments;
mod backoff;
mod client;
mod commands;
mod cut;
mod deeds;
mod echo;
mod endpoint;
mod fault;
mod input;
mod journal;
mod place;
pub mod runner;
mod running;
mod sender;
mod tail;

use std::process::ExitCode;
use std::sync::Arc;

use bex_proto::Chain;
use bex_proto::remote::RemoteState;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info};

use arguments::{Arguments, Config};
use client::{Call, Client};
use commands::Commands;
use echo::Echoes;
use fault::{Fault, INTERRUPTED};
use journal::Journal;
use place::Place;
use running::{End, Running};
use sender::Sender;
use tail::Tail;

/// Runs and reports a command. The exit code is the command's, or says why there is none: see [`Fault::exit_code`].
pub fn main(arguments: Arguments) -> ExitCode {
    let ended = Config::parse(arguments, |name| std::env::var(name).ok())
        .map_err(Fault::from)
        .and_then(run);
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(fault) => {
            error!(error = %Chain(&fault), code = fault.code(), "{}", fault.advice());
            ExitCode::from(fault.exit_code())
        }
    }
}

fn run(config: Config) -> Result<u8, Fault> {
    let place = Place::open(&config.state, &config.session)?;
    if let Some(code) = place.reported()? {
        info!(session = %config.session, code, "was reported to its end before");
        return Ok(code);
    }
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(Box::pin(report(config, Arc::new(place))))
}

async fn report(config: Config, place: Arc<Place>) -> Result<u8, Fault> {
    let client = Client::new(&config);
    let mut link = client.link();
    // before anything is started: a token or a session that is none is told at once
    let next = sender::ask(&mut link, &config.session).await?;
    let journal = Arc::new(Journal::open(&place, next)?);
    let running = Arc::new(Running::start(&config, Arc::clone(&place)).await?);
    let shown = match journal.is_new() {
        true => echo::From::Start,
        false => echo::From::Now,
    };
    let echoes = Echoes::begin(config.echo, &place, shown)?;
    info!(session = %config.session, pid = running.pid(), next, "session is reported");

    let mut sender = Sender::begin(link, &config.session, &place, Arc::clone(&journal), next)?;
    let mut commands = Commands::open(&config, &client, &place, &running, &journal)?;
    let mut tail = Tail::open(config.dialect, &place, &running, &journal)?;
    let told = tell(&config, &mut tail, &mut sender, &running);
    let ended = tokio::select! {
        ended = Box::pin(told) => ended,
        fault = Box::pin(commands.serve()) => Err(fault),
        fault = heartbeats(&client) => Err(fault),
        fault = interrupted(&running) => Err(fault),
    };
    commands.end().await;
    let code = match ended {
        Err(Fault::SessionEnded) => {
            info!(session = %config.session, "the session has ended: the command is stopped");
            running.stop_and_wait().await?;
            0
        }
        ended => ended?.exit_code(),
    };
    place.set_reported(code)?;
    echoes.end();
    Ok(code)
}

/// Output, all of it, then how the command ended.
async fn tell(
    config: &Config,
    tail: &mut Tail,
    sender: &mut Sender,
    running: &Running,
) -> Result<End, Fault> {
    let (end, events) = tokio::try_join!(tail.run(), sender.run())?;
    let state = match &end {
        _ if running.is_stopping() => RemoteState::Stopped,
        End::Code(0) => RemoteState::Completed,
        _ => RemoteState::Error,
    };
    let failed = (state == RemoteState::Error).then(|| end.to_string());
    let body = match failed {
        Some(error) => json!({"state": state, "events": events, "error": error}),
        None => json!({"state": state, "events": events}),
    };
    let path = format!("/v1/remote-sessions/{}/status", config.session);
    sender.post(&Call::post(&path, body.to_string())).await?;
    info!(session = %config.session, %state, events, "all of it was reported");
    Ok(end)
}

/// Says that the machine is there; by its token's refusal it ends.
async fn heartbeats(client: &Client) -> Fault {
    let detail = json!({"detail": {"reporter": concat!("bex-driver/", env!("CARGO_PKG_VERSION"))}});
    let call = Call::post("/v1/machine/heartbeat", detail.to_string());
    let mut link = client.link();
    loop {
        if let Err(fault) = link.ask(&call).await.map_err(client::Trouble::fault) {
            match fault {
                Some(fault @ Fault::Unauthenticated) => return fault,
                _ => tracing::debug!("a heartbeat was not heard"),
            }
        }
        tokio::time::sleep(client::HEARTBEAT).await;
    }
}

/// A signal from a person is passed on to the command, whose end is then reported; the second ends the reporter alone.
async fn interrupted(running: &Running) -> Fault {
    let streams = [
        (SignalKind::interrupt(), nix::sys::signal::Signal::SIGINT),
        (SignalKind::terminate(), nix::sys::signal::Signal::SIGTERM),
        (SignalKind::hangup(), nix::sys::signal::Signal::SIGHUP),
    ];
    let mut waits = Vec::new();
    for (kind, passed) in streams {
        match signal(kind) {
            Ok(stream) => waits.push((stream, passed)),
            Err(error) => return Fault::Io(error),
        }
    }
    let mut heard = async || {
        let each = waits.iter_mut().map(|(stream, passed)| {
            Box::pin(async move {
                stream.recv().await;
                *passed
            })
        });
        futures::future::select_all(each).await.0
    };
    let first = heard().await;
    info!(signal = %first, "is passed on to the command; once more ends the reporter alone");
    running.signal(first);
    heard().await;
    info!(code = INTERRUPTED, "the reporter ends; the command goes on");
    Fault::Interrupted
}
