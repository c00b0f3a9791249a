//! Tickets that the api would not give: of other subjects, or to post for a turn that is over.

use bex_proto::SessionId;
use bex_proto::TurnNo;
use bex_proto::ticket::{AttachAction, AttachClaims, random_jti};
use bex_tests::Stack;
use bex_tests::stack::{WORKSPACE, ring};

fn claims(session: &SessionId, subject: &str) -> AttachClaims {
    let now = jiff::Timestamp::now().as_second();
    AttachClaims {
        sub: subject.to_owned(),
        ses: session.clone(),
        ws: WORKSPACE.parse().unwrap(),
        act: AttachAction::Read,
        trn: None,
        rpo: false,
        generation: None,
        pod: None,
        pod_uid: None,
        ns: None,
        iat: now,
        exp: now + 90,
        jti: random_jti(),
    }
}

/// To read, for any subject: one alone may not open many streams.
pub(crate) fn to_read(stack: &Stack, session: &SessionId, subject: &str) -> String {
    claims(session, subject).sign(&ring(&stack.keys.attach))
}

/// To post for a session's first turn, also when that is settled.
pub(crate) fn to_post(stack: &Stack, session: &SessionId) -> String {
    let claims = AttachClaims {
        act: AttachAction::Turn,
        trn: Some(TurnNo(1)),
        ..claims(session, "svc:operator")
    };
    claims.sign(&ring(&stack.keys.attach))
}
