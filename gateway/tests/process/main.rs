//! The binary against a real database.

mod attach;
mod house;
mod kubernetes;
mod start;
