//! Reads variables and gathers what is wrong with them.

use std::fmt;
use std::net::SocketAddr;

use bex_proto::ticket::KeyRing;

/// What is wrong with one variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Its name.
    pub variable: &'static str,
    /// What is wrong; never its value.
    pub reason: String,
}

/// Everything that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults(pub Vec<Fault>);

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the configuration is refused:")?;
        for fault in &self.0 {
            write!(f, "\n  {}: {}", fault.variable, fault.reason)?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}

pub(super) struct Reader<'a> {
    lookup: &'a dyn Fn(&str) -> Option<String>,
    faults: Vec<Fault>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(lookup: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Self {
            lookup,
            faults: Vec::new(),
        }
    }

    pub(super) fn fault(&mut self, variable: &'static str, reason: impl Into<String>) {
        self.faults.push(Fault {
            variable,
            reason: reason.into(),
        });
    }

    /// An empty variable counts as unset, as shells and charts write one where they mean the other.
    pub(super) fn text(&self, name: &str) -> Option<String> {
        (self.lookup)(name)
            .map(|v| v.trim().to_owned())
            .filter(|v| !v.is_empty())
    }

    /// `None` also for a value that was refused.
    pub(super) fn parsed<T, E: fmt::Display>(
        &mut self,
        name: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let text = self.text(name)?;
        parse(&text)
            .map_err(|e| self.fault(name, e.to_string()))
            .ok()
    }

    pub(super) fn required<T, E: fmt::Display>(
        &mut self,
        name: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let value = self.parsed(name, parse);
        if value.is_none() {
            self.require(name);
        }
        value
    }

    /// Complains about a variable that is not set; one that is set was complained about where it was parsed.
    pub(super) fn require(&mut self, name: &'static str) {
        if self.text(name).is_none() {
            self.fault(name, "is required");
        }
    }

    pub(super) fn list<T, E: fmt::Display>(
        &mut self,
        name: &'static str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Vec<T> {
        let text = self.text(name).unwrap_or_default();
        let mut values = Vec::new();
        for item in text.split(',').map(str::trim).filter(|i| !i.is_empty()) {
            match parse(item) {
                Ok(value) => values.push(value),
                Err(e) => self.fault(name, e.to_string()),
            }
        }
        values
    }

    /// `address:port`; `:port` means every address.
    pub(super) fn address(&mut self, name: &'static str, default: &str) -> Option<SocketAddr> {
        let text = self.text(name).unwrap_or_else(|| default.to_owned());
        let full = if text.starts_with(':') {
            format!("0.0.0.0{text}")
        } else {
            text
        };
        let address = full.parse().ok();
        if address.is_none() {
            self.fault(name, "must be address:port");
        }
        address
    }

    pub(super) fn keys(&mut self, name: &'static str) -> Option<KeyRing> {
        self.parsed(name, KeyRing::parse)
    }

    /// A key in two rings would let a ticket's maker sign for another audience.
    pub(super) fn refuse_shared_keys(&mut self, rings: &[(&'static str, Option<&KeyRing>)]) {
        for (i, (name, ring)) in rings.iter().enumerate() {
            for (earlier_name, earlier) in &rings[..i] {
                if let (Some(ring), Some(earlier)) = (ring, earlier)
                    && ring.shares_a_key_with(earlier)
                {
                    self.fault(name, format!("shares a key with {earlier_name}"));
                }
            }
        }
    }

    pub(super) fn finish<T>(self, build: impl FnOnce() -> Option<T>) -> Result<T, Faults> {
        if self.faults.is_empty() {
            Ok(build().expect("a missing value always leaves a fault"))
        } else {
            Err(Faults(self.faults))
        }
    }
}
