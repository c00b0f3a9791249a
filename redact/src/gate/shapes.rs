//! A net below the rules: the commonest secrets by their shape alone, from no list that the redactor reads too.
//!
//! A kind that is lost from the rules, or spoilt there, would be unknown to both. These are refused all the same. Each shape is
//! narrower than the rule of its kind, so what a redactor with its rules lets through is never refused here.

use std::sync::LazyLock;

use regex::bytes::Regex;

/// What a refusal says.
pub(super) const ID: &str = "gate-shape";

static SHAPES: LazyLock<Regex> = LazyLock::new(|| {
    let shapes = [
        "gh[pousr]_[A-Za-z0-9]{36}",
        "github_pat_[A-Za-z0-9_]{36}",
        "glpat-[A-Za-z0-9_-]{20}",
        "A[KS]IA[A-Z2-7]{16}",
        "AIza[A-Za-z0-9_-]{35}",
        "xox[bp]-[0-9]{8,}-[A-Za-z0-9-]{12}",
        "[sr]k_live_[A-Za-z0-9]{24}",
        "sk-ant-[A-Za-z0-9_-]{24}",
        "npm_[A-Za-z0-9]{36}",
        "eyJ[A-Za-z0-9_-]{12,512}\\.eyJ[A-Za-z0-9_-]{12}",
        "-----BEGIN [A-Z ]{0,24}PRIVATE KEY(?: BLOCK)?-----",
    ];
    Regex::new(&format!("(?-u){}", shapes.join("|")))
        .expect("a constant expression, read by every test")
});

/// Whether one of them stands in a text.
pub(super) fn any(text: &[u8]) -> bool {
    SHAPES.is_match(text)
}
