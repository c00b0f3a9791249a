//! Where a viewer is, for its audit row: what proxies say is believed only of proxies that are trusted.

use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;

use crate::config::Network;

/// The nearest address that no trusted proxy has. Each hop of `X-Forwarded-For` was written by the one before it, so it counts
/// only as far as those are trusted, from the peer backwards.
pub fn address(headers: &HeaderMap, peer: SocketAddr, trusted: &[Network]) -> IpAddr {
    let is_trusted = |address: IpAddr| trusted.iter().any(|network| network.contains(address));
    let lines = headers.get_all("x-forwarded-for").into_iter();
    let lines: Vec<&str> = lines.filter_map(|line| line.to_str().ok()).collect();
    let hops = lines.iter().rev().flat_map(|line| line.rsplit(','));
    let mut nearest = peer.ip().to_canonical();
    for hop in hops {
        if !is_trusted(nearest) {
            break;
        }
        match hop.trim().parse::<IpAddr>() {
            Ok(address) => nearest = address.to_canonical(),
            Err(_) => break,
        }
    }
    nearest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_trusted_proxies_say_counts() {
        let trusted: Vec<Network> = ["10.0.0.0/8", "fd00::/8"]
            .map(|range| range.parse().expect("a range"))
            .into();
        let cases: &[(&str, &[&str], &str)] = &[
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &["203.0.113.7"], "203.0.113.7"),
            // a viewer that forges a hop is seen in front of its forgery
            ("10.0.0.1", &["1.1.1.1, 203.0.113.7"], "203.0.113.7"),
            ("10.0.0.1", &["203.0.113.7, 10.9.9.9"], "203.0.113.7"),
            (
                "10.0.0.1",
                &["1.1.1.1, 203.0.113.7", "10.9.9.9,fd00::2"],
                "203.0.113.7",
            ),
            // nobody who is not trusted says where somebody else is
            ("192.0.2.1", &["203.0.113.7"], "192.0.2.1"),
            ("192.0.2.1", &["10.0.0.7"], "192.0.2.1"),
            // what cannot be read is no address, and nothing behind it is believed
            ("10.0.0.1", &["203.0.113.7, unknown"], "10.0.0.1"),
            ("10.0.0.1", &["203.0.113.7, 198.51.100.1:4711"], "10.0.0.1"),
            ("10.0.0.1", &[""], "10.0.0.1"),
            ("[::ffff:10.0.0.1]", &["::ffff:203.0.113.7"], "203.0.113.7"),
            ("[fd00::1]", &["2001:db8::7"], "2001:db8::7"),
        ];
        for (peer, lines, expected) in cases {
            let mut headers = HeaderMap::new();
            for line in *lines {
                headers.append("x-forwarded-for", line.parse().expect("a value"));
            }
            let peer = format!("{peer}:5").parse().expect("an address");
            let found = address(&headers, peer, &trusted).to_string();
            assert_eq!(found, *expected, "{peer} {lines:?}");
        }
        let mut headers = HeaderMap::new();
        headers.append("x-forwarded-for", "203.0.113.7".parse().expect("a value"));
        let peer = "10.0.0.1:5".parse().expect("an address");
        assert_eq!(
            address(&headers, peer, &[]).to_string(),
            "10.0.0.1",
            "without proxies nobody is believed"
        );
    }
}
