//! The reporter of remote sessions: the real binary, real commands, real HTTP to a double of our api.

mod commands;
mod double;
mod faults;
mod kills;
mod output;
mod reporter;
mod script;
