//! Viewers of remote sessions: what machines reported, event by event, and when turns of it became durable.
//!
//! A session that somebody watches here is looked at by one task ([`follow`]), woken by notices; what it finds is rendered once and kept in
//! a bounded [`tail`] that every viewer pulls from. A [`viewer`] that is not there yet, or fell behind, reads pages of the store. Both go by
//! the same rule, [`place`], which decides alone what a viewer is shown next. Who is let in, and every way out but the end of the session, is
//! the attach listener's.

pub(crate) mod follow;
mod frames;
pub(crate) mod place;
mod tail;
pub(crate) mod viewer;
