//! The way to the gateway's exec listener: proved from both ends, or on loopback.

use std::net::IpAddr;

use bex_tls::{ClientFiles, ClientTls, peer_name};
use hyper::Uri;

use super::super::{ExecEndpoint, ServeArgs};
use super::Faults;

const URL: &str = "BEX_EXEC_URL";
const CA: &str = "BEX_EXEC_TLS_CA";
const CERT: &str = "BEX_EXEC_TLS_CERT";
const KEY: &str = "BEX_EXEC_TLS_KEY";
const NAME: &str = "BEX_EXEC_TLS_NAME";

pub(super) fn exec(faults: &mut Faults, args: &ServeArgs) -> Option<ExecEndpoint> {
    let text = faults.required(URL, &args.exec_url)?;
    let parsed = text.parse::<Uri>().ok();
    let url = parsed.filter(|url| {
        let is_bare = matches!(url.path(), "" | "/") && url.query().is_none();
        is_bare && matches!(url.scheme_str(), Some("http" | "https"))
    });
    let host = url.as_ref().and_then(Uri::host).unwrap_or_default();
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let Some(url) = url.clone().filter(|_| !host.is_empty()) else {
        faults.add(URL, "must be an https URL of a host, or an http one");
        return None;
    };
    if url.scheme_str() == Some("https") {
        let tls = tls(faults, args, host)?;
        return Some(ExecEndpoint {
            url,
            tls: Some(tls),
        });
    }
    if !is_loopback(host) {
        faults.add(URL, "must be https; http is for loopback addresses only");
    }
    let is_set = [&args.exec_tls_ca, &args.exec_tls_cert, &args.exec_tls_key];
    if is_set.iter().any(|file| file.is_some()) || args.exec_tls_name.is_some() {
        faults.add(URL, "must be https with BEX_EXEC_TLS_…");
    }
    Some(ExecEndpoint { url, tls: None })
}

fn tls(faults: &mut Faults, args: &ServeArgs, host: &str) -> Option<ClientFiles> {
    let ca = faults.required(CA, &args.exec_tls_ca);
    let certificate = faults.required(CERT, &args.exec_tls_cert);
    let key = faults.required(KEY, &args.exec_tls_key);
    let name = args.exec_tls_name.as_deref().unwrap_or(host);
    let name = faults.keep(NAME, peer_name(name));
    let files = ClientFiles {
        ca: ca?.clone(),
        certificate: certificate?.clone(),
        key: key?.clone(),
        server_name: name?,
    };
    faults
        .keep(CERT, ClientTls::open(files.clone()))
        .map(|_| files)
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use bex_testpg::certs::Authority;

    use super::*;

    fn faults(args: &ServeArgs) -> Vec<String> {
        let mut faults = Faults::default();
        exec(&mut faults, args);
        faults.0.iter().map(ToString::to_string).collect()
    }

    fn at(url: &str) -> ServeArgs {
        ServeArgs {
            exec_url: Some(url.to_owned()),
            ..ServeArgs::default()
        }
    }

    fn with_files(url: &str, dir: &Path) -> ServeArgs {
        let authority = Authority::new("ours").expect("an authority");
        let issued = authority.issue(&["api"]).expect("a certificate");
        let file = |name: &str, text: &str| {
            std::fs::write(dir.join(name), text).expect("written");
            Some(dir.join(name))
        };
        ServeArgs {
            exec_tls_ca: file("ca.crt", authority.pem()),
            exec_tls_cert: file("tls.crt", &issued.certificate),
            exec_tls_key: file("tls.key", &issued.key),
            ..at(url)
        }
    }

    #[test]
    fn plain_http_stays_on_this_machine() {
        for url in [
            "http://127.0.0.1:8081",
            "http://localhost:1",
            "http://[::1]:8081/",
        ] {
            assert_eq!(faults(&at(url)), Vec::<String>::new(), "{url}");
        }
        for url in ["http://gateway:8081", "http://10.0.0.1:8081"] {
            let told = faults(&at(url));
            assert_eq!(told.len(), 1);
            assert!(told[0].contains("must be https; http is"), "{told:?}");
        }
        for url in ["gateway", "ftp://gateway", "https:///x", "https://g/path"] {
            assert_eq!(faults(&at(url)).len(), 1, "{url}");
        }
    }

    #[test]
    fn https_needs_both_sides_files() {
        let told = faults(&at("https://gateway:8081"));
        let variables: Vec<&str> = told.iter().filter_map(|t| t.split(':').next()).collect();
        assert_eq!(variables, [CA, CERT, KEY]);

        let dir = tempfile::tempdir().expect("a directory");
        let good = with_files("https://gateway.bex.svc:8081", dir.path());
        let mut none = Faults::default();
        let endpoint = exec(&mut none, &good).expect("it is good");
        let name = endpoint.tls.expect("files").server_name;
        assert_eq!(name.to_str(), "gateway.bex.svc");
        let named = ServeArgs {
            exec_tls_name: Some("gateway".into()),
            ..good.clone()
        };
        let endpoint = exec(&mut none, &named).expect("it is good");
        let name = endpoint.tls.expect("files").server_name;
        assert_eq!(name.to_str(), "gateway");
        let plain = ServeArgs {
            exec_url: Some("http://127.0.0.1:1".into()),
            ..good.clone()
        };
        assert!(faults(&plain)[0].contains("must be https with"));
        let wrong = ServeArgs {
            exec_tls_key: good.exec_tls_ca.clone(),
            ..good
        };
        let told = faults(&wrong);
        assert!(told[0].contains("no usable private key"), "{told:?}");
    }
}
