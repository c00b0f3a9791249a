//! The exec listener over HTTP: scripted sandboxes, a fake driver, scripted records.

mod admission;
mod driver;
mod house;
mod kubernetes;
mod real;
mod relay;
