//! What a stream remembers of its tool calls. Those without output are kept by their id; of the others, which are many and which
//! every viewer remembers for itself, a hash of the id is enough.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::BuildHasher;
use std::sync::{Arc, LazyLock};

use super::calls::{Progress, Tool};
use crate::limits;

/// Its keys are this process's own, so that no agent can make two ids alike.
static IDS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Calls, [`limits::KNOWN_CALLS`] without output and [`limits::ENDED_CALLS`] that ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Calls {
    open: BTreeMap<Arc<str>, (u64, Tool)>,
    /// The ids of `open`, oldest first.
    by_age: BTreeMap<u64, Arc<str>>,
    ended: HashMap<u64, Tool>,
    /// The hashes of `ended`, oldest first.
    by_end: VecDeque<u64>,
    begun: u64,
}

impl Calls {
    /// What is known of a call.
    pub(super) fn get(&self, id: &str) -> Option<Tool> {
        self.open(id)
            .or_else(|| self.ended.get(&IDS.hash_one(id)).copied())
    }

    /// A call that has no output yet.
    pub(super) fn open(&self, id: &str) -> Option<Tool> {
        self.open.get(id).map(|(_, tool)| *tool)
    }

    /// All of them, in the order of their ids, so that every viewer sees the same.
    pub(super) fn all_open(&self) -> impl Iterator<Item = (&Arc<str>, Tool)> {
        self.open.iter().map(|(id, (_, tool))| (id, *tool))
    }

    /// Takes what is known of a call now. Where too many are open the oldest ends, and is given back.
    pub(super) fn put(&mut self, id: &str, tool: Tool) -> Option<(Arc<str>, Tool)> {
        if !tool.progress.is_open() {
            if let Some((age, _)) = self.open.remove(id) {
                self.by_age.remove(&age);
            }
            self.end(id, tool);
            return None;
        }
        if let Some((_, known)) = self.open.get_mut(id) {
            *known = tool;
            return None;
        }
        let oldest = (self.open.len() >= limits::KNOWN_CALLS)
            .then(|| self.by_age.pop_first())
            .flatten();
        let ended = oldest.and_then(|(_, id)| {
            let (_, tool) = self.open.remove(&id)?;
            let tool = Tool {
                progress: Progress::Interrupted,
                ..tool
            };
            self.end(&id, tool);
            Some((id, tool))
        });
        self.begun += 1;
        let id: Arc<str> = id.into();
        self.by_age.insert(self.begun, Arc::clone(&id));
        self.open.insert(id, (self.begun, tool));
        ended
    }

    /// Forgets those without output.
    pub(super) fn forget_open(&mut self) {
        self.open.clear();
        self.by_age.clear();
    }

    fn end(&mut self, id: &str, tool: Tool) {
        let hash = IDS.hash_one(id);
        if self.ended.insert(hash, tool).is_some() {
            return;
        }
        self.by_end.push_back(hash);
        if self.by_end.len() > limits::ENDED_CALLS {
            let oldest = self.by_end.pop_front();
            oldest.and_then(|hash| self.ended.remove(&hash));
        }
    }

    #[cfg(test)]
    pub(super) fn counts(&self) -> [usize; 4] {
        let open = [self.open.len(), self.by_age.len()];
        [open[0], open[1], self.ended.len(), self.by_end.len()]
    }
}
