//! The files and environments the processes are configured with.

use std::path::{Path, PathBuf};

use anyhow::Context;
use bex_proto::transcript::sha256_hex;
use bex_testpg::TestPg;
use serde_json::{Value, json};

use super::binaries::program;
use super::keys::{Keys, Tokens};
use super::{Addresses, DATABASE, OTHER_WORKSPACE, StackOptions, WORKSPACE};
use crate::cluster::PodCluster;

pub(super) const PLAY_DIR: &str = "play";
pub(super) const SANDBOX_DIR: &str = "sandboxes";
const PACKAGES_DIR: &str = "packages";
const SECRETS: &str = "secrets.json";
const PROFILES: &str = "profiles.json";
const TOKENS: &str = "tokens.json";
/// The origin of browsers' pages.
pub const ORIGIN: &str = "http://localhost:3000";
/// Where `make dashboard` builds the dashboard.
const DASHBOARD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../dashboard/dist");

pub(super) type Env = Vec<(String, String)>;

/// The built dashboard; `None` where nobody built it.
pub(crate) fn dashboard() -> Option<PathBuf> {
    let dir = Path::new(DASHBOARD).canonicalize().ok()?;
    dir.join("index.html").is_file().then_some(dir)
}

/// Makes the directories, writes profiles, tokens and credentials.
pub(super) fn write(dir: &Path, tokens: &Tokens, options: &StackOptions) -> anyhow::Result<()> {
    let dirs = [SANDBOX_DIR, PLAY_DIR, PACKAGES_DIR, super::process::LOG_DIR];
    for made in dirs.map(|name| dir.join(name)) {
        std::fs::create_dir_all(&made)
            .with_context(|| format!("cannot make {}", made.display()))?;
    }
    write_json(&dir.join(PROFILES), &profiles()?)?;
    write_json(&dir.join(TOKENS), &service_tokens(tokens))?;
    write_json(&dir.join(SECRETS), &json!(options.secrets))
}

fn write_json(path: &Path, value: &Value) -> anyhow::Result<()> {
    std::fs::write(path, serde_json::to_vec_pretty(value)?)
        .with_context(|| format!("cannot write {}", path.display()))
}

fn profiles() -> anyhow::Result<Value> {
    let agent = program("bex-demo-agent")?;
    Ok(json!({"profiles": {
        "demo": {"agent": {"kind": "acp", "argv": [agent], "permissions": "allow"}, "args": "none"},
        "play": {"agent": {"kind": "play"}, "args": "caller"},
        "play-legacy": {"agent": {"kind": "play"}, "args": "caller", "legacy": true},
        "command": {"agent": {"kind": "command"}, "args": "caller"},
        "acp": {"agent": {"kind": "acp"}, "args": "caller"},
    }}))
}

fn service_tokens(tokens: &Tokens) -> Value {
    let one = |token: &str, subject: &str, workspace: &str, role: &str| {
        json!({"sha256": sha256_hex(token.as_bytes()), "subject": subject,
            "workspaces": [workspace], "role": role})
    };
    json!([
        one(&tokens.admin, "svc:admin", "*", "admin"),
        one(&tokens.operator, "svc:operator", WORKSPACE, "operator"),
        one(&tokens.viewer, "svc:viewer", WORKSPACE, "viewer"),
        one(
            &tokens.stranger,
            "svc:stranger",
            OTHER_WORKSPACE,
            "operator"
        ),
    ])
}

/// Everything the environments are made of.
pub(super) struct Settings<'a> {
    pub(super) dir: &'a Path,
    pub(super) keys: &'a Keys,
    pub(super) addresses: &'a Addresses,
    pub(super) postgres: &'a TestPg,
    pub(super) options: &'a StackOptions,
    /// Where sandboxes are pods.
    pub(super) cluster: Option<&'a PodCluster>,
}

impl Settings<'_> {
    fn database(&self, user: &str) -> [String; 2] {
        // through a pgbouncer where the environment asks for one; notifications need a session of their own
        let urls = [
            self.postgres.pooled_url(DATABASE),
            self.postgres.url(DATABASE),
        ];
        urls.map(|url| url.replacen("//postgres@", &format!("//{user}@"), 1))
    }

    fn common(&self, user: &str) -> anyhow::Result<Env> {
        let [pooled, direct] = self.database(user);
        let sandboxes = self.dir.join(SANDBOX_DIR).display().to_string();
        let pairs = [
            ("BEX_DATABASE_URL", pooled),
            ("BEX_LISTEN_DATABASE_URL", direct),
            ("BEX_ATTACH_KEYS", self.keys.attach.clone()),
            ("BEX_EXEC_KEYS", self.keys.exec.clone()),
            ("BEX_DRIVER_KEYS", self.keys.driver.clone()),
            ("BEX_SANDBOX_KIND", "local".into()),
            ("BEX_LOCAL", "1".into()),
            ("BEX_SANDBOX_DIR", sandboxes),
            (
                "BEX_DRIVER_BIN",
                program(self.options.driver.program())?
                    .display()
                    .to_string(),
            ),
        ];
        Ok(pairs.map(|(name, value)| (name.to_owned(), value)).into())
    }

    /// The api's environment.
    pub(super) fn api(&self) -> anyhow::Result<Env> {
        let at = self.addresses;
        let file = |name: &str| self.dir.join(name).display().to_string();
        let mut env = self.common("bex_api_login")?;
        let tick = self.options.tick.as_millis().to_string();
        env.extend(
            [
                ("BEX_API_LISTEN", at.api.to_string()),
                ("BEX_ADMIN_LISTEN", at.api_admin.to_string()),
                ("BEX_ATTACH_PUBLIC_URL", format!("http://{}", at.attach)),
                ("BEX_EXEC_URL", format!("http://{}", at.exec)),
                ("BEX_SERVICE_TOKENS", file(TOKENS)),
                ("BEX_PROFILES", file(PROFILES)),
                ("BEX_PLAY_DIR", file(PLAY_DIR)),
                ("BEX_COMPLETER_TICK_MS", tick),
                ("BEX_PROOF_KEYS", self.keys.proof.clone()),
                ("BEX_PACKAGES_STORE", "local".into()),
                ("BEX_PACKAGES_DIR", file(PACKAGES_DIR)),
                ("BEX_PACKAGES_PUBLIC_URL", format!("http://{}", at.api)),
                ("BEX_PACKAGES_URL_KEYS", self.keys.packages.clone()),
                ("BEX_PACKAGES_TOKEN_KEY", self.keys.tokens.clone()),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        );
        let grace = self.options.idle_grace.map(|g| g.as_millis().to_string());
        env.extend(grace.map(|grace| ("BEX_IDLE_GRACE_MS".to_owned(), grace)));
        env.extend(dashboard().map(|dir| ("BEX_UI_DIR".to_owned(), dir.display().to_string())));
        match self.cluster {
            Some(cluster) => env.extend(cluster.api_env(self.dir)?),
            None => env.push(("BEX_SECRETS_FILE".to_owned(), file(SECRETS))),
        }
        env.extend(self.options.api_env.iter().cloned());
        Ok(env)
    }

    /// The gateway's environment.
    pub(super) fn gateway(&self) -> anyhow::Result<Env> {
        let at = self.addresses;
        let mut env = self.common("bex_gateway_login")?;
        env.extend(
            [
                ("BEX_ATTACH_LISTEN", at.attach.to_string()),
                ("BEX_EXEC_LISTEN", at.exec.to_string()),
                ("BEX_ADMIN_LISTEN", at.gateway_admin.to_string()),
                ("BEX_CORS_ORIGINS", format!("{ORIGIN},http://{}", at.api)),
            ]
            .map(|(name, value)| (name.to_owned(), value)),
        );
        if let Some(cluster) = self.cluster {
            env.extend(cluster.gateway_env()?);
        }
        let ring = self.options.gateway_attach_keys.iter();
        env.extend(ring.map(|ring| ("BEX_ATTACH_KEYS".to_owned(), ring.clone())));
        env.extend(self.options.gateway_env.iter().cloned());
        Ok(env)
    }
}
