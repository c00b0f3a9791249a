//! What happened, to be read when a seed fails, and its digest, by which two runs are the same run.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

/// Lines that are kept.
const KEPT: usize = 3000;

#[derive(Debug)]
pub struct Trace {
    began: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    first: Option<String>,
    lines: VecDeque<String>,
    hasher: DefaultHasher,
    violations: Vec<String>,
}

impl Trace {
    pub fn new() -> Self {
        Self {
            began: Instant::now(),
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn note(&self, what: impl std::fmt::Display) {
        let line = format!("{:>9.3} {what}", self.began.elapsed().as_secs_f64());
        let mut state = self.state();
        line.hash(&mut state.hasher);
        if state.first.is_none() {
            state.first = Some(line);
            return;
        }
        if state.lines.len() == KEPT {
            state.lines.pop_front();
        }
        state.lines.push_back(line);
    }

    /// Something that must never happen.
    pub fn violation(&self, what: String) {
        if !self.violations().contains(&what) {
            self.note(format_args!("VIOLATION {what}"));
            self.state().violations.push(what);
        }
    }

    pub fn violations(&self) -> Vec<String> {
        self.state().violations.clone()
    }

    pub fn digest(&self) -> u64 {
        self.state().hasher.finish()
    }

    /// The first line, which is the plan, and the last ones.
    pub fn lines(&self) -> Vec<String> {
        let state = self.state();
        let lines = state.first.iter().chain(&state.lines);
        lines.cloned().collect()
    }
}
