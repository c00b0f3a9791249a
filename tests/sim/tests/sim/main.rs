//! A simulation of everything that brings a turn to its end: the Completer's own rounds and the gateway's own tee, over a
//! store and sandboxes that are models. One thread, a paused clock and one seeded source of chance: a run is its seed.
//!
//! What is real: claim, lanes, look, harvest, verdict, teardown and sweep of two Completers; tail and tee of a gateway.
//! What is a model: the store ([`store`], held against PostgreSQL by [`conformance`]), the drivers ([`sandbox`]), the
//! gateway's connection to them ([`gateway`]), dispatcher and user ([`scenario`]). Between the real parts and the models
//! stands [`process`]: each call may be late, lost, repeated, or the last thing its process did.

mod check;
mod conformance;
mod crowd;
mod failpoints;
mod gateway;
mod late;
mod loss;
mod plan;
mod process;
mod rng;
mod sandbox;
mod scenario;
mod seeds;
mod setup;
mod store;
mod trace;
