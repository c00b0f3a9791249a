//! Remote sessions: what people, machines and workflows may ask of them.

pub(crate) mod commands;
pub(crate) mod machine;
pub(crate) mod messages;
pub(crate) mod output;
mod reports;
pub(crate) mod sessions;

pub use reports::Reports;
