//! The words of a session's life: phase, verdict, and why a transcript is not whole.

use serde::{Deserialize, Serialize};

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $word)] $variant),+
        }

        impl $name {
            /// Every value, in the contract's order.
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            /// The word on the wire and in the database.
            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::ids::InvalidId;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                match text { $($word => Ok($name::$variant),)+ _ => Err($crate::ids::InvalidId { kind: stringify!($name) }) }
            }
        }
    };
}
pub(crate) use words;

words! {
    /// Who a session works for: a person who reads along, or a workflow.
    SessionKind {
        /// A person talks to it.
        Interactive = "interactive",
        /// A workflow started it; it always has a `workflowId`.
        Autonomous = "autonomous",
    }
}

words! {
    /// Where a session stands. Phase tells the outcome; the verdict tells the transcript.
    ///
    /// ```text
    ///   creating ──┐                 ┌─▶ completed ─┐
    ///              ├─▶ running ──────┤              ├─▶ running (live idle driver)
    /// redispatching┘      │          └─▶ failed ────┘─▶ redispatching (no driver)
    ///      └──────────────┴─▶ failed (provisioning)
    ///   any active ─▶ canceling ─▶ canceled
    /// ```
    Phase {
        /// The first sandbox is being made.
        Creating = "creating",
        /// A fresh sandbox is being made for a later turn.
        Redispatching = "redispatching",
        /// A turn is being spoken.
        Running = "running",
        /// Cancel was asked for; the Completer harvests first.
        Canceling = "canceling",
        /// The last turn succeeded or was stopped.
        Completed = "completed",
        /// The last turn failed, or was never spoken.
        Failed = "failed",
        /// Canceled for good; takes no further turn.
        Canceled = "canceled",
    }
}

impl Phase {
    /// Phases the Completer or the dispatcher still works on.
    pub const ACTIVE: &'static [Phase] = &[
        Phase::Creating,
        Phase::Redispatching,
        Phase::Running,
        Phase::Canceling,
    ];

    /// No turn is open in a terminal session.
    pub fn is_terminal(self) -> bool {
        !Self::ACTIVE.contains(&self)
    }

    /// The transition table of the contract; everything else is refused.
    pub fn may_become(self, next: Phase) -> bool {
        use Phase::{Canceled, Canceling, Completed, Creating, Failed, Redispatching, Running};
        matches!(
            (self, next),
            (Creating | Redispatching, Running | Failed)
                | (Running, Completed | Failed)
                | (Completed | Failed, Running | Redispatching)
                | (Creating | Redispatching | Running, Canceling)
                | (Canceling, Canceled)
        )
    }
}

words! {
    /// What is known about a turn's transcript. `complete` never changes again.
    Verdict {
        /// Not settled yet.
        Open = "open",
        /// Count and digest of the stored bytes equal what the driver declared.
        Complete = "complete",
        /// Something is missing; the reason says what.
        Truncated = "truncated",
    }
}

words! {
    /// Why a turn is truncated.
    TruncationReason {
        /// The sandbox ended before the turn did.
        SandboxLost = "sandbox_lost",
        /// The driver's log could not be read.
        LogUnreadable = "log_unreadable",
        /// The driver's log was full and dropped parts.
        LogTruncated = "log_truncated",
        /// The stored bytes are not the bytes the driver declared.
        DigestMismatch = "digest_mismatch",
        /// The session's transcript quota was reached in this turn.
        SessionQuota = "session_quota",
        /// A part could not be stored as it was.
        PartUnstorable = "part_unstorable",
        /// The store refused or lost parts.
        StoreFailed = "store_failed",
        /// The sandbox could not be made.
        ProvisioningFailed = "provisioning_failed",
        /// The turn was silent for too long and was ended by the server.
        TurnDeadline = "turn_deadline",
        /// An older driver cannot prove what it said.
        LegacyUnproved = "legacy_unproved",
        /// Parts were deleted by law.
        LegalDelete = "legal_delete",
    }
}

impl TruncationReason {
    /// The sentence shown to people.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::SandboxLost => "The sandbox ended before the agent finished.",
            Self::LogUnreadable => "The agent's log could not be read.",
            Self::LogTruncated => "The agent said more than its log can hold.",
            Self::DigestMismatch => "The stored transcript differs from what the agent declared.",
            Self::SessionQuota => "The session's transcript quota is used up.",
            Self::PartUnstorable => "A part of the answer could not be stored.",
            Self::StoreFailed => "A part of the answer was not stored.",
            Self::ProvisioningFailed => "The sandbox could not be started.",
            Self::TurnDeadline => "The agent was silent for too long and was stopped.",
            Self::LegacyUnproved => "This agent version cannot prove that its transcript is whole.",
            Self::LegalDelete => "A part of the transcript was deleted for legal reasons.",
        }
    }

    /// Whether the turn can become complete later, when its missing parts arrive.
    pub fn may_heal(self, turn_end_known: bool) -> bool {
        turn_end_known
            && matches!(
                self,
                Self::SessionQuota | Self::LogTruncated | Self::LogUnreadable | Self::StoreFailed
            )
    }
}

words! {
    /// Why a session failed. Where a turn's transcript tells the same, the word is the same.
    FailureReason {
        /// The agent ended its turn with an error.
        AgentFailed = "agent_failed",
        /// The sandbox ended before the turn did.
        SandboxLost = "sandbox_lost",
        /// The driver's log could not be read.
        LogUnreadable = "log_unreadable",
        /// The store refused parts.
        StoreFailed = "store_failed",
        /// The turn was silent for too long.
        TurnDeadline = "turn_deadline",
        /// No sandbox could be made in time.
        ProvisioningFailed = "provisioning_failed",
        /// No sandbox of this kind can ever be made here.
        SandboxImpossible = "sandbox_impossible",
        /// The profile was taken away or changed.
        ProfileUnknown = "profile_unknown",
        /// A secret has no value.
        SecretMissing = "secret_missing",
        /// The cluster has no namespace for the workspace's sandboxes.
        NamespaceMissing = "namespace_missing",
        /// The namespace's quota is used up.
        QuotaExceeded = "quota_exceeded",
        /// The sandbox's image cannot be pulled.
        ImageUnavailable = "image_unavailable",
        /// No node of the cluster has room.
        ClusterFull = "cluster_full",
        /// The cluster's rules do not allow the sandbox.
        SandboxRefused = "sandbox_refused",
    }
}

impl FailureReason {
    /// The sentence shown to people.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::AgentFailed => "The agent failed.",
            Self::SandboxLost => TruncationReason::SandboxLost.sentence(),
            Self::LogUnreadable => TruncationReason::LogUnreadable.sentence(),
            Self::StoreFailed => TruncationReason::StoreFailed.sentence(),
            Self::TurnDeadline => TruncationReason::TurnDeadline.sentence(),
            Self::ProvisioningFailed => TruncationReason::ProvisioningFailed.sentence(),
            Self::SandboxImpossible => "A sandbox for this agent cannot be made here.",
            Self::ProfileUnknown => "The agent profile is no longer allowed here.",
            Self::SecretMissing => "A secret that the session names has no value here.",
            Self::NamespaceMissing => {
                "The cluster has no namespace for this workspace's sandboxes."
            }
            Self::QuotaExceeded => "This workspace's quota of sandboxes in the cluster is used up.",
            Self::ImageUnavailable => "The sandbox's image cannot be pulled.",
            Self::ClusterFull => "The cluster has no room for the sandbox.",
            Self::SandboxRefused => "The cluster does not allow the sandbox.",
        }
    }

    /// Whether another turn may succeed as things are; otherwise an operator must change something first.
    pub fn is_retryable(self) -> bool {
        match self {
            Self::AgentFailed
            | Self::SandboxLost
            | Self::LogUnreadable
            | Self::StoreFailed
            | Self::TurnDeadline
            | Self::ProvisioningFailed
            | Self::QuotaExceeded
            | Self::ClusterFull => true,
            Self::SandboxImpossible
            | Self::ProfileUnknown
            | Self::SecretMissing
            | Self::NamespaceMissing
            | Self::ImageUnavailable
            | Self::SandboxRefused => false,
        }
    }
}

words! {
    /// Who ended a turn; stands beside the verdict and never hides it.
    EndedBy {
        /// The agent came to its end.
        Agent = "agent",
        /// A person stopped the turn.
        Stopped = "stopped",
        /// The session was canceled.
        Canceled = "canceled",
        /// The server's deadline.
        Deadline = "deadline",
        /// The sandbox was lost.
        Lost = "lost",
    }
}

words! {
    /// How a turn reached its driver.
    DeliveryMode {
        /// Not delivered yet.
        Pending = "pending",
        /// A sandbox was made for it.
        Fresh = "fresh",
        /// A live idle driver took it.
        Live = "live",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_transition_table_is_the_contract() {
        let mut allowed = Vec::new();
        for from in Phase::ALL {
            for to in Phase::ALL {
                if from.may_become(*to) {
                    allowed.push(format!("{from}>{to}"));
                }
            }
        }
        assert_eq!(
            allowed.join(" "),
            "creating>running creating>canceling creating>failed redispatching>running redispatching>canceling \
             redispatching>failed running>canceling running>completed running>failed canceling>canceled \
             completed>redispatching completed>running failed>redispatching failed>running"
        );
    }

    #[test]
    fn words_parse_back() {
        for reason in TruncationReason::ALL {
            assert_eq!(reason.as_str().parse(), Ok(*reason));
            assert!(!reason.sentence().is_empty());
        }
        assert!("Complete".parse::<Verdict>().is_err());
    }

    #[test]
    fn a_failure_that_a_transcript_tells_too_has_its_word() {
        let shared: Vec<_> = FailureReason::ALL
            .iter()
            .filter_map(|failure| {
                failure
                    .as_str()
                    .parse::<TruncationReason>()
                    .ok()
                    .zip(Some(*failure))
            })
            .collect();
        assert_eq!(shared.len(), 5);
        for (reason, failure) in shared {
            assert_eq!(reason.sentence(), failure.sentence());
        }
        assert!(
            FailureReason::ALL
                .iter()
                .all(|f| f.sentence().ends_with('.'))
        );
    }

    #[test]
    fn only_four_reasons_heal_and_only_with_a_turn_end() {
        let healing: Vec<_> = TruncationReason::ALL
            .iter()
            .filter(|r| r.may_heal(true))
            .map(|r| r.as_str())
            .collect();
        assert_eq!(
            healing,
            [
                "log_unreadable",
                "log_truncated",
                "session_quota",
                "store_failed"
            ]
        );
        assert!(TruncationReason::ALL.iter().all(|r| !r.may_heal(false)));
    }
}
