//! The ways in which a request can reach the proxy. The corpus has the same outcome by each of them.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use larder_proxy::{
    Authority, HostRules, Intercept, Listener, Mirror, OriginUrl, ProxyConfig, RunningProxy, Site, TlsIdentity,
};
use rustls::{
    ClientConfig, ClientConnection, StreamOwned,
    pki_types::{CertificateDer, ServerName},
};
use tempfile::TempDir;

use crate::support::{
    Connection, Fixture,
    certificates::{Made, client_config},
    client::Stream,
};

/// A way in which a request reaches the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Plain,
    /// By the path of a mirror.
    Mirror,
    /// Inside a tunnel that is intercepted.
    Intercepted,
    /// To a listener with TLS.
    Tls,
}

impl Way {
    pub(crate) const ALL: [Self; 4] = [Self::Plain, Self::Mirror, Self::Intercepted, Self::Tls];

    /// Returns its name in the corpus.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Mirror => "mirror",
            Self::Intercepted => "intercepted",
            Self::Tls => "tls",
        }
    }

    /// Returns a target in the form requested by this way.
    pub(crate) fn target(self, target: &str) -> String {
        if self == Self::Mirror { format!("{MIRROR}{target}") } else { target.to_owned() }
    }

    /// Returns a case's octets as sent by this way. For a mirror, its path is inserted before the first request's
    /// target if that is a path.
    pub(crate) fn sent(self, octets: &[u8]) -> Vec<u8> {
        let start = octets.iter().position(|octet| !b"\r\n".contains(octet)).unwrap_or(octets.len());
        let method_len = octets[start..].iter().position(|octet| !octet.is_ascii_alphabetic()).unwrap_or_default();
        let at = start + method_len + 1;
        if self != Self::Mirror || method_len == 0 || octets.get(at - 1..=at) != Some(b" /") {
            return octets.to_vec();
        }
        [&octets[..at], MIRROR.as_bytes(), &octets[at..]].concat()
    }
}

/// A proxy in memory that is reached by one way.
pub(crate) struct Stage {
    pub(crate) way: Way,
    proxy: RunningProxy,
    /// The certificates that clients trust, if this way uses TLS.
    trusted: Option<Arc<ClientConfig>>,
    _directory: TempDir,
}

impl Stage {
    pub(crate) fn new(way: Way, origin: SocketAddr) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let url: OriginUrl = format!("http://{origin}").parse().unwrap();
        let mut trusted = None;
        let proxy = Fixture::proxy_to(origin, |config| {
            (config.forward, config.worker_count) = (false, 1);
            trusted = match way {
                Way::Plain => None,
                Way::Mirror => {
                    config.mirrors = vec![Mirror::of_files(MIRROR, url)];
                    None
                }
                Way::Intercepted => Some(intercept(config, url, &directory)),
                Way::Tls => Some(listen_with_tls(config, &directory)),
            };
        });
        let trusted = trusted.map(|der| client_config(&[&der], &["http/1.1"]));
        Self { way, proxy, trusted, _directory: directory }
    }

    /// Opens a connection on which the corpus is sent.
    pub(crate) fn open(&self) -> Connection<Box<dyn Stream>> {
        let mut connection = Connection::open(self.proxy.local_addrs()[0]);
        if self.way == Way::Intercepted {
            connection.send(format!("CONNECT {HOST}:443 HTTP/1.1\r\nHost: {HOST}:443\r\n\r\n"));
            let opened = connection.read_head();
            assert_eq!(opened.status, 200, "{opened:?}");
        }
        connection.wrapped(HOST, |socket| match &self.trusted {
            None => Box::new(socket) as Box<dyn Stream>,
            Some(config) => {
                let name = ServerName::try_from(HOST).unwrap();
                Box::new(StreamOwned::new(ClientConnection::new(Arc::clone(config), name).unwrap(), socket))
            }
        })
    }
}

/// Configures the proxy to intercept the corpus' host, which a site maps to the origin. Returns Larder's CA.
fn intercept(config: &mut ProxyConfig, origin: OriginUrl, directory: &TempDir) -> CertificateDer<'static> {
    let hosts = HostRules { hosts: vec![HOST.parse().unwrap()], except: Vec::new() };
    let authority = Authority::generate(&hosts.hosts, Duration::from_hours(1)).unwrap();
    let certificate = directory.path().join("ca.pem");
    let key = directory.path().join("ca.key");
    std::fs::write(&certificate, authority.certificate_pem()).unwrap();
    std::fs::write(&key, authority.key_pem()).unwrap();
    (config.forward, config.default_origin) = (true, None);
    config.sites = vec![Site::of_host(HOST, Arc::new(origin.into()))];
    config.intercept = Some(Intercept { hosts, authority: TlsIdentity { certificate, key } });
    CertificateDer::from(authority.certificate_der().to_vec())
}

/// Configures the proxy to listen with TLS, with a certificate for the corpus' hosts. Returns the certificate.
fn listen_with_tls(config: &mut ProxyConfig, directory: &TempDir) -> CertificateDer<'static> {
    let made = Made::new(directory.path(), "own", &[HOST, "b"]);
    config.listeners = vec![Listener::tls("127.0.0.1:0".parse().unwrap())];
    config.identities = vec![made.identity];
    made.der
}

/// The host that the corpus' requests are for.
const HOST: &str = "a";
const MIRROR: &str = "/m";
