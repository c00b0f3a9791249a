//! The binary against a real database.

mod attach;
mod exec_tls;
mod house;
mod kubernetes;
mod start;
