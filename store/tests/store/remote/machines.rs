//! What machines are told and what they count: commands, states, tokens, usage.

use super::*;

#[tokio::test]
async fn commands_come_until_they_are_answered() {
    let remote = Remote::new().await;
    let Told::Queued(queued) = remote.tell(CommandKind::Chat, Some("hi")).await else {
        panic!("not queued");
    };
    let taken = async || {
        remote
            .db()
            .take_commands(&remote.machine, None, 10)
            .await
            .unwrap()
    };
    let first = taken().await;
    assert_eq!(first[0].id, queued.command);
    assert_eq!(taken().await.len(), 0, "handed out just now");
    remote
        .change("UPDATE remote_commands SET delivered_at = delivered_at - interval '31 seconds'")
        .await;
    assert_eq!(taken().await[0].id, queued.command);
    let done = async |machine: &MachineId| {
        remote
            .db()
            .command_done(machine, &queued.command, CommandState::Done, None)
            .await
            .unwrap()
    };
    assert!(!done(&MachineId::random()).await);
    assert!(done(&remote.machine).await);
    assert!(done(&remote.machine).await, "an answer may be repeated");
    remote
        .change("UPDATE remote_commands SET delivered_at = delivered_at - interval '31 seconds'")
        .await;
    assert_eq!(taken().await.len(), 0);
}

#[tokio::test]
async fn states_answer_by_the_table_and_pause_can_be_taken_back() {
    let remote = Remote::new().await;
    let told = remote.tell(CommandKind::Pause, None).await;
    assert!(matches!(told, Told::Queued(c) if c.state == RemoteState::Paused));
    assert_eq!(
        remote.tell(CommandKind::Chat, Some("x")).await,
        Told::Refused(Code::SessionPaused)
    );
    assert_eq!(
        remote.tell(CommandKind::Pause, None).await,
        Told::Already(RemoteState::Paused)
    );
    let told = remote.tell(CommandKind::Resume, None).await;
    assert!(matches!(told, Told::Queued(c) if c.state == RemoteState::Active));
    assert_eq!(remote.head().await.message_count, 0);
    for _ in 0..98 {
        remote.tell(CommandKind::Abort, None).await;
    }
    assert_eq!(
        remote.tell(CommandKind::Abort, None).await,
        Told::Refused(Code::CommandQueueFull)
    );
    let deleted = remote.db().delete_remote_session(&remote.session).await;
    assert_eq!(
        deleted.unwrap(),
        Moved::Done(Answer::Refuses(Code::NotDeletable))
    );
}

#[tokio::test]
async fn a_revoked_machine_s_token_and_a_rotated_one() {
    let remote = Remote::new().await;
    let db = remote.db();
    let of = async |token: &str| {
        let row = db.machine_of_token(token).await.unwrap();
        row.map(|row| row.id)
    };
    assert_eq!(of("first").await.as_ref(), Some(&remote.machine));
    assert!(
        db.rotate_machine_token(&remote.machine, "second")
            .await
            .unwrap()
    );
    assert_eq!(
        of("first").await.as_ref(),
        Some(&remote.machine),
        "in its grace"
    );
    assert_eq!(of("second").await.as_ref(), Some(&remote.machine));
    remote
        .change("UPDATE machine_tokens SET expires_at = expires_at - interval '601 seconds'")
        .await;
    assert_eq!(of("first").await, None);
    db.machine_seen(&remote.machine, Some("{}")).await.unwrap();
    assert!(db.revoke_machine(&remote.machine).await.unwrap());
    assert!(!db.revoke_machine(&remote.machine).await.unwrap());
    assert_eq!(of("second").await, None);
    assert!(
        !db.rotate_machine_token(&remote.machine, "third")
            .await
            .unwrap()
    );
    assert_eq!(
        remote.tell(CommandKind::Chat, Some("x")).await,
        Told::Refused(Code::MachineRevoked)
    );
}

#[tokio::test]
async fn usage_counts_once() {
    let remote = Remote::new().await;
    let report = |sha256| UsageReport {
        session: &remote.session,
        report_id: "r1",
        sha256,
        counts: [1, 2, 3, 4, 5],
    };
    let db = remote.db();
    let (one, other) = (report("a"), report("b"));
    assert_eq!(db.report_usage(&one).await.unwrap(), Reported::Counted);
    assert_eq!(db.report_usage(&one).await.unwrap(), Reported::Duplicate);
    assert_eq!(db.report_usage(&other).await.unwrap(), Reported::Conflict);
    let row = db.remote_session(&remote.session).await.unwrap().unwrap();
    assert_eq!(row.usage, [1, 2, 3, 4, 5]);
}
