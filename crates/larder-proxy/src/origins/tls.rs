//! TLS with origins, trusting the system's CAs and those the operator adds.
//!
//! Owns: the client configuration, built for the first https origin. TLS with clients is elsewhere.

use std::{
    io,
    path::Path,
    sync::{Arc, OnceLock},
};

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{
    ground::tls_provider,
    origins::certificate_askers::{CertificateNoter, note},
};

/// The TLS configurations for connections to origins.
#[derive(Default)]
pub(crate) struct OriginTls {
    /// Two configurations: without HTTP/2 among the offered protocols, and with it. Built for the first https origin.
    configs: OnceLock<Result<[Arc<ClientConfig>; 2], String>>,
}

impl OriginTls {
    /// Performs the handshake with `host`, whose certificate must be valid for it.
    ///
    /// `extra_ca` is a file with additional CAs, and `http2` says whether to offer HTTP/2. Also returns whether the
    /// origin requested a client certificate.
    pub(crate) async fn connect(
        &self,
        stream: TcpStream,
        host: &str,
        (extra_ca, http2): (Option<&Path>, bool),
    ) -> (io::Result<TlsStream<TcpStream>>, bool) {
        let configs = self.configs.get_or_init(|| build(extra_ca));
        let config = configs.as_ref().map(|configs| Arc::clone(&configs[usize::from(http2)]));
        let config = config.map_err(|why| io::Error::other(why.clone()));
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other);
        match config.and_then(|config| Ok((config, name?))) {
            Ok((config, name)) => note(TlsConnector::from(config).connect(name, stream)).await,
            Err(error) => (Err(error), false),
        }
    }
}

/// Adds the certificates in a PEM file to the trusted `roots`.
pub(crate) fn load_ca_file(path: &Path, roots: &mut RootCertStore) -> Result<(), String> {
    let say = |error: &dyn std::fmt::Display| format!("cannot read CA certificates: {error}: {}", path.display());
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| say(&error))? {
        let certificate = certificate.map_err(|error| say(&error))?;
        roots.add(certificate).map_err(|error| say(&error))?;
    }
    Ok(())
}

fn build(extra_ca: Option<&Path>) -> Result<[Arc<ClientConfig>; 2], String> {
    let mut roots = RootCertStore::empty();
    let native = rustls_native_certs::load_native_certs();
    for error in &native.errors {
        tracing::warn!(%error, "cannot read one of the system's CA certificates: origins whose certificates need it are refused");
    }
    roots.add_parsable_certificates(native.certs);
    if let Some(path) = extra_ca {
        load_ca_file(path, &mut roots)?;
    }
    let provider = Arc::new(tls_provider::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let mut without = builder.with_root_certificates(roots).with_client_cert_resolver(Arc::new(CertificateNoter));
    without.alpn_protocols = vec![b"http/1.1".to_vec()];
    let mut with = without.clone();
    with.alpn_protocols.insert(0, b"h2".to_vec());
    Ok([Arc::new(without), Arc::new(with)])
}
