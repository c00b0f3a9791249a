//! Who may build now: so many at once in a process and in a workspace, and so many asks of a workspace in a minute.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bex_proto::WorkspaceId;
use tokio::time::Instant;

use super::PackageFault;

/// How many packages may be built.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shares {
    /// At once in this process: each holds a connection, a core, and of each transcript one turn.
    pub process: u32,
    /// At once for one workspace, so that one leaves room for others.
    pub workspace: u32,
    /// Asks of one workspace that may come together ...
    pub burst: u32,
    /// ... and the time in which one more is earned.
    pub refill: Duration,
}

impl Default for Shares {
    fn default() -> Self {
        Self {
            process: 4,
            workspace: 2,
            burst: 20,
            refill: Duration::from_secs(3),
        }
    }
}

/// Workspaces that are remembered; beyond, those with nothing to remember are dropped.
const REMEMBERED: usize = 10_000;

/// Decides.
#[derive(Debug, Clone)]
pub struct Admission {
    shares: Shares,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    building: u32,
    workspaces: HashMap<WorkspaceId, Asked>,
}

#[derive(Debug)]
struct Asked {
    building: u32,
    /// Asks that are left, as of `at`.
    left: f64,
    at: Instant,
}

/// A place among those that build; it is given back when dropped.
#[derive(Debug)]
pub struct Place {
    workspace: WorkspaceId,
    state: Arc<Mutex<State>>,
}

impl Admission {
    /// With these shares.
    pub fn new(shares: Shares) -> Self {
        Self {
            shares,
            state: Arc::default(),
        }
    }

    /// A place for this workspace.
    ///
    /// # Errors
    /// [`PackageFault::Busy`] and [`PackageFault::TooOften`].
    pub fn enter(&self, workspace: &WorkspaceId) -> Result<Place, PackageFault> {
        let now = Instant::now();
        let shares = self.shares;
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.workspaces.len() >= REMEMBERED {
            state
                .workspaces
                .retain(|_, asked| asked.building > 0 || asked.now(shares, now) < full(shares));
        }
        let everywhere = state.building;
        let asked = state
            .workspaces
            .entry(workspace.clone())
            .or_insert_with(|| Asked {
                building: 0,
                left: full(shares),
                at: now,
            });
        asked.left = asked.now(shares, now);
        asked.at = now;
        if asked.left < 1.0 {
            let wait = shares.refill.mul_f64(1.0 - asked.left);
            let seconds = u32::try_from(wait.as_secs() + 1).unwrap_or(u32::MAX);
            return Err(PackageFault::TooOften { seconds });
        }
        if everywhere >= shares.process || asked.building >= shares.workspace {
            return Err(PackageFault::Busy);
        }
        asked.left -= 1.0;
        asked.building += 1;
        state.building += 1;
        Ok(Place {
            workspace: workspace.clone(),
            state: Arc::clone(&self.state),
        })
    }

    #[cfg(test)]
    fn building(&self) -> u32 {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.building
    }
}

fn full(shares: Shares) -> f64 {
    f64::from(shares.burst)
}

impl Asked {
    fn now(&self, shares: Shares, now: Instant) -> f64 {
        let passed = now.duration_since(self.at).as_secs_f64();
        (self.left + passed / shares.refill.as_secs_f64()).min(full(shares))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.building -= 1;
        if let Some(asked) = state.workspaces.get_mut(&self.workspace) {
            asked.building -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workspace(name: &str) -> WorkspaceId {
        name.parse().expect("an id")
    }

    #[tokio::test(start_paused = true)]
    async fn a_workspace_leaves_room_for_others_and_asks_earn_again() {
        let admission = Admission::new(Shares {
            process: 3,
            workspace: 2,
            burst: 4,
            refill: Duration::from_secs(10),
        });
        let (a, b, c) = (workspace("a"), workspace("b"), workspace("c"));
        let busy = |of: &WorkspaceId| matches!(admission.enter(of), Err(PackageFault::Busy));
        let held = (admission.enter(&a), admission.enter(&a));
        assert!(held.0.is_ok() && held.1.is_ok());
        assert!(busy(&a), "its own share is used up");
        let last = admission.enter(&b).expect("another's is not");
        assert!(busy(&c), "the process's is");
        drop(last);
        assert!(admission.enter(&c).is_ok());
        drop(held);
        assert_eq!(admission.building(), 0);
        assert!(admission.enter(&a).is_ok() && admission.enter(&a).is_ok());
        let Err(PackageFault::TooOften { seconds }) = admission.enter(&a) else {
            panic!("four were asked for");
        };
        assert_eq!(seconds, 11);
        tokio::time::advance(Duration::from_secs(10)).await;
        assert!(admission.enter(&a).is_ok());
        assert!(admission.enter(&a).is_err());
        assert!(admission.enter(&b).is_ok(), "nobody else's are counted");
    }
}
