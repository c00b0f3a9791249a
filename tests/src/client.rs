//! Small clients of the api and of the attach listener: what a test or the demo sees is what a client of the product sees.

mod api;
pub mod http;
mod remote;
mod viewer;

pub use api::{Answer, ApiClient, Feed, FeedPart, NewSession, Secrets, Ticket, Turn};
pub use remote::Machine;
pub use viewer::{Ending, Event, Refusal, Viewer, path as stream_path, preflight};
