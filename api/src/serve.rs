//! The life of `bex-api serve`: check the database, bind, start the loops, serve, and on a signal stop in order.

mod packages;
mod sandboxes;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use bex_proto::limits;
use bex_store::listen::{Listener, Source};
use bex_store::{Db, Readiness, Role, check_schema, preflight};
use bex_telemetry::SpanExporter;
use bex_tls::ClientTls;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::admin::{self, Admin};
use crate::auth::{Authenticator, Oidc, OidcRules, ServiceTokens, Verifier, key_cache};
use crate::completer::{Completer, CompleterDeps};
use crate::config::{Config, OidcConfig};
use crate::dispatch::{Dispatcher, DispatcherDeps};
use crate::exec_client::ExecClient;
use crate::export::Exporter;
use crate::housekeeping;
use crate::http::serve::{Drained, serve as listen};
use crate::http::{Api, Reports, Ui, router_with};
use crate::metrics::Metrics;
use crate::notices::Notices;
use crate::package::Packager;
use crate::proof::Notary;
use crate::remote::{Announcer, Builders};
use crate::retention::{self, Keeping};
use crate::tickets::AttachTickets;
use sandboxes::Sandboxes;

/// How long the loops may take to stop, after open requests are done.
const LOOPS_DRAIN: Duration = Duration::from_secs(7);
/// The admin listener answers until the end; it holds nobody up.
const ADMIN_DRAIN: Duration = Duration::from_secs(1);

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// When the process cannot start: the database is away, its schema is older, a grant is missing, a port is taken.
pub async fn serve(mut config: Config) -> anyhow::Result<()> {
    let db = Db::connect(&config.database)?;
    check_schema(&db).await?;
    let missing = preflight(&db, Role::Api).await?;
    if !missing.is_empty() {
        bail!("the database user lacks grants: {}", missing.join(", "));
    }
    let ui = config.ui_dir.as_deref();
    let ui = ui.map(|dir| Ui::load(dir, &config.attach_public_url));
    let ui = ui.transpose().context("BEX_UI_DIR")?;
    let rest = bind(config.listen).await?;
    let admin_port = bind(config.admin_listen).await?;
    let source = match &config.listen_database {
        Some(database) => Source::Listen(database.clone()),
        None => Source::Poll(db.clone()),
    };
    let heard = Listener::start(source)?;
    tracing::info!(rest = %rest.local_addr()?, admin = %admin_port.local_addr()?, "listening");

    let metrics = Arc::new(Metrics::default());
    let exec_tls = config.exec.tls.clone().map(ClientTls::open).transpose()?;
    let exec_tls = exec_tls.map(Arc::new);
    let (stop_rest, stop_loops, stop_admin) = (
        CancellationToken::new(),
        CancellationToken::new(),
        CancellationToken::new(),
    );
    let loops = TaskTracker::new();
    let sandboxes = config.sandbox.clone();
    let sandboxes = sandboxes::start(sandboxes, &config.profiles, &db, &loops, &stop_loops).await?;
    let readiness = Readiness::new(db.clone(), Role::Api, &config.keys.driver);
    let admin = Arc::new(Admin::new(
        db.clone(),
        readiness.with_rights(sandboxes.rights.clone()),
        Arc::clone(&metrics),
        exec_tls.clone(),
    ));
    let collector = config.collector.clone();
    let spans = SpanExporter::start(collector, "bex-api", metrics.spans.clone());
    let packages = config.packages.take();
    let packages = packages::start(packages, &db, &metrics.packages, &loops, &stop_loops)?;
    let opened = Opened {
        db: db.clone(),
        heard,
        exec_tls,
        sandboxes,
        packages,
    };
    let api = start_loops(config, opened, &metrics, &loops, &stop_loops);
    let rest = tokio::spawn(listen(
        rest,
        "rest",
        router_with(api, ui),
        metrics.http.clone(),
        stop_rest.clone(),
        limits::API_DRAIN,
    ));
    let admin_router = admin::router(Arc::clone(&admin));
    let admin_task = tokio::spawn(listen(
        admin_port,
        "admin",
        admin_router,
        metrics.http.clone(),
        stop_admin.clone(),
        ADMIN_DRAIN,
    ));

    signalled().await?;
    tracing::info!("shutting down");
    admin.drain();
    stop_rest.cancel();
    if rest.await? == Drained::Cut {
        tracing::warn!("open requests were cut");
    }
    stop_loops.cancel();
    loops.close();
    if tokio::time::timeout(LOOPS_DRAIN, loops.wait())
        .await
        .is_err()
    {
        tracing::warn!(late = loops.len(), "loops did not stop in time");
    }
    spans.finish().await;
    stop_admin.cancel();
    admin_task.await?;
    db.close();
    tracing::info!("stopped");
    Ok(())
}

/// What is there before anything works by itself.
struct Opened {
    db: Db,
    heard: Listener,
    exec_tls: Option<Arc<ClientTls>>,
    sandboxes: Sandboxes,
    packages: Option<Arc<Packager>>,
}

/// Wires everything and starts what works by itself.
fn start_loops(
    config: Config,
    opened: Opened,
    metrics: &Arc<Metrics>,
    loops: &TaskTracker,
    stop: &CancellationToken,
) -> Arc<Api> {
    let Opened {
        db,
        heard,
        exec_tls,
        sandboxes,
        packages,
    } = opened;
    let notices = Notices::default();
    let rpc = Arc::new(match exec_tls {
        Some(tls) => ExecClient::proved(&config.exec.url, config.keys.exec, tls),
        None => ExecClient::new(&config.exec.url, config.keys.exec),
    });
    let owner = bex_proto::ids::random_id("api");
    let profiles = Arc::new(config.profiles);
    let (lifecycle, plans) = (sandboxes.lifecycle, sandboxes.plans);
    let dispatcher = Arc::new(Dispatcher::new(DispatcherDeps {
        db: db.clone(),
        owner: owner.clone(),
        rpc: rpc.clone(),
        lifecycle: Arc::clone(&lifecycle),
        plans,
        driver_keys: config.keys.driver.clone(),
        timings: config.timings,
        notices: notices.clone(),
        metrics: metrics.dispatch.clone(),
    }));
    let completer = Arc::new(Completer::new(CompleterDeps {
        db: Arc::new(db.clone()),
        owner,
        rpc: rpc.clone(),
        lifecycle,
        timings: config.timings,
        notices: notices.clone(),
        metrics: metrics.completer.clone(),
    }));
    let auth = authenticator(config.tokens, config.oidc, metrics, loops, stop);
    loops.spawn(dispatcher.run(stop.clone()));
    loops.spawn(completer.run(stop.clone()));
    loops.spawn(housekeeping::run(
        db.clone(),
        config.keys.driver,
        metrics.housekeeping.clone(),
        stop.clone(),
    ));
    let proof = config.proof.map(Arc::new);
    if let Some(ring) = &proof {
        let notary = Notary::new(db.clone(), Arc::clone(ring), notices.clone());
        loops.spawn(notary.run(metrics.proof.clone(), metrics.keeping.clone(), stop.clone()));
    }
    loops.spawn(retention::run(
        db.clone(),
        Keeping {
            default_days: config.retention_days,
            log_days: config.remote_log_days,
            tick: config.retention_tick,
        },
        (metrics.retention.clone(), metrics.keeping.clone()),
        stop.clone(),
    ));
    let builders = Builders::new(db.clone(), metrics.remote.clone(), stop.clone());
    loops.spawn(builders.clone().run());
    let announcer = Announcer::default();
    loops.spawn(announcer.clone().run(db.clone(), stop.clone()));
    // a loop that subscribes after the first notice finds the same work by its own first tick
    loops.spawn(notices.clone().pump(heard, stop.clone()));
    Arc::new(Api {
        db: db.clone(),
        auth,
        profiles,
        tickets: AttachTickets::new(config.keys.attach, config.attach_public_url),
        sandboxes: rpc,
        notices,
        exports: Exporter::new(db.clone(), proof.clone(), metrics.keeping.clone()),
        proof,
        retention_days: config.retention_days,
        live_limit: config.live_limit,
        turn_wait: limits::TURN_VERB_WAIT,
        metrics: metrics.http.clone(),
        builders,
        remote_metrics: metrics.remote.clone(),
        announcer,
        reports: Reports::default(),
        packages,
    })
}

/// Service tokens first: they need nobody. An issuer that cannot be asked delays no start; until it can, its tokens are answered
/// `unavailable`.
fn authenticator(
    tokens: ServiceTokens,
    oidc: Option<OidcConfig>,
    metrics: &Metrics,
    loops: &TaskTracker,
    stop: &CancellationToken,
) -> Authenticator {
    let oidc = oidc.map(|oidc| {
        let rules = OidcRules {
            issuer: oidc.issuer,
            audiences: oidc.audiences,
            claims: oidc.claims,
            reserved: tokens.subjects().map(str::to_owned).collect(),
        };
        let (keys, refresher) = key_cache(Box::new(oidc.jwks), metrics.oidc.clone());
        loops.spawn(refresher.run(stop.clone()));
        Verifier::Oidc(Box::new(Oidc::new(rules, keys, metrics.oidc.clone())))
    });
    let first = Verifier::ServiceTokens(tokens);
    Authenticator::new(std::iter::once(first).chain(oidc).collect())
}

async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}"))
}

async fn signalled() -> std::io::Result<()> {
    let (mut term, mut int) = (
        signal(SignalKind::terminate())?,
        signal(SignalKind::interrupt())?,
    );
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    Ok(())
}
