use std::collections::BTreeSet;
use std::sync::Mutex;

use bex_proto::SessionId;
use bex_proto::ids::TurnNo;
use http::HeaderValue;

use super::*;

const A: &str = "a:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const B: &str = "b:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

fn ring(text: &str) -> KeyRing {
    KeyRing::parse(text).expect("a ring")
}

/// What the scripted store answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weather {
    Good,
    Revoked,
    Gone,
    Away,
    Silent,
}

struct Scripted {
    weather: Weather,
    burnt: Mutex<BTreeSet<String>>,
    audited: Mutex<u32>,
}

impl Scripted {
    fn new(weather: Weather) -> Self {
        Self {
            weather,
            burnt: Mutex::default(),
            audited: Mutex::default(),
        }
    }

    fn burnt(&self) -> usize {
        self.burnt.lock().expect("no panic").len()
    }
}

#[async_trait]
impl Gate for Scripted {
    type Row = u32;

    async fn standing(&self, _: &StreamKey) -> Result<Standing, StoreError> {
        match self.weather {
            Weather::Good => Ok(Standing::Good),
            Weather::Revoked => Ok(Standing::Revoked),
            Weather::Gone => Ok(Standing::SessionGone),
            Weather::Away => Err(StoreError::Missing { what: "script" }),
            Weather::Silent => std::future::pending().await,
        }
    }

    async fn burn(&self, jti: &str, _: Duration) -> Result<Burn, StoreError> {
        let fresh = self.burnt.lock().expect("no panic").insert(jti.to_owned());
        Ok(if fresh { Burn::Burnt } else { Burn::Used })
    }

    async fn open_audit(&self, _: &StreamOpened<'_>) -> Result<u32, StoreError> {
        let mut audited = self.audited.lock().expect("no panic");
        *audited += 1;
        Ok(*audited)
    }
}

struct Case {
    claims: AttachClaims,
    signed_with: &'static str,
    ring: String,
    action: AttachAction,
    path: String,
    header: Option<String>,
    weather: Weather,
    places: usize,
    used: bool,
}

impl Case {
    /// A request that is admitted.
    fn good() -> Self {
        let session = SessionId::random();
        Self {
            claims: AttachClaims {
                sub: "u".into(),
                ses: session.clone(),
                ws: "w".parse().expect("an id"),
                act: AttachAction::Read,
                trn: None,
                rpo: false,
                generation: None,
                pod: None,
                pod_uid: None,
                ns: None,
                iat: 1000,
                exp: 1090,
                jti: bex_proto::ticket::random_jti(),
            },
            signed_with: A,
            ring: A.into(),
            action: AttachAction::Read,
            path: session.to_string(),
            header: None,
            weather: Weather::Good,
            places: 1,
            used: false,
        }
    }

    /// The answer's code, and whether the ticket is used up afterwards.
    async fn judge(self) -> (Result<(), Code>, bool) {
        let gate = Scripted::new(self.weather);
        if self.used {
            gate.burnt
                .lock()
                .expect("no panic")
                .insert(self.claims.jti.clone());
        }
        let before = gate.burnt();
        let mut headers = HeaderMap::new();
        let token = self
            .header
            .unwrap_or_else(|| self.claims.sign(&ring(self.signed_with)));
        if !token.is_empty() {
            headers.insert(
                ATTACH_HEADER,
                HeaderValue::from_str(&token).expect("a value"),
            );
        }
        let now = Timestamp::from_second(1050).expect("a time");
        let asked = Asked {
            action: self.action,
            session: &self.path,
            headers: &headers,
            now,
        };
        let (streams, limiter) = (Arc::new(Streams::default()), Limiter::new(self.places, 1));
        let keys = ring(&self.ring);
        let judged = async {
            let claims = ticket(&keys, &asked)?;
            let admitted = place(&gate, &streams, &limiter, claims).await?;
            assert_eq!((streams.count(), limiter.count()), (1, 1));
            redeem(&gate, &admitted.claims, "me", "192.0.2.1", now)
                .await
                .map(drop)
        };
        let answer = judged.await;
        assert_eq!(
            (streams.count(), limiter.count()),
            (0, 0),
            "a refused stream leaves nothing behind"
        );
        assert_eq!(
            *gate.audited.lock().expect("no panic"),
            u32::from(answer.is_ok())
        );
        (answer, gate.burnt() > before)
    }
}

#[tokio::test(start_paused = true)]
async fn each_refusal_has_its_place_and_costs_no_ticket() {
    // each case carries every later fault too, so the table proves the order
    type Spoil = fn(&mut Case);
    let spoils: [(Spoil, Code); 7] = [
        (|c| c.header = Some("garbage".into()), Code::TicketInvalid),
        (|c| c.claims.exp = 1019, Code::TicketInvalid),
        (|c| c.claims.act = AttachAction::Turn, Code::ActionMismatch),
        (
            |c| c.path = SessionId::random().to_string(),
            Code::SessionMismatch,
        ),
        (|c| c.weather = Weather::Revoked, Code::Revoked),
        (|c| c.places = 0, Code::TooManyStreams),
        (|c| c.used = true, Code::TicketUsed),
    ];
    for (first, (_, code)) in spoils.iter().enumerate() {
        let mut case = Case::good();
        case.claims.trn = Some(TurnNo(1));
        for (spoil, _) in &spoils[first..] {
            spoil(&mut case);
        }
        assert_eq!(case.judge().await, (Err(*code), false), "{code:?}");
    }
    assert_eq!(Case::good().judge().await, (Ok(()), true));
}

#[tokio::test(start_paused = true)]
async fn tickets_are_told_apart() {
    type Spoil = fn(&mut Case);
    let cases: [(Spoil, Result<(), Code>); 9] = [
        (|c| c.header = Some(String::new()), Err(Code::TicketInvalid)),
        (|c| c.claims.exp = 1020, Ok(())),
        (|c| c.claims.iat = 1081, Err(Code::TicketInvalid)),
        (|c| c.ring = format!("{B},{A}"), Ok(())),
        (|c| c.ring = B.into(), Err(Code::TicketInvalid)),
        (|c| c.signed_with = B, Err(Code::TicketInvalid)),
        (
            |c| c.claims.pod = Some("p".into()),
            Err(Code::TicketInvalid),
        ),
        (|c| c.path = "../etc".into(), Err(Code::SessionMismatch)),
        (|c| c.action = AttachAction::Turn, Err(Code::ActionMismatch)),
    ];
    for (n, (spoil, expected)) in cases.into_iter().enumerate() {
        let mut case = Case::good();
        spoil(&mut case);
        assert_eq!(case.judge().await, (expected, expected.is_ok()), "case {n}");
    }
}

#[tokio::test(start_paused = true)]
async fn store_trouble_refuses_and_soon() {
    for (weather, code) in [
        (Weather::Away, Code::Unavailable),
        (Weather::Silent, Code::Unavailable),
        (Weather::Gone, Code::Revoked),
    ] {
        let start = tokio::time::Instant::now();
        let case = Case {
            weather,
            ..Case::good()
        };
        assert_eq!(case.judge().await, (Err(code), false), "{weather:?}");
        assert!(start.elapsed() <= limits::ADMISSION_TIMEOUT);
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_uses_of_one_ticket_one_is_served() {
    let case = Case::good();
    let gate = Scripted::new(Weather::Good);
    let now = Timestamp::from_second(1050).expect("a time");
    let (first, second) = tokio::join!(
        redeem(&gate, &case.claims, "me", "x", now),
        redeem(&gate, &case.claims, "me", "x", now)
    );
    let mut answers = [first.map(drop), second.map(drop)];
    answers.sort_by_key(|answer| answer.is_err());
    assert_eq!(answers, [Ok(()), Err(Code::TicketUsed)]);
}
