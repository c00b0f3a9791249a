//! What a prompt asks of the demo agent beside plain work.

/// The most chunks one prompt may ask for: what one session may hold.
const PARTS_MAX: u32 = bex_proto::limits::SESSION_PARTS;
/// The largest chunk a prompt may ask for.
const SIZE_MAX: usize = bex_proto::limits::PART_BYTES / 2;

/// How the turn comes to its end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Ending {
    /// All work is done and said.
    #[default]
    Normal,
    /// The process exits in the middle of its text.
    Crash,
    /// It stops talking in the middle of its text and waits for a cancellation.
    Hang,
}

/// Words of a prompt that the demo agent obeys; everything else is only echoed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Orders {
    /// The prompt's first line, without more than [`Orders::TITLE_CHARS`].
    pub title: String,
    /// `parts=500`: at least so many text chunks.
    pub parts: u32,
    /// `pace=20`: so many text chunks a second; as fast as they can be taken without it.
    pub pace: Option<u32>,
    /// `size=200`: so many bytes in each text chunk, at least its number.
    pub size: usize,
    /// `gate=NAME`: wait in the middle of the text until a file of that name exists in the working directory.
    pub gate: Option<String>,
    /// `recall=1`: say first what was asked in that turn, as far as the agent was told.
    pub recall: Option<u32>,
    /// `record=NAME`: keep the text in a file of that name where the agent may record.
    pub record: Option<String>,
    /// What it was told before the prompt; no word of it is an order.
    pub memory: String,
    /// `crash`, `hang`.
    pub ending: Ending,
}

impl Orders {
    /// Characters of the prompt that are echoed.
    pub const TITLE_CHARS: usize = 80;
    const PARTS: u32 = 12;

    /// Reads a prompt.
    pub fn read(prompt: &str) -> Self {
        let mut orders = Self {
            title: prompt
                .lines()
                .next()
                .unwrap_or_default()
                .chars()
                .take(Self::TITLE_CHARS)
                .collect(),
            parts: Self::PARTS,
            pace: None,
            size: 0,
            gate: None,
            recall: None,
            record: None,
            memory: String::new(),
            ending: Ending::Normal,
        };
        for word in prompt.split_whitespace() {
            match word.split_once('=') {
                Some(("parts", n)) => {
                    orders.parts = n.parse().unwrap_or(Self::PARTS).min(PARTS_MAX);
                }
                Some(("pace", n)) => orders.pace = n.parse().ok().filter(|n| *n > 0),
                Some(("size", n)) => orders.size = n.parse().unwrap_or(0).min(SIZE_MAX),
                Some(("recall", turn)) => orders.recall = turn.parse().ok(),
                Some(("gate", name)) if is_plain(name) => orders.gate = Some(name.to_owned()),
                Some(("record", name)) if is_plain(name) => orders.record = Some(name.to_owned()),
                None if word == "crash" => orders.ending = Ending::Crash,
                None if word == "hang" => orders.ending = Ending::Hang,
                _ => {}
            }
        }
        orders
    }
}

impl Orders {
    /// The first line that was asked in a turn.
    pub fn recalled(&self, turn: u32) -> Option<&str> {
        let asked = format!("Turn {turn}, asked:");
        let mut lines = self.memory.lines().skip_while(|line| *line != asked);
        lines.nth(1)
    }
}

pub(super) fn is_plain(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_words_and_the_rest_is_talk() {
        let orders =
            Orders::read("tidy up parts=500 pace=20 size=90 gate=go-1 hang\nsecond parts=x");
        assert_eq!(
            (orders.parts, orders.pace, orders.size),
            (12, Some(20), 90),
            "the last word counts"
        );
        assert_eq!(
            (orders.gate.as_deref(), orders.ending),
            (Some("go-1"), Ending::Hang)
        );
        assert_eq!(
            orders.title,
            "tidy up parts=500 pace=20 size=90 gate=go-1 hang"
        );
    }

    #[test]
    fn orders_are_bounded() {
        let orders = Orders::read("parts=4294967295 size=99999999999 pace=0 gate=../x record=a/b");
        assert_eq!(orders.parts, PARTS_MAX);
        assert_eq!(
            (orders.pace, orders.gate, orders.record),
            (None, None, None)
        );
        assert!(orders.size <= SIZE_MAX);
    }
}
