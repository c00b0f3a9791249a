//! Whether one schema accepts everything another did.

use serde_json::Value;

use super::{list, resolve, types};

/// What the newer schema refuses that the older accepted.
///
/// A name that the older one does not know counts as never used: that is what makes adding one possible.
pub(super) fn narrowings(older: &Value, newer: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare((older, older), (newer, newer), "", &mut found);
    found
}

fn compare(old: (&Value, &Value), new: (&Value, &Value), at: &str, found: &mut Vec<String>) {
    let (old_root, new_root) = (old.0, new.0);
    let (old, new) = (resolve(old_root, old.1), resolve(new_root, new.1));
    let mut say = |what: String| found.push(format!("{at}: {what}"));
    match (types(old), types(new)) {
        (_, None) => {}
        (None, Some(_)) => say("had any type".to_owned()),
        (Some(old), Some(new)) => {
            let wide = |t: &&str| new.contains(t) || (**t == *"integer" && new.contains(&"number"));
            for lost in old.iter().filter(|t| !wide(t)) {
                say(format!("may be {lost} no longer"));
            }
        }
    }
    let (old_words, new_words) = (list(old, "enum"), list(new, "enum"));
    if !new_words.is_empty() {
        if old_words.is_empty() {
            say("could be any word".to_owned());
        }
        for lost in old_words.iter().filter(|w| !new_words.contains(w)) {
            say(format!("may be {lost} no longer"));
        }
    }
    if new.get("const").is_some() && new.get("const") != old.get("const") {
        say("is a constant now".to_owned());
    }
    if let Some(new) = new["minimum"].as_f64()
        && old["minimum"].as_f64().is_none_or(|old| old < new)
    {
        say("has a higher minimum".to_owned());
    }
    if new["additionalProperties"] == false && old["additionalProperties"] != false {
        say("takes no other names".to_owned());
    }
    for name in list(new, "required") {
        if !list(old, "required").contains(name) {
            say(format!("{name} is needed now"));
        }
    }
    for name in list(old, "required") {
        // readers rely on what is always there
        if !list(new, "required").contains(name) {
            say(format!("{name} may be missing now"));
        }
    }
    let ways = list(new, "anyOf");
    if !ways.is_empty() {
        let before = list(old, "anyOf");
        let before = if before.is_empty() {
            std::slice::from_ref(old)
        } else {
            before
        };
        for way in before {
            let fits = |other: &&Value| {
                let mut inner = Vec::new();
                compare((old_root, way), (new_root, other), at, &mut inner);
                inner.is_empty()
            };
            if !ways.iter().any(|other| fits(&other)) {
                say("lost one of its forms".to_owned());
            }
        }
    }
    if let Some(items) = new.get("items") {
        match old.get("items") {
            Some(before) => compare(
                (old_root, before),
                (new_root, items),
                &format!("{at}/items"),
                found,
            ),
            None => found.push(format!("{at}: could have any items")),
        }
    }
    let Some(before) = old["properties"].as_object() else {
        return;
    };
    for (name, schema) in before {
        let at = format!("{at}/{name}");
        match new["properties"].get(name) {
            Some(after) => compare((old_root, schema), (new_root, after), &at, found),
            None => found.push(format!("{at}: was removed")),
        }
    }
}

mod tests {
    use serde_json::json;

    use super::super::{PUBLISHED, parse};
    use super::*;

    #[test]
    fn each_version_accepts_what_the_one_before_it_did() {
        for pair in PUBLISHED.windows(2) {
            let found = narrowings(&parse(pair[0].1), &parse(pair[1].1));
            assert_eq!(
                found,
                Vec::<String>::new(),
                "{} to {}",
                pair[0].0,
                pair[1].0
            );
        }
    }

    /// Every property of the first release, taken away or narrowed, is seen.
    #[test]
    fn nothing_can_be_taken_back() {
        let older = parse(PUBLISHED[0].1);
        let newest = parse(PUBLISHED[PUBLISHED.len() - 1].1);
        let mut places = Vec::new();
        properties(&older, "", &mut places);
        assert!(places.len() > 25, "{}", places.len());
        for place in &places {
            let mut without = newest.clone();
            let (parent, name) = place.rsplit_once('/').expect("a pointer");
            let parent = without.pointer_mut(parent).expect("the newest has it");
            parent.as_object_mut().expect("properties").remove(name);
            assert!(!narrowings(&older, &without).is_empty(), "{place} removed");
            let mut narrowed = newest.clone();
            *narrowed.pointer_mut(place).expect("the newest has it") = json!({"const": 7});
            assert!(
                !narrowings(&older, &narrowed).is_empty(),
                "{place} narrowed"
            );
        }
        let mut needs = newest.clone();
        needs["required"]
            .as_array_mut()
            .expect("a list")
            .push(json!("packageId"));
        assert_eq!(
            narrowings(&older, &needs),
            [": \"packageId\" is needed now"]
        );
        let mut loses = newest;
        loses["required"]
            .as_array_mut()
            .expect("a list")
            .retain(|n| n != "orgId");
        assert_eq!(
            narrowings(&older, &loses),
            [": \"orgId\" may be missing now"]
        );
    }

    /// Pointers to all properties of a schema, those of its definitions included.
    fn properties(schema: &Value, at: &str, out: &mut Vec<String>) {
        for keyword in ["properties", "$defs"] {
            for (name, inner) in schema[keyword].as_object().into_iter().flatten() {
                let place = format!("{at}/{keyword}/{name}");
                properties(inner, &place, out);
                if keyword == "properties" {
                    out.push(place);
                }
            }
        }
        if schema.get("items").is_some() {
            properties(&schema["items"], &format!("{at}/items"), out);
        }
    }
}
