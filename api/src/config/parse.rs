//! From text to [`Config`]: each variable is judged, and all verdicts are collected.

mod exec;
mod kubernetes;
mod oidc;
mod packages;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bex_proto::limits;
use bex_proto::ticket::KeyRing;
use bex_store::{Db, DbConfig};
use bex_telemetry::Collector;

use super::{Config, ConfigFault, Keys, LocalSandboxes, SandboxKind, ServeArgs, Timings};
use crate::auth::ServiceTokens;
use crate::profiles::{Deployment, Profiles};
use crate::proof::ProofRing;
use crate::retention;

/// Remote sessions' logs: long enough to make rows again after a fault was found, short enough not to be an archive.
const REMOTE_LOG_DAYS: u32 = 30;
/// Largest file that the configuration names.
const CONFIG_FILE_BYTES: u64 = 1024 * 1024;

#[derive(Default)]
struct Faults(Vec<ConfigFault>);

impl Faults {
    fn add(&mut self, variable: &'static str, problem: impl ToString) {
        self.0.push(ConfigFault {
            variable,
            problem: problem.to_string(),
        });
    }

    fn keep<T, E: ToString>(&mut self, variable: &'static str, read: Result<T, E>) -> Option<T> {
        read.map_err(|e| self.add(variable, e)).ok()
    }

    fn required<'a, T>(&mut self, variable: &'static str, value: &'a Option<T>) -> Option<&'a T> {
        if value.is_none() {
            self.add(variable, "is not set");
        }
        value.as_ref()
    }
}

pub(super) fn config(args: &ServeArgs) -> Result<Config, Vec<ConfigFault>> {
    let mut faults = Faults::default();
    let deployment = deployment(&mut faults, args);
    let listen = listen(&mut faults, "BEX_API_LISTEN", &args.api_listen, deployment);
    let admin = self::listen(
        &mut faults,
        "BEX_ADMIN_LISTEN",
        &args.admin_listen,
        deployment,
    );
    let database = database(&mut faults, "BEX_DATABASE_URL", &args.database_url, args);
    if database.is_none() && args.database_url.is_none() {
        faults.add("BEX_DATABASE_URL", "is not set");
    }
    let listen_database = self::database(
        &mut faults,
        "BEX_LISTEN_DATABASE_URL",
        &args.listen_database_url,
        args,
    );
    let keys = keys(&mut faults, args);
    let attach_public_url = public_url(&mut faults, &args.attach_public_url);
    let exec = exec::exec(&mut faults, args);
    let oidc = oidc::oidc(&mut faults, args);
    let tokens = tokens(&mut faults, args);
    let profiles = profiles(&mut faults, args, deployment);
    let sandbox = sandbox(&mut faults, args, deployment);
    let timings = timings(&mut faults, args);
    let retention_tick = match &args.retention_tick_ms {
        None => Some(retention::TICK),
        Some(text) => positive(&mut faults, "BEX_RETENTION_TICK_MS", text)
            .map(|ms| Duration::from_millis(u64::from(ms))),
    };
    let live_limit = match &args.live_limit {
        None => Some(limits::LIVE_SESSIONS),
        Some(text) => positive(&mut faults, "BEX_LIVE_LIMIT", text),
    };
    let proof = args
        .proof_keys
        .as_ref()
        .map(|text| faults.keep("BEX_PROOF_KEYS", ProofRing::parse(text)));
    let mut days = |variable, text: &Option<String>, usual| match text {
        None => Some(usual),
        Some(text) => {
            let days = text.parse::<u32>();
            faults.keep(variable, days.map_err(|_| "must be a whole number of days"))
        }
    };
    let retention_days = days("BEX_AUDIT_RETENTION_DAYS", &args.audit_retention_days, 0);
    let remote_log_days = days(
        "BEX_REMOTE_LOG_RETENTION_DAYS",
        &args.remote_log_retention_days,
        REMOTE_LOG_DAYS,
    );

    let collector = match args.otlp_url.as_deref().map(str::trim) {
        None | Some("") => None,
        Some(url) => faults.keep("BEX_OTLP_URL", Collector::parse(url)),
    };

    let packages = packages::packages(&mut faults, args, keys.as_ref());

    let built = (|| {
        Some(Config {
            listen: listen?,
            admin_listen: admin?,
            database: database?,
            listen_database,
            keys: keys?,
            attach_public_url: attach_public_url?,
            exec: exec?,
            tokens: tokens?,
            oidc,
            profiles: profiles?,
            sandbox: sandbox?,
            timings: timings?,
            live_limit: live_limit?,
            proof: proof.flatten(),
            retention_days: retention_days?,
            remote_log_days: remote_log_days?,
            retention_tick: retention_tick?,
            collector,
            packages,
            ui_dir: args.ui_dir.clone(),
        })
    })();
    match built {
        Some(config) if faults.0.is_empty() => Ok(config),
        _ => Err(faults.0),
    }
}

/// May be absent where people's tokens are accepted.
fn tokens(faults: &mut Faults, args: &ServeArgs) -> Option<ServiceTokens> {
    let path = match &args.service_tokens {
        None if oidc::is_asked_for(args) => return Some(ServiceTokens::default()),
        path => faults.required("BEX_SERVICE_TOKENS", path)?,
    };
    let read =
        read_file(path).and_then(|text| ServiceTokens::parse(&text).map_err(|e| e.to_string()));
    faults.keep("BEX_SERVICE_TOKENS", read)
}

fn deployment(faults: &mut Faults, args: &ServeArgs) -> Deployment {
    match args.local.as_deref() {
        Some("1") => Deployment::Local,
        None | Some("" | "0") => Deployment::Cluster,
        Some(_) => {
            faults.add("BEX_LOCAL", "must be 1 or absent");
            Deployment::Cluster
        }
    }
}

/// `address:port`; `:port` means every address. On one machine only loopback may listen.
fn listen(
    faults: &mut Faults,
    variable: &'static str,
    text: &str,
    deployment: Deployment,
) -> Option<SocketAddr> {
    let full = if text.starts_with(':') {
        format!("0.0.0.0{text}")
    } else {
        text.to_owned()
    };
    let Ok(address) = full.parse::<SocketAddr>() else {
        faults.add(variable, "must be address:port");
        return None;
    };
    if deployment == Deployment::Local && !address.ip().is_loopback() {
        faults.add(variable, "must be a loopback address when BEX_LOCAL=1");
    }
    Some(address)
}

fn database(
    faults: &mut Faults,
    variable: &'static str,
    url: &Option<String>,
    args: &ServeArgs,
) -> Option<DbConfig> {
    let config = DbConfig::new(url.as_ref()?, "bex-api").with_ca(args.database_ca.clone());
    // a pool connects on first use, so this only judges the URL
    faults.keep(variable, Db::connect(&config)).map(|_| config)
}

fn keys(faults: &mut Faults, args: &ServeArgs) -> Option<Keys> {
    let mut ring = |variable, text: &Option<String>| {
        let text = faults.required(variable, text)?;
        faults.keep(variable, KeyRing::parse(text))
    };
    let attach = ring("BEX_ATTACH_KEYS", &args.attach_keys);
    let exec = ring("BEX_EXEC_KEYS", &args.exec_keys);
    let driver = ring("BEX_DRIVER_KEYS", &args.driver_keys);
    for (name, ring, other_name, other) in [
        ("BEX_EXEC_KEYS", &exec, "BEX_ATTACH_KEYS", &attach),
        ("BEX_DRIVER_KEYS", &driver, "BEX_ATTACH_KEYS", &attach),
        ("BEX_DRIVER_KEYS", &driver, "BEX_EXEC_KEYS", &exec),
    ] {
        if let (Some(ring), Some(other)) = (ring, other)
            && ring.shares_a_key_with(other)
        {
            faults.add(name, format!("shares a key with {other_name}"));
        }
    }
    Some(Keys {
        attach: attach?,
        exec: exec?,
        driver: driver?,
    })
}

fn public_url(faults: &mut Faults, text: &Option<String>) -> Option<String> {
    let text = faults.required("BEX_ATTACH_PUBLIC_URL", text)?;
    web_url(faults, "BEX_ATTACH_PUBLIC_URL", text)
}

/// A prefix of URLs, without a slash at its end.
fn web_url(faults: &mut Faults, variable: &'static str, text: &str) -> Option<String> {
    let uri = text.parse::<hyper::Uri>().ok().filter(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https"))
            && uri.host().is_some()
            && uri.query().is_none()
    });
    if uri.is_none() {
        faults.add(variable, "must be an http or https URL without a query");
    }
    uri.map(|_| text.trim_end_matches('/').to_owned())
}

fn profiles(faults: &mut Faults, args: &ServeArgs, deployment: Deployment) -> Option<Profiles> {
    let play_dir = args.play_dir.as_ref().and_then(|dir| {
        let canonical = dir
            .canonicalize()
            .map_err(|_| "is not a directory that exists");
        faults.keep("BEX_PLAY_DIR", canonical)
    });
    let path = faults.required("BEX_PROFILES", &args.profiles)?;
    let text = faults.keep("BEX_PROFILES", read_file(path))?;
    faults.keep(
        "BEX_PROFILES",
        Profiles::parse(&text, deployment, play_dir.as_deref()),
    )
}

fn sandbox(faults: &mut Faults, args: &ServeArgs, deployment: Deployment) -> Option<SandboxKind> {
    let kind = faults.required("BEX_SANDBOX_KIND", &args.sandbox_kind)?;
    match kind.as_str() {
        "local" => {}
        "kubernetes" => return kubernetes::kubernetes(faults, args, deployment),
        _ => {
            faults.add("BEX_SANDBOX_KIND", "must be local or kubernetes");
            return None;
        }
    }
    if deployment != Deployment::Local {
        faults.add("BEX_SANDBOX_KIND", "local needs BEX_LOCAL=1");
    }
    let dir = directory(faults, "BEX_SANDBOX_DIR", &args.sandbox_dir);
    let driver = faults.required("BEX_DRIVER_BIN", &args.driver_bin).cloned();
    if driver
        .as_ref()
        .is_some_and(|p| !p.is_absolute() || !p.is_file())
    {
        faults.add("BEX_DRIVER_BIN", "must be the absolute path of a program");
    }
    let secrets = match &args.secrets_file {
        None => Some(BTreeMap::new()),
        Some(path) => {
            let parsed = read_file(path).and_then(|text| {
                // serde's own words could repeat a secret
                serde_json::from_str(&text).map_err(|_| "must be a JSON map of texts".to_owned())
            });
            faults.keep("BEX_SECRETS_FILE", parsed)
        }
    };
    Some(SandboxKind::Local(LocalSandboxes {
        dir: dir?,
        driver: driver?,
        secrets: secrets?,
    }))
}

fn directory(
    faults: &mut Faults,
    variable: &'static str,
    path: &Option<PathBuf>,
) -> Option<PathBuf> {
    let path = faults.required(variable, path)?;
    let canonical = path.canonicalize().ok().filter(|p| p.is_dir());
    if canonical.is_none() {
        faults.add(variable, "is not a directory that exists");
    }
    canonical
}

fn timings(faults: &mut Faults, args: &ServeArgs) -> Option<Timings> {
    let mut millis = |variable, text: &Option<String>, default: Duration| match text {
        None => Some(default),
        Some(text) => {
            positive(faults, variable, text).map(|ms| Duration::from_millis(u64::from(ms)))
        }
    };
    let tick = millis(
        "BEX_COMPLETER_TICK_MS",
        &args.completer_tick_ms,
        limits::COMPLETER_TICK,
    );
    let grace = millis("BEX_IDLE_GRACE_MS", &args.idle_grace_ms, limits::IDLE_GRACE);
    let deadline = millis(
        "BEX_TURN_DEADLINE_MS",
        &args.turn_deadline_ms,
        limits::TURN_DEADLINE,
    );
    let unreadable = millis(
        "BEX_STATUS_UNREADABLE_MS",
        &args.status_unreadable_ms,
        limits::STATUS_UNREADABLE,
    );
    Some(Timings {
        completer_tick: tick?,
        idle_grace: grace?,
        turn_deadline: deadline?,
        status_unreadable: unreadable?,
    })
}

fn positive(faults: &mut Faults, variable: &'static str, text: &str) -> Option<u32> {
    let number = text.parse::<u32>().ok().filter(|n| *n >= 1);
    if number.is_none() {
        faults.add(variable, "must be a whole number of at least 1");
    }
    number
}

fn read_file(path: &Path) -> Result<String, String> {
    let unreadable = |e: std::io::Error| format!("the file cannot be read: {}", e.kind());
    let size = path.metadata().map_err(unreadable)?.len();
    if size > CONFIG_FILE_BYTES {
        return Err(format!("the file is larger than {CONFIG_FILE_BYTES} bytes"));
    }
    std::fs::read_to_string(path).map_err(unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good(dir: &Path) -> ServeArgs {
        let file = |name: &str, text: &str| {
            std::fs::write(dir.join(name), text).expect("written");
            Some(dir.join(name))
        };
        let key = |byte: &str| Some(format!("k:{}", byte.repeat(32)));
        ServeArgs {
            api_listen: "127.0.0.1:0".into(),
            admin_listen: "[::1]:0".into(),
            database_url: Some("postgres://u@127.0.0.1/d?sslmode=disable".into()),
            attach_keys: key("ab"),
            exec_keys: key("cd"),
            driver_keys: key("ef"),
            attach_public_url: Some("https://stream.example/".into()),
            exec_url: Some("http://127.0.0.1:8081".into()),
            service_tokens: file("tokens.json", "[]"),
            profiles: file("profiles.json", r#"{"profiles":{}}"#),
            sandbox_kind: Some("local".into()),
            local: Some("1".into()),
            sandbox_dir: Some(dir.to_owned()),
            driver_bin: file("driver", ""),
            secrets_file: file("secrets.json", r#"{"a":"hunter2"}"#),
            idle_grace_ms: Some("250".into()),
            ..ServeArgs::default()
        }
    }

    #[test]
    fn a_good_configuration_is_plain_data() {
        let dir = tempfile::tempdir().expect("a directory");
        let config = config(&good(dir.path())).expect("it is good");
        assert_eq!(config.attach_public_url, "https://stream.example");
        assert_eq!(config.timings.idle_grace, Duration::from_millis(250));
        assert_eq!(config.timings.completer_tick, limits::COMPLETER_TICK);
        assert_eq!(config.live_limit, limits::LIVE_SESSIONS);
        let shown = format!("{config:?}");
        assert!(
            !shown.contains("hunter2") && !shown.contains("abab"),
            "{shown}"
        );
    }

    #[test]
    fn every_fault_is_named_at_once_and_no_value_is_shown() {
        let dir = tempfile::tempdir().expect("a directory");
        let args = ServeArgs {
            api_listen: "0.0.0.0:1".into(),
            admin_listen: "nowhere".into(),
            database_url: Some("postgres://u:hunter2@db/d".into()),
            attach_keys: Some("k:hunter2".into()),
            exec_keys: None,
            exec_url: Some("gateway".into()),
            idle_grace_ms: Some("soon".into()),
            retention_tick_ms: Some("0".into()),
            live_limit: Some("0".into()),
            driver_bin: Some("driver".into()),
            ..good(dir.path())
        };
        let faults = config(&args).expect_err("it is bad");
        let named: Vec<_> = faults.iter().map(|f| f.variable).collect();
        assert_eq!(
            named,
            [
                "BEX_API_LISTEN",
                "BEX_ADMIN_LISTEN",
                "BEX_DATABASE_URL",
                "BEX_ATTACH_KEYS",
                "BEX_EXEC_KEYS",
                "BEX_EXEC_URL",
                "BEX_DRIVER_BIN",
                "BEX_IDLE_GRACE_MS",
                "BEX_RETENTION_TICK_MS",
                "BEX_LIVE_LIMIT",
            ]
        );
        let shown: String = faults.iter().map(ToString::to_string).collect();
        assert!(!shown.contains("hunter2"), "{shown}");
    }

    #[test]
    fn rings_share_no_key() {
        let dir = tempfile::tempdir().expect("a directory");
        let args = ServeArgs {
            driver_keys: Some(format!("other:{}", "ab".repeat(32))),
            ..good(dir.path())
        };
        let faults = config(&args).expect_err("it is bad");
        let named: Vec<_> = faults.iter().map(|f| f.variable).collect();
        assert_eq!(named, ["BEX_DRIVER_KEYS"]);
    }

    #[test]
    fn the_local_kind_needs_its_word() {
        let dir = tempfile::tempdir().expect("a directory");
        let args = ServeArgs {
            local: None,
            ..good(dir.path())
        };
        let faults = config(&args).expect_err("it is bad");
        assert_eq!(
            faults[0].to_string(),
            "BEX_SANDBOX_KIND: local needs BEX_LOCAL=1"
        );
    }
}
