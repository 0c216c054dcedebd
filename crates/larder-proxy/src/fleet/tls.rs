//! TLS between the nodes of a fleet: both ends present a certificate, and both check that of the other.
//!
//! Owns: both TLS configurations, and which certificates are accepted. Invariants: a certificate is accepted if a CA in
//! the fleet's own file has signed it, if it is valid now, and if it covers the host of a node. The system's CAs do not
//! count. The fleet's secret is required too: a certificate alone makes nobody a node.
//!
//! Cost: one handshake per connection. Nodes keep their connections.

use larder_device::IgnorePoison;
use std::{
    io,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig,
    SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::{
        WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    sign::{CertifiedKey, SingleCertAndKey},
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, client::TlsStream};
use webpki::EndEntityCert;

use crate::{
    door::certificates,
    ground::{
        config::{Fleet, NodeTls},
        fault::certificate_fault,
        tls_provider,
    },
    origins::tls::load_ca_file,
};

/// TLS between the nodes of a fleet, for both directions.
pub(crate) struct FleetTls {
    connector: TlsConnector,
    acceptor: TlsAcceptor,
    /// The name of the fleet, if the nodes are found by its DNS addresses. Every node's certificate must then cover
    /// this name. `None` if the configuration lists the nodes.
    shared_name: Option<ServerName<'static>>,
}

/// Accepts the certificates of the fleet's nodes, and no others.
#[derive(Debug)]
struct NodeVerifier {
    chains: Arc<dyn ClientCertVerifier>,
    hosts: Vec<ServerName<'static>>,
    /// The time at which a refusal was last logged.
    logged: Mutex<Option<Instant>>,
}

impl FleetTls {
    /// Reads the certificate, the key and the CAs. `None` if the nodes do not use TLS.
    ///
    /// # Errors
    /// A file cannot be used, or other nodes would refuse this node's certificate. The error says which file and why.
    pub(crate) fn load(fleet: &Fleet) -> Result<Option<Self>, String> {
        let Some(tls) = &fleet.tls else { return Ok(None) };
        let identity = certificates::read(&tls.identity)?.0;
        let mut roots = RootCertStore::empty();
        load_ca_file(&tls.ca_file, &mut roots)?;
        let roots = Arc::new(roots);
        let provider = Arc::new(tls_provider::default_provider());
        let failed = |error: &dyn std::fmt::Display| format!("TLS between nodes: {error}: {}", tls.ca_file.display());
        let chains = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
            .build()
            .map_err(|error| failed(&error))?;
        let verifier = Arc::new(NodeVerifier { chains, hosts: hosts_of(fleet)?, logged: Mutex::default() });
        check_own(&verifier, &identity, tls)?;
        let identity = Arc::new(SingleCertAndKey::from(identity));
        let acceptor = acceptor(&provider, verifier, &identity).map_err(|error| failed(&error))?;
        let connector = connector(&provider, roots, identity).map_err(|error| failed(&error))?;
        let shared_name = fleet.dns.as_ref().map(|name| name_of(&name.host)).transpose()?;
        Ok(Some(Self { connector, acceptor, shared_name }))
    }

    /// Performs the TLS handshake with the node at `host`. The node's certificate must cover `host`, or the name of the
    /// fleet if it has one.
    pub(crate) async fn connect(&self, stream: TcpStream, host: &str) -> io::Result<TlsStream<TcpStream>> {
        let name = match &self.shared_name {
            Some(name) => name.clone(),
            None => name_of(host).map_err(io::Error::other)?,
        };
        self.connector.connect(name, stream).await
    }

    /// Returns the acceptor for connections from other nodes.
    pub(crate) fn acceptor(&self) -> &TlsAcceptor {
        &self.acceptor
    }
}

impl NodeVerifier {
    /// Returns why a certificate is refused. `None` if it is accepted.
    fn fault(&self, end: &CertificateDer<'_>, chain: &[CertificateDer<'_>], now: UnixTime) -> Option<rustls::Error> {
        if let Err(error) = self.chains.verify_client_cert(end, chain, now) {
            return Some(error);
        }
        let covers = |certificate: &EndEntityCert<'_>| {
            self.hosts.iter().any(|host| certificate.verify_is_valid_for_subject_name(host).is_ok())
        };
        let is_node = EndEntityCert::try_from(end).is_ok_and(|certificate| covers(&certificate));
        (!is_node).then(|| CertificateError::NotValidForName.into())
    }

    /// Logs a refusal, at most once per minute, because anybody can cause refusals.
    fn log(&self, error: &rustls::Error) {
        let mut logged = self.logged.lock().ignore_poison();
        if logged.is_none_or(|at| at.elapsed() >= LOG_INTERVAL) {
            *logged = Some(Instant::now());
            let why = reason(error);
            tracing::warn!(%why, "refused a connection to the address for nodes: its certificate is not a node's");
        }
    }
}

impl ClientCertVerifier for NodeVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chains.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        match self.fault(end, chain, now) {
            Some(error) => {
                self.log(&error);
                Err(error)
            }
            None => Ok(ClientCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chains.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chains.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}

/// Describes for the operator why a certificate is refused.
pub(crate) fn reason(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer) => {
            "no CA in the fleet's `ca_file` has signed it".to_owned()
        }
        rustls::Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "it does not cover the host of a node".to_owned(),
        rustls::Error::InvalidCertificate(bad) => {
            let (why, more) = certificate_fault(bad);
            format!("{why}{more}")
        }
        other => other.to_string(),
    }
}

/// Checks this node's own certificate in the same way as other nodes will.
fn check_own(verifier: &NodeVerifier, identity: &CertifiedKey, tls: &NodeTls) -> Result<(), String> {
    let (end, chain) = identity.cert.split_first().ok_or("a certificate of a node has no content")?;
    let Some(error) = verifier.fault(end, chain, UnixTime::now()) else { return Ok(()) };
    let why =
        format!("the certificate of this node is refused: {}: {}", reason(&error), tls.identity.certificate.display());
    match error {
        // An expired certificate is only logged, and the node starts: a restart must not take it down.
        rustls::Error::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        ) => {
            tracing::error!("{why}; the other nodes are not contacted");
            Ok(())
        }
        _ => Err(why),
    }
}

/// Returns the host names of all nodes, or the name of the fleet. A node's certificate must cover at least one of them.
fn hosts_of(fleet: &Fleet) -> Result<Vec<ServerName<'static>>, String> {
    let hosts = fleet.nodes.iter().map(|node| &node.host).chain(fleet.dns.as_ref().map(|name| &name.host));
    hosts.map(|host| name_of(host)).collect()
}

fn name_of(host: &str) -> Result<ServerName<'static>, String> {
    let bare = host.trim_start_matches('[').trim_end_matches(']').trim_end_matches('.');
    ServerName::try_from(bare.to_owned()).map_err(|_| format!("no certificate can cover the host of a node: {host}"))
}

fn acceptor(
    provider: &Arc<CryptoProvider>,
    verifier: Arc<NodeVerifier>,
    identity: &Arc<SingleCertAndKey>,
) -> Result<TlsAcceptor, rustls::Error> {
    let builder = ServerConfig::builder_with_provider(Arc::clone(provider)).with_safe_default_protocol_versions()?;
    let identity = Arc::<SingleCertAndKey>::clone(identity);
    let mut config = builder.with_client_cert_verifier(verifier).with_cert_resolver(identity);
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn connector(
    provider: &Arc<CryptoProvider>,
    roots: Arc<RootCertStore>,
    identity: Arc<SingleCertAndKey>,
) -> Result<TlsConnector, rustls::Error> {
    let builder = ClientConfig::builder_with_provider(Arc::clone(provider)).with_safe_default_protocol_versions()?;
    let mut config = builder.with_root_certificates(roots).with_client_cert_resolver(identity);
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

/// The protocol between nodes: HTTP/1.1, whose interim responses show that a node is alive.
const PROTOCOL: &[u8] = b"http/1.1";
const LOG_INTERVAL: Duration = Duration::from_mins(1);

#[cfg(test)]
mod tests;
