//! How the api is proved at the exec listener.

use std::net::SocketAddr;

use bex_tls::{ServerFiles, ServerTls, peer_name};

use super::reader::Reader;
use super::{absolute, is_local};

const CERT: &str = "BEX_EXEC_TLS_CERT";
const KEY: &str = "BEX_EXEC_TLS_KEY";
const CLIENT_CA: &str = "BEX_EXEC_TLS_CLIENT_CA";
const CLIENT_NAME: &str = "BEX_EXEC_TLS_CLIENT_NAME";

/// All four variables or none. Without them anybody who reaches the port may try a ticket, so it must not be reached from outside.
pub(super) fn read(reader: &mut Reader<'_>, listen: Option<SocketAddr>) -> Option<ServerFiles> {
    let variables = [CERT, KEY, CLIENT_CA, CLIENT_NAME];
    if variables.iter().all(|name| reader.text(name).is_none()) {
        // on one machine every listener is on loopback, which is told elsewhere
        if !is_local(reader) && listen.is_some_and(|address| !address.ip().is_loopback()) {
            let reason = format!("must be a loopback address without {CERT}");
            reader.fault("BEX_EXEC_LISTEN", reason);
        }
        return None;
    }
    let certificate = reader.required(CERT, absolute);
    let key = reader.required(KEY, absolute);
    let client_ca = reader.required(CLIENT_CA, absolute);
    let client_name = reader.required(CLIENT_NAME, peer_name);
    let files = ServerFiles {
        certificate: certificate?,
        key: key?,
        client_ca: client_ca?,
        client_name: client_name?,
    };
    match ServerTls::open(files.clone()) {
        Ok(_) => Some(files),
        Err(error) => {
            reader.fault(CERT, error.to_string());
            None
        }
    }
}
