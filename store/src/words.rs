//! Words that are looked for in titles and prompts: a scan of bounded length, newest first, and no index. A page may hold less than was
//! asked for, or nothing, and still have a next.

use bex_proto::limits;

/// How `LIKE` is told that a sign stands for itself.
const ESCAPE: char = '\\';

/// Every one of them, as patterns. No words fit everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Words(Vec<String>);

impl Words {
    /// Reads what a person typed; case does not matter, and neither does where in a word it stands.
    pub fn read(text: &str) -> Self {
        let words = text.split_whitespace().take(limits::LIST_WORDS);
        Self(words.map(pattern).collect())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn patterns(&self) -> &[String] {
        &self.0
    }
}

fn pattern(word: &str) -> String {
    let mut pattern = String::with_capacity(word.len() + 2);
    pattern.push('%');
    for sign in word.chars() {
        if matches!(sign, '%' | '_' | ESCAPE) {
            pattern.push(ESCAPE);
        }
        pattern.push(sign);
    }
    pattern.push('%');
    pattern
}

/// SQL: every pattern of the parameter stands in the title, or in one of the texts of `prompts`, a table with its condition.
pub(crate) fn all_stand_in(parameter: &str, title: &str, prompts: &str, prompt: &str) -> String {
    let most = limits::LIST_WORDS_PROMPT;
    format!(
        "NOT EXISTS (SELECT 1 FROM unnest({parameter}) AS word
             WHERE NOT coalesce({title} ILIKE word, false)
               AND NOT EXISTS (SELECT 1 FROM {prompts} AND left({prompt}, {most}) ILIKE word))"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_of_patterns_stand_for_themselves() {
        let words = Words::read(" 50%  a_b \\x ");
        assert_eq!(words.patterns(), ["%50\\%%", "%a\\_b%", "%\\\\x%"]);
        assert!(Words::read(" \t").is_empty());
    }

    #[test]
    fn words_are_bounded() {
        let many = "a ".repeat(limits::LIST_WORDS * 2);
        assert_eq!(Words::read(&many).patterns().len(), limits::LIST_WORDS);
    }
}
