//! Selects the certificates for clients by name, and reloads them when their files change.
//!
//! Owns: the certificates. Files are watched in `file_watcher`. Invariants: a certificate stays in use until a valid
//! replacement has been read, so a broken file never takes a listener down. Open connections are not affected. Cost: a
//! handshake takes one lock and one lookup by name. The watcher reads the files' times once a second.

use larder_device::IgnorePoison;
use std::{
    collections::HashMap,
    fmt,
    net::IpAddr,
    path::Path,
    sync::{Arc, RwLock},
};

use rustls::{
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use webpki::EndEntityCert;
use x509_cert::{Certificate, der::Decode as _, ext::pkix::SubjectAltName};

use crate::ground::{
    config::TlsIdentity,
    file_watcher::{FileStamp, stamp},
    tls_provider,
};

/// The certificates that listeners present to clients.
pub(crate) struct CertificateSet {
    identities: Vec<TlsIdentity>,
    table: RwLock<CertificateNames>,
}

/// The certificates, by the host names that they cover.
struct CertificateNames {
    by_name: HashMap<String, Vec<Arc<CertifiedKey>>>,
    /// The default certificate: for clients whose handshake names no host, or an unknown one.
    first: Arc<CertifiedKey>,
}

impl CertificateSet {
    /// Reads the certificates and keys of all identities. The first identity is for clients that name no known host.
    ///
    /// # Errors
    /// The list is empty, or a file is unreadable or invalid. The error says which file and why.
    pub(crate) fn load(identities: &[TlsIdentity]) -> Result<Self, String> {
        let table = CertificateNames::load(identities)?;
        Ok(Self { identities: identities.to_vec(), table: RwLock::new(table) })
    }

    /// Returns whether the certificate shown to clients that request `name` also covers `host`, a name or address.
    ///
    /// If not, requests to `host` on a connection that was opened for `name` are refused (RFC 9110 7.4).
    pub(crate) fn speak_for(&self, name: Option<&str>, host: &str) -> bool {
        let table = self.table.read().ignore_poison();
        table.covers(table.choose(name), host)
    }

    /// Reads all files again, and replaces the certificates.
    ///
    /// # Errors
    /// A file is invalid; the error says which and why. The current certificates stay in use.
    pub(crate) fn reload(&self) -> Result<(), String> {
        let table = CertificateNames::load(&self.identities)?;
        *self.table.write().ignore_poison() = table;
        Ok(())
    }

    /// Returns each certificate's name and expiry, in seconds of Unix time.
    pub(crate) fn expiries(&self) -> Vec<(String, i64)> {
        let table = self.table.read().ignore_poison();
        let named = table.by_name.iter().flat_map(|(name, keys)| keys.iter().map(move |key| (name, key)));
        let ends = named.filter_map(|(name, key)| {
            let certificate = Certificate::from_der(key.cert.first()?).ok()?;
            let end = certificate.tbs_certificate().validity().not_after.to_unix_duration();
            Some((name.clone(), i64::try_from(end.as_secs()).ok()?))
        });
        ends.collect()
    }

    pub(crate) fn stamps(&self) -> Vec<FileStamp> {
        let files = self.identities.iter().flat_map(|identity| [&identity.certificate, &identity.key]);
        files.map(|path| stamp(path)).collect()
    }
}

impl ResolvesServerCert for CertificateSet {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let table = self.table.read().ignore_poison();
        Some(Arc::clone(table.choose(hello.server_name())))
    }
}

impl fmt::Debug for CertificateSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates").field("identities", &self.identities).finish_non_exhaustive()
    }
}

impl CertificateNames {
    fn load(identities: &[TlsIdentity]) -> Result<Self, String> {
        let mut by_name = HashMap::new();
        let mut first = None;
        for identity in identities {
            let (certified, names) = read(identity)?;
            let certified = Arc::new(certified);
            first.get_or_insert_with(|| Arc::clone(&certified));
            for name in names {
                by_name.entry(name).or_insert_with(Vec::new).push(Arc::clone(&certified));
            }
        }
        let first = first.ok_or("a listener with TLS needs a certificate and its key")?;
        Ok(Self { by_name, first })
    }

    /// Returns the certificate for a client that requests `name`.
    ///
    /// An exact match takes precedence over a wildcard (RFC 6125 6.4.3). Without a match, returns the first
    /// certificate.
    fn choose(&self, name: Option<&str>) -> &Arc<CertifiedKey> {
        name.and_then(|name| self.named(name).next()).unwrap_or(&self.first)
    }

    /// Returns whether the certificate `shown` is valid for `host`.
    fn covers(&self, shown: &Arc<CertifiedKey>, host: &str) -> bool {
        let bare = host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')).unwrap_or(host);
        if let Ok(address) = bare.parse::<IpAddr>() {
            let certificate = shown.cert.first().and_then(|der| EndEntityCert::try_from(der).ok());
            let name = ServerName::from(address);
            return certificate.is_some_and(|certificate| certificate.verify_is_valid_for_subject_name(&name).is_ok());
        }
        // Names in certificates do not end with the dot of the root. A host with a wildcard is invalid.
        let name = host.strip_suffix('.').unwrap_or(host);
        !name.contains('*') && self.named(name).any(|good| Arc::ptr_eq(good, shown))
    }

    /// Returns the certificates that are valid for a name, best first.
    fn named(&self, name: &str) -> impl Iterator<Item = &Arc<CertifiedKey>> {
        let name = name.to_ascii_lowercase();
        let wildcard = name.find('.').filter(|dot| *dot > 0).map(|dot| format!("*{}", &name[dot..]));
        let wildcard = wildcard.and_then(|wildcard| self.by_name.get(&wildcard));
        self.by_name.get(&name).into_iter().chain(wildcard).flatten()
    }
}

impl TlsIdentity {
    /// Reads the host names that the certificate covers, in lower case, including patterns such as `*.example.com`.
    ///
    /// # Errors
    /// The file is unreadable or invalid. The error says why.
    pub fn host_names(&self) -> Result<Vec<String>, String> {
        Ok(read_chain(&self.certificate)?.1)
    }
}

/// Reads a certificate chain, and the host names that its first certificate covers, in lower case.
fn read_chain(path: &Path) -> Result<(Vec<CertificateDer<'static>>, Vec<String>), String> {
    let unreadable = |error: &dyn fmt::Display| format!("cannot read certificate: {error}: {}", path.display());
    let chain = CertificateDer::pem_file_iter(path).map_err(|error| unreadable(&error))?;
    let chain = chain.collect::<Result<Vec<_>, _>>().map_err(|error| unreadable(&error))?;
    let end = chain.first().ok_or_else(|| unreadable(&"the file contains no certificate in PEM form"))?;
    let parsed = EndEntityCert::try_from(end).map_err(|error| unreadable(&error))?;
    let names = parsed.valid_dns_names().map(str::to_ascii_lowercase).collect();
    Ok((chain, names))
}

/// Reads a certificate with its key, and the host names that it covers, in lower case.
pub(crate) fn read(identity: &TlsIdentity) -> Result<(CertifiedKey, Vec<String>), String> {
    let TlsIdentity { certificate, key } = identity;
    let say = |what: &str, path: &Path, error: &dyn fmt::Display| format!("{what}: {error}: {}", path.display());
    let (chain, names) = read_chain(certificate)?;
    if chain.first().is_some_and(|end| !has_alternative_names(end)) {
        let path = certificate.display();
        tracing::warn!(%path, "a certificate has no subjectAltName, so it covers no host and requests get 421: issue one with host names");
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| say("cannot read private key", key, &error))?;
    let provider = tls_provider::default_provider();
    let certified = CertifiedKey::from_der(chain, private, &provider)
        .map_err(|error| say("private key does not match its certificate", key, &error))?;
    Ok((certified, names))
}

/// Returns whether a certificate has alternative names. Clients check only these (RFC 9110 4.3.4), not the common name.
fn has_alternative_names(certificate: &CertificateDer<'_>) -> bool {
    let parsed = Certificate::from_der(certificate);
    parsed.is_ok_and(|parsed| matches!(parsed.tbs_certificate().get_extension::<SubjectAltName>(), Ok(Some(_))))
}
