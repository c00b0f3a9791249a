//! Executions of workflows: what their engine reports of them.

use serde::{Deserialize, Serialize};

use crate::session::words;

words! {
    /// Where an execution stands. It moves forward only.
    ///
    /// ```text
    /// running ─▶ completed | failed | canceled
    /// ```
    ExecutionStatus {
        /// It is at work.
        Running = "running",
        /// Its work is done.
        Completed = "completed",
        /// It failed.
        Failed = "failed",
        /// Somebody ended it.
        Canceled = "canceled",
    }
}

impl ExecutionStatus {
    /// Whether nothing changes any more.
    pub fn is_terminal(self) -> bool {
        self != Self::Running
    }
}

words! {
    /// Where a node of an execution stands. It moves forward only.
    ///
    /// ```text
    /// pending ─▶ running ─▶ completed | failed | skipped | canceled      pending ─▶ each of the last four
    /// ```
    NodeStatus {
        /// It waits for others.
        Pending = "pending",
        /// It is at work.
        Running = "running",
        /// Its work is done.
        Completed = "completed",
        /// It failed.
        Failed = "failed",
        /// It was not needed.
        Skipped = "skipped",
        /// Somebody ended it.
        Canceled = "canceled",
    }
}

impl NodeStatus {
    /// How far it has come; what is over is over.
    pub fn stage(self) -> u8 {
        match self {
            Self::Pending => 0,
            Self::Running => 1,
            Self::Completed | Self::Failed | Self::Skipped | Self::Canceled => 2,
        }
    }
}

words! {
    /// Whether rules decide, or only say what they would have decided.
    GovernanceMode {
        /// They decide.
        On = "on",
        /// They only say.
        Shadow = "shadow",
        /// There are none.
        Off = "off",
    }
}

words! {
    /// What has versions. A version never changes.
    ConfigKind {
        /// A workflow.
        Workflow = "workflow",
        /// How a workflow was to be executed.
        ExecSpec = "exec_spec",
        /// Which models, under a scope's name.
        ModelConfig = "model_config",
        /// An agent's configuration.
        AgentConfig = "agent_config",
    }
}

words! {
    /// Which kind of session an execution names.
    NamedSession {
        /// `ags-…`
        Agent = "agent",
        /// `rms-…`
        Remote = "remote",
    }
}
