//! Random keys and tokens of one stack.

use bex_proto::ticket::KeyRing;

/// The three key rings, as the processes are given them.
#[derive(Debug, Clone)]
pub struct Keys {
    /// Browsers' tickets.
    pub attach: String,
    /// The api's tickets for the exec listener.
    pub exec: String,
    /// Drivers' keys.
    pub driver: String,
    /// The api's signatures under statements and exports.
    pub proof: String,
    /// Signs URLs of replay packages.
    pub packages: String,
    /// Makes the tokens in packages.
    pub tokens: String,
}

/// Bearer tokens of the api.
#[derive(Debug, Clone)]
pub struct Tokens {
    /// `admin` of every workspace.
    pub admin: String,
    /// `operator` of the stack's workspace.
    pub operator: String,
    /// `viewer` of the stack's workspace.
    pub viewer: String,
    /// `operator` of another workspace.
    pub stranger: String,
}

impl Keys {
    pub(super) fn random() -> Self {
        let one = |kid: &str| format!("{kid}:{}", random_hex());
        Self {
            attach: one("a1"),
            exec: one("e1"),
            driver: one("d1"),
            proof: one("p1"),
            packages: one("u1"),
            tokens: random_hex(),
        }
    }

    /// The keys themselves.
    pub(super) fn all(&self) -> impl Iterator<Item = &str> {
        let rings = [
            &self.attach,
            &self.exec,
            &self.driver,
            &self.proof,
            &self.packages,
        ];
        let keys = rings
            .into_iter()
            .filter_map(|ring| Some(ring.split_once(':')?.1));
        keys.chain([self.tokens.as_str()])
    }
}

impl Tokens {
    pub(super) fn random() -> Self {
        let one = |role: &str| format!("bex-{role}-{}", random_hex());
        Self {
            admin: one("admin"),
            operator: one("operator"),
            viewer: one("viewer"),
            stranger: one("stranger"),
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &str> {
        [&self.admin, &self.operator, &self.viewer, &self.stranger]
            .into_iter()
            .map(String::as_str)
    }
}

/// A ring's text as a ring.
///
/// # Panics
/// When the text is none.
pub fn ring(text: &str) -> KeyRing {
    KeyRing::parse(text).expect("the stack's own rings are well formed")
}

/// 256 random bits.
pub(super) fn random_hex() -> String {
    let mut bytes = [0u8; 32];
    getrandom::fill(&mut bytes).expect("the operating system has randomness");
    hex::encode(bytes)
}
