//! A double of our api, as a machine sees it: one session, its log, its queue of commands, and weather.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bex_proto::RemoteSessionId;
use bex_proto::remote::OutputEvent;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

pub const TOKEN: &str = "bexm_thisIsTheTokenOfTheMachine";

/// What becomes of reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weather {
    Fine,
    /// Nobody is there.
    Away,
    /// This status, as a problem.
    Status(u16),
    /// A proxy's page.
    Page(u16),
    /// It is stored, and the connection breaks before the answer.
    Mute,
    /// Each of the former in turn, and fine in between.
    Mixed,
}

/// What is known of the session.
#[derive(Debug)]
pub struct Session {
    pub id: RemoteSessionId,
    pub events: BTreeMap<u64, OutputEvent>,
    pub duplicates: u64,
    /// Another payload under a used index: there must be none.
    pub conflicts: Vec<u64>,
    pub largest: usize,
    pub weather: Weather,
    pub ended: bool,
    pub full_after: Option<u64>,
    pub token: String,
    pub status: Option<Value>,
    pub queue: Vec<Value>,
    pub answers: Vec<(String, Value)>,
    pub heartbeats: u64,
    /// Everything that was asked, e.g. `POST /v1/machine/heartbeat 204`.
    pub calls: Vec<String>,
    reports: u64,
}

pub struct Double {
    pub address: SocketAddr,
    session: Arc<Mutex<Session>>,
    changed: watch::Sender<u64>,
    server: Option<JoinHandle<()>>,
}

impl Double {
    pub async fn start() -> Self {
        let session = Session {
            id: RemoteSessionId::random(),
            events: BTreeMap::new(),
            duplicates: 0,
            conflicts: Vec::new(),
            largest: 0,
            weather: Weather::Fine,
            ended: false,
            full_after: None,
            token: TOKEN.to_owned(),
            status: None,
            queue: Vec::new(),
            answers: Vec::new(),
            heartbeats: 0,
            calls: Vec::new(),
            reports: 0,
        };
        let mut double = Self {
            address: "127.0.0.1:0".parse().expect("an address"),
            session: Arc::new(Mutex::new(session)),
            changed: watch::Sender::new(0),
            server: None,
        };
        double.listen().await;
        double
    }

    /// It listens (again), where it did.
    pub async fn listen(&mut self) {
        let listener = TcpListener::bind(self.address).await.expect("a port");
        self.address = listener.local_addr().expect("an address");
        let (session, changed) = (Arc::clone(&self.session), self.changed.clone());
        self.server = Some(tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let (socket, _) = listener.accept().await.expect("a connection");
                let (session, changed) = (Arc::clone(&session), changed.clone());
                connections.spawn(async move {
                    let service = service_fn(|request| answer(&session, &changed, request));
                    // a connection that breaks is what some tests want
                    let _ = http1::Builder::new()
                        .serve_connection(TokioIo::new(socket), service)
                        .await;
                });
            }
        }));
    }

    /// Its port refuses connections, and those of now break.
    pub async fn cut(&mut self) {
        let server = self.server.take().expect("it listens");
        server.abort();
        let _ = server.await;
    }

    pub fn lock(&self) -> MutexGuard<'_, Session> {
        self.session.lock().expect("no test fell with it")
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Tells the machine something; returns the command's id.
    pub fn tell(&self, kind: &str, payload: &Value) -> String {
        let id = bex_proto::CommandId::random().to_string();
        let mut session = self.lock();
        let command = json!({"id": id, "sessionId": session.id, "kind": kind, "payload": payload,
            "createdAt": "2026-01-01T00:00:00.000Z"});
        session.queue.push(command);
        drop(session);
        self.changed.send_modify(|version| *version += 1);
        id
    }

    /// What a stream said, all of it.
    pub fn said(&self, stream: &str) -> String {
        let session = self.lock();
        let events = session.events.values();
        let of = events.filter(|event| event.stream.as_str() == stream);
        of.map(|event| event.data.as_str()).collect()
    }
}

impl Session {
    /// How many events there are; a hole fails the test.
    pub fn complete(&self) -> u64 {
        let count = self.events.len() as u64;
        let indexes: Vec<u64> = self.events.keys().copied().collect();
        assert_eq!(indexes, (0..count).collect::<Vec<_>>());
        assert_eq!(self.conflicts, Vec::<u64>::new());
        let last: Vec<u64> = self
            .events
            .values()
            .filter(|e| e.is_complete)
            .map(|e| e.event_index)
            .collect();
        assert_eq!(last, [count - 1], "one last event, at the end");
        count
    }

    fn next(&self) -> u64 {
        (0..)
            .find(|index| !self.events.contains_key(index))
            .expect("some index is free")
    }

    fn weather_now(&mut self) -> Weather {
        self.reports += 1;
        match (self.weather, self.reports % 8) {
            (Weather::Mixed, 1) => Weather::Status(500),
            (Weather::Mixed, 2) => Weather::Status(429),
            (Weather::Mixed, 3 | 6) => Weather::Mute,
            (Weather::Mixed, 5) => Weather::Page(404),
            (Weather::Mixed, _) => Weather::Fine,
            (weather, _) => weather,
        }
    }

    fn store(&mut self, body: &[u8]) -> (u16, Value) {
        self.largest = self.largest.max(body.len());
        let lines = body
            .split(|byte| *byte == b'\n')
            .filter(|line| !line.is_empty());
        let events: Vec<OutputEvent> = lines
            .map(|line| serde_json::from_slice(line).expect("an event"))
            .collect();
        let fresh = events
            .iter()
            .any(|event| !self.events.contains_key(&event.event_index));
        if fresh && self.ended {
            return problem(409, "session_ended");
        }
        if fresh && self.full_after.is_some_and(|full| self.next() >= full) {
            return problem(409, "log_full");
        }
        let (mut accepted, mut duplicates) = (0, 0);
        for event in events {
            match self.events.get(&event.event_index) {
                Some(known) if *known == event => duplicates += 1,
                Some(_) => {
                    self.conflicts.push(event.event_index);
                    return problem(409, "event_conflict");
                }
                None => {
                    accepted += 1;
                    self.events.insert(event.event_index, event);
                }
            }
        }
        self.duplicates += duplicates;
        let answer =
            json!({"accepted": accepted, "duplicates": duplicates, "nextEventIndex": self.next()});
        (200, answer)
    }
}

fn problem(status: u16, code: &str) -> (u16, Value) {
    (
        status,
        json!({"type": "about:blank", "status": status, "code": code, "eventIndex": 0}),
    )
}

/// A connection that is given up instead of an answer.
#[derive(Debug, thiserror::Error)]
#[error("the connection breaks")]
struct Broken;

async fn answer(
    session: &Mutex<Session>,
    changed: &watch::Sender<u64>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Broken> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| Broken)?.to_bytes();
    let call = format!("{} {}", head.method, head.uri);
    let polls = head.method == Method::GET && head.uri.path() == "/v1/machine/commands";
    if polls {
        let mut changes = changed.subscribe();
        let waiting = |_: &u64| !session.lock().expect("no test fell").queue.is_empty();
        let _ = tokio::time::timeout(Duration::from_secs(2), changes.wait_for(waiting)).await;
    }
    let (status, answer) = {
        let mut session = session.lock().expect("no test fell with it");
        let weather = match polls {
            true => session.weather,
            false => session.weather_now(),
        };
        let given = format!("Bearer {}", session.token);
        let known = head
            .headers
            .get("authorization")
            .is_some_and(|token| *token == given.as_str());
        let (status, answer) = match weather {
            Weather::Away => return Err(Broken),
            Weather::Page(status) => (status, Value::Null),
            Weather::Status(status) => problem(status, "internal"),
            _ if !known => problem(401, "unauthenticated"),
            Weather::Fine | Weather::Mute | Weather::Mixed => session.handle(&head, &body),
        };
        session.calls.push(format!("{call} {status}"));
        if weather == Weather::Mute {
            return Err(Broken);
        }
        (status, answer)
    };
    let text = match answer {
        Value::Null => "<html>nobody</html>".to_owned(),
        answer => answer.to_string(),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = StatusCode::from_u16(status).expect("a status");
    if status == 429 {
        response
            .headers_mut()
            .insert("retry-after", "1".parse().expect("a number"));
    }
    Ok::<_, Infallible>(response).map_err(|never| match never {})
}

impl Session {
    fn handle(&mut self, head: &http::request::Parts, body: &[u8]) -> (u16, Value) {
        let json = || serde_json::from_slice::<Value>(body).expect("JSON");
        let own = format!("/v1/remote-sessions/{}/", self.id);
        match (&head.method, head.uri.path()) {
            (&Method::POST, path) if path.strip_prefix(&own) == Some("output") => self.store(body),
            (&Method::POST, path) if path.strip_prefix(&own) == Some("status") => {
                self.status.get_or_insert_with(json);
                (200, json!({}))
            }
            (&Method::POST, "/v1/machine/heartbeat") => {
                self.heartbeats += 1;
                (204, json!({}))
            }
            (&Method::GET, "/v1/machine/commands") => {
                let commands = std::mem::take(&mut self.queue);
                (200, json!({"commands": commands}))
            }
            (&Method::POST, path) if path.starts_with("/v1/machine/commands/") => {
                let id = path.rsplit('/').next().expect("an id").to_owned();
                self.answers.push((id, json()));
                (204, json!({}))
            }
            _ => problem(404, "not_found"),
        }
    }
}
