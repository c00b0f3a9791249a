//! The life of the process: prove the database, bind, serve, and on a signal drain and end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bex_store::listen::Source;
use bex_store::migrate::SchemaError;
use bex_store::pool::Db;
use bex_store::{ConfigError, Role, StoreError, check_schema, preflight};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::admin::{Admin, Draining};
use crate::attach::{Attach, AttachDeps};
use crate::config::{Config, Sandboxes, Tee};
use crate::exec::{Exec, ExecDeps, ExecLimits};
use crate::hub::TeeMode;
use crate::metrics::Metrics;
use crate::sandbox::Targets;
use crate::sandbox::local::LocalTargets;
use crate::serve::{ServeOptions, Serving, serve};

/// Connections of viewers: every stream its own, and some that are refused.
pub const ATTACH_CONNECTIONS: usize = bex_proto::limits::STREAMS_PER_PROCESS + 500;
/// Connections of apis; more than there are operations at once, so that a full house can say so.
pub const EXEC_CONNECTIONS: usize = 256;
/// Connections of probes and scrapers.
pub const ADMIN_CONNECTIONS: usize = 64;
/// From the signal until open connections are cut: below the 25 s in which the process ends.
pub const DRAIN_DEADLINE: Duration = Duration::from_secs(20);
/// The admin listener ends last and has only short answers.
const ADMIN_DEADLINE: Duration = Duration::from_secs(1);
/// SQLSTATE of a missing grant.
const INSUFFICIENT_PRIVILEGE: &str = "42501";

/// Why the process does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The database's settings.
    #[error("the database configuration is unusable")]
    Config(#[source] ConfigError),
    /// The schema is too old.
    #[error("the database's schema cannot be used: {0}")]
    Schema(SchemaError),
    /// The database does not answer.
    #[error("the database cannot be asked")]
    Store(#[source] StoreError),
    /// The role may do less than this process must.
    #[error("the database role lacks grants: {}", .0.join(", "))]
    MissingGrants(Vec<String>),
    /// A port.
    #[error("cannot listen for {listener} on {address}")]
    Bind {
        /// Which listener.
        listener: &'static str,
        /// Where.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A port that was bound has no address.
    #[error("cannot tell where a listener is")]
    Address(#[source] std::io::Error),
    /// The system.
    #[error("cannot wait for signals")]
    Signals(#[source] std::io::Error),
}

/// Runs until SIGTERM or SIGINT, then drains.
///
/// # Errors
/// What kept it from starting; afterwards nothing does.
pub async fn run(config: Config) -> Result<(), StartError> {
    let stop = stop_on_signal()?;
    raise_file_limit();
    let db = Db::connect(&config.database).map_err(StartError::Config)?;
    prove(&db).await?;
    let ports = Ports::bind(&config).await?;
    let addresses = ports.addresses()?;
    let metrics = Arc::new(Metrics::new());
    let draining = Draining::default();
    let targets: Arc<dyn Targets> = match &config.sandboxes {
        Sandboxes::Local { dir, driver_bin } => {
            // told aloud, as nobody should take this kind for a boundary
            info!(
                kind = "local",
                isolation = "none",
                "sandboxes are processes of this machine"
            );
            Arc::new(LocalTargets::new(dir.clone(), driver_bin.clone()))
        }
    };
    let driver_keys = Arc::new(config.driver_keys.clone());
    let exec = Arc::new(Exec::new(ExecDeps {
        records: Arc::new(db.clone()),
        targets: Arc::clone(&targets),
        driver_keys: Arc::clone(&driver_keys),
        exec_keys: config.exec_keys.clone(),
        metrics: metrics.exec.clone(),
        limits: ExecLimits::default(),
    }));
    let attach = Attach::new(AttachDeps {
        db: db.clone(),
        notices: match &config.listen_database {
            Some(database) => Source::Listen(database.clone()),
            None => Source::Poll(db.clone()),
        },
        targets,
        driver_keys,
        attach_keys: config.attach_keys.clone(),
        cors_origins: config.cors_origins.clone(),
        trusted_proxies: config.trusted_proxies.clone(),
        tee: match config.tee {
            Tee::On => TeeMode::On,
            Tee::Off => TeeMode::Off,
        },
        instance: addresses[0].to_string(),
        streams: metrics.streams.clone(),
    })
    .map_err(StartError::Config)?;
    let admin = Arc::new(Admin::new(
        db.clone(),
        Arc::clone(&metrics),
        draining.clone(),
    ));

    let admin_serving = serve(
        ports.admin,
        ServeOptions {
            name: "admin",
            connections: ADMIN_CONNECTIONS,
        },
        metrics.serve.clone(),
        move |request, _| Arc::clone(&admin).handle(request),
    );
    let exec_serving = serve(
        ports.exec,
        ServeOptions {
            name: "exec",
            connections: EXEC_CONNECTIONS,
        },
        metrics.serve.clone(),
        move |request, peer| Arc::clone(&exec).handle(request, peer),
    );
    let viewers = Arc::clone(&attach);
    let attach_serving = serve(
        ports.attach,
        ServeOptions {
            name: "attach",
            connections: ATTACH_CONNECTIONS,
        },
        metrics.serve.clone(),
        move |request, peer| Arc::clone(&viewers).handle(request, peer),
    );
    let [attach_port, exec, admin] = addresses;
    info!(attach = %attach_port, %exec, %admin, "the gateway serves");

    stop.cancelled().await;
    info!("shutting down");
    draining.begin();
    // streams end by themselves once they are told to; nothing new may begin meanwhile
    attach_serving.stop_accepting();
    attach.drain().await;
    drain(vec![attach_serving, exec_serving]).await;
    admin_serving.finish(ADMIN_DEADLINE).await;
    db.close();
    info!("ended");
    Ok(())
}

/// The schema is this release's and the role may do what this process does, or every missing grant is named.
async fn prove(db: &Db) -> Result<(), StartError> {
    match check_schema(db).await {
        Ok(()) => {}
        // the preflight names this one too
        Err(SchemaError::Store(error))
            if error
                .sqlstate()
                .is_some_and(|s| s.code() == INSUFFICIENT_PRIVILEGE) => {}
        Err(SchemaError::Store(error)) => return Err(StartError::Store(error)),
        Err(too_old) => return Err(StartError::Schema(too_old)),
    }
    let missing = preflight(db, Role::Gateway)
        .await
        .map_err(StartError::Store)?;
    if missing.is_empty() {
        Ok(())
    } else {
        Err(StartError::MissingGrants(missing))
    }
}

/// All ports, bound before any is served: a process that has one of them has all.
struct Ports {
    attach: TcpListener,
    exec: TcpListener,
    admin: TcpListener,
}

impl Ports {
    async fn bind(config: &Config) -> Result<Self, StartError> {
        Ok(Self {
            attach: bind("attach", config.attach_listen).await?,
            exec: bind("exec", config.exec_listen).await?,
            admin: bind("admin", config.admin_listen).await?,
        })
    }

    /// Where they really are: a configured port 0 lets the system choose.
    fn addresses(&self) -> Result<[SocketAddr; 3], StartError> {
        let of = |listener: &TcpListener| listener.local_addr().map_err(StartError::Address);
        Ok([of(&self.attach)?, of(&self.exec)?, of(&self.admin)?])
    }
}

async fn bind(listener: &'static str, address: SocketAddr) -> Result<TcpListener, StartError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| StartError::Bind {
            listener,
            address,
            source,
        })
}

/// Nothing new is accepted at once; what is open has until the deadline.
async fn drain(serving: Vec<Serving>) {
    for one in &serving {
        one.stop_accepting();
    }
    let ends = serving.into_iter().map(|one| one.finish(DRAIN_DEADLINE));
    futures::future::join_all(ends).await;
}

fn stop_on_signal() -> Result<CancellationToken, StartError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(StartError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(StartError::Signals)?;
    let stop = CancellationToken::new();
    let signaled = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        signaled.cancel();
    });
    Ok(stop)
}

/// Ten thousand streams need more files than the usual soft limit allows.
fn raise_file_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).map(|()| (soft, hard))
    });
    match raised {
        Ok((soft, hard)) => info!(soft, hard, "file limit raised"),
        Err(error) => warn!(%error, "cannot raise the file limit"),
    }
}
