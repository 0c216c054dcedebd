//! Selects the tunnels to decrypt, and the certificates to present in them.
//!
//! Owns: the CA, its recent certificates, and the list of clients that refused them. Tunnels are read in
//! `road::intercept`. Invariants: a presented certificate is valid for a week at most. The number of kept
//! certificates is bounded. Cost: a host's first connection waits for one signature, which is computed on a thread that
//! serves no clients.

pub(crate) mod bypass;
pub(crate) mod hello;
mod refusals;

use std::{
    fmt, fs, io,
    net::IpAddr,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use quick_cache::sync::Cache;
use rustls::{
    ServerConfig,
    server::{ClientHello, NoServerSessionStorage, ProducesTickets, ResolvesServerCert},
    sign::CertifiedKey,
};

use crate::{
    ground::{
        config::{HostRules, Intercept},
        tls_provider::{self, ALPN_PROTOCOLS},
    },
    targets::{
        authority::{Authority, LEAF_LIFETIME},
        intercept::{bypass::BypassReason, refusals::ClientRefusals},
    },
};

/// Decides which tunnels are decrypted, and creates the certificates for them.
pub(crate) struct Interceptor {
    rules: HostRules,
    authority: Arc<Authority>,
    shown: Cache<Box<str>, ShownCertificate>,
    refusals: ClientRefusals,
    ticketer: Arc<dyn ProducesTickets>,
}

/// A TLS configuration with a certificate for one host, and its creation time.
#[derive(Clone)]
struct ShownCertificate {
    config: Arc<ServerConfig>,
    made: SystemTime,
}

impl Interceptor {
    /// Creates an interceptor for tunnels to the hosts in `rules`. `authority` is the CA that signs its certificates.
    ///
    /// # Errors
    /// The system provides no random numbers.
    pub(crate) fn new(rules: HostRules, authority: Authority) -> io::Result<Self> {
        // Tickets are encrypted and kept by the clients, so that they can resume on any worker.
        let ticketer = tls_provider::Ticketer::new().map_err(io::Error::other)?;
        let shown = Cache::new(SHOWN_COUNT_MAX);
        let refusals = ClientRefusals::default();
        Ok(Self { rules, authority: Arc::new(authority), shown, refusals, ticketer })
    }

    /// Opens the CA and host list of a configuration.
    ///
    /// # Errors
    /// `InvalidInput`: its files are faulty, or the CA may not sign for a listed host. The error names the file or
    /// host.
    pub(crate) fn open(config: &Intercept) -> io::Result<Self> {
        let refused = |what: String| io::Error::new(io::ErrorKind::InvalidInput, what);
        let certificate = &config.authority.certificate;
        let key = &config.authority.key;
        let read = |path: &std::path::Path| {
            fs::read_to_string(path)
                .map_err(|error| refused(format!("cannot read the CA: {error}: {}", path.display())))
        };
        let authority = Authority::from_pem(&read(certificate)?, &read(key)?)
            .map_err(|error| refused(format!("the CA cannot be used: {error}: {}", certificate.display())))?;
        if authority.expires_at() <= SystemTime::now() {
            return Err(refused(format!("the CA has expired: {}", certificate.display())));
        }
        if let Some(host) = config.hosts.hosts.iter().find(|pattern| !authority.permits_all_of(pattern)) {
            return Err(refused(format!("the CA may not sign for a host to intercept: {host}")));
        }
        Self::new(config.hosts.clone(), authority)
    }

    /// Returns whether `host` is listed for interception.
    pub(crate) fn lists(&self, host: &str) -> bool {
        self.rules.contain(host)
    }

    /// Returns why tunnels of `client` to the listed host `host` are not decrypted, or `None` if they are decrypted.
    pub(crate) fn bypass(&self, client: IpAddr, host: &str) -> Option<BypassReason> {
        if !self.authority.permits(host) {
            return Some(BypassReason::NotPermitted);
        }
        self.refusals.is_let_through(client, host, Instant::now()).then_some(BypassReason::Refused)
    }

    /// Returns the time at which the CA's certificate expires.
    pub(crate) fn expires_at(&self) -> SystemTime {
        self.authority.expires_at()
    }

    /// Returns the CA's certificate in PEM.
    pub(crate) fn certificate_pem(&self) -> &str {
        self.authority.certificate_pem()
    }

    /// Returns the TLS configuration for clients that request `host`.
    ///
    /// # Errors
    /// A certificate cannot express the host's name.
    pub(crate) async fn server_config(self: &Arc<Self>, host: &str) -> io::Result<Arc<ServerConfig>> {
        if let Some(shown) = self.shown.get(host)
            && shown.made.elapsed().is_ok_and(|age| age < SHOWN_FOR)
        {
            return Ok(shown.config);
        }
        let this = Arc::clone(self);
        let name = host.to_owned();
        let making = tokio::task::spawn_blocking(move || this.make(&name));
        let shown = making.await.map_err(io::Error::other)??;
        self.shown.insert(host.into(), shown.clone());
        Ok(shown.config)
    }

    fn make(&self, host: &str) -> io::Result<ShownCertificate> {
        let made = SystemTime::now();
        let certificate = Arc::new(self.authority.certify(host)?);
        Ok(ShownCertificate {
            config: server_config(FixedCertificate(Some(certificate)), Some(Arc::clone(&self.ticketer)))?,
            made,
        })
    }

    /// Records that a client refused the certificate for `host`, and logs how the operator can fix it.
    pub(crate) fn note_refusal(&self, client: IpAddr, host: &str, why: &str) {
        let Some(count) = self.refusals.note(client, host, Instant::now()) else { return };
        let hours = refusals::LET_THROUGH_FOR.as_secs() / 3600;
        let help =
            format!("make the client trust the CA, or exempt the host: except = [\"{host}\"], or --except {host}");
        if count < refusals::REFUSAL_COUNT_MAX {
            tracing::warn!(host, %client, why, help, "a client rejected the certificate that Larder made for a host");
        } else {
            tracing::warn!(
                host,
                %client,
                why,
                help,
                hours,
                "a client rejected the certificate that Larder made for a host: Larder tunnels its connections to that \
                 host for some hours, without decrypting them"
            );
        }
    }
}

impl fmt::Debug for Interceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interceptor").field("rules", &self.rules).finish_non_exhaustive()
    }
}

/// Returns a TLS configuration whose handshakes fail, so that the client receives an alert.
///
/// # Errors
/// The TLS library refuses its own defaults.
pub(crate) fn refusing_config() -> io::Result<Arc<ServerConfig>> {
    server_config(FixedCertificate(None), None)
}

fn server_config(shown: FixedCertificate, ticketer: Option<Arc<dyn ProducesTickets>>) -> io::Result<Arc<ServerConfig>> {
    let provider = Arc::new(tls_provider::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let mut config = builder.map_err(io::Error::other)?.with_no_client_auth().with_cert_resolver(Arc::new(shown));
    config.alpn_protocols = ALPN_PROTOCOLS.map(<[u8]>::to_vec).to_vec();
    config.session_storage = Arc::new(NoServerSessionStorage {});
    if let Some(ticketer) = ticketer {
        config.ticketer = ticketer;
    }
    Ok(Arc::new(config))
}

/// Presents the same certificate whatever name is requested, or refuses the handshake if there is none.
#[derive(Debug)]
struct FixedCertificate(Option<Arc<CertifiedKey>>);

impl ResolvesServerCert for FixedCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.clone()
    }
}

/// Maximum number of hosts whose certificates are kept in memory.
const SHOWN_COUNT_MAX: usize = 1024;
/// Time for which a certificate is presented before it is replaced, so that no client receives a certificate that is
/// about to expire.
const SHOWN_FOR: Duration = Duration::from_secs(LEAF_LIFETIME.as_secs() / 7 * 6);
