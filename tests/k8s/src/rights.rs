//! What the two accounts may do in a sandbox namespace. A chart's rules must say the same, and nothing that either program does may
//! need more.

/// Of the core group: resources, each with its verbs.
pub type Rules = &'static [(&'static str, &'static [&'static str])];

/// Who makes, watches and removes sandboxes, and never execs.
pub const API: Rules = &[("pods", &["create", "get", "list", "watch", "delete"])];

/// Who alone enters sandboxes. An exec is asked for by `get` and, from 1.35 on, authorized as `create` too.
pub const GATEWAY: Rules = &[("pods", &["get"]), ("pods/exec", &["get", "create"])];
