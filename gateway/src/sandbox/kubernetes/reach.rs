//! Which addresses a pod may have.

use std::net::IpAddr;

use bex_cluster::Transport;

use crate::config::Network;

/// Addresses that no range of pods may hold: the machine itself, and the metadata services of clouds.
const NEVER: [&str; 4] = ["127.0.0.1", "::1", "169.254.169.254", "fe80::1"];

/// Whether pods may be on this machine's loopback; only a local stack's double of a cluster has such.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoopbackPods {
    /// They may.
    Allowed,
    /// Never.
    Refused,
}

/// The ranges of the cluster's pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reach {
    networks: Vec<Network>,
    loopback: LoopbackPods,
}

impl Reach {
    /// Pods in these ranges.
    pub fn new(networks: Vec<Network>, loopback: LoopbackPods) -> Self {
        Self { networks, loopback }
    }

    /// Whether a range holds an address that no pod may have.
    pub fn is_too_wide(network: Network) -> bool {
        NEVER
            .iter()
            .any(|text| text.parse().is_ok_and(|ip: IpAddr| network.contains(ip)))
    }

    /// How the API server may be reached: plainly only where pods may be on loopback, as within one machine.
    pub(super) fn transport(&self) -> Transport {
        match self.loopback {
            LoopbackPods::Allowed => Transport::Local,
            LoopbackPods::Refused => Transport::Verified,
        }
    }

    /// Whether a driver may be dialled there.
    pub fn allows(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        let link_local = match ip {
            IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
            IpAddr::V6(ip) => ip.is_unicast_link_local(),
        };
        let refused = ip.is_unspecified()
            || ip.is_multicast()
            || link_local
            || (ip.is_loopback() && self.loopback == LoopbackPods::Refused);
        !refused && self.networks.iter().any(|network| network.contains(ip))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(network: &str, loopback: LoopbackPods) -> Reach {
        Reach::new(vec![network.parse().expect("a range")], loopback)
    }

    #[test]
    fn only_pods_are_dialled() {
        let wide = reach("0.0.0.0/0", LoopbackPods::Refused);
        for (ip, allowed) in [
            ("10.244.7.54", true),
            ("127.0.0.1", false),
            ("::ffff:127.0.0.1", false),
            ("169.254.169.254", false),
            ("0.0.0.0", false),
            ("224.0.0.1", false),
            ("fd00::1", false),
        ] {
            assert_eq!(
                wide.allows(ip.parse().expect("an address")),
                allowed,
                "{ip}"
            );
        }
        let narrow = reach("10.244.0.0/16", LoopbackPods::Refused);
        assert!(!narrow.allows("10.245.0.1".parse().expect("an address")));
        let local = reach("127.77.0.0/16", LoopbackPods::Allowed);
        assert!(local.allows("127.77.3.4".parse().expect("an address")));
        assert!(!local.allows("127.0.0.1".parse().expect("an address")));
    }

    #[test]
    fn a_range_with_the_machine_in_it_is_too_wide() {
        for (network, too_wide) in [
            ("0.0.0.0/0", true),
            ("127.0.0.0/8", true),
            ("169.0.0.0/8", true),
            ("::/0", true),
            ("10.0.0.0/8", false),
        ] {
            assert_eq!(
                Reach::is_too_wide(network.parse().expect("a range")),
                too_wide,
                "{network}"
            );
        }
    }
}
