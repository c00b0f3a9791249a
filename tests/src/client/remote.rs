//! Remote sessions: machines that report, and what people read of it.

use anyhow::Context;
use bex_proto::RemoteSessionId;
use bex_proto::remote::{OutputAccepted, OutputEvent, RemoteState};
use bytes::Bytes;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::api::{Answer, ApiClient, Ticket};

/// A machine with its token.
#[derive(Clone)]
pub struct Machine {
    /// Its id.
    pub id: String,
    api: ApiClient,
}

impl ApiClient {
    /// Registers a machine, as an administrator.
    ///
    /// # Errors
    /// When it is not registered.
    pub async fn register_machine(&self, workspace: &str) -> anyhow::Result<Machine> {
        let body = json!({"workspaceId": workspace, "name": "builder"});
        let answer = self.call(Method::POST, "/v1/machines", Some(&body)).await?;
        let made: Value = answer.expect(StatusCode::CREATED)?;
        let token = made["token"].as_str().context("a machine has a token")?;
        let id = made["machine"]["id"].as_str();
        Ok(Machine {
            id: id.context("a machine has an id")?.to_owned(),
            api: self.with_token(token),
        })
    }

    /// Creates a session on a machine: `interactive` or `autonomous`.
    ///
    /// # Errors
    /// When it is not created.
    pub async fn create_remote(
        &self,
        machine: &Machine,
        kind: &str,
    ) -> anyhow::Result<RemoteSessionId> {
        let mut body = json!({"machineId": machine.id, "kind": kind});
        if kind == "autonomous" {
            body["workflowId"] = json!("nightly");
        }
        let answer = self.call(Method::POST, "/v1/remote-sessions", Some(&body));
        let made: Value = answer.await?.expect(StatusCode::CREATED)?;
        let id = made["id"].as_str().context("a session has an id")?;
        Ok(id.parse()?)
    }

    /// A remote session as it is shown.
    ///
    /// # Errors
    /// When it is not shown.
    pub async fn remote(&self, id: &RemoteSessionId) -> anyhow::Result<Value> {
        let path = format!("/v1/remote-sessions/{id}");
        self.call(Method::GET, &path, None)
            .await?
            .expect(StatusCode::OK)
    }

    /// A ticket to watch a remote session.
    ///
    /// # Errors
    /// When none is given.
    pub async fn remote_ticket(&self, id: &RemoteSessionId) -> anyhow::Result<Ticket> {
        let path = format!("/v1/remote-sessions/{id}/attach-ticket");
        let answer = self.call(Method::POST, &path, None).await?;
        let ticket: Ticket = answer.expect(StatusCode::OK)?;
        self.keep_secret(&ticket.ticket);
        Ok(ticket)
    }

    /// All `messages` or `turns` of a remote session, page by page.
    ///
    /// # Errors
    /// When a page is not given.
    pub async fn remote_rows(
        &self,
        id: &RemoteSessionId,
        rows: &str,
    ) -> anyhow::Result<Vec<Value>> {
        let (mut all, mut after) = (Vec::new(), String::new());
        loop {
            let path = format!("/v1/remote-sessions/{id}/{rows}?limit=50{after}");
            let answer = self.call(Method::GET, &path, None).await?;
            let mut page: Value = answer.expect(StatusCode::OK)?;
            let some = page[rows].as_array_mut().context("a page has rows")?;
            all.append(some);
            match page["nextAfter"].as_u64() {
                Some(next) => after = format!("&after={next}"),
                None => return Ok(all),
            }
        }
    }
}

impl Machine {
    /// Reports events; the answer is not judged.
    ///
    /// # Errors
    /// Only when nothing answers.
    pub async fn report(
        &self,
        session: &RemoteSessionId,
        events: &[OutputEvent],
    ) -> anyhow::Result<Answer> {
        let mut lines = Vec::new();
        for event in events {
            serde_json::to_writer(&mut lines, event)?;
            lines.push(b'\n');
        }
        self.send(session, "output", lines.into()).await
    }

    /// Reports events that are taken.
    ///
    /// # Errors
    /// When they are not.
    pub async fn says(
        &self,
        session: &RemoteSessionId,
        events: &[OutputEvent],
    ) -> anyhow::Result<OutputAccepted> {
        self.report(session, events).await?.expect(StatusCode::OK)
    }

    /// Says how the session ends, and with how many events.
    ///
    /// # Errors
    /// When that is not taken.
    pub async fn ends(
        &self,
        session: &RemoteSessionId,
        state: RemoteState,
        events: usize,
    ) -> anyhow::Result<Value> {
        let body = json!({"state": state, "events": events}).to_string();
        let answer = self.send(session, "status", body.into()).await?;
        answer.expect(StatusCode::OK)
    }

    /// Hands in the program's own record.
    ///
    /// # Errors
    /// When it is not taken.
    pub async fn imports(&self, session: &RemoteSessionId, lines: &str) -> anyhow::Result<Value> {
        let answer = self
            .send(session, "import", lines.to_owned().into())
            .await?;
        answer.expect(StatusCode::OK)
    }

    async fn send(
        &self,
        session: &RemoteSessionId,
        verb: &str,
        body: Bytes,
    ) -> anyhow::Result<Answer> {
        let path = format!("/v1/remote-sessions/{session}/{verb}");
        self.api
            .call_raw(Method::POST, &path, Some(body), &[])
            .await
    }
}
