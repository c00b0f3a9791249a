use std::collections::BTreeMap;

use bex_testpg::certs::Authority;

use super::*;

fn key(digit: char) -> String {
    format!("k{digit}:{}", String::from(digit).repeat(64))
}

fn good() -> BTreeMap<&'static str, String> {
    BTreeMap::from([
        (
            "BEX_DATABASE_URL",
            "postgres://u:hunter2@127.0.0.1/d?sslmode=disable".to_owned(),
        ),
        ("BEX_ATTACH_KEYS", key('a')),
        ("BEX_EXEC_KEYS", key('b')),
        ("BEX_DRIVER_KEYS", key('c')),
        ("BEX_SANDBOX_KIND", "local".to_owned()),
        ("BEX_LOCAL", "1".to_owned()),
        ("BEX_SANDBOX_DIR", "/var/lib/bex".to_owned()),
        ("BEX_DRIVER_BIN", "/usr/bin/bex-driver".to_owned()),
    ])
}

fn read(variables: &BTreeMap<&'static str, String>) -> Result<Config, Faults> {
    Config::read(|name| variables.get(name).cloned())
}

fn refused(variables: &BTreeMap<&'static str, String>) -> Vec<&'static str> {
    read(variables)
        .expect_err("refused")
        .0
        .iter()
        .map(|f| f.variable)
        .collect()
}

#[test]
fn a_local_stack_needs_few_words() {
    let mut variables = good();
    variables.insert(
        "BEX_CORS_ORIGINS",
        "http://localhost:5173, https://app.example".to_owned(),
    );
    variables.insert("BEX_TRUSTED_PROXIES", "127.0.0.1,10.0.0.0/8".to_owned());
    variables.insert("BEX_TEE", "off".to_owned());
    let config = read(&variables).expect("accepted");
    assert_eq!(config.attach_listen.to_string(), "127.0.0.1:8083");
    assert_eq!(config.exec_listen.to_string(), "127.0.0.1:8081");
    assert_eq!(
        config.cors_origins,
        ["http://localhost:5173", "https://app.example"]
    );
    assert_eq!(config.trusted_proxies.len(), 2);
    assert_eq!(config.tee, TeeMode::Off);
    assert!(config.listen_database.is_none());
}

#[test]
fn every_fault_is_named_at_once_and_no_secret_is_printed() {
    let mut variables = good();
    variables.insert("BEX_DATABASE_URL", "postgres://u:hunter2@db/d".to_owned());
    variables.insert("BEX_EXEC_KEYS", "k1:feedface".to_owned());
    variables.insert("BEX_ATTACH_LISTEN", "localhost".to_owned());
    variables.insert(
        "BEX_CORS_ORIGINS",
        "*,null,https://app.example/path".to_owned(),
    );
    variables.insert("BEX_TRUSTED_PROXIES", "10.0.0.0/99".to_owned());
    variables.insert("BEX_TEE", "maybe".to_owned());
    variables.insert("BEX_DRIVER_BIN", "bex-driver".to_owned());
    variables.remove("BEX_DRIVER_KEYS");
    variables.remove("BEX_SANDBOX_DIR");
    variables.remove("BEX_LOCAL");
    let faults = read(&variables).expect_err("refused");
    let mut names: Vec<_> = faults.0.iter().map(|f| f.variable).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(
        names,
        [
            "BEX_ATTACH_LISTEN",
            "BEX_CORS_ORIGINS",
            "BEX_DATABASE_URL",
            "BEX_DRIVER_BIN",
            "BEX_DRIVER_KEYS",
            "BEX_EXEC_KEYS",
            "BEX_LOCAL",
            "BEX_SANDBOX_DIR",
            "BEX_TEE",
            "BEX_TRUSTED_PROXIES",
        ]
    );
    let text = faults.to_string();
    assert!(
        !text.contains("hunter2") && !text.contains("feedface"),
        "{text}"
    );
}

#[test]
fn the_local_kind_stays_on_loopback() {
    for (name, address) in [
        ("BEX_ATTACH_LISTEN", "0.0.0.0:1"),
        ("BEX_EXEC_LISTEN", ":8081"),
        ("BEX_ADMIN_LISTEN", "192.168.0.1:9"),
    ] {
        let mut variables = good();
        variables.insert(name, address.to_owned());
        assert_eq!(refused(&variables), [name]);
    }
}

#[test]
fn one_key_serves_one_audience() {
    let mut variables = good();
    variables.insert("BEX_EXEC_KEYS", key('a').replace("ka", "another"));
    assert_eq!(refused(&variables), ["BEX_EXEC_KEYS"]);
}

#[test]
fn debug_output_holds_no_secret() {
    let text = format!("{:?}", read(&good()).expect("accepted"));
    for secret in ["hunter2", &"a".repeat(64), &"b".repeat(64), &"c".repeat(64)] {
        assert!(!text.contains(secret), "{text}");
    }
}

#[test]
fn pods_need_their_ranges_and_never_the_machine_itself() {
    let mut variables = good();
    for gone in ["BEX_LOCAL", "BEX_SANDBOX_DIR", "BEX_DRIVER_BIN"] {
        variables.remove(gone);
    }
    variables.insert("BEX_SANDBOX_KIND", "kubernetes".to_owned());
    assert_eq!(refused(&variables), ["BEX_POD_NETWORKS"]);
    variables.insert("BEX_POD_NETWORKS", "10.244.0.0/16,fd00::/8".to_owned());
    let config = read(&variables).expect("accepted");
    let Sandboxes::Kubernetes(kubernetes) = config.sandboxes else {
        panic!("another kind")
    };
    assert_eq!(kubernetes.kubeconfig, None, "a service account's");
    assert_eq!(kubernetes.driver_bin, "/opt/bex/bex-driver");
    assert_eq!(kubernetes.driver_dir, "/var/lib/bex/driver");
    for range in [
        "127.0.0.0/8",
        "0.0.0.0/0",
        "169.254.0.0/16",
        "10.0.0.0/8,::/0",
    ] {
        variables.insert("BEX_POD_NETWORKS", range.to_owned());
        assert_eq!(refused(&variables), ["BEX_POD_NETWORKS"], "{range}");
    }
    // a double of a cluster has its pods on loopback, and then everything is there
    variables.insert("BEX_POD_NETWORKS", "127.3.4.0/24".to_owned());
    variables.insert("BEX_LOCAL", "1".to_owned());
    variables.insert("BEX_EXEC_LISTEN", ":8081".to_owned());
    assert_eq!(refused(&variables), ["BEX_EXEC_LISTEN"]);
    variables.remove("BEX_EXEC_LISTEN");
    assert!(read(&variables).is_ok());
}

#[test]
fn an_exec_listener_that_others_reach_proves_its_clients() {
    let dir = tempfile::tempdir().expect("a directory");
    let authority = Authority::new("ours").expect("an authority");
    let issued = authority.issue(&["gateway"]).expect("a certificate");
    let file = |name: &str, text: &str| {
        std::fs::write(dir.path().join(name), text).expect("written");
        dir.path().join(name).display().to_string()
    };
    let mut variables = good();
    for gone in ["BEX_LOCAL", "BEX_SANDBOX_DIR", "BEX_DRIVER_BIN"] {
        variables.remove(gone);
    }
    variables.insert("BEX_SANDBOX_KIND", "kubernetes".to_owned());
    variables.insert("BEX_POD_NETWORKS", "10.244.0.0/16".to_owned());
    variables.insert("BEX_EXEC_LISTEN", ":8081".to_owned());
    assert_eq!(refused(&variables), ["BEX_EXEC_LISTEN"]);

    variables.insert("BEX_EXEC_TLS_CERT", file("tls.crt", &issued.certificate));
    assert_eq!(
        refused(&variables),
        [
            "BEX_EXEC_TLS_KEY",
            "BEX_EXEC_TLS_CLIENT_CA",
            "BEX_EXEC_TLS_CLIENT_NAME"
        ]
    );
    variables.insert("BEX_EXEC_TLS_KEY", file("tls.key", &issued.key));
    variables.insert("BEX_EXEC_TLS_CLIENT_CA", file("ca.crt", authority.pem()));
    variables.insert("BEX_EXEC_TLS_CLIENT_NAME", "not a name".to_owned());
    assert_eq!(refused(&variables), ["BEX_EXEC_TLS_CLIENT_NAME"]);
    variables.insert("BEX_EXEC_TLS_CLIENT_NAME", "api.bex.svc".to_owned());
    let config = read(&variables).expect("accepted");
    assert!(config.exec_tls.is_some());

    let other = authority.issue(&["gateway"]).expect("a certificate");
    variables.insert("BEX_EXEC_TLS_KEY", file("other.key", &other.key));
    let faults = read(&variables).expect_err("refused").to_string();
    assert!(faults.contains("do not belong together"), "{faults}");
    assert!(!faults.contains("PRIVATE KEY"), "{faults}");
}
