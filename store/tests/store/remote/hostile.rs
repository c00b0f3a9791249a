//! What a hostile or unlucky machine does, and who gets in whose way.

use std::time::{Duration, Instant};

use super::*;
use crate::support::{eventually, tokio_postgres_client};

#[tokio::test]
async fn a_report_of_nothing_but_doubles_is_answered_soon() {
    let remote = Remote::new().await;
    let doubled = events((0..10_000).flat_map(|n| [n, n]));
    let begun = Instant::now();
    let first = remote.append(&doubled).await;
    assert_eq!(first, stored(10_000, 10_000, 10_000));
    assert_eq!(remote.append(&doubled).await, stored(0, 20_000, 10_000));
    // a hundred times what it takes; in the square of its length it is minutes
    assert!(begun.elapsed() < Duration::from_secs(20));
}

#[tokio::test]
async fn one_index_twice_in_a_report_is_a_conflict_wherever_it_is() {
    let remote = Remote::new().await;
    remote.append(&events([0, 1, 2, 9])).await;
    for at in [3, 20] {
        let other = |change: fn(&mut OutputEvent)| {
            let mut twice = events([2, at, at]);
            change(&mut twice[2]);
            twice
        };
        for twice in [
            other(|event| event.data = "other".to_owned()),
            other(|event| event.stream = OutputStream::Stderr),
            other(|event| event.is_complete = true),
        ] {
            let answer = remote.append(&twice).await;
            assert_eq!(answer, EventsAppended::Conflict(at), "{twice:?}");
        }
    }
    assert_eq!(remote.head().await.next_index, 3);
}

#[tokio::test]
async fn the_event_that_others_wait_for_is_taken_from_a_machine_that_is_sent_away() {
    let remote = Remote::new().await;
    remote.append(&events([0, 2, 3])).await;
    remote
        .change("UPDATE remote_heads SET byte_limit = 1000000000, bytes = 40 * 1024 * 1024")
        .await;
    let answer = remote.append(&events([4])).await;
    assert_eq!(answer, EventsAppended::Backlog);
    assert_eq!(remote.append(&events([1, 2, 4])).await, stored(2, 1, 5));
    // what fills no gap waits, and so does everything once there is far too much
    let answer = remote.append(&events([5])).await;
    assert_eq!(answer, EventsAppended::Backlog);
    remote
        .change("UPDATE remote_heads SET high_index = 9, bytes = 80 * 1024 * 1024")
        .await;
    let answer = remote.append(&events([5])).await;
    assert_eq!(answer, EventsAppended::Backlog);
}

#[tokio::test]
async fn a_machine_that_is_revoked_while_it_reports_stores_nothing() {
    let remote = Remote::new().await;
    remote.append(&events([0])).await;
    assert!(remote.db().revoke_machine(&remote.machine).await.unwrap());
    for again in [0, 1] {
        let answer = remote.append(&events([again])).await;
        assert_eq!(answer, EventsAppended::Revoked);
    }
    assert_eq!(remote.head().await.next_index, 1);
}

/// Ends the session at once.
async fn end(remote: &Remote) {
    let ended =
        "UPDATE remote_sessions SET state = 'completed', ending_as = 'completed', ended_at = now()";
    remote.change(ended).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_who_writes_and_deletes_waits_for_the_other_in_a_ring() {
    let remote = Remote::new().await;
    remote.append(&events(0..3)).await;
    end(&remote).await;
    let rows = [turn("trn-a", "o1")];
    let mut write = write(&remote.session, 0, &rows, 1);
    write.cli_session = None;
    let import = Import {
        session: &remote.session,
        sha256: "s",
        lines: "{}",
        subject: "machine:m",
    };
    // as whoever deletes does: the session, and while another waits, its head
    let mut client = tokio_postgres_client(&remote.store).await;
    let mut deletes = async || {
        let tx = client.transaction().await.unwrap();
        let lock = async |sql: &str| drop(tx.query(sql, &[]).await.expect("no ring"));
        lock("SELECT 1 FROM remote_sessions FOR UPDATE").await;
        let database = &remote.store.database;
        let waiting = "SELECT count(*) FROM pg_stat_activity
                        WHERE wait_event_type = 'Lock' AND datname = current_database()";
        let begun = async {
            eventually(|| database.sql(waiting).unwrap().trim() == "1").await;
            lock("SELECT 1 FROM remote_heads FOR UPDATE").await;
        };
        (begun.await, tx.commit().await.unwrap())
    };
    let db = remote.db();
    let locked = async || {
        // other tests' databases are copies, and so are the numbers of their tables
        let held = "SELECT count(*) > 0 FROM pg_locks JOIN pg_database d ON d.oid = database
                     WHERE datname = current_database() AND relation = 'remote_sessions'::regclass AND mode = 'RowShareLock'";
        eventually(|| remote.store.sql(held) == "t").await;
    };
    let writes = async {
        locked().await;
        db.write_built(&write).await.expect("written")
    };
    let (_, written) = tokio::join!(deletes(), writes);
    assert_eq!(written, Written::Done);
    let keeps = async {
        locked().await;
        db.keep_import(&import).await.expect("kept")
    };
    let (_, kept) = tokio::join!(deletes(), keeps);
    assert_eq!(kept, Imported::Kept);
}

#[tokio::test]
async fn an_ended_session_whose_rows_are_made_again_is_found_after_a_crash() {
    let remote = Remote::new().await;
    remote.append(&events(0..3)).await;
    end(&remote).await;
    let left = async || {
        let after = Duration::from_secs(3);
        let left = remote.db().left_remote_sessions(10, after).await.unwrap();
        left == [remote.session.clone()]
    };
    let built = async |rows: &[BuiltRow]| {
        let revision = remote.head().await.revision;
        let write = write(&remote.session, revision, rows, 1);
        remote.db().write_built(&write).await.unwrap()
    };
    let old = "UPDATE remote_heads SET seen_at = seen_at - interval '10 seconds'";
    built(&[]).await;
    assert!(!left().await, "it was read");
    assert!(remote.db().reset_built(&remote.session).await.unwrap());
    assert!(!left().await, "whoever asked for it does it");
    remote.change(old).await;
    assert!(left().await);
    built(&[]).await;
    remote.change(old).await;
    assert!(!left().await, "it was read again");
    let import = Import {
        session: &remote.session,
        sha256: "s",
        lines: "{}",
        subject: "machine:m",
    };
    remote.db().keep_import(&import).await.unwrap();
    remote.change(old).await;
    assert!(left().await);
    let revision = remote.head().await.revision;
    let mut write = write(&remote.session, revision, &[], 1);
    write.import = Some("s");
    remote.db().write_built(&write).await.unwrap();
    remote.change(old).await;
    assert!(!left().await, "it was written");
}

#[tokio::test]
async fn a_chat_during_a_rebuild_stands_behind_what_was_said_before() {
    let remote = Remote::new().await;
    remote.append(&events(0..3)).await;
    remote.tell(CommandKind::Chat, Some("first")).await;
    let rows = [turn("trn-a", "o1"), turn("trn-b", "o2")];
    let revision = remote.head().await.revision;
    let whole = write(&remote.session, revision, &rows, 2);
    remote.db().write_built(&whole).await.unwrap();
    assert!(remote.db().reset_built(&remote.session).await.unwrap());
    remote.tell(CommandKind::Chat, Some("last")).await;
    let revision = remote.head().await.revision;
    let again = write(&remote.session, revision, &rows, 2);
    assert_eq!(
        remote.db().write_built(&again).await.unwrap(),
        Written::Done
    );
    let all = remote
        .db()
        .messages(&remote.session, None, 10)
        .await
        .unwrap();
    let said: Vec<_> = all
        .iter()
        .map(|m| (m.position, m.content.as_str()))
        .collect();
    assert_eq!(
        said,
        [(0, "first"), (1, "hello"), (2, "hello"), (3, "last")]
    );
    let head = remote.head().await;
    assert_eq!((head.message_count, head.next_position), (4, 4));
}

#[tokio::test]
async fn the_retention_looks_at_nothing_but_what_is_old() {
    let remote = Remote::new().await;
    remote.append(&events(0..6)).await;
    let built = write(&remote.session, 0, &[], 0);
    remote.db().write_built(&built).await.unwrap();
    let first = async || {
        let sql = "SELECT first_index || ' ' || (first_at < now() - interval '30 days') FROM remote_heads";
        remote.store.sql(sql)
    };
    let purge = async || remote.db().purge_remote_events(30, 100).await.unwrap();
    assert_eq!((purge().await, first().await), (0, "0 false".to_owned()));
    // a head that thinks its log older than it is learns better
    remote
        .change("UPDATE remote_heads SET first_at = first_at - interval '40 days'")
        .await;
    assert_eq!((purge().await, first().await), (0, "0 false".to_owned()));
    // what no row was made from stays, however old it is
    remote
        .change(
            "UPDATE remote_events SET created_at = created_at - interval '40 days';
             UPDATE remote_heads SET first_at = first_at - interval '40 days'",
        )
        .await;
    assert_eq!((purge().await, first().await), (3, "3 true".to_owned()));
    assert_eq!((purge().await, first().await), (0, "3 true".to_owned()));
    assert_eq!(remote.append(&events(6..8)).await, stored(2, 0, 8));
}

#[tokio::test]
async fn of_rows_made_again_nothing_is_left_to_be_read() {
    let remote = Remote::new().await;
    remote.append(&events([0, 2])).await;
    remote.age_gap().await;
    let decided = remote.db().decide_gap(&remote.session).await.unwrap();
    assert!(matches!(decided, Decided::GivenUp(_)));
    let import = Import {
        session: &remote.session,
        sha256: "s",
        lines: "{}",
        subject: "machine:m",
    };
    remote.db().keep_import(&import).await.unwrap();
    let unread = async || {
        remote.db().ping().await.unwrap();
        remote
            .store
            .sql("SELECT bytes - seen_bytes FROM remote_heads")
    };
    let live = unread().await;
    let built = async |import, read: u64| {
        let revision = remote.head().await.revision;
        let mut write = write(&remote.session, revision, &[], 0);
        write.import = import;
        write.seen = (read, if read == 0 { 0 } else { live.parse().unwrap() });
        let written = remote.db().write_built(&write).await;
        assert_eq!(written.unwrap(), Written::Done);
    };
    built(None, 3).await;
    built(Some("s"), 3).await;
    assert_eq!(unread().await, "0");
    // late: nobody ever reads it
    remote.append(&events([1])).await;
    assert_eq!(unread().await, "0");
    assert!(remote.db().reset_built(&remote.session).await.unwrap());
    assert_ne!(unread().await, "0");
    built(Some("s"), 0).await;
    built(None, 3).await;
    assert_eq!(unread().await, "0", "the import and what came late too");
}

#[tokio::test]
async fn a_long_log_is_deleted_whole_unless_it_is_held() {
    let remote = Remote::new().await;
    remote.append(&events(0..3)).await;
    end(&remote).await;
    let many = "INSERT INTO remote_events (session_id, event_index, stream, data, complete, created_at)
        SELECT session_id, n, 'stdout', '', false, now() FROM remote_heads, generate_series(3, 40999) n";
    remote.change(many).await;
    let left = || remote.store.sql("SELECT count(*) FROM remote_events");
    let delete = async || {
        let deleted = remote.db().delete_remote_session(&remote.session).await;
        deleted.unwrap()
    };
    remote
        .change("UPDATE remote_sessions SET legal_hold = true")
        .await;
    assert_eq!(
        delete().await,
        Moved::Done(Answer::Refuses(Code::LegalHold))
    );
    assert_eq!(left(), "41000");
    remote
        .change("UPDATE remote_sessions SET legal_hold = false")
        .await;
    // the second transaction fails: the session stands with the rest of its log
    let fails = "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
            IF OLD.event_index = 20000 THEN RAISE 'no'; END IF; RETURN OLD; END$$;
        CREATE TRIGGER no BEFORE DELETE ON remote_events FOR EACH ROW EXECUTE FUNCTION no()";
    remote.change(fails).await;
    assert!(
        remote
            .db()
            .delete_remote_session(&remote.session)
            .await
            .is_err()
    );
    assert_eq!(
        (left().as_str(), remote.head().await.first_index),
        ("21000", 20_000)
    );
    remote.change("DROP TRIGGER no ON remote_events").await;
    assert_eq!(delete().await, Moved::Done(Answer::Does));
    assert_eq!(left(), "0");
    assert_eq!(delete().await, Moved::NotFound);
}
