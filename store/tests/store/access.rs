//! Roles, tickets, revocations, audit.

use std::time::Duration;

use bex_proto::ids::PartId;
use bex_proto::{Seq, SessionId};
use bex_store::audit::{AuditEvent, StreamOpened};
use bex_store::revocations::{Revocation, Standing, StreamKey};
use bex_store::sessions::Created;
use bex_store::tickets::Burn;
use bex_store::wake::Channel;
use bex_store::{Db, DbConfig, Role, preflight};

use crate::support::*;

impl Store {
    /// The store as a login user that is a member of a role. Users belong to the whole server, hence the name.
    fn login(&self, role: Role) -> Db {
        let user = format!("{}_{}", role.name(), self.database.name());
        self.sql(&format!("CREATE ROLE {user} LOGIN IN ROLE {}", role.name()));
        Db::connect(&DbConfig::new(self.database.pooled_url_as(&user), "test")).unwrap()
    }

    fn drop_login(&self, role: Role) {
        self.sql(&format!(
            "DROP ROLE {}_{}",
            role.name(),
            self.database.name()
        ));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_gateway_can_do_exactly_its_list() {
    let store = Store::new().await;
    let session = store.running().await;
    let gateway = store.login(Role::Gateway);
    assert_eq!(
        preflight(&gateway, Role::Gateway).await.unwrap(),
        Vec::<String>::new()
    );

    // each thing it does, through the interface it uses
    let batch = parts(0..2);
    let append = bex_store::transcript::Append {
        session: &session,
        turn: T1,
        generation: G1,
        parts: &batch,
        marks: Default::default(),
        harvest: None,
    };
    assert_eq!(stored(gateway.append(append).await.unwrap()).stored, 2);
    gateway.session(&session).await.unwrap().unwrap();
    gateway.turns(&session, T1, 10).await.unwrap();
    gateway
        .read_page(&session, PartId::new(1, 0), 10, 1000)
        .await
        .unwrap();
    gateway.read_feed(&session, Seq(-1), 10).await.unwrap();
    let remote = bex_proto::RemoteSessionId::random();
    let look = gateway.look_at_remote(&remote, Some(0), 10).await.unwrap();
    assert!(look.is_none());
    gateway.durable_turns(&remote, 0, 10).await.unwrap();
    gateway.turns_to_tell(&remote, 5).await.unwrap();
    gateway.contiguous_end(&session, T1).await.unwrap();
    gateway
        .kinds_before(&session, PartId::new(1, 9), bex_proto::PartIndex(0))
        .await
        .unwrap();
    gateway.latest_sandbox(&session).await.unwrap().unwrap();
    bex_store::check_schema(&gateway).await.unwrap();
    assert_eq!(
        gateway
            .burn_nonce("j", Duration::from_secs(120))
            .await
            .unwrap(),
        Burn::Burnt
    );
    let opened = StreamOpened {
        workspace: &workspace(),
        session: session.as_str(),
        subject: "s",
        action: "read",
        instance: "gw",
        remote_address: "127.0.0.1",
    };
    let row = gateway.open_stream_audit(&opened).await.unwrap();
    gateway
        .close_stream_audit(row, "done", 2, 100)
        .await
        .unwrap();
    // its gateway was killed
    gateway.open_stream_audit(&opened).await.unwrap();
    assert_eq!(
        store.db.close_lost_streams().await.unwrap(),
        0,
        "it may run"
    );
    store.sql("UPDATE stream_audit SET opened_at = now() - interval '5 hours'");
    assert_eq!(store.db.close_lost_streams().await.unwrap(), 1);
    assert_eq!(store.db.close_lost_streams().await.unwrap(), 0);
    let event = AuditEvent {
        workspace: &workspace(),
        subject: "s",
        action: "exec.run",
        session: Some(session.as_str()),
        result: "ok",
        detail: None,
    };
    gateway.audit_event(&event).await.unwrap();
    gateway.notify(Channel::Wake, &session).await.unwrap();
    let key = StreamKey {
        workspace: workspace(),
        subject: "s".into(),
        session: session.to_string(),
        issued_at: jiff::Timestamp::now(),
    };
    assert_eq!(gateway.standings(&[key]).await.unwrap(), [Standing::Good]);

    // and every table privilege it has, by the catalogue: nothing else
    let has = store.sql(
        "SELECT string_agg(c.relname || ':' || p, ' ' ORDER BY c.relname, p)
           FROM pg_class c, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER']) p
          WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r'
            AND has_table_privilege('bex_gateway', c.oid, p)",
    );
    assert_eq!(
        has,
        "audit_events:INSERT changes:INSERT changes:SELECT remote_events:SELECT remote_heads:SELECT remote_sessions:SELECT \
         remote_turns:SELECT revocations:SELECT sandboxes:SELECT schema_migrations:SELECT \
         sessions:SELECT stream_audit:INSERT stream_audit:SELECT stream_audit:UPDATE ticket_nonces:DELETE \
         ticket_nonces:INSERT transcript_heads:SELECT transcript_parts:SELECT turns:SELECT"
    );
    // refused by the server, not by us
    let refusals = [
        gateway.create_session(&new_session()).await.map(drop),
        gateway.request_cancel(&session).await.map(drop),
        gateway.claim_leases("x", 1, Duration::ZERO).await.map(drop),
        gateway.claim_dispatches("x", 1).await.map(drop),
        gateway.remove_session(&session, removal()).await.map(drop),
        gateway.sweep_nonces().await.map(drop),
    ];
    for (n, refusal) in refusals.into_iter().enumerate() {
        let error = refusal.unwrap_err();
        assert_eq!(
            error.sqlstate().map(|s| s.code().to_owned()).as_deref(),
            Some("42501"),
            "refusal {n}: {error:?}"
        );
    }
    gateway.close();
    store.drop_login(Role::Gateway);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_api_can_do_its_work_and_no_schema() {
    let store = Store::new().await;
    let api = store.login(Role::Api);
    assert_eq!(
        preflight(&api, Role::Api).await.unwrap(),
        Vec::<String>::new()
    );
    let new = new_session();
    assert_eq!(api.create_session(&new).await.unwrap(), Created::New);
    api.sweep_nonces().await.unwrap();
    api.sweep_idempotency_keys().await.unwrap();
    api.trim_changes().await.unwrap();
    assert_eq!(api.sweep_audit(&workspace(), 30).await.unwrap(), 0);
    let create = store.sql("SELECT has_schema_privilege('bex_api', 'public', 'CREATE')");
    assert_eq!(create, "f");
    api.close();
    store.drop_login(Role::Api);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn the_preflight_names_each_missing_grant() {
    let store = Store::new().await;
    let gateway = store.login(Role::Gateway);
    store.sql("REVOKE SELECT ON turns FROM bex_gateway");
    store.sql("REVOKE EXECUTE ON FUNCTION bex_append FROM bex_gateway");
    let missing = preflight(&gateway, Role::Gateway).await.unwrap();
    assert_eq!(missing, ["turns:SELECT", "bex_append:EXECUTE"]);
    // the next migration run puts them back
    bex_store::migrate(&DbConfig::new(&store.database.url, "test"))
        .await
        .unwrap();
    assert_eq!(
        preflight(&gateway, Role::Gateway).await.unwrap(),
        Vec::<String>::new()
    );
    let empty = bex_testpg::server().unwrap().empty_database().unwrap();
    let bare = Db::connect(&DbConfig::new(empty.pooled_url(), "test")).unwrap();
    let missing = preflight(&bare, Role::Gateway).await.unwrap();
    assert!(
        missing.contains(&"transcript_parts:SELECT".to_owned())
            && missing.contains(&"bex_append:EXECUTE".to_owned())
    );
    gateway.close();
    store.drop_login(Role::Gateway);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_ticket_is_used_once() {
    let store = Store::new().await;
    let keep = Duration::from_secs(120);
    let burn = |jti: &'static str| {
        let db = store.db.clone();
        tokio::spawn(async move { db.burn_nonce(jti, keep).await.unwrap() })
    };
    let racers: Vec<_> = (0..8).map(|_| burn("j")).collect();
    let mut burnt = 0;
    for racer in racers {
        burnt += u32::from(racer.await.unwrap() == Burn::Burnt);
    }
    assert_eq!(burnt, 1);
    store.db.burn_nonce("old", Duration::ZERO).await.unwrap();
    assert_eq!(
        store.db.sweep_nonces().await.unwrap(),
        1,
        "only what can no longer be presented"
    );
    assert_eq!(store.db.burn_nonce("j", keep).await.unwrap(), Burn::Used);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_revocation_voids_older_tickets_of_whom_it_names() {
    let store = Store::new().await;
    let (mine, other) = (store.create().await, store.create().await);
    let before = jiff::Timestamp::now();
    let key = |subject: &str, session: &SessionId, issued_at| StreamKey {
        workspace: workspace(),
        subject: subject.into(),
        session: session.to_string(),
        issued_at,
    };
    let revocation = Revocation {
        workspace: workspace(),
        subject: Some("eve".into()),
        session: Some(mine.to_string()),
        created_by: "admin".into(),
    };
    store.db.revoke(&revocation).await.unwrap();
    let after = jiff::Timestamp::now() + Duration::from_secs(5);
    let mut foreign = key("eve", &mine, before);
    foreign.workspace = "other".parse().unwrap();
    let keys = [
        key("eve", &mine, before),
        key("eve", &mine, after),
        key("eve", &other, before),
        key("bob", &mine, before),
        key("bob", &SessionId::random(), before),
        foreign,
    ];
    use Standing::{Good, Revoked, SessionGone};
    let standings = store.db.standings(&keys).await.unwrap();
    assert_eq!(
        standings,
        [Revoked, Good, Good, Good, SessionGone, SessionGone]
    );
    let everybody = Revocation {
        subject: None,
        session: None,
        ..revocation
    };
    store.db.revoke(&everybody).await.unwrap();
    assert_eq!(store.db.standing(&keys[3]).await.unwrap(), Revoked);
}
