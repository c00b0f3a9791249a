//! The harness against the installed PostgreSQL.
#![allow(clippy::unwrap_used)]

use bex_testpg::{Fsync, Options, TestPg, server};

#[test]
fn a_killed_server_recovers_what_was_committed() {
    let mut pg = TestPg::start_new(Options { fsync: Fsync::On }).unwrap();
    pg.create_database("kept", None).unwrap();
    pg.sql("kept", "CREATE TABLE t AS SELECT 42 AS n").unwrap();
    let before = pg.pid().unwrap();
    pg.kill9();
    assert!(pg.sql("kept", "SELECT 1").is_err());
    pg.start().unwrap();
    assert_ne!(pg.pid(), Some(before));
    assert_eq!(pg.sql("kept", "SELECT n FROM t").unwrap().trim(), "42");
    let dir = pg.socket_dir().to_owned();
    drop(pg);
    assert!(!dir.exists());
}

#[test]
fn databases_are_copies_of_a_template_built_once() {
    let server = server().unwrap();
    let key = format!("harness_{}", std::process::id());
    let copy = |rows: i32| {
        let build = move |url: String| async move {
            let name = url
                .rsplit('/')
                .next()
                .and_then(|n| n.split('?').next())
                .unwrap_or_default()
                .to_owned();
            server
                .sql(
                    &name,
                    &format!("CREATE TABLE t AS SELECT generate_series(1, {rows})"),
                )
                .map(|_| ())
        };
        let mut future = Box::pin(server.database_from(&key, build));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(database) => database.unwrap(),
            std::task::Poll::Pending => unreachable!("the builder is synchronous"),
        }
    };
    let (first, second) = (copy(3), copy(9));
    assert_eq!(
        second.sql("SELECT count(*) FROM t").unwrap().trim(),
        "3",
        "the first builder's template is kept"
    );
    first.sql("DELETE FROM t").unwrap();
    assert_eq!(second.sql("SELECT count(*) FROM t").unwrap().trim(), "3");
    let name = first.name().to_owned();
    drop(first);
    assert_eq!(
        server
            .sql(
                "postgres",
                &format!("SELECT count(*) FROM pg_database WHERE datname = '{name}'")
            )
            .unwrap()
            .trim(),
        "0"
    );
    server
        .sql("postgres", &format!("DROP DATABASE \"bex_template_{key}\""))
        .unwrap();
}
