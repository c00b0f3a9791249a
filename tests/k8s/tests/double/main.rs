//! The double against what a real cluster was recorded to do. The client here is a raw one: it sees frames, not messages.

mod endings;
mod framing;
mod pods;
mod raw;
mod refusals;
mod rights;
