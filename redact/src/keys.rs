//! How sensitive the value of a name is: a key of JSON, a variable, an option.

/// What a name says about its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sensitivity {
    /// Its value may be a key of any kind, of a map as well as of a door.
    Key,
    /// Its value is a secret if it looks like one.
    Token,
    /// Its value is a secret, whatever it looks like.
    Secret,
}

/// Ends of names whose values are secrets.
const SECRET: [&str; 38] = [
    "password",
    "passwd",
    "passwort",
    "passphrase",
    "passcode",
    "pwd",
    "secret",
    "secrets",
    "passwords",
    "secretkey",
    "apikey",
    "apikeys",
    "privatekey",
    "accesskey",
    "authkey",
    "encryptionkey",
    "signingkey",
    "masterkey",
    "sharedkey",
    "accountkey",
    "storagekey",
    "connectionstring",
    "apisecret",
    "accesstoken",
    "refreshtoken",
    "authtoken",
    "bearertoken",
    "sessiontoken",
    "idtoken",
    "privatetoken",
    "apitoken",
    "bottoken",
    "secrettoken",
    "usertoken",
    "credentials",
    "authorization",
    "setcookie",
    "keymaterial",
];
/// Ends of names whose values are secrets when they look like one.
const TOKEN: [&str; 10] = [
    "token",
    "tokens",
    "auth",
    "jwt",
    "cookie",
    "credential",
    "otp",
    "sas",
    "sessionkey",
    "pass",
];
/// Ends of names that look like the above and are not.
const HARMLESS: [&str; 26] = [
    "publickey",
    "primarykey",
    "foreignkey",
    "sortkey",
    "partitionkey",
    "cachekey",
    "objectkey",
    "hotkey",
    "monkey",
    "turkey",
    "donkey",
    "nexttoken",
    "pagetoken",
    "continuationtoken",
    "maxtokens",
    "totaltokens",
    "inputtokens",
    "outputtokens",
    "bypass",
    "compass",
    "idempotencykey",
    "routingkey",
    "keystroke",
    "keyboard",
    "trespass",
    "websocketkey",
];
/// What may stand behind the telling end.
const TAILS: [&str; 8] = [
    "value",
    "base64",
    "b64",
    "hex",
    "enc",
    "encrypted",
    "plain",
    "text",
];
/// More of a name is not looked at.
const MAX_NAME: usize = 96;

/// What a name says; `None` when nothing.
pub fn sensitivity(name: &[u8]) -> Option<Sensitivity> {
    if name.len() < 3 {
        return None;
    }
    // the end tells
    let name = &name[name.len().saturating_sub(MAX_NAME)..];
    let mut plain = [0; MAX_NAME];
    let mut length = 0;
    for byte in name.iter().filter(|b| b.is_ascii_alphanumeric()) {
        plain[length] = byte.to_ascii_lowercase();
        length += 1;
    }
    let mut plain = &plain[..length];
    while let [rest @ .., b'0'..=b'9'] = plain
        && !ends(plain, &["base64", "b64"])
    {
        plain = rest;
    }
    if let Some(tail) = TAILS.iter().find(|tail| plain.ends_with(tail.as_bytes())) {
        let rest = &plain[..plain.len() - tail.len()];
        if ends(rest, &SECRET) {
            plain = rest;
        }
    }
    if ends(plain, &HARMLESS) {
        return None;
    }
    if ends(plain, &SECRET) {
        return Some(Sensitivity::Secret);
    }
    if ends(plain, &TOKEN) {
        // "dbPass" and "pass" are names of passwords; "bypass" and its like stand above
        return Some(Sensitivity::Token);
    }
    (plain.ends_with(b"key") && plain.len() < 40).then_some(Sensitivity::Key)
}

fn ends(name: &[u8], list: &[&str]) -> bool {
    // most differ in their last letter already
    let last = name.last();
    list.iter()
        .any(|end| end.as_bytes().last() == last && name.ends_with(end.as_bytes()))
}

/// Whether a random-looking value of this name is to be expected: an id, a digest, something encrypted already.
pub fn is_opaque(name: &[u8]) -> bool {
    const ENDS: [&str; 22] = [
        "id",
        "ids",
        "signature",
        "encryptedcontent",
        "encrypted",
        "hash",
        "digest",
        "etag",
        "sha",
        "sha1",
        "sha256",
        "sha512",
        "checksum",
        "integrity",
        "nonce",
        "cursor",
        "fingerprint",
        "commit",
        "revision",
        "data",
        "content",
        "thumbprint",
    ];
    let name = &name[name.len().saturating_sub(MAX_NAME)..];
    let plain: Vec<u8> = name
        .iter()
        .filter(|b| b.is_ascii_alphanumeric())
        .map(u8::to_ascii_lowercase)
        .collect();
    plain.starts_with(b"encrypted") || ends(&plain, &ENDS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_what_they_say() {
        for name in [
            "password",
            "DB_PASSWORD",
            "clientSecret",
            "x-api-key",
            "AWS_SECRET_ACCESS_KEY",
            "secretAccessKey2",
            "PGPASSWORD",
            "password_base64",
            "Authorization",
        ] {
            assert_eq!(
                sensitivity(name.as_bytes()),
                Some(Sensitivity::Secret),
                "{name}"
            );
        }
        for name in ["token", "GITHUB_TOKEN", "db_pass", "cookie"] {
            assert_eq!(
                sensitivity(name.as_bytes()),
                Some(Sensitivity::Token),
                "{name}"
            );
        }
        for name in ["key", "AWS_KEY", "sshKey"] {
            assert_eq!(
                sensitivity(name.as_bytes()),
                Some(Sensitivity::Key),
                "{name}"
            );
        }
        for name in [
            "publicKey",
            "maxTokens",
            "nextPageToken",
            "secretName",
            "tokenizer",
            "keyboard",
            "secretary",
            "accessKeyId",
            "type",
            "bypass",
            "primary_key",
        ] {
            assert_eq!(sensitivity(name.as_bytes()), None, "{name}");
        }
        assert!(
            is_opaque(b"toolCallId") && is_opaque(b"encrypted_content") && !is_opaque(b"output")
        );
    }
}
