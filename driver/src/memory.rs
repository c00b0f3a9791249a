//! How near the sandbox is to its memory limit. What the kernel ends there it chooses itself, and with the driver the log would be
//! gone: so the agent is ended before.

use std::fs;
use std::path::{Component, Path, PathBuf};

/// Where a container finds its control groups.
const ROOT: &str = "/sys/fs/cgroup";
/// Where a process reads which ones are its own.
const OWN: &str = "/proc/self/cgroup";
/// From here on a number stands for "no limit": version 1 has no word for it.
const NO_LIMIT: u64 = 1 << 62;
/// So much of the limit is too much, in percent.
const TOO_MUCH: u128 = 90;

/// Memory of the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Bytes that cannot be taken back: the cache of files is not among them.
    pub used: u64,
    /// Bytes at which the kernel ends processes.
    pub limit: u64,
}

impl Usage {
    /// Whether the agent has to end now.
    pub fn is_too_much(&self) -> bool {
        u128::from(self.used) * 100 >= u128::from(self.limit) * TOO_MUCH
    }

    /// Why the agent was ended, for people.
    pub fn told(&self) -> String {
        let Self { used, limit } = self;
        format!("the agent was ended: its sandbox used {used} of {limit} bytes of memory")
    }
}

/// A control group with a memory limit, or those above it.
#[derive(Debug, Clone)]
pub struct Cgroup {
    /// The process's own group first.
    levels: Vec<PathBuf>,
    names: &'static Names,
}

/// What a version calls its files and numbers.
#[derive(Debug)]
struct Names {
    limit: &'static str,
    used: &'static str,
    /// In `memory.stat`: file pages, which the kernel takes back before it ends anybody.
    cache: [&'static str; 2],
}

const V1: Names = Names {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    cache: ["total_inactive_file", "total_active_file"],
};
const V2: Names = Names {
    limit: "memory.max",
    used: "memory.current",
    cache: ["inactive_file", "active_file"],
};

impl Cgroup {
    /// The one this process is in.
    pub fn own() -> Self {
        let own = fs::read_to_string(OWN).unwrap_or_default();
        Self::at(Path::new(ROOT), &own)
    }

    /// The one that `own`, in the form of `/proc/self/cgroup`, names below `root`. Where the memory is still counted by version 1,
    /// that one is asked.
    pub fn at(root: &Path, own: &str) -> Self {
        let mut unified = None;
        for line in own.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
                continue;
            };
            if controllers.split(',').any(|name| name == "memory") {
                return Self::below(&root.join("memory"), path, &V1);
            }
            if controllers.is_empty() {
                unified = Some(path);
            }
        }
        Self::below(root, unified.unwrap_or("/"), &V2)
    }

    /// A container often sees its own group as the root, under whatever name: so the root is the last that is asked.
    fn below(mount: &Path, path: &str, names: &'static Names) -> Self {
        let path = Path::new(path.trim_start_matches('/'));
        let is_inside = path.components().all(|c| matches!(c, Component::Normal(_)));
        let own = match is_inside {
            true => mount.join(path),
            false => mount.to_owned(),
        };
        let levels = own.ancestors().take_while(|dir| dir.starts_with(mount));
        Self {
            levels: levels.map(Path::to_owned).collect(),
            names,
        }
    }

    /// What is used of the nearest limit; `None` where there is none.
    pub fn usage(&self) -> Option<Usage> {
        self.levels.iter().find_map(|dir| self.usage_of(dir))
    }

    fn usage_of(&self, dir: &Path) -> Option<Usage> {
        let number = |name| fs::read_to_string(dir.join(name)).ok()?.trim().parse().ok();
        // "max" is no number
        let limit = number(self.names.limit).filter(|limit| *limit < NO_LIMIT)?;
        let used: u64 = number(self.names.used)?;
        let stat = fs::read_to_string(dir.join("memory.stat")).unwrap_or_default();
        Some(Usage {
            used: used.saturating_sub(self.cached(&stat)),
            limit,
        })
    }

    fn cached(&self, stat: &str) -> u64 {
        stat.lines()
            .filter_map(|line| line.split_once(' '))
            .filter(|(name, _)| self.names.cache.contains(name))
            .filter_map(|(_, bytes)| bytes.trim().parse::<u64>().ok())
            .fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nine_tenths_are_too_much() {
        for (used, limit, too_much) in [
            (0, 1000, false),
            (899, 1000, false),
            (900, 1000, true),
            (1000, 1000, true),
            (2000, 1000, true),
            (8, 9, false),
            (9, 9, true),
            (u64::MAX / 100 * 89, u64::MAX, false),
            (u64::MAX, u64::MAX, true),
        ] {
            let usage = Usage { used, limit };
            assert_eq!(usage.is_too_much(), too_much, "{usage:?}");
        }
        let usage = Usage { used: 9, limit: 10 };
        assert_eq!(
            usage.told(),
            "the agent was ended: its sandbox used 9 of 10 bytes of memory"
        );
    }

    /// Files below a root: what they are called and what is in them.
    type Files = [(&'static str, &'static str)];
    /// What it is, the process's own groups, files, used bytes and limit.
    type Case = (
        &'static str,
        &'static str,
        &'static Files,
        Option<(u64, u64)>,
    );

    const STAT: &str = "anon 7\ninactive_file 30\nactive_file 20\ntotal_inactive_file 5\n";

    fn usage(own: &str, files: &Files) -> Option<Usage> {
        let root = tempfile::tempdir().expect("a directory");
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            fs::write(path, text).expect("a file");
        }
        Cgroup::at(root.path(), own).usage()
    }

    #[test]
    fn both_versions_and_every_place_of_a_limit() {
        let v2 = "0::/pod/c\n";
        let v1 = "4:memory:/pod/c\n3:cpuset:/\n0::/\n";
        let cases: [Case; 12] = [
            ("nothing there", v2, &[], None),
            (
                "its own",
                v2,
                &[
                    ("pod/c/memory.max", "1000\n"),
                    ("pod/c/memory.current", "400\n"),
                ],
                Some((400, 1000)),
            ),
            (
                "without what can be taken back",
                v2,
                &[
                    ("pod/c/memory.max", "1000\n"),
                    ("pod/c/memory.current", "400\n"),
                    ("pod/c/memory.stat", STAT),
                ],
                Some((350, 1000)),
            ),
            (
                "max",
                v2,
                &[
                    ("pod/c/memory.max", "max\n"),
                    ("pod/c/memory.current", "400\n"),
                ],
                None,
            ),
            (
                "of the group above",
                v2,
                &[
                    ("pod/c/memory.max", "max\n"),
                    ("pod/c/memory.current", "400\n"),
                    ("pod/memory.max", "2000\n"),
                    ("pod/memory.current", "500\n"),
                ],
                Some((500, 2000)),
            ),
            (
                "seen as the root",
                v2,
                &[("memory.max", "1000\n"), ("memory.current", "1\n")],
                Some((1, 1000)),
            ),
            (
                "outside of what is seen",
                "0::/../../etc\n",
                &[("memory.max", "1000\n"), ("memory.current", "1\n")],
                Some((1, 1000)),
            ),
            (
                "no line about it",
                "",
                &[("memory.max", "1000\n"), ("memory.current", "1\n")],
                Some((1, 1000)),
            ),
            (
                "version 1",
                v1,
                &[
                    ("memory/pod/c/memory.limit_in_bytes", "1000\n"),
                    ("memory/pod/c/memory.usage_in_bytes", "400\n"),
                    ("memory/pod/c/memory.stat", STAT),
                ],
                Some((395, 1000)),
            ),
            (
                "version 1 without a limit",
                v1,
                &[
                    (
                        "memory/pod/c/memory.limit_in_bytes",
                        "9223372036854771712\n",
                    ),
                    ("memory/pod/c/memory.usage_in_bytes", "400\n"),
                ],
                None,
            ),
            (
                "version 1, seen as the root",
                v1,
                &[
                    ("memory/memory.limit_in_bytes", "1000\n"),
                    ("memory/memory.usage_in_bytes", "999\n"),
                ],
                Some((999, 1000)),
            ),
            (
                "not a number",
                v2,
                &[
                    ("pod/c/memory.max", "1000\n"),
                    ("pod/c/memory.current", "many\n"),
                ],
                None,
            ),
        ];
        for (what, own, files, expected) in cases {
            let expected = expected.map(|(used, limit)| Usage { used, limit });
            assert_eq!(usage(own, files), expected, "{what}");
        }
    }
}
