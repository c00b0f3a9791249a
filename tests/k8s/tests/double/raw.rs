//! A client that hides nothing.

use std::time::Duration;

use bex_testk8s::frames::{self, Frame, opcode};
use bex_testk8s::{Cluster, Image, Options};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub const NS: &str = "demo-sandbox";
pub const V5: &str = "v5.channel.k8s.io";
pub const V4: &str = "v4.channel.k8s.io";
const PATIENCE: Duration = Duration::from_secs(20);

/// A cluster with one account that may do everything with pods in one namespace, and a pause image.
pub async fn cluster(options: Options) -> (Cluster, Api) {
    let cluster = Cluster::start(options).await.expect("a cluster");
    cluster.namespace(NS);
    cluster.image("pause", Image::pause());
    let all: &[&str] = &["get", "list", "watch", "create", "delete"];
    cluster.grant(
        NS,
        ("bex", "all"),
        &[("pods", all), ("pods/exec", &["get", "create"])],
    );
    let api = Api {
        address: cluster.address().to_string(),
        token: Some(cluster.token("bex", "all")),
    };
    (cluster, api)
}

/// The same with a pod `run` that is ready.
pub async fn with_pod(options: Options) -> (Cluster, Api) {
    let (cluster, api) = cluster(options).await;
    cluster.create_pod(NS, "run", "pause").expect("made");
    cluster.ready(NS, "run").await;
    (cluster, api)
}

/// Somebody at the API server.
pub struct Api {
    pub address: String,
    pub token: Option<String>,
}

/// A whole answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }
}

impl Api {
    fn head(&self, method: &str, path: &str, more: &str) -> String {
        let token = self
            .token
            .as_ref()
            .map(|t| format!("authorization: Bearer {t}\r\n"))
            .unwrap_or_default();
        format!("{method} {path} HTTP/1.1\r\nhost: k8s\r\n{token}{more}\r\n")
    }

    pub async fn call(&self, method: &str, path: &str, body: Option<Value>) -> Answer {
        let body = body.map(|b| b.to_string()).unwrap_or_default();
        let more = format!(
            "connection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n",
            body.len()
        );
        let mut socket = TcpStream::connect(&self.address)
            .await
            .expect("a connection");
        let request = self.head(method, path, &more) + &body;
        socket.write_all(request.as_bytes()).await.expect("sent");
        let mut text = String::new();
        tokio::time::timeout(PATIENCE, socket.read_to_string(&mut text))
            .await
            .expect("in time")
            .expect("an answer");
        answer(&text)
    }

    /// A watch: the socket after its head. Bodies are chunked; a test looks for lines in them.
    pub async fn watch(&self, path: &str) -> TcpStream {
        let mut socket = TcpStream::connect(&self.address)
            .await
            .expect("a connection");
        socket
            .write_all(self.head("GET", path, "").as_bytes())
            .await
            .expect("sent");
        read_head(&mut socket).await;
        socket
    }

    /// An exec in the pod `run` that is upgraded.
    pub async fn begun(&self, query: &str, protocol: &str) -> Exec {
        let exec = self.exec("run", query, protocol).await;
        exec.expect("upgraded")
    }

    /// All of an exec in the pod `run`.
    pub async fn ran(&self, query: &str, protocol: &str) -> All {
        self.begun(query, protocol).await.all().await
    }

    /// An exec; what was answered if it was not upgraded.
    pub async fn exec(&self, pod: &str, query: &str, protocols: &str) -> Result<Exec, Answer> {
        self.exec_by("GET", pod, query, protocols).await
    }

    pub async fn exec_by(
        &self,
        method: &str,
        pod: &str,
        query: &str,
        protocols: &str,
    ) -> Result<Exec, Answer> {
        let protocols = match protocols {
            "" => String::new(),
            list => format!("sec-websocket-protocol: {list}\r\n"),
        };
        let more = format!(
            "connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n{protocols}"
        );
        let mut socket = TcpStream::connect(&self.address)
            .await
            .expect("a connection");
        let path = format!("/api/v1/namespaces/{NS}/pods/{pod}/exec?{query}");
        socket
            .write_all(self.head(method, &path, &more).as_bytes())
            .await
            .expect("sent");
        let head = read_head(&mut socket).await;
        if head.starts_with("HTTP/1.1 101") {
            return Ok(Exec { head, socket });
        }
        let length = header(&head, "content-length")
            .and_then(|l| l.parse().ok())
            .unwrap_or(0);
        let mut body = vec![0; length];
        socket.read_exact(&mut body).await.expect("a body");
        Err(answer(&(head + &String::from_utf8(body).expect("text"))))
    }
}

async fn read_head(socket: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(
            tokio::time::timeout(PATIENCE, socket.read_u8())
                .await
                .expect("in time")
                .expect("a head"),
        );
    }
    String::from_utf8(head)
        .expect("text")
        .to_lowercase()
        .replace("http/1.1", "HTTP/1.1")
}

pub fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

fn answer(text: &str) -> Answer {
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|s| s.parse().ok())
        .expect("a status");
    Answer {
        status,
        head: head.to_lowercase(),
        body: body.to_owned(),
    }
}

/// An upgraded exec.
pub struct Exec {
    pub head: String,
    socket: TcpStream,
}

/// Everything until the socket's end.
#[derive(Debug, Default)]
pub struct All {
    pub frames: Vec<Frame>,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub statuses: Vec<Value>,
    /// CLOSE codes.
    pub closed: Vec<u16>,
}

impl Exec {
    pub async fn send(&mut self, payload: &[u8]) {
        self.frame(true, opcode::BINARY, payload).await;
    }

    pub async fn frame(&mut self, fin: bool, opcode: u8, payload: &[u8]) {
        let wire = frames::write(fin, opcode, payload, Some([1, 2, 3, 4]));
        self.socket.write_all(&wire).await.expect("sent");
    }

    pub async fn next(&mut self) -> Option<Frame> {
        tokio::time::timeout(PATIENCE, frames::read(&mut self.socket))
            .await
            .expect("in time")
            .expect("a frame")
    }

    /// The next frame that is not the first empty one.
    pub async fn next_data(&mut self) -> Frame {
        loop {
            let frame = self.next().await.expect("a frame");
            if frame.opcode != opcode::BINARY || frame.payload.len() > 1 {
                return frame;
            }
        }
    }

    pub async fn all(&mut self) -> All {
        let mut all = All::default();
        while let Some(frame) = self.next().await {
            match (frame.opcode, frame.payload.split_first()) {
                (opcode::BINARY, Some((1, data))) => all.stdout.extend_from_slice(data),
                (opcode::BINARY, Some((2, data))) => all.stderr.extend_from_slice(data),
                (opcode::BINARY, Some((3, data))) => all
                    .statuses
                    .push(serde_json::from_slice(data).expect("JSON")),
                (opcode::CLOSE, _) => all
                    .closed
                    .push(u16::from_be_bytes([frame.payload[0], frame.payload[1]])),
                _ => {}
            }
            all.frames.push(frame);
        }
        all
    }
}

/// `command=…` for a shell.
pub fn sh(script: &str) -> String {
    let script: String = script.bytes().map(|b| format!("%{b:02X}")).collect();
    format!("command=/bin/sh&command=-c&command={script}&stdout=true&stderr=true")
}

pub async fn eventually(what: &str, level: impl Fn() -> bool) {
    let until = tokio::time::Instant::now() + PATIENCE;
    while !level() {
        assert!(tokio::time::Instant::now() < until, "never: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
