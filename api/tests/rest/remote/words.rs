//! Sessions found by words of their titles and of what users said in them.

use super::*;

const REMOTE: &str = "/v1/remote-sessions";

#[tokio::test]
async fn words_are_looked_for_in_titles_and_in_what_users_said() {
    let world = World::new().await;
    let machine = world.machine().await;
    let mut ids = Vec::new();
    for (title, said) in crate::words::SPOKEN {
        let body = json!({"machineId": machine.id, "kind": "interactive", "title": title});
        let made = world.post(OPERATOR, REMOTE, &body).await.ok(201);
        let id = made["id"].as_str().unwrap().to_owned();
        let chat = json!({"content": said});
        world
            .post(OPERATOR, &format!("{REMOTE}/{id}/chat"), &chat)
            .await
            .ok(202);
        let answer = assistant(&id, text("an answer that nobody looks for"));
        world.say(&machine, &id, &lines(&[answer, result()])).await;
        world.read(&id).await;
        ids.push(id);
    }
    world.words_are_found(REMOTE, &ids).await;
    let page = world.get(VIEWER, &format!("{REMOTE}?q=nobody")).await;
    assert_eq!(
        page.ok(200)["items"],
        json!([]),
        "answers are not looked at"
    );
}

/// Words that stand nowhere cost no more than a bounded scan, which goes on behind its cursor; another workspace's are not found.
#[tokio::test]
async fn a_search_ends_and_goes_on() {
    let world = World::new().await;
    let machine = world.machine().await;
    let body = json!({"machineId": machine.id, "kind": "interactive", "title": "needle"});
    let oldest = world.post(OPERATOR, REMOTE, &body).await.ok(201);
    world.sql(&format!(
        "CREATE TEMP TABLE hay AS SELECT * FROM remote_sessions WHERE id = '{}';
         UPDATE hay SET title = 'hay';
         INSERT INTO remote_sessions SELECT (jsonb_populate_record(hay, jsonb_build_object(
             'id', left(hay.id, -12) || lpad(translate(n::text, '0189', 'abcd'), 12, 'z'),
             'created_at', hay.created_at + n * interval '1 millisecond'))).*
           FROM hay, generate_series(1, 2500) n;
         INSERT INTO remote_heads (session_id, byte_limit) SELECT id, 1 FROM remote_sessions s
          WHERE NOT EXISTS (SELECT 1 FROM remote_heads h WHERE h.session_id = s.id)",
        oldest["id"].as_str().unwrap()
    ));
    let first = world.get(VIEWER, &format!("{REMOTE}?q=needle")).await;
    let first = first.ok(200);
    assert_eq!(first["items"], json!([]), "not in the newest 2000");
    let cursor = first["nextCursor"].as_str().unwrap();
    let second = world
        .get(VIEWER, &format!("{REMOTE}?q=needle&cursor={cursor}"))
        .await
        .ok(200);
    assert_eq!(second["items"][0]["id"], oldest["id"]);
    assert_eq!(second["items"].as_array().unwrap().len(), 1);
    assert!(second["nextCursor"].is_null());
}
