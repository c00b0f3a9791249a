//! Tamper evidence: for every settled turn a signed statement of what the store holds of it, each naming its predecessor's digest,
//! so that a session's statements are a chain to which can only be added.
//!
//! The statement follows the settle by a moment and never holds it up: the transaction that settles, heals or completes a turn marks
//! it due ([`bex_store::proof`]), and the [`Notary`] of any replica reads, signs and adds. A turn that changes afterwards gets a
//! further statement, which supersedes.
//!
//! Statements are compact JWS (EdDSA), so that anybody with the published keys can check them without this program.

mod jws;
mod notary;
mod ring;
mod statement;

pub use jws::JwsFault;
pub use notary::{Notary, NotaryRound};
pub use ring::{Jwk, Jwks, ProofRing, ProofRingFault, PublicKeys};
pub use statement::{ExportSeal, Statement, digest_of};
