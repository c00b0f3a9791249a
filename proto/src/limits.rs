//! Every number of the contract, once, with its reason.

use std::time::Duration;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

// --- parts, turns, sessions

/// The largest part. A browser's page copies the whole message per chunk, and a row this size still pages well.
pub const PART_BYTES: usize = MIB;
/// What one part costs of its session's quota beside its bytes: the row's own overhead.
pub const PART_CHARGE: usize = 64;
/// Transcript bytes of one session, charges included. Bounds a replay.
pub const SESSION_BYTES: u64 = 64 * MIB as u64;
/// Parts of one session.
pub const SESSION_PARTS: u32 = 200_000;
/// Texts, and reasonings, that are open at once in what a viewer is shown; agents have a few. One more closes the oldest.
pub const OPEN_RUNS: usize = 256;
/// Tool calls without output that a viewer's stream remembers; agents make tens a turn. The oldest is forgotten, and answered.
pub const KNOWN_CALLS: usize = 1024;
/// Of those that ended, the last; every viewer remembers them for itself.
pub const ENDED_CALLS: usize = 400;
/// The id of a text or call. A chunk whose id is longer belongs to nothing; viewers keep the ids of what is open.
pub const CHUNK_ID_BYTES: usize = 1024;
/// One prompt.
pub const PROMPT_BYTES: usize = 100_000;
/// All prompts of one session.
pub const SESSION_PROMPT_BYTES: usize = 8 * MIB;

// --- driver

/// The driver's log of one turn. One harvest reads it whole.
pub const TURN_LOG_BYTES: u64 = 16 * MIB as u64;
/// Kept free in the log for the `dropped` and `turn-end` records.
pub const TURN_LOG_RESERVE: u64 = 4 * KIB as u64;
/// status.json.
pub const STATUS_BYTES: usize = 256 * KIB;
/// What a driver keeps of its current turn in memory; older parts are read from its log.
pub const DRIVER_TAIL_BYTES: usize = 4 * MIB;
/// See [`DRIVER_TAIL_BYTES`].
pub const DRIVER_TAIL_PARTS: usize = 4096;
/// POST /turn at the driver: prompt and priming.
pub const DRIVER_TURN_BODY: usize = 2 * MIB;
/// The port a driver listens on inside a sandbox.
pub const DRIVER_PORT: u16 = 8787;
/// Life of one driver grant.
pub const GRANT_TTL: Duration = Duration::from_secs(15);
/// How far driver and gateway clocks may differ.
pub const GRANT_SKEW: Duration = Duration::from_secs(5);
/// SIGTERM to SIGKILL of a sandbox; the driver serves its log for that long.
pub const SANDBOX_GRACE: Duration = Duration::from_secs(60);
/// SSE field lines beside `data:` that one event may have; more is not an event stream.
pub const SSE_FIELD_BYTES: usize = 4 * KIB;
/// One SSE event of a driver: a part, its id and framing. A longer event is skipped and reported, never buffered.
pub const SSE_EVENT_BYTES: usize = PART_BYTES + SSE_FIELD_BYTES;

// --- exec

/// Log bytes of one harvest window.
pub const HARVEST_BYTES: u64 = 16 * MIB as u64;
/// A whole observe or read-transcript answer.
pub const HARVEST_ANSWER_BYTES: u64 = 17 * MIB as u64;
/// Log bytes that a reader takes without a window of its own: what a tick finds of a turn that is being spoken.
pub const HARVEST_SMALL_BYTES: u64 = MIB as u64;
/// Whole windows that one process holds at once, whatever it harvests: who needs one more waits. Each is an answer and, where it was cut,
/// what continues it.
pub const HARVEST_WINDOWS: usize = 8;
/// Output of a user's command; then `output_limit`.
pub const RUN_OUTPUT_BYTES: u64 = 2 * MIB as u64;
/// One exec frame's payload. Writers split; a longer one is refused by readers.
pub const EXEC_FRAME_BYTES: usize = 64 * KIB;
/// Request body of the exec listener (a user's stdin, a prompt's priming).
pub const EXEC_REQUEST_BYTES: usize = 2 * MIB;
/// Time for observe and read-transcript.
pub const EXEC_READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for a user's command.
pub const EXEC_RUN_TIMEOUT: Duration = Duration::from_secs(600);
/// Time for turn and stop at the driver.
pub const DRIVER_CALL_TIMEOUT: Duration = Duration::from_secs(10);

// --- tee

/// Parts of one batch.
pub const TEE_BATCH_PARTS: usize = 32;
/// Bytes of one batch. A part that would exceed it begins the next batch.
pub const TEE_BATCH_BYTES: usize = MIB;
/// The longest a lone part waits for company.
pub const TEE_BATCH_AGE: Duration = Duration::from_millis(100);
/// Batches waiting for the store.
pub const TEE_QUEUE_SLOTS: usize = 32;
/// Bytes waiting for the store, the batch being appended included.
pub const TEE_OUTSTANDING_BYTES: usize = 2 * MIB;
/// One append, independent of any request.
pub const TEE_APPEND_TIMEOUT: Duration = Duration::from_secs(5);
/// How long the tee may be unable to keep up before it stops for its turn.
pub const TEE_STALL: Duration = Duration::from_secs(5);

// --- attach

/// The tail viewers share.
pub const TAIL_BYTES: usize = 4 * MIB;
/// See [`TAIL_BYTES`].
pub const TAIL_PARTS: usize = 4096;
/// Quiet time after which a comment is sent: below the 30 s idle cut of common proxies.
pub const HEARTBEAT: Duration = Duration::from_secs(15);
/// A write that makes no progress for this long ends its viewer.
pub const WRITE_STALL: Duration = Duration::from_secs(30);
/// The longest one stream lives.
pub const STREAM_CEILING: Duration = Duration::from_secs(4 * 3600);
/// After the driver's end: time in all for tee flush and settle before the viewer is told `open`.
pub const END_WAIT: Duration = Duration::from_secs(5);
/// How long a viewer waits for a part that is in neither tail nor store.
pub const HOLE_WAIT: Duration = Duration::from_secs(30);
/// How long a lost source is re-dialled before viewers are told.
pub const SOURCE_RETRY: Duration = Duration::from_secs(30);
/// How long a stream waits for a sandbox that is being made.
pub const SANDBOX_WAIT: Duration = Duration::from_secs(15 * 60);
/// All replay pages of one process.
pub const REPLAY_BUDGET_BYTES: usize = 64 * MIB;
/// The unit in which the replay budget is given out; a page takes as many as it has bytes for.
pub const REPLAY_PERMIT_BYTES: usize = 256 * KIB;
/// Parts of one replay page.
pub const REPLAY_PAGE_PARTS: usize = 1000;
/// What folding a replay may hold back.
pub const COMPACT_BYTES: usize = 2 * MIB;
/// Streams of one process.
pub const STREAMS_PER_PROCESS: usize = 10_000;
/// Streams of one subject in one process.
pub const STREAMS_PER_SUBJECT: usize = 50;
/// Body of POST …/stream.
pub const STREAM_POST_BODY: usize = 256 * KIB;
/// How often a running stream's authorisation is checked again.
pub const REAUTHORIZE: Duration = Duration::from_secs(60);
/// Time for an SQL statement on the admission path.
pub const ADMISSION_TIMEOUT: Duration = Duration::from_secs(2);

// --- tickets

/// Life of an attach ticket: a page load and one redirect.
pub const ATTACH_TICKET_TTL: Duration = Duration::from_secs(90);
/// Life of an exec ticket.
pub const EXEC_TICKET_TTL: Duration = Duration::from_secs(60);
/// Clock skew allowed on iat and exp.
pub const TICKET_SKEW: Duration = Duration::from_secs(30);
/// A ticket in a header.
pub const TICKET_BYTES: usize = 4 * KIB;

// --- api

/// Request bodies.
pub const API_BODY: usize = MIB;
/// Items of one list page.
pub const LIST_LIMIT: u32 = 200;
/// Items of a list page when nothing is asked for.
pub const LIST_DEFAULT: u32 = 50;
/// Words that a list may be asked for at once.
pub const LIST_WORDS: usize = 8;
/// Bytes of them.
pub const LIST_WORDS_BYTES: usize = 256;
/// Sessions whose texts are looked at for one page: so that words which stand nowhere cost no more than others.
pub const LIST_WORDS_SESSIONS: u32 = 2000;
/// Characters of a prompt that are looked at.
pub const LIST_WORDS_PROMPT: u32 = 8192;
/// Parts of one feed page.
pub const FEED_LIMIT: u32 = 1000;
/// Parts of a feed page when nothing is asked for.
pub const FEED_DEFAULT: u32 = 200;
/// Bytes of one feed page; one part at least.
pub const FEED_PAGE_BYTES: usize = 4 * MIB;
/// Live sessions of one workspace.
pub const LIVE_SESSIONS: u32 = 100;
/// How long the turns verb waits for a settle before it answers `turn_in_flight`.
pub const TURN_VERB_WAIT: Duration = Duration::from_secs(10);
/// Header `Idempotency-Key`.
pub const IDEMPOTENCY_KEY_BYTES: usize = 255;
/// How long an idempotency key is remembered.
pub const IDEMPOTENCY_TTL: Duration = Duration::from_secs(24 * 3600);

/// A session's title.
pub const TITLE_BYTES: usize = 512;
/// A repository's URL; what browsers and git servers still take.
pub const REPO_BYTES: usize = 2048;
/// A branch's name.
pub const BRANCH_BYTES: usize = 255;
/// Other words of a request: profile, model, workflow id, an environment variable's name.
pub const WORD_BYTES: usize = 255;
/// A secretRef: a Kubernetes name and key fit.
pub const SECRET_REF_BYTES: usize = 253;
/// Environment variables of one session.
pub const AGENT_ENV: usize = 64;
/// Credential files of one profile: overwriting them is the last thing in a turn.
pub const CREDENTIAL_FILES: usize = 16;
/// The path of one.
pub const CREDENTIAL_PATH_BYTES: usize = 255;
/// Arguments of one command.
pub const ARGV_WORDS: usize = 256;
/// All bytes of one command's arguments: half of what Linux passes to one program.
pub const ARGV_BYTES: usize = 64 * KIB;
/// Turns shown with a single session: the newest ones.
pub const SESSION_TURNS_SHOWN: u32 = 1000;
/// Requests one api process works on at once; more are refused, not queued.
pub const API_IN_FLIGHT: usize = 512;
/// Until an answer's head: the turns verb's wait and the store's own limits fit in.
pub const API_TIMEOUT: Duration = Duration::from_secs(40);
/// Connections of one api process.
pub const API_CONNECTIONS: usize = 4096;
/// Until a request's head is complete.
pub const API_HEADER_TIMEOUT: Duration = Duration::from_secs(15);
/// Open requests of a process that shuts down; below the 25 s in which it must be gone.
pub const API_DRAIN: Duration = Duration::from_secs(15);

// --- executions

/// Findings or usage entries of one POST: a batch is one transaction of a second at most.
pub const RECORD_BATCH: usize = 1000;
/// Nodes of one execution: what a person can still look through, and a package can hold.
pub const EXECUTION_NODES: u32 = 10_000;
/// Sessions of one execution.
pub const EXECUTION_SESSIONS: u32 = 1000;
/// How deep recorded JSON may be nested: parsers stop at 128, and a package nests it further.
pub const RECORD_DEPTH: usize = 64;
/// Why an execution or a node failed, in its engine's words.
pub const RECORD_ERROR_BYTES: usize = 64 * KIB;
/// Usage of an execution or a node, as JSON.
pub const RECORD_USAGE_BYTES: usize = 16 * KIB;
/// The largest count that JSON numbers hold exactly.
pub const RECORD_COUNT: u64 = (1 << 53) - 1;
/// Bodies of one page of nodes or findings; one row at least.
pub const RECORD_PAGE_BYTES: usize = 4 * MIB;

// --- notices

/// How often a LISTEN connection proves itself by a notification to itself.
pub const LISTEN_PROOF: Duration = Duration::from_secs(5);
/// How often changes are polled where there is no LISTEN connection.
pub const CHANGES_POLL: Duration = Duration::from_secs(1);

// --- completer and dispatcher

/// The Completer's tick.
pub const COMPLETER_TICK: Duration = Duration::from_secs(15);
/// The tick of a session that has been silent for [`COMPLETER_SILENT_AFTER`].
pub const COMPLETER_SLOW_TICK: Duration = Duration::from_secs(60);
/// See [`COMPLETER_SLOW_TICK`].
pub const COMPLETER_SILENT_AFTER: Duration = Duration::from_secs(5 * 60);
/// Sessions one Completer works on at once, beside those that keep it waiting.
pub const COMPLETER_PARALLEL: usize = 8;
/// A completer's or dispatcher's lease on one session, renewed at a third: how long the work of a process that died waits.
pub const LEASE: Duration = Duration::from_secs(20);
/// How long a status may be unreadable before the sandbox counts as lost.
pub const STATUS_UNREADABLE: Duration = Duration::from_secs(120);
/// A turn without a new part for this long is ended by the server.
pub const TURN_DEADLINE: Duration = Duration::from_secs(30 * 60);
/// An idle sandbox lives this long after its last settle or read ticket.
pub const IDLE_GRACE: Duration = Duration::from_secs(30 * 60);
/// However often it is read: an idle sandbox lives no longer than this after its last settle.
pub const IDLE_MAX: Duration = Duration::from_secs(4 * 3600);
/// Cancel harvests first, this long at most.
pub const CANCEL_HARVEST: Duration = Duration::from_secs(60);
/// Parts of one harvest append.
pub const HARVEST_BATCH_PARTS: usize = 1000;
/// Bytes of one harvest append, so that a tee never waits long for the head.
pub const HARVEST_BATCH_BYTES: usize = MIB;
/// Making one sandbox.
pub const PROVISION_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// First and last delay between teardown attempts.
pub const TEARDOWN_BACKOFF: (Duration, Duration) =
    (Duration::from_secs(60), Duration::from_secs(3600));

// --- remote sessions

/// One POST of output.
pub const REMOTE_BODY: usize = 8 * MIB;
/// One line of a command's output, and one event. A longer line stays in the log and is no message.
pub const REMOTE_LINE_BYTES: usize = MIB;
/// Events of one POST.
pub const REMOTE_BATCH_EVENTS: usize = 20_000;
/// What one event costs of its session's log beside its bytes: the row's own overhead.
pub const REMOTE_EVENT_CHARGE: usize = 64;
/// One session's log, charges included.
pub const REMOTE_LOG_BYTES: u64 = 256 * MIB as u64;
/// How far ahead of the first missing event another may be.
pub const REMOTE_WINDOW: u64 = 10_000;
/// How long a missing event is waited for.
pub const REMOTE_GAP_WAIT: Duration = Duration::from_secs(30);
/// The same once a later event says that the command ended: what was sent beside it is on its way.
pub const REMOTE_GAP_LAST_WAIT: Duration = Duration::from_secs(2);
/// Gaps of one session; more end it with an error.
pub const REMOTE_GAPS: usize = 1000;
/// Log bytes of one session that no turn was built from yet; then its machine waits.
pub const REMOTE_BACKLOG_BYTES: u64 = 32 * MIB as u64;
/// When a machine that was sent away comes back, seconds.
pub const REMOTE_RETRY_SECONDS: u32 = 2;
/// Events of one page of the log, and of one step of a builder or viewer.
pub const REMOTE_PAGE_EVENTS: u32 = 5000;
/// Bytes of such a page; one event at least.
pub const REMOTE_PAGE_BYTES: usize = 4 * MIB;
/// The tail that viewers of one remote session share, as [`TAIL_BYTES`].
pub const REMOTE_TAIL_BYTES: usize = 4 * MIB;
/// See [`REMOTE_TAIL_BYTES`].
pub const REMOTE_TAIL_EVENTS: usize = 4096;
/// How often a session that somebody watches is looked at without any notice.
pub const REMOTE_LOOK: Duration = Duration::from_secs(5);
/// Turns before its cursor that a viewer who comes back is told of again: they may have become durable while it was away. Far more than a
/// builder is ever behind, and some ten kilobytes.
pub const REMOTE_TURNS_AGAIN: u32 = 256;
/// Visible text of one turn.
pub const TURN_TEXT_BYTES: usize = 4 * MIB;
/// All content blocks of one turn.
pub const TURN_BLOCK_BYTES: usize = 8 * MIB;
/// Content blocks of one turn.
pub const TURN_BLOCKS: usize = 10_000;
/// What a chat says.
pub const CHAT_BYTES: usize = PROMPT_BYTES;
/// Commands of one session that its machine has not done.
pub const COMMANDS_WAITING: u32 = 100;
/// A long poll for commands: below the 30 s idle cut of common proxies.
pub const COMMAND_POLL: Duration = Duration::from_secs(25);
/// A command that was handed out and not answered is handed out again.
pub const COMMAND_REPEAT: Duration = Duration::from_secs(30);
/// What a machine says of itself, or of a command.
pub const MACHINE_DETAIL_BYTES: usize = 16 * KIB;
/// How long a machine's former token is good after a rotation.
pub const MACHINE_TOKEN_GRACE: Duration = Duration::from_secs(600);
/// A machine that was heard within this time counts as online.
pub const MACHINE_ONLINE: Duration = Duration::from_secs(90);
/// A session that was told to stop ends after this long, whatever its machine says.
pub const REMOTE_STOP_GRACE: Duration = Duration::from_secs(30);
/// Tokens of one usage report, and requests.
pub const USAGE_TOKENS: u64 = 1_000_000_000;
/// See [`USAGE_TOKENS`].
pub const USAGE_REQUESTS: u64 = 1000;
/// Rows of one page of messages.
pub const MESSAGES_LIMIT: u32 = 200;
/// Bytes of such a page; one row at least.
pub const MESSAGES_PAGE_BYTES: usize = 4 * MIB;
