//! What `q` finds, the same in both lists of sessions.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::*;

/// Titles, and what was said first in each.
pub const SPOKEN: [(&str, &str); 3] = [
    ("Tidy the notes", "sort them by date"),
    ("Release 50%_done", "write the CHANGELOG"),
    ("Other", "tidy up, then release"),
];

impl World {
    /// Sessions of [`SPOKEN`], in its order, are found by their words in a list that has no others.
    pub async fn words_are_found(&self, list: &str, ids: &[String]) {
        for (q, expected, why) in [
            ("tidy", &[0, 2][..], "in either"),
            ("TIDY%20date", &[0], "one here, one there"),
            ("changelog", &[1], "of any case"),
            ("50%25_d", &[1], "signs of patterns are signs"),
            ("%25", &[1], "and so alone"),
            ("%20", &[0, 1, 2], "no words fit everything"),
            ("nowhere", &[], "said by nobody"),
        ] {
            let page = self.get(VIEWER, &format!("{list}?q={q}")).await.ok(200);
            assert!(page["nextCursor"].is_null(), "{q}");
            let place = |item: &Value| ids.iter().position(|id| item["id"] == **id).unwrap();
            let items = page["items"].as_array().unwrap().iter();
            let found: BTreeSet<usize> = items.map(place).collect();
            assert_eq!(found, expected.iter().copied().collect(), "{q}: {why}");
        }
        for bad in ["a".repeat(257), "a%00".to_owned()] {
            self.get(VIEWER, &format!("{list}?q={bad}"))
                .await
                .refused("invalid_request");
        }
    }
}
