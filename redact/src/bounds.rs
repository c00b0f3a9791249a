//! Every bound of the engine. What would exceed one is replaced by [`UNRESOLVED`], never let through.

/// How deep views may lie within views (a base64 text in a JSON text in a gzip ...).
pub const MAX_DEPTH: u8 = 12;
/// Decoded bytes per byte of the text that is scanned ...
pub const DECODED_FACTOR: usize = 6;
/// ... and in any case.
pub const DECODED_FLOOR: usize = 256 * 1024;
/// What one compressed run may unpack to.
pub const MAX_UNPACKED: usize = 4 * 1024 * 1024;
/// The shortest run that is looked at as base64 ...
pub const MIN_BASE64: usize = 20;
/// ... and as hexadecimal digits.
pub const MIN_HEX: usize = 32;
/// Lines that base64 and `xxd` wrap at are at least this long.
pub const MIN_WRAPPED: usize = 60;
/// The shortest run that may be called random.
pub const MIN_RANDOM: usize = 32;
/// The longest: a picture is longer, a key is not.
pub const MAX_RANDOM: usize = 256;
/// Of a hundred characters of a random run, so many are of another kind than the one before: small and capital letters, digits, others.
pub const RANDOM_CHANGES: usize = 38;
/// Bits of entropy a character of a random run, at least.
pub const RANDOM_ENTROPY: f64 = 4.2;
/// A random run has a stretch without separators of so many characters.
pub const RANDOM_PIECE: usize = 16;
/// The longest text that the gate takes from a document that it reads piece by piece.
pub const MAX_GATE_TEXT: usize = 64 * 1024 * 1024;
/// Open objects and arrays that the gate follows. A document with more is refused.
pub const MAX_GATE_OPEN: usize = 1 << 20;
/// What a private key may be long, from its first line to its last.
pub const MAX_PEM: usize = 64 * 1024;
/// Text that a stream holds back undecided. Beyond it the run becomes [`UNRESOLVED`].
pub const MAX_HELD: usize = 4 * 1024;
/// Text of a stream that is kept after it was shown, to read what follows in its light.
pub const CONTEXT: usize = 512;
/// Runs that may hold text back at once. Of an agent that opens more, each delta of a further one becomes [`UNRESOLVED`].
pub const MAX_HOLDING_RUNS: usize = 1024;
/// What stands in the place of text that could not be decided within the bounds.
pub const UNRESOLVED: &str = "[redacted:unresolved]";
