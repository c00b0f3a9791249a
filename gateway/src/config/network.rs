//! Address ranges.

use std::net::IpAddr;
use std::str::FromStr;

/// An address range, `10.0.0.0/8` or a single address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

/// Why a text is not an address range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be addresses or ranges like 10.0.0.0/8")]
pub struct NotANetwork;

impl FromStr for Network {
    type Err = NotANetwork;

    fn from_str(text: &str) -> Result<Self, NotANetwork> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NotANetwork)?;
        let widest = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            Some(prefix) => prefix.parse().map_err(|_| NotANetwork)?,
            None => widest,
        };
        if prefix > widest {
            return Err(NotANetwork);
        }
        Ok(Self { address, prefix })
    }
}

impl Network {
    /// Whether `address` lies in the range. An IPv4 address in IPv6 clothes counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                let shift = 32 - u32::from(self.prefix);
                let cut = |a: std::net::Ipv4Addr| u32::from(a).checked_shr(shift).unwrap_or(0);
                cut(ours) == cut(theirs)
            }
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => {
                let shift = 128 - u32::from(self.prefix);
                let cut = |a: std::net::Ipv6Addr| u128::from(a).checked_shr(shift).unwrap_or(0);
                cut(ours) == cut(theirs)
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_hold_their_addresses_and_no_others() {
        for (range, inside, outside) in [
            ("10.0.0.0/8", "10.255.1.2", "11.0.0.0"),
            ("192.168.7.9", "192.168.7.9", "192.168.7.8"),
            ("10.1.2.0/23", "10.1.3.255", "10.1.4.0"),
            ("fd00::/8", "fdff::1", "fe00::1"),
            ("10.0.0.0/8", "::ffff:10.0.0.1", "::ffff:11.0.0.1"),
        ] {
            let network: Network = range.parse().expect("a range");
            assert!(
                network.contains(inside.parse().expect("an address")),
                "{range} {inside}"
            );
            assert!(
                !network.contains(outside.parse().expect("an address")),
                "{range} {outside}"
            );
        }
        let everything: Network = "0.0.0.0/0".parse().expect("a range");
        assert!(everything.contains("1.2.3.4".parse().expect("an address")));
        for bad in ["", "10.0.0.0/33", "::/129", "10.0.0", "a/8", "10.0.0.0/-1"] {
            assert_eq!(bad.parse::<Network>(), Err(NotANetwork), "{bad}");
        }
    }
}
