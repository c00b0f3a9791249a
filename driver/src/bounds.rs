//! The driver's own bounds, beside those of the contract in [`bex_proto::limits`].

use std::time::Duration;

/// Connections at once. The one gateway of a session needs two; a probe and a few reconnects fit in besides.
pub const CONNECTIONS: usize = 256;
/// Time for a request's head.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for a request's body.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes one step of a stream takes from memory or log before it writes; one part at least.
pub const STREAM_STEP_BYTES: usize = 64 * 1024;
/// Log bytes one step of a stream looks at in its search for parts.
pub const LOG_STEP_BYTES: u64 = 1024 * 1024;
/// Grants remembered as used. They live for seconds, so this is far over what one gateway sends.
pub const SPENT_GRANTS: usize = 65_536;
/// From `session/cancel` or SIGTERM to SIGKILL of an agent that is asked to stop.
pub const STOP_GRACE: Duration = Duration::from_secs(5);
/// How long a program's pipes are read after it ended; a forgotten child may hold them open.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// How long an ended agent's standard error is read to its end: less than [`DRAIN_TIMEOUT`], which bounds the whole look at its end.
pub const LAST_WORDS_TIMEOUT: Duration = Duration::from_secs(1);
/// How long SIGTERM waits for the running turn to be ended.
pub const TERMINATE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time to overwrite a turn's credential files: half of what SIGTERM leaves.
pub const SCRUB_TIMEOUT: Duration = Duration::from_secs(5);
/// So much of a credential file is overwritten before it is cut to nothing; a longer one is no credential.
pub const SCRUB_BYTES: u64 = 16 * 1024 * 1024;
/// How often a turn's last line is tried again when the disk takes nothing.
pub const END_AGAIN: Duration = Duration::from_secs(1);
/// How long it is tried: by then the server has ended the turn itself.
pub const END_PATIENCE: Duration = bex_proto::limits::TURN_DEADLINE;
/// A program's line is passed on in pieces of at most this many bytes.
pub const LINE_PIECE_BYTES: usize = 64 * 1024;
/// Messages of an agent waiting for the sink; then the agent waits.
pub const AGENT_QUEUE: usize = 64;
/// Bytes of an ACP agent's messages waiting for the sink: one of the longest, or many small ones.
pub const AGENT_QUEUE_BYTES: usize = AGENT_MESSAGE_BYTES as usize;
/// Bytes of text, output and names remembered of a turn's tool calls. Beyond, all calls but the one at hand start anew.
pub const TOOL_BYTES: usize = 64 * 1024 * 1024;
/// Time for an agent to start and to open its session.
pub const AGENT_START_TIMEOUT: Duration = Duration::from_secs(120);
/// How often the status says that a turn goes on, at most: many times in a turn's deadline.
pub const STATUS_EVERY: Duration = Duration::from_secs(60);
/// How often the sandbox's memory is looked at while a turn runs: what is allocated meanwhile has to fit into the last tenth of the limit.
pub const MEMORY_EVERY: Duration = Duration::from_millis(100);
/// How often between turns, when an agent should do nothing: hundreds of idle sandboxes may share a machine.
pub const MEMORY_IDLE_EVERY: Duration = Duration::from_secs(2);
/// An error text in status and in an error part.
pub const ERROR_BYTES: usize = 4 * 1024;
/// A file an agent reads or writes through the driver.
pub const AGENT_FILE_BYTES: u64 = 16 * 1024 * 1024;
/// First line of a log, when only its identity is wanted.
pub const FIRST_LINE_BYTES: usize = 4 * 1024;
/// One message of an ACP agent: an image or a whole file may be in it. A longer one is skipped.
pub const AGENT_MESSAGE_BYTES: u64 = 32 * 1024 * 1024;
/// The end of an agent's standard error that is kept for the error text.
pub const AGENT_STDERR_BYTES: usize = 2 * 1024;
