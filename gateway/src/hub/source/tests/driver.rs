//! A scripted driver over TCP.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bex_proto::driver::{DriverKey, GRANT_HEADER, PROOF_HEADER};
use bex_proto::ticket::{DriverGrant, KeyRing};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use crate::sandbox::TargetRef;

pub(crate) const KEYS: &str = "a:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

/// What the driver answers to the n-th stream request: a status line's rest and a body, then it hangs up.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    Events(String),
    /// Events, then silence.
    Open(String),
    /// Events, then so much silence, then it hangs up.
    Silent(String, Duration),
    Redirect(SocketAddr),
    Status(u16),
}

/// A driver that proves itself and then follows its script; the last answer is repeated.
pub(crate) struct Driver {
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Driver {
    pub(crate) async fn start(target: &TargetRef, script: Vec<Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (asked_in, target) = (Arc::clone(&asked), target.clone());
        let task = tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.expect("a connection");
                converse(socket, &target, &script, &asked_in).await;
            }
        });
        Self {
            address,
            asked,
            task,
        }
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("no panic").clone()
    }
}

async fn converse(
    mut socket: TcpStream,
    target: &TargetRef,
    script: &[Answer],
    asked: &Mutex<Vec<String>>,
) {
    while let Some(head) = request_head(&mut socket).await {
        let path = head.split(' ').nth(1).expect("a request line").to_owned();
        let proof = proof(&head, target);
        if path == "/hello" {
            let hello =
                format!("HTTP/1.1 200 OK\r\n{PROOF_HEADER}: {proof}\r\ncontent-length: 0\r\n\r\n");
            socket.write_all(hello.as_bytes()).await.expect("written");
            continue;
        }
        let n = {
            let mut asked = asked.lock().expect("no panic");
            asked.push(path);
            asked.len() - 1
        };
        let answer = script.get(n).or(script.last()).expect("a script").clone();
        let (status, extra, body) = match &answer {
            Answer::Events(body) | Answer::Open(body) | Answer::Silent(body, _) => {
                ("200 OK".to_owned(), String::new(), body.as_str())
            }
            Answer::Redirect(to) => (
                "302 Found".to_owned(),
                format!("location: http://{to}/stream\r\n"),
                "",
            ),
            Answer::Status(status) => (format!("{status} Whatever"), String::new(), ""),
        };
        let head = format!(
            "HTTP/1.1 {status}\r\n{PROOF_HEADER}: {proof}\r\n{extra}connection: close\r\n\r\n"
        );
        let _ = socket.write_all(head.as_bytes()).await;
        let _ = socket.write_all(body.as_bytes()).await;
        match answer {
            Answer::Open(_) => drop(socket.read(&mut [0; 16]).await),
            Answer::Silent(_, time) => sleep(time).await,
            _ => {}
        }
        return;
    }
}

async fn request_head(socket: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0; 1];
        if socket.read(&mut byte).await.ok()? == 0 {
            return None;
        }
        head.extend_from_slice(&byte);
    }
    String::from_utf8(head).ok()
}

fn proof(head: &str, target: &TargetRef) -> String {
    let ring = KeyRing::parse(KEYS).expect("a ring");
    let key = DriverKey::derive(ring.signing_key().1, &target.session, target.generation);
    let grant = head
        .lines()
        .find_map(|line| {
            line.split_once(": ")
                .filter(|(name, _)| name.eq_ignore_ascii_case(GRANT_HEADER))
        })
        .expect("every call carries a grant")
        .1;
    let grant =
        DriverGrant::verify(grant, &key, jiff::Timestamp::now().as_second()).expect("a good grant");
    key.proof(&grant.jti, &target.session, target.generation)
}
