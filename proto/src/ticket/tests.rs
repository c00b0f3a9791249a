use super::*;

const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

fn ring(text: &str) -> KeyRing {
    KeyRing::parse(text).expect("a ring")
}

fn claims() -> AttachClaims {
    AttachClaims {
        sub: "u".into(),
        ses: SessionId::random(),
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
        jti: random_jti(),
    }
}

#[test]
fn a_ring_rotates() {
    let (old, both, new) = (
        ring(&format!("a:{A}")),
        ring(&format!("b:{B},a:{A}")),
        ring(&format!("b:{B}")),
    );
    let ticket = claims().sign(&old);
    assert!(
        AttachClaims::verify(&ticket, &both, 1000).is_ok(),
        "a retired key still verifies"
    );
    assert_eq!(
        AttachClaims::verify(&ticket, &new, 1000),
        Err(TicketFault::UnknownKey),
        "a removed key does not"
    );
    assert_eq!(
        AttachClaims::verify(&ticket, &ring(&format!("a:{B}")), 1000),
        Err(TicketFault::Signature)
    );
}

#[test]
fn every_flipped_character_fails() {
    let ring = ring(&format!("a:{A}"));
    let ticket = claims().sign(&ring);
    for i in 0..ticket.len() {
        let mut bytes = ticket.clone().into_bytes();
        bytes[i] = if bytes[i] == b'A' { b'Q' } else { b'A' };
        let flipped = String::from_utf8(bytes).expect("ascii");
        // the last character of a segment carries unused bits, so another spelling may decode to the same bytes
        if flipped != ticket && AttachClaims::verify(&flipped, &ring, 1000).is_ok() {
            let boundary = i + 1 == ticket.len() || ticket.as_bytes()[i + 1] == b'.';
            assert!(boundary, "flip at {i} was accepted");
        }
    }
}

#[test]
fn expiry_honours_skew_at_both_ends() {
    let ring = ring(&format!("a:{A}"));
    let ticket = claims().sign(&ring);
    assert!(AttachClaims::verify(&ticket, &ring, 1120).is_ok());
    assert_eq!(
        AttachClaims::verify(&ticket, &ring, 1121),
        Err(TicketFault::Expired)
    );
    assert!(AttachClaims::verify(&ticket, &ring, 970).is_ok());
    assert_eq!(
        AttachClaims::verify(&ticket, &ring, 969),
        Err(TicketFault::Malformed)
    );
}

#[test]
fn a_nonce_is_kept_for_as_long_as_any_clock_accepts_its_ticket() {
    let ring = ring(&format!("a:{A}"));
    let ticket = claims().sign(&ring);
    let skew = limits::TICKET_SKEW.as_secs() as i64;
    // used up at each second at which it is accepted
    for now in 970..=1120 {
        let kept_until = now + keep_nonce(claims().exp, now).as_secs() as i64;
        let behind = kept_until - skew;
        assert!(
            AttachClaims::verify(&ticket, &ring, behind).is_err(),
            "used at {now}"
        );
    }
    assert_eq!(keep_nonce(i64::MIN, i64::MAX), Duration::from_secs(61));
}

#[test]
fn audiences_do_not_mix_and_none_is_refused() {
    let ring = ring(&format!("a:{A}"));
    let attach = claims().sign(&ring);
    assert_eq!(
        ExecClaims::verify(&attach, &ring, 1000).err(),
        Some(TicketFault::Malformed)
    );
    let payload = attach.split('.').nth(1).expect("a payload");
    // {"alg":"none","kid":"a"}
    let unsigned = format!("eyJhbGciOiJub25lIiwia2lkIjoiYSJ9.{payload}.");
    assert_eq!(
        AttachClaims::verify(&unsigned, &ring, 1000).err(),
        Some(TicketFault::Malformed)
    );
    assert_eq!(
        AttachClaims::verify("garbage", &ring, 1000).err(),
        Some(TicketFault::Malformed)
    );
}

#[test]
fn a_target_is_all_or_none() {
    let ring = ring(&format!("a:{A}"));
    let half = AttachClaims {
        pod: Some("p".into()),
        ..claims()
    };
    assert_eq!(
        AttachClaims::verify(&half.sign(&ring), &ring, 1000).err(),
        Some(TicketFault::Malformed)
    );
    let turnless = AttachClaims {
        act: AttachAction::Turn,
        ..claims()
    };
    assert_eq!(
        AttachClaims::verify(&turnless.sign(&ring), &ring, 1000).err(),
        Some(TicketFault::Malformed)
    );
}

#[test]
fn rings_refuse_odd_texts_without_echoing_them() {
    assert_eq!(KeyRing::parse(" , ").err(), Some(KeyRingFault::Empty));
    assert_eq!(KeyRing::parse("a:beef").err(), Some(KeyRingFault::Entry(0)));
    assert_eq!(
        KeyRing::parse(&format!("a:{A},a:{B}")).err(),
        Some(KeyRingFault::Repeated(1))
    );
    let shown = format!("{:?}", ring(&format!("a:{A}")));
    assert!(shown.contains('a') && !shown.contains("aaaa"), "{shown}");
}

#[test]
fn a_grant_binds_its_body() {
    let key = DriverKey::derive(b"ring", &SessionId::random(), Generation(1));
    let grant = DriverGrant {
        op: DriverOp::Turn,
        trn: Some(TurnNo(1)),
        body: Some(turn_digest("p", None)),
        iat: 10,
        exp: 25,
        jti: random_jti(),
    };
    assert_eq!(DriverGrant::verify(&grant.sign(&key), &key, 12), Ok(grant));
    assert_ne!(turn_digest("p", Some("q")), turn_digest("p", None));
    assert_ne!(turn_digest("a", Some("bc")), turn_digest("ab", Some("c")));
}

#[test]
fn a_ticket_for_a_remote_session_is_no_other_ticket() {
    let ring = ring(&format!("a:{A}"));
    let workspace = || "w".parse().expect("an id");
    let remote = RemoteClaims::to_read(&RemoteSessionId::random(), workspace(), "u", 1000);
    let ticket = remote.sign(&ring);
    assert_eq!(RemoteClaims::verify(&ticket, &ring, 1090), Ok(remote));
    assert_eq!(
        RemoteClaims::verify(&ticket, &ring, 1121),
        Err(TicketFault::Expired)
    );
    assert_eq!(
        AttachClaims::verify(&ticket, &ring, 1000),
        Err(TicketFault::Malformed)
    );
    assert_eq!(
        RemoteClaims::verify(&claims().sign(&ring), &ring, 1000),
        Err(TicketFault::Malformed)
    );
}
