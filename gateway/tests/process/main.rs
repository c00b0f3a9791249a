//! The binary against a real database.

mod attach;
mod house;
mod start;
