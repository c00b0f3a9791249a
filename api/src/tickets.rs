//! Minting attach tickets: what a browser shows the gateway. Single use, 90 seconds, one session, one action.

use bex_proto::ticket::{AttachAction, AttachClaims, KeyRing, RemoteClaims, random_jti};
use bex_proto::{Generation, RemoteSessionId, SessionId, TurnNo, WorkspaceId, limits};
use bex_store::sandboxes::{SandboxRow, SandboxState};
use jiff::Timestamp;

/// What a ticket points at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Only what is stored; the gateway never dials.
    ReplayOnly,
    /// The sandbox is still being made: the gateway finds it by the session's rows.
    Unbound,
    /// This sandbox.
    Sandbox {
        /// Its life.
        generation: Generation,
        /// Its namespace.
        namespace: String,
        /// Its name.
        pod: String,
        /// Its identity.
        pod_uid: String,
    },
}

impl Target {
    /// The sandbox if it can be dialled, else none: the gateway waits for one.
    pub fn of(sandbox: Option<SandboxRow>) -> Self {
        match sandbox {
            Some(SandboxRow {
                state: SandboxState::Turn | SandboxState::Idle,
                ready_at: Some(_),
                pod_uid: Some(pod_uid),
                generation,
                namespace,
                pod,
                ..
            }) => Self::Sandbox {
                generation,
                namespace,
                pod,
                pod_uid,
            },
            _ => Self::Unbound,
        }
    }
}

/// A request for a ticket, already authorised.
#[derive(Debug)]
pub struct Grant<'a> {
    /// Who attaches.
    pub subject: &'a str,
    /// To what.
    pub session: &'a SessionId,
    /// Its workspace, from the row.
    pub workspace: &'a WorkspaceId,
    /// What for.
    pub action: AttachAction,
    /// The turn, for [`AttachAction::Turn`].
    pub turn: Option<TurnNo>,
    /// Where to.
    pub target: Target,
}

/// A ticket and where to show it.
#[derive(Clone)]
pub struct AttachTicket {
    /// The signed ticket.
    pub ticket: String,
    /// The stream's address.
    pub stream_url: String,
    /// When it expires.
    pub expires_at: Timestamp,
    /// Whether the stream ends where the store ends.
    pub replay_only: bool,
}

impl std::fmt::Debug for AttachTicket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AttachTicket")
            .field("stream_url", &self.stream_url)
            .finish_non_exhaustive()
    }
}

/// Signs attach tickets.
#[derive(Debug, Clone)]
pub struct AttachTickets {
    ring: KeyRing,
    public_url: String,
}

impl AttachTickets {
    /// Signs with the ring's first key for streams below `public_url` (no slash at its end).
    pub fn new(ring: KeyRing, public_url: String) -> Self {
        Self { ring, public_url }
    }

    /// A fresh ticket for a remote session's stream, valid from `now`.
    pub fn mint_remote(
        &self,
        subject: &str,
        session: &RemoteSessionId,
        workspace: &WorkspaceId,
        now: Timestamp,
    ) -> AttachTicket {
        let claims = RemoteClaims::to_read(session, workspace.clone(), subject, now.as_second());
        AttachTicket {
            ticket: claims.sign(&self.ring),
            stream_url: format!("{}/v1/agent-sessions/{session}/stream", self.public_url),
            expires_at: Timestamp::from_second(claims.exp).unwrap_or(Timestamp::MAX),
            replay_only: false,
        }
    }

    /// A fresh ticket, valid from `now`.
    pub fn mint(&self, grant: Grant<'_>, now: Timestamp) -> AttachTicket {
        let issued = now.as_second();
        let expires = issued.saturating_add_unsigned(limits::ATTACH_TICKET_TTL.as_secs());
        let replay_only = grant.target == Target::ReplayOnly;
        let (generation, ns, pod, pod_uid) = match grant.target {
            Target::ReplayOnly | Target::Unbound => (None, None, None, None),
            Target::Sandbox {
                generation,
                namespace,
                pod,
                pod_uid,
            } => (Some(generation), Some(namespace), Some(pod), Some(pod_uid)),
        };
        let claims = AttachClaims {
            sub: grant.subject.to_owned(),
            ses: grant.session.clone(),
            ws: grant.workspace.clone(),
            act: grant.action,
            trn: grant.turn,
            rpo: replay_only,
            generation,
            pod,
            pod_uid,
            ns,
            iat: issued,
            exp: expires,
            jti: random_jti(),
        };
        AttachTicket {
            ticket: claims.sign(&self.ring),
            stream_url: format!(
                "{}/v1/agent-sessions/{}/stream",
                self.public_url, grant.session
            ),
            expires_at: Timestamp::from_second(expires).unwrap_or(Timestamp::MAX),
            replay_only,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_minted_verifies_and_says_its_target() {
        let ring = KeyRing::parse(&format!("k:{}", "ab".repeat(32))).expect("a ring");
        let tickets = AttachTickets::new(ring.clone(), "https://stream.example".into());
        let session = SessionId::random();
        let workspace = "demo".parse().expect("an id");
        let now = Timestamp::from_second(1_000_000).expect("a time");
        let mint = |target| {
            let grant = Grant {
                subject: "u",
                session: &session,
                workspace: &workspace,
                action: AttachAction::Turn,
                turn: Some(TurnNo(2)),
                target,
            };
            let ticket = tickets.mint(grant, now);
            let claims =
                AttachClaims::verify(&ticket.ticket, &ring, 1_000_000).expect("it verifies");
            (ticket, claims)
        };
        let sandbox = Target::Sandbox {
            generation: Generation(3),
            namespace: "n".into(),
            pod: "p".into(),
            pod_uid: "u".into(),
        };
        let (ticket, claims) = mint(sandbox);
        assert_eq!(
            ticket.stream_url,
            format!("https://stream.example/v1/agent-sessions/{session}/stream")
        );
        assert_eq!(ticket.expires_at.as_second(), 1_000_090);
        assert_eq!(
            (claims.generation, claims.pod.as_deref()),
            (Some(Generation(3)), Some("p"))
        );
        assert!(!ticket.replay_only && !claims.rpo);
        let (ticket, claims) = mint(Target::ReplayOnly);
        assert!(ticket.replay_only && claims.rpo && claims.pod.is_none());
        let (ticket, claims) = mint(Target::Unbound);
        assert!(!ticket.replay_only && !claims.rpo && claims.pod.is_none());
        assert!(!format!("{ticket:?}").contains(&ticket.ticket));
    }
}
