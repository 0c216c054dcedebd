//! Certificates created for a test, and clients that trust only these.

use std::{path::Path, sync::Arc};

use larder_proxy::TlsIdentity;
use rustls::{ClientConfig, RootCertStore, pki_types::CertificateDer};

/// Certificates for some names, signed by themselves, as PEM files in a directory.
pub(crate) struct Made {
    pub(crate) identity: TlsIdentity,
    pub(crate) der: CertificateDer<'static>,
}

impl Made {
    /// Creates a certificate for `names`, in files whose names begin with `file`. Replaces existing files.
    pub(crate) fn new(directory: &Path, file: &str, names: &[&str]) -> Self {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let identity = TlsIdentity {
            certificate: directory.join(format!("{file}.pem")),
            key: directory.join(format!("{file}.key")),
        };
        std::fs::write(&identity.certificate, made.cert.pem()).unwrap();
        std::fs::write(&identity.key, made.signing_key.serialize_pem()).unwrap();
        Self { identity, der: made.cert.der().clone() }
    }
}

/// Returns the configuration of a client that trusts only these certificates and offers these protocols.
pub(crate) fn client_config(trusted: &[&CertificateDer<'static>], alpn: &[&str]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in trusted {
        roots.add((*certificate).clone()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    Arc::new(config)
}
