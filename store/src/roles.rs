//! Who may do what: two group roles, their grants, and the preflight that names each missing one.

use tokio_postgres::Client;

use crate::error::StoreError;
use crate::pool::Db;
use crate::sql::{get, texts};

/// A binary's group role. Login users are members of it and inherit its grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// `bex_gateway`: reads what viewers see, appends, keeps its audit. It cannot create, settle or delete.
    Gateway,
    /// `bex_api`: everything but the schema.
    Api,
}

/// What the gateway may do: table and privileges. Nothing else.
const GATEWAY: &[(&str, &[&str])] = &[
    ("sessions", &["SELECT"]),
    ("turns", &["SELECT"]),
    ("transcript_heads", &["SELECT"]),
    ("transcript_parts", &["SELECT"]),
    ("sandboxes", &["SELECT"]),
    ("revocations", &["SELECT"]),
    ("changes", &["SELECT", "INSERT"]),
    ("schema_migrations", &["SELECT"]),
    ("ticket_nonces", &["INSERT", "DELETE"]),
    ("stream_audit", &["SELECT", "INSERT", "UPDATE"]),
    ("audit_events", &["INSERT"]),
    ("remote_sessions", &["SELECT"]),
    ("remote_heads", &["SELECT"]),
    ("remote_events", &["SELECT"]),
    ("remote_turns", &["SELECT"]),
];

const ALL: &[&str] = &["SELECT", "INSERT", "UPDATE", "DELETE"];

const API: &[(&str, &[&str])] = &[
    ("sessions", ALL),
    ("turns", ALL),
    ("sandboxes", ALL),
    ("transcript_heads", ALL),
    ("transcript_parts", ALL),
    ("harvest_offsets", ALL),
    ("dispatches", ALL),
    ("leases", ALL),
    ("idempotency_keys", ALL),
    ("ticket_nonces", ALL),
    ("revocations", ALL),
    ("stream_audit", ALL),
    ("audit_events", ALL),
    ("changes", ALL),
    // nobody changes a statement; it goes with its session
    ("turn_statements", &["SELECT", "INSERT"]),
    ("workspace_policies", ALL),
    ("deletions", ALL),
    ("machines", ALL),
    ("machine_tokens", ALL),
    ("remote_sessions", ALL),
    ("remote_heads", ALL),
    ("remote_events", ALL),
    ("remote_gaps", ALL),
    ("remote_turns", ALL),
    ("messages", ALL),
    ("message_origins", ALL),
    ("remote_imports", ALL),
    ("remote_commands", ALL),
    ("usage_reports", ALL),
    ("config_versions", ALL),
    ("executions", ALL),
    ("execution_nodes", ALL),
    ("execution_sessions", ALL),
    ("findings", ALL),
    ("usage_ledger", ALL),
    ("packages", ALL),
    ("schema_migrations", &["SELECT"]),
];

/// What each may execute: functions of the schema, by name.
const GATEWAY_FUNCTIONS: &[&str] = &["bex_append"];
const API_FUNCTIONS: &[&str] = &[
    "bex_append",
    "bex_remote_append",
    "bex_remote_first_missing",
];

impl Role {
    /// The group role's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gateway => "bex_gateway",
            Self::Api => "bex_api",
        }
    }

    fn grants(self) -> &'static [(&'static str, &'static [&'static str])] {
        match self {
            Self::Gateway => GATEWAY,
            Self::Api => API,
        }
    }

    fn functions(self) -> &'static [&'static str] {
        match self {
            Self::Gateway => GATEWAY_FUNCTIONS,
            Self::Api => API_FUNCTIONS,
        }
    }
}

/// Creates the roles where they are missing and makes their grants exactly the lists above. Runs after migrations, as
/// the owner, under the migration lock. Roles belong to the whole cluster, so another database's migrator may create
/// them at the same moment: that is no failure.
pub(crate) async fn apply_grants(client: &Client) -> Result<(), tokio_postgres::Error> {
    let mut sql = String::new();
    for role in [Role::Gateway, Role::Api] {
        let name = role.name();
        sql.push_str(&format!(
            "DO $$ BEGIN CREATE ROLE {name} NOLOGIN; \
             EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$;\n\
             REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {name};\n\
             GRANT USAGE ON SCHEMA public TO {name};\n"
        ));
        for function in role.functions() {
            sql.push_str(&format!(
                "GRANT EXECUTE ON FUNCTION {function} TO {name};\n"
            ));
        }
        for (table, privileges) in role.grants() {
            sql.push_str(&format!(
                "GRANT {} ON {table} TO {name};\n",
                privileges.join(", ")
            ));
        }
    }
    client.batch_execute(&format!("BEGIN; {sql} COMMIT;")).await
}

/// The grants of `role` that the connected user does not have, e.g. `turns:SELECT`, `bex_append:EXECUTE`. Empty is good.
///
/// # Errors
/// Store trouble only.
pub async fn preflight(db: &Db, role: Role) -> Result<Vec<String>, StoreError> {
    let pairs: Vec<(&str, &str)> = role
        .grants()
        .iter()
        .flat_map(|(table, list)| list.iter().map(move |p| (*table, *p)))
        .collect();
    let (tables, privileges): (Vec<&str>, Vec<&str>) = pairs.into_iter().unzip();
    let sql = "SELECT g.name || ':' || g.privilege AS missing
           FROM unnest($1, $2) WITH ORDINALITY AS g (name, privilege, n)
          WHERE NOT COALESCE(has_table_privilege(current_user, to_regclass('public.' || g.name), g.privilege), false)
         UNION ALL
         SELECT f.name || ':EXECUTE' FROM unnest($3) AS f (name)
          WHERE NOT COALESCE(has_function_privilege(current_user,
                    (SELECT p.oid FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
                      WHERE n.nspname = 'public' AND p.proname = f.name), 'EXECUTE'), false)";
    let functions = role.functions();
    let rows = db
        .query(
            "preflight",
            sql,
            &[texts(&tables), texts(&privileges), texts(&functions)],
        )
        .await?;
    rows.iter().map(|row| get(row, "missing")).collect()
}
