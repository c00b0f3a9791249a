//! The server tests share, and one database for each test.

use std::process::Stdio;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{Binaries, Options, POOLED_URL_VARIABLE, PgError, TestPg, URL_VARIABLE, io};

/// The shared server: somebody else's by URL, or this process's own.
#[derive(Debug)]
pub struct Server {
    binaries: Binaries,
    base: String,
    pooled: String,
    _own: Option<TestPg>,
}

/// One database of a test. Dropped, it is removed.
#[derive(Debug)]
pub struct Database {
    /// The superuser's URL.
    pub url: String,
    name: String,
    server: &'static Server,
}

/// The server of `BEX_TEST_PG_URL`, else one that this process starts on first use and that dies with it.
///
/// # Errors
/// When PostgreSQL is missing or does not start.
pub fn server() -> Result<&'static Server, PgError> {
    static SERVER: OnceLock<Server> = OnceLock::new();
    static STARTING: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one_at_a_time = STARTING
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(server) = SERVER.get() {
        return Ok(server);
    }
    let server = Server::open()?;
    Ok(SERVER.get_or_init(|| server))
}

impl Server {
    fn open() -> Result<Self, PgError> {
        let binaries = Binaries::find()?;
        if let Ok(base) = std::env::var(URL_VARIABLE) {
            let pooled = std::env::var(POOLED_URL_VARIABLE).unwrap_or_else(|_| base.clone());
            return Ok(Self {
                binaries,
                base,
                pooled,
                _own: None,
            });
        }
        let own = TestPg::start_new(Options::default())?;
        Ok(Self {
            binaries,
            base: own.url("postgres"),
            pooled: own.pooled_url("postgres"),
            _own: Some(own),
        })
    }

    /// The superuser's URL of a database on this server.
    pub fn url(&self, database: &str) -> String {
        with_database(&self.base, database)
    }

    /// The same through the server's pgbouncer; the direct one where it has none.
    pub fn pooled_url(&self, database: &str) -> String {
        with_database(&self.pooled, database)
    }

    /// Runs SQL as the superuser and returns what psql printed, fields separated by `|`.
    ///
    /// # Errors
    /// When a statement fails.
    pub fn sql(&self, database: &str, sql: &str) -> Result<String, PgError> {
        psql(&self.binaries, &self.url(database), sql)
    }

    /// An empty database of its own name.
    ///
    /// # Errors
    /// When the server refuses.
    pub fn empty_database(&'static self) -> Result<Database, PgError> {
        self.create(None)
    }

    /// A copy of the template `key`, made by `build` when it does not exist yet. Processes that race build twice and the
    /// loser's is thrown away: the rename decides, so nobody waits and nobody sees a half-built template. `key` must
    /// change with the schema, and `build` must leave no connection open.
    ///
    /// # Errors
    /// The builder's error as text, or the server's.
    pub async fn database_from<F, E>(
        &'static self,
        key: &str,
        build: impl FnOnce(String) -> F,
    ) -> Result<Database, PgError>
    where
        F: Future<Output = Result<(), E>>,
        E: std::fmt::Display,
    {
        let template = format!("bex_template_{key}");
        let known = self.sql(
            "postgres",
            &format!("SELECT 1 FROM pg_database WHERE datname = '{template}'"),
        )?;
        if known.trim() != "1" {
            let draft = self.create(None)?;
            build(draft.url.clone())
                .await
                .map_err(|e| PgError::Program {
                    program: "template builder",
                    output: e.to_string(),
                })?;
            let rename = format!("ALTER DATABASE \"{}\" RENAME TO \"{template}\"", draft.name);
            if let Err(error) = self.sql("postgres", &rename)
                && !error.to_string().contains("already exists")
            {
                return Err(error);
            }
        }
        self.create(Some(&template))
    }

    fn create(&'static self, template: Option<&str>) -> Result<Database, PgError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "bex_t{}_{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let copy = template
            .map(|t| format!(" TEMPLATE \"{t}\""))
            .unwrap_or_default();
        self.sql(
            "postgres",
            &format!("DROP DATABASE IF EXISTS \"{name}\" WITH (FORCE)"),
        )?;
        self.sql("postgres", &format!("CREATE DATABASE \"{name}\"{copy}"))?;
        Ok(Database {
            url: self.url(&name),
            name,
            server: self,
        })
    }
}

impl Database {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The superuser's URL through the server's pgbouncer; the direct one where it has none.
    pub fn pooled_url(&self) -> String {
        self.server.pooled_url(&self.name)
    }

    /// The same for another user.
    pub fn pooled_url_as(&self, user: &str) -> String {
        self.pooled_url()
            .replacen("//postgres@", &format!("//{user}@"), 1)
    }

    /// The URL for another user of this database.
    pub fn url_as(&self, user: &str) -> String {
        self.url.replacen("//postgres@", &format!("//{user}@"), 1)
    }

    /// Runs SQL in it as the superuser.
    ///
    /// # Errors
    /// When a statement fails.
    pub fn sql(&self, sql: &str) -> Result<String, PgError> {
        self.server.sql(&self.name, sql)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let _ = self.server.sql(
            "postgres",
            &format!("DROP DATABASE IF EXISTS \"{}\" WITH (FORCE)", self.name),
        );
    }
}

pub(crate) fn psql(binaries: &Binaries, url: &str, sql: &str) -> Result<String, PgError> {
    let output = binaries
        .command(binaries.program("psql"))
        .args([
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-d",
            url,
            "-c",
            sql,
        ])
        .stdin(Stdio::null())
        .output()
        .map_err(io("cannot run psql"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(PgError::Program {
        program: "psql",
        output: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// `url` with another database name.
fn with_database(url: &str, database: &str) -> String {
    let (head, query) = url
        .split_once('?')
        .map_or((url, String::new()), |(h, q)| (h, format!("?{q}")));
    let authority = head.find("://").map_or(0, |at| at + 3);
    let end = head[authority..]
        .find('/')
        .map_or(head.len(), |at| authority + at);
    format!("{}/{database}{query}", &head[..end])
}

#[cfg(test)]
mod tests {
    use super::with_database;

    #[test]
    fn the_database_of_a_url_is_replaced() {
        let url = "postgres://postgres@127.0.0.1:5/postgres?sslmode=disable";
        assert_eq!(
            with_database(url, "x"),
            "postgres://postgres@127.0.0.1:5/x?sslmode=disable"
        );
        assert_eq!(with_database("postgres://u@h:5", "x"), "postgres://u@h:5/x");
    }
}
