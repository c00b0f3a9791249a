//! The real binary, driven as a gateway and an api drive it.

mod acp;
mod agents;
mod exec;
mod grants;
mod isolation;
mod legacy;
mod logs;
mod memory;
mod redaction;
mod sandbox;
mod scrub;
mod stream;
mod turns;
