//! The life of the process: prove the database, bind, serve, and on a signal drain and end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bex_cluster::ClientError;
use bex_proto::ids::random_id;
use bex_store::listen::Source as NoticeSource;
use bex_store::migrate::SchemaError;
use bex_store::pool::Db;
use bex_store::{ClusterRights, ConfigError, Readiness, Role, StoreError, check_schema, preflight};
use bex_telemetry::SpanExporter;
use bex_tls::{ServerTls, TlsError};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::admin::{Admin, Draining};
use crate::attach::{Attach, AttachDeps};
use crate::config::{Config, Sandboxes};
use crate::exec::{Exec, ExecDeps, ExecLimits};
use crate::metrics::{Level, Metrics};
use crate::sandbox::Targets;
use crate::sandbox::kubernetes::KubernetesTargets;
use crate::sandbox::local::LocalTargets;
use crate::serve::{Port, ServeOptions, Serving, serve};

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

/// Why the process does not start, or does not go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
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
    /// The exec listener's certificate, key or authorities.
    #[error("the TLS files of the exec listener cannot be used")]
    ExecTls(#[source] TlsError),
    /// The cluster's credentials.
    #[error("the cluster cannot be used: {0}")]
    Cluster(#[source] ClientError),
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
    /// A task without which nothing may be shown.
    #[error("revocations are not heard of any more")]
    Deaf,
}

/// Runs until SIGTERM or SIGINT, then drains.
///
/// # Errors
/// What kept it from starting, or from going on; it has drained then.
pub async fn run(config: Config) -> Result<(), RunError> {
    let stop = stop_on_signal()?;
    raise_file_limit();
    let db = Db::connect(&config.database).map_err(RunError::Config)?;
    prove(&db).await?;
    let ports = Ports::bind(&config).await?;
    let addresses = ports.addresses()?;
    let draining = Draining::default();
    let (targets, rights) = targets(config.sandboxes.clone(), &stop).await?;
    let collector = config.collector.clone();
    let (parts, metrics) = Parts::build(config, targets, rights, &db, &draining)?;
    let spans = SpanExporter::start(collector, "bex-gateway", metrics.spans.clone());
    let serving = parts.serve(ports, &metrics);
    let [attach, exec, admin] = addresses;
    info!(%attach, %exec, %admin, "the gateway serves");

    let end = tokio::select! {
        () = stop.cancelled() => Ok(()),
        () = parts.attach.lost() => Err(RunError::Deaf),
    };
    info!("shutting down");
    draining.begin();
    parts.drain(serving).await;
    spans.finish().await;
    db.close();
    info!("ended");
    end
}

/// The sandboxes, and what the cluster says that may be done with them.
async fn targets(
    sandboxes: Sandboxes,
    stop: &CancellationToken,
) -> Result<(Arc<dyn Targets>, Option<watch::Receiver<ClusterRights>>), RunError> {
    Ok(match sandboxes {
        Sandboxes::Local { dir, driver_bin } => {
            // told aloud, as nobody should take this kind for a boundary
            info!(
                kind = "local",
                isolation = "none",
                "sandboxes are processes of this machine"
            );
            (Arc::new(LocalTargets::new(dir, driver_bin)), None)
        }
        Sandboxes::Kubernetes(kubernetes) => {
            let targets = KubernetesTargets::new(kubernetes)
                .await
                .map_err(RunError::Cluster)?;
            info!(kind = "kubernetes", "sandboxes are pods");
            let (say, rights) = watch::channel(ClusterRights::Unasked);
            let asking = targets.rights().tell(say);
            tokio::spawn(stop.clone().run_until_cancelled_owned(asking));
            (Arc::new(targets), Some(rights))
        }
    })
}

/// What the listeners are made of.
struct Parts {
    attach: Arc<Attach>,
    exec: Arc<Exec>,
    exec_tls: Option<Arc<ServerTls>>,
    admin: Arc<Admin>,
}

/// The accept loops.
struct AllServing {
    attach: Serving,
    exec: Serving,
    admin: Serving,
}

impl Parts {
    fn build(
        config: Config,
        targets: Arc<dyn Targets>,
        rights: Option<watch::Receiver<ClusterRights>>,
        db: &Db,
        draining: &Draining,
    ) -> Result<(Self, Arc<Metrics>), RunError> {
        let mut metrics = Metrics::new();
        let exec_tls = config.exec_tls.map(ServerTls::open).transpose();
        let exec_tls = exec_tls.map_err(RunError::ExecTls)?.map(Arc::new);
        let driver_keys = Arc::new(config.driver_keys);
        let readiness = Readiness::new(db.clone(), Role::Gateway, &driver_keys).with_rights(rights);
        let instance = random_id("gwy");
        info!(instance, "this process in audit rows");
        let attach = Attach::new(AttachDeps {
            db: db.clone(),
            notices: match config.listen_database {
                Some(listen) => NoticeSource::Listen(listen),
                None => NoticeSource::Poll(db.clone()),
            },
            targets: Arc::clone(&targets),
            driver_keys: Arc::clone(&driver_keys),
            attach_keys: config.attach_keys,
            cors_origins: config.cors_origins,
            trusted_proxies: config.trusted_proxies,
            tee: config.tee,
            instance,
            source_retry: bex_proto::limits::SOURCE_RETRY,
            metrics: metrics.attach.clone(),
        })
        .map_err(RunError::Config)?;
        let exec = Exec::new(ExecDeps {
            records: Arc::new(db.clone()),
            targets,
            driver_keys,
            exec_keys: config.exec_keys,
            metrics: metrics.exec.clone(),
            limits: ExecLimits::default(),
        });
        metrics.watch({
            let (attach, db, exec_tls) = (Arc::clone(&attach), db.clone(), exec_tls.clone());
            let runtime = tokio::runtime::Handle::current();
            let tasks = move || Level {
                name: "tasks",
                help: "Tasks of the runtime that have not ended",
                value: runtime.metrics().num_alive_tasks(),
            };
            move || {
                let levels = attach.levels().into_iter().chain(pool(&db));
                let levels = levels.chain([tasks()]);
                levels.chain(certificate(exec_tls.as_deref())).collect()
            }
        });
        let metrics = Arc::new(metrics);
        let parts = Self {
            attach,
            exec: Arc::new(exec),
            exec_tls,
            admin: Arc::new(Admin::new(
                readiness,
                Arc::clone(&metrics),
                draining.clone(),
            )),
        };
        Ok((parts, metrics))
    }

    fn serve(&self, ports: Ports, metrics: &Metrics) -> AllServing {
        let options = |name, connections| ServeOptions { name, connections };
        let (attach, admin) = (Arc::clone(&self.attach), Arc::clone(&self.admin));
        AllServing {
            attach: serve(
                ports.attach,
                options("attach", ATTACH_CONNECTIONS),
                metrics.serve.clone(),
                move |request, peer| Arc::clone(&attach).handle(request, peer),
            ),
            exec: self.serve_exec(ports.exec, options("exec", EXEC_CONNECTIONS), metrics),
            admin: serve(
                ports.admin,
                options("admin", ADMIN_CONNECTIONS),
                metrics.serve.clone(),
                move |request, _| Arc::clone(&admin).handle(request),
            ),
        }
    }

    fn serve_exec(&self, port: TcpListener, options: ServeOptions, metrics: &Metrics) -> Serving {
        let (exec, metrics) = (Arc::clone(&self.exec), metrics.serve.clone());
        let port = match &self.exec_tls {
            None => Port::Plain(port),
            Some(tls) => Port::Proved(port, Arc::clone(tls)),
        };
        serve(port, options, metrics, move |request, peer| {
            Arc::clone(&exec).handle(request, peer)
        })
    }

    /// Nothing new is accepted; viewers are told where to resume and what they saw is stored; what is open then has until the
    /// deadline. Probes are answered to the last.
    async fn drain(&self, serving: AllServing) {
        let deadline = Instant::now() + DRAIN_DEADLINE;
        serving.attach.stop_accepting();
        serving.exec.stop_accepting();
        if tokio::time::timeout_at(deadline, self.attach.drain())
            .await
            .is_err()
        {
            warn!("viewers or tees were late");
        }
        let left = deadline.saturating_duration_since(Instant::now());
        tokio::join!(serving.attach.finish(left), serving.exec.finish(left));
        self.attach.closed().await;
        serving.admin.finish(ADMIN_DEADLINE).await;
    }
}

/// The exec listener's certificate, for metrics; expiry 0 without one.
fn certificate(tls: Option<&ServerTls>) -> [Level; 2] {
    let number = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let not_after = tls.map_or(0, |tls| tls.not_after().max(0).unsigned_abs());
    [
        Level {
            name: "exec_tls_not_after_seconds",
            help: "When the exec listener's certificate expires, Unix time; 0 without TLS",
            value: number(not_after),
        },
        Level {
            name: "exec_tls_reload_failures",
            help: "Changed TLS files of the exec listener that could not be used",
            value: number(tls.map_or(0, ServerTls::reload_failures)),
        },
    ]
}

/// The database's connections, for metrics.
fn pool(db: &Db) -> [Level; 3] {
    let now = db.levels();
    let level = |name, help, value| Level { name, help, value };
    [
        level(
            "db_connections",
            "Connections to the database",
            now.connections,
        ),
        level(
            "db_connections_free",
            "Connections that nobody uses",
            now.free,
        ),
        level(
            "db_waiting",
            "Statements that wait for a connection",
            now.waiting,
        ),
    ]
}

/// The schema is this release's and the role may do what this process does, or every missing grant is named.
async fn prove(db: &Db) -> Result<(), RunError> {
    match check_schema(db).await {
        Ok(()) => {}
        // the preflight names this one too
        Err(SchemaError::Store(error))
            if error
                .sqlstate()
                .is_some_and(|s| s.code() == INSUFFICIENT_PRIVILEGE) => {}
        Err(SchemaError::Store(error)) => return Err(RunError::Store(error)),
        Err(too_old) => return Err(RunError::Schema(too_old)),
    }
    let missing = preflight(db, Role::Gateway)
        .await
        .map_err(RunError::Store)?;
    if missing.is_empty() {
        Ok(())
    } else {
        Err(RunError::MissingGrants(missing))
    }
}

/// All ports, bound before any is served: a process that has one of them has all.
struct Ports {
    attach: TcpListener,
    exec: TcpListener,
    admin: TcpListener,
}

impl Ports {
    async fn bind(config: &Config) -> Result<Self, RunError> {
        Ok(Self {
            attach: bind("attach", config.attach_listen).await?,
            exec: bind("exec", config.exec_listen).await?,
            admin: bind("admin", config.admin_listen).await?,
        })
    }

    /// Where they really are: a configured port 0 lets the system choose.
    fn addresses(&self) -> Result<[SocketAddr; 3], RunError> {
        let of = |listener: &TcpListener| listener.local_addr().map_err(RunError::Address);
        Ok([of(&self.attach)?, of(&self.exec)?, of(&self.admin)?])
    }
}

async fn bind(listener: &'static str, address: SocketAddr) -> Result<TcpListener, RunError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| RunError::Bind {
            listener,
            address,
            source,
        })
}

fn stop_on_signal() -> Result<CancellationToken, RunError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(RunError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(RunError::Signals)?;
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
