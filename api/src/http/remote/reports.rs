//! Reports that are worked on: each may be as large as [`limits::REMOTE_BODY`](bex_proto::limits::REMOTE_BODY), so there are few at once.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bex_proto::WorkspaceId;

/// At once in one process.
const ALL: usize = 32;
/// Of them, of one workspace: however slowly its machines send, the others' are heard.
const OF_ONE: usize = 16;

/// How many reports there are, by workspace.
#[derive(Debug, Default)]
pub struct Reports {
    begun: Mutex<HashMap<WorkspaceId, usize>>,
}

/// One of them; it ends with this.
#[derive(Debug)]
pub struct Place<'a> {
    reports: &'a Reports,
    workspace: WorkspaceId,
}

impl Reports {
    /// Begins one, if there is room.
    pub fn begin(&self, workspace: &WorkspaceId) -> Option<Place<'_>> {
        let mut begun = self.begun();
        let of_all: usize = begun.values().sum();
        let of_one = begun.get(workspace).copied().unwrap_or(0);
        if of_all >= ALL || of_one >= OF_ONE {
            return None;
        }
        begun.insert(workspace.clone(), of_one + 1);
        Some(Place {
            reports: self,
            workspace: workspace.clone(),
        })
    }

    fn begun(&self) -> MutexGuard<'_, HashMap<WorkspaceId, usize>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut begun = self.reports.begun();
        if let Some(count) = begun.get_mut(&self.workspace) {
            *count -= 1;
            if *count == 0 {
                begun.remove(&self.workspace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_workspace_leaves_room_for_others_and_all_have_a_bound() {
        let reports = Reports::default();
        let names =
            ["one", "two", "three"].map(|name| name.parse::<WorkspaceId>().expect("a name"));
        let fill = |workspace| {
            let places = std::iter::from_fn(|| reports.begin(workspace));
            places.collect::<Vec<_>>()
        };
        let mut one = fill(&names[0]);
        assert_eq!(one.len(), OF_ONE);
        let two = fill(&names[1]);
        assert_eq!(two.len(), ALL - OF_ONE);
        assert!(reports.begin(&names[2]).is_none(), "all are taken");
        one.pop();
        assert!(reports.begin(&names[1]).is_none(), "it has its share");
        assert!(reports.begin(&names[2]).is_some());
        drop((one, two));
        assert!(reports.begun().is_empty());
    }
}
