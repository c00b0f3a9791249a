//! What NetworkPolicies let through, by the rules of their reference: a pod that no policy selects for a direction is open in it; one that
//! is selected lets through what any of these policies names. Both ends must let a connection through.

use std::net::IpAddr;

use serde_json::Value;

use crate::objects::{at, items};

/// The label of every namespace with its own name.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// One end of a connection.
#[derive(Debug, Clone)]
pub struct End {
    /// What the table calls it.
    pub name: &'static str,
    /// Its namespace; `None` for what is no pod.
    pub namespace: Option<&'static str>,
    /// Its labels.
    pub labels: Vec<(&'static str, &'static str)>,
    /// Its address.
    pub ip: IpAddr,
}

/// What is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    /// The usual.
    Tcp,
    /// Names are asked for.
    Udp,
}

/// Where a connection goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Port {
    /// Its number.
    pub number: u16,
    /// Its protocol.
    pub protocol: Protocol,
}

#[derive(Clone, Copy)]
enum Direction {
    Ingress,
    Egress,
}

/// Whether `from` may connect to `to` at `port`.
pub fn allows(policies: &[&Value], from: &End, to: &End, port: Port) -> bool {
    lets_out(policies, from, to, port) && lets_in(policies, from, to, port)
}

/// Whether the policies of `from` let it connect to `to` at `port`.
pub fn lets_out(policies: &[&Value], from: &End, to: &End, port: Port) -> bool {
    side(policies, Direction::Egress, from, to, port)
}

/// Whether the policies of `to` let `from` connect to it at `port`.
pub fn lets_in(policies: &[&Value], from: &End, to: &End, port: Port) -> bool {
    side(policies, Direction::Ingress, to, from, port)
}

/// Whether the policies of `own` let a connection with `peer` through in this direction.
fn side(policies: &[&Value], direction: Direction, own: &End, peer: &End, port: Port) -> bool {
    let Some(namespace) = own.namespace else {
        return true;
    };
    let (rules, peers) = match direction {
        Direction::Ingress => ("/spec/ingress", "from"),
        Direction::Egress => ("/spec/egress", "to"),
    };
    let mut selecting = policies
        .iter()
        .filter(|policy| {
            at(policy, "/metadata/namespace") == namespace
                && selects(&policy["spec"]["podSelector"], &own.labels)
                && is_about(policy, direction)
        })
        .peekable();
    if selecting.peek().is_none() {
        return true;
    }
    selecting.any(|policy| {
        let rules = policy.pointer(rules).map_or(&[][..], items);
        rules.iter().any(|rule| {
            let named = items(&rule[peers]);
            let peer_fits = named.is_empty() || named.iter().any(|p| is_peer(p, namespace, peer));
            let ports = items(&rule["ports"]);
            let port_fits = ports.is_empty() || ports.iter().any(|p| is_port(p, port));
            peer_fits && port_fits
        })
    })
}

/// Without policyTypes a policy is about ingress, and about egress when it has such rules.
fn is_about(policy: &Value, direction: Direction) -> bool {
    let types = &policy["spec"]["policyTypes"];
    match (types.is_array(), direction) {
        (true, Direction::Ingress) => items(types).iter().any(|t| t == "Ingress"),
        (true, Direction::Egress) => items(types).iter().any(|t| t == "Egress"),
        (false, Direction::Ingress) => true,
        (false, Direction::Egress) => policy["spec"]["egress"].is_array(),
    }
}

fn is_peer(peer: &Value, own_namespace: &str, end: &End) -> bool {
    let block = &peer["ipBlock"];
    if block.is_object() {
        let excepted = items(&block["except"]);
        return is_within(at(block, "/cidr"), end.ip)
            && !excepted
                .iter()
                .any(|cidr| is_within(cidr.as_str().unwrap_or(""), end.ip));
    }
    let Some(namespace) = end.namespace else {
        return false;
    };
    let namespace_fits = match &peer["namespaceSelector"] {
        Value::Null => namespace == own_namespace,
        selector => selects(selector, &[(NAMESPACE_NAME, namespace)]),
    };
    namespace_fits && selects(&peer["podSelector"], &end.labels)
}

fn is_port(rule: &Value, port: Port) -> bool {
    let protocol = match rule["protocol"].as_str() {
        None | Some("TCP") => Protocol::Tcp,
        Some("UDP") => Protocol::Udp,
        Some(other) => panic!("a protocol that is not judged here: {other}"),
    };
    let number = match &rule["port"] {
        Value::Null => return protocol == port.protocol,
        number => number.as_u64().expect("ports are written as numbers"),
    };
    let last = rule["endPort"].as_u64().unwrap_or(number);
    protocol == port.protocol && (number..=last).contains(&u64::from(port.number))
}

/// A selector that is absent or empty selects everything.
fn selects(selector: &Value, labels: &[(&str, &str)]) -> bool {
    let value_of = |key: &str| labels.iter().find(|(k, _)| *k == key).map(|(_, v)| *v);
    let mut wanted = selector["matchLabels"].as_object().into_iter().flatten();
    let mut expressions = items(&selector["matchExpressions"]).iter();
    wanted.all(|(key, value)| value_of(key) == value.as_str())
        && expressions.all(|expression| {
            let value = value_of(at(expression, "/key"));
            let listed = || {
                items(&expression["values"])
                    .iter()
                    .any(|v| v.as_str() == value)
            };
            match at(expression, "/operator") {
                "In" => value.is_some() && listed(),
                "NotIn" => !listed(),
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                other => panic!("an operator that is not judged here: {other}"),
            }
        })
}

/// Whether a range holds an address.
fn is_within(cidr: &str, ip: IpAddr) -> bool {
    let (network, prefix) = cidr.split_once('/').expect("a range");
    let network: IpAddr = network.parse().expect("an address");
    let prefix: u32 = prefix.parse().expect("a length");
    match (network, ip) {
        (IpAddr::V4(network), IpAddr::V4(ip)) => {
            let host_bits = 32 - prefix;
            u64::from(network.to_bits()) >> host_bits == u64::from(ip.to_bits()) >> host_bits
        }
        (IpAddr::V6(network), IpAddr::V6(ip)) => {
            prefix == 0 || network.to_bits() >> (128 - prefix) == ip.to_bits() >> (128 - prefix)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &'static str, namespace: &'static str, ip: &str) -> End {
        End {
            name,
            namespace: Some(namespace),
            labels: vec![("app", name)],
            ip: ip.parse().expect("an address"),
        }
    }

    fn policy(spec: Value) -> Value {
        json!({"metadata": {"namespace": "n"}, "spec": spec})
    }

    fn tcp(number: u16) -> Port {
        Port {
            number,
            protocol: Protocol::Tcp,
        }
    }

    #[test]
    fn policies_mean_what_their_reference_says() {
        let (a, b) = (pod("a", "n", "10.0.0.1"), pod("b", "n", "10.0.0.2"));
        let far = pod("b", "m", "10.0.1.2");
        let judge = |spec: Value, from: &End, to: &End, port: u16| {
            allows(&[&policy(spec)], from, to, tcp(port))
        };
        let to_a = json!({"matchLabels": {"app": "a"}});
        // nothing is selected, everything is open; what is selected without rules is closed in its directions only
        assert!(judge(
            json!({"podSelector": {"matchLabels": {"app": "x"}}}),
            &b,
            &a,
            1
        ));
        assert!(!judge(
            json!({"podSelector": {}, "policyTypes": ["Ingress"]}),
            &b,
            &a,
            1
        ));
        assert!(!judge(json!({"podSelector": to_a}), &b, &a, 1));
        assert!(judge(json!({"podSelector": to_a}), &a, &b, 1));
        assert!(!judge(
            json!({"podSelector": to_a, "policyTypes": ["Egress"]}),
            &a,
            &b,
            1
        ));
        // a pod selector alone means the policy's namespace; both together mean both
        let from_b = |peer: Value| json!({"podSelector": to_a, "ingress": [{"from": [peer], "ports": [{"port": 80, "endPort": 90}]}]});
        let local = from_b(json!({"podSelector": {"matchLabels": {"app": "b"}}}));
        assert!(judge(local.clone(), &b, &a, 85));
        assert!(!judge(local.clone(), &b, &a, 91));
        assert!(!judge(local, &far, &a, 80));
        let m = json!({"matchExpressions": [{"key": NAMESPACE_NAME, "operator": "In", "values": ["m"]}]});
        let both =
            from_b(json!({"namespaceSelector": m, "podSelector": {"matchLabels": {"app": "b"}}}));
        assert!(judge(both.clone(), &far, &a, 80));
        assert!(!judge(both, &b, &a, 80));
        // no peers and no ports mean any
        assert!(judge(
            json!({"podSelector": to_a, "ingress": [{}]}),
            &far,
            &a,
            7
        ));
        // ranges with holes
        let range = from_b(json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.1.0/24"]}}));
        assert!(judge(range.clone(), &b, &a, 80));
        assert!(!judge(range, &far, &a, 80));
        // protocols differ
        let udp =
            json!({"podSelector": to_a, "ingress": [{"ports": [{"port": 53, "protocol": "UDP"}]}]});
        assert!(!judge(udp, &b, &a, 53));
    }

    #[test]
    fn ranges_hold_their_addresses() {
        let within = |cidr, ip: &str| is_within(cidr, ip.parse().expect("an address"));
        assert!(within("0.0.0.0/0", "203.0.113.1"));
        assert!(within("10.1.0.0/16", "10.1.255.255"));
        assert!(!within("10.1.0.0/16", "10.2.0.0"));
        assert!(within("10.0.0.1/32", "10.0.0.1"));
        assert!(!within("0.0.0.0/0", "2001:db8::1"));
        assert!(within("2001:db8::/32", "2001:db8:1::"));
        assert!(within("::/0", "::1"));
    }
}
