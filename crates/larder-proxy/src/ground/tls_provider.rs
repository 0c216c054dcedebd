//! The cryptography of TLS: aws-lc in packages, ring in other builds.
//!
//! Owns: the choice of a provider (feature `aws-lc`). aws-lc has X25519MLKEM768, which a recording of the connection
//! does not give away to a quantum computer, and offers it first. ring has none, but compiles in a fraction of the
//! time. Digests outside of TLS come from ring in both builds.

#[cfg(feature = "aws-lc")]
pub(crate) use rustls::crypto::aws_lc_rs::{Ticketer, cipher_suite, default_provider};
#[cfg(not(feature = "aws-lc"))]
pub(crate) use rustls::crypto::ring::{Ticketer, cipher_suite, default_provider};

/// Makes the provider the process' default, which the libraries for object stores and shared logs use.
#[cfg(any(feature = "log-nats", feature = "log-redis", feature = "tier-s3"))]
pub(crate) fn install() {
    // An error means that a default is already set.
    let _ = default_provider().install_default();
}

/// Protocols offered in handshakes with clients, best first.
pub(crate) const ALPN_PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::{ClientConfig, ClientConnection, NamedGroup, RootCertStore, ServerConfig, ServerConnection};

    use super::*;

    /// Performs a handshake in memory, and returns the key exchange that both sides chose.
    fn agreed() -> NamedGroup {
        let rcgen::CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(vec!["a.example".into()]).unwrap();
        let provider = Arc::new(default_provider());
        let server = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let server = server.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let key = signing_key.serialize_der().try_into().unwrap();
        let server = server.with_single_cert(vec![cert.der().clone()], key).unwrap();
        let mut server = ServerConnection::new(Arc::new(server)).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(cert.der().clone()).unwrap();
        let client = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let client = client.with_root_certificates(roots).with_no_client_auth();
        let mut client = ClientConnection::new(Arc::new(client), "a.example".try_into().unwrap()).unwrap();
        while client.is_handshaking() || server.is_handshaking() {
            let mut octets = Vec::new();
            client.write_tls(&mut octets).unwrap();
            server.read_tls(&mut &octets[..]).unwrap();
            server.process_new_packets().unwrap();
            octets.clear();
            server.write_tls(&mut octets).unwrap();
            client.read_tls(&mut &octets[..]).unwrap();
            client.process_new_packets().unwrap();
        }
        server.negotiated_key_exchange_group().unwrap().name()
    }

    #[test]
    fn packages_agree_on_a_key_that_no_quantum_computer_finds() {
        let expected = if cfg!(feature = "aws-lc") { NamedGroup::X25519MLKEM768 } else { NamedGroup::X25519 };
        assert_eq!(agreed(), expected);
    }
}
