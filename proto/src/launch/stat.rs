//! One line of `/proc/<pid>/stat`, as far as the local kind needs it: whether a sandbox's driver is the one that was started.

/// One process as its stat line shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessStat {
    /// Its pid.
    pub pid: u32,
    /// The session it belongs to: the pid of its leader.
    pub session: u32,
    /// Clock ticks from boot to its start; with the pid it names a process for ever.
    pub start: u64,
    /// It ended and waits for its parent.
    pub zombie: bool,
}

impl ProcessStat {
    /// Reads a line; `None` when it is none. Fields are counted from 1 as the manual does.
    pub fn parse(line: &str) -> Option<Self> {
        // the second field is the program's name in parentheses and may hold anything, so the last one ends it
        let (head, rest) = line.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3).copied();
        Some(Self {
            pid: head.split_once(' ')?.0.parse().ok()?,
            session: field(6)?.parse().ok()?,
            start: field(22)?.parse().ok()?,
            zombie: matches!(field(3)?, "Z" | "X"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_with_an_odd_name_is_read() {
        let line = "77 (a) b (c) S 1 70 60 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 12345 999 1";
        let expected = ProcessStat {
            pid: 77,
            session: 60,
            start: 12345,
            zombie: false,
        };
        assert_eq!(ProcessStat::parse(line), Some(expected));
        let ended = line.replace(") S ", ") Z ");
        assert!(ProcessStat::parse(&ended).is_some_and(|stat| stat.zombie));
    }

    #[test]
    fn a_line_that_is_cut_is_none() {
        for cut in ["", "77 (x", "77 (x)", "77 (x) S 1 70 60"] {
            assert_eq!(ProcessStat::parse(cut), None, "{cut}");
        }
    }
}
