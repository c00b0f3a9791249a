//! `bex-driver serve`: recover, listen, say where, serve until killed.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bex_proto::launch::{Isolation, LISTENING_FILE, Listening};
use bex_proto::limits;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tracing::{debug, error, info, warn};

use crate::agent::Prompt;
use crate::bounds::{CONNECTIONS, HEAD_TIMEOUT};
use crate::http::{Grants, Service};
use crate::memory::Cgroup;
use crate::profile::{self, Profile};
use crate::turns::Turns;
use crate::{files, recover, scrub};

/// After a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Exit code of a configuration that cannot be used (EX_USAGE).
const BAD_CONFIGURATION: u8 = 64;

/// Runs the driver. Returns after SIGTERM only.
pub fn main(launch: &Path) -> ExitCode {
    let profile = match profile::load(launch) {
        Ok(profile) => profile,
        Err(fault) => {
            error!(error = %fault, "cannot be launched");
            return ExitCode::from(BAD_CONFIGURATION);
        }
    };
    match run(Arc::new(profile)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(cause) => {
            error!(error = format!("{cause:#}"), "driver failed");
            ExitCode::FAILURE
        }
    }
}

fn run(profile: Arc<Profile>) -> anyhow::Result<()> {
    files::close(&profile.dir).context("the driver's directory is not its own")?;
    match profile.surroundings.isolation {
        Isolation::None => warn!(isolation = "none", "agent and driver share one user"),
        Isolation::User { .. } => {
            // set here, while there is one thread, it holds for every thread and child to come
            nix::sys::prctl::set_no_new_privs().context("no_new_privs cannot be set")?;
        }
    }
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("no runtime")?
        .block_on(serve(profile))
}

async fn serve(profile: Arc<Profile>) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("no signal handler")?;
    let listener = TcpListener::bind(profile.listen)
        .await
        .context("cannot listen")?;
    if recover::was_speaking(&profile).context("an earlier log cannot be read")? {
        // its turn ends now
        scrub::run(&profile).await;
    }
    let recovered = recover::recover(&profile).context("an earlier log cannot be ended")?;
    let grants = Grants::new(profile.key.clone(), recovered.restarted);
    let turns = Turns::new(Arc::clone(&profile), recovered);
    if let Some(legacy) = profile.legacy.clone() {
        let begun = turns.begin(Prompt {
            turn: legacy.turn,
            text: legacy.prompt,
            priming: None,
        });
        if let Err(refused) = begun {
            warn!(reason = %refused, "the one turn is not begun");
        }
    }
    let address = listener.local_addr().context("no address")?;
    let listening = Listening {
        address,
        pid: std::process::id(),
    };
    let text = serde_json::to_vec(&listening).expect("an address is plain data");
    files::replace(&profile.dir.join(LISTENING_FILE), &text)
        .context("cannot say where it listens")?;
    info!(session = %profile.session, generation = %profile.generation, %address, "driver listens");

    let service = Arc::new(Service::new(profile, Arc::clone(&turns), grants));
    tokio::spawn({
        let turns = Arc::clone(&turns);
        async move { turns.guard_memory(Cgroup::own()).await }
    });
    tokio::select! {
        () = accept(listener, service) => {}
        () = ended(&mut terminate, &turns) => {}
    }
    Ok(())
}

/// The end: agent and turn are ended at the first SIGTERM; the log is served until the second, or for the grace period.
async fn ended(terminate: &mut tokio::signal::unix::Signal, turns: &Turns) {
    terminate.recv().await;
    info!("told to end");
    turns.terminate().await;
    tokio::select! {
        _ = terminate.recv() => {}
        () = tokio::time::sleep(limits::SANDBOX_GRACE) => {}
    }
    info!("driver ends");
}

async fn accept(listener: TcpListener, service: Arc<Service>) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let permit = Arc::clone(&permits)
            .acquire_owned()
            .await
            .expect("the semaphore is never closed");
        match listener.accept().await {
            Ok((socket, _)) => {
                let service = Arc::clone(&service);
                tokio::spawn(async move {
                    talk(socket, service).await;
                    drop(permit);
                });
            }
            // out of descriptors, mostly: others may be closed meanwhile
            Err(cause) => {
                warn!(error = %cause, "a connection is not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn talk(socket: TcpStream, service: Arc<Service>) {
    if let Err(cause) = socket.set_nodelay(true) {
        debug!(error = %cause, "socket option is not set");
    }
    let answer = service_fn(move |request| {
        let service = Arc::clone(&service);
        async move { Ok::<_, std::convert::Infallible>(service.answer(request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(socket), answer);
    if let Err(cause) = connection.await {
        debug!(error = %cause, "connection broke");
    }
}
