//! The local CA: its key and certificate, and the certificates it signs for intercepted hosts.
//!
//! Owns: the content of these certificates. The caller keeps the files, and `targets::intercept` presents the
//! certificates.
//!
//! Invariants: a CA signs certificates for servers only, and never for another CA. If hosts are listed, it signs for
//! those hosts only. Its own certificate states this limit (RFC 5280 4.2.1.10), so a stolen key is useless for other
//! hosts. Keys are generated on this machine and never shown. Cost: one signature per host.

use std::{
    fmt, io,
    net::IpAddr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose, NameConstraints, PublicKeyData as _, SanType, SerialNumber,
};
use rustls::{
    SupportedCipherSuite as CipherSuite,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject as _},
    sign::CertifiedKey,
};
use x509_cert::{
    Certificate, TbsCertificate,
    der::{self, Decode as _, Encode as _},
    ext::pkix::{self, name::GeneralName},
};

use crate::ground::{config::HostPattern, digest::hex, tls_provider};

/// A CA that was generated on this machine.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
    pem: String,
    from_secs: i64,
    until_secs: i64,
    /// The host names that the CA may sign for, including all names below them. `None` means any name.
    permitted: Option<Vec<Box<str>>>,
    /// The private key for all host certificates.
    leaf_key: KeyPair,
}

impl Authority {
    /// Creates a CA that is valid for `lifetime`.
    ///
    /// It may sign for `hosts` only, or for any host if the list is empty or contains [`HostPattern::All`].
    ///
    /// # Errors
    /// The system provides no random numbers, or a certificate cannot express a host.
    pub fn generate(hosts: &[HostPattern], lifetime: Duration) -> io::Result<Self> {
        let mut number = [0; 4];
        fill(&mut number)?;
        let mut name = DistinguishedName::new();
        name.push(DnType::CommonName, format!("{NAME} {:08x}", u32::from_be_bytes(number)));
        let now = unix_secs(SystemTime::now());
        let mut params = base_params(now - CLOCK_SLACK_SECS, now + secs(lifetime))?;
        params.distinguished_name = name;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.name_constraints = constraints(hosts);
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let certificate = params.self_signed(&key).map_err(io::Error::other)?;
        Self::from_pem(&certificate.pem(), &key.serialize_pem())
    }

    /// Reads an existing CA from the PEM of its certificate and private key.
    ///
    /// # Errors
    /// `InvalidData` with the reason: the texts are not a certificate and its key, or [`Authority::generate`] did not
    /// create this CA.
    pub fn from_pem(certificate: &str, key: &str) -> io::Result<Self> {
        let refused = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what);
        let der = CertificateDer::from_pem_slice(certificate.as_bytes())
            .map_err(|_| refused("the file contains no certificate in PEM form"))?;
        let key = KeyPair::from_pem(key).map_err(|_| refused("the private key is not in PKCS #8 and PEM form"))?;
        let parsed = Certificate::from_der(&der).map_err(|_| refused("the certificate cannot be read"))?;
        let parsed = parsed.tbs_certificate();
        let public_key = parsed.subject_public_key_info().to_der().map_err(io::Error::other)?;
        if public_key != key.subject_public_key_info() {
            return Err(refused("the certificate does not match the private key"));
        }
        let basic = parsed.get_extension::<pkix::BasicConstraints>().ok().flatten();
        if !basic.is_some_and(|(_, constraints)| constraints.ca) {
            return Err(refused("the certificate is not one of a CA"));
        }
        let mut distinguished = DistinguishedName::new();
        distinguished.push(DnType::CommonName, common_name(parsed));
        let mut params = CertificateParams::default();
        params.distinguished_name = distinguished;
        let validity = parsed.validity();
        let leaf_key = KeyPair::generate().map_err(io::Error::other)?;
        let authority = Self {
            issuer: Issuer::new(params, key),
            pem: certificate.to_owned(),
            from_secs: secs(validity.not_before.to_unix_duration()),
            until_secs: secs(validity.not_after.to_unix_duration()),
            permitted: permitted(parsed).map_err(|_| refused("the name constraints cannot be read"))?,
            leaf_key,
            certificate: der.clone(),
        };
        let trial = authority.sign("trial.invalid")?;
        let issued =
            Certificate::from_der(&trial).is_ok_and(|leaf| leaf.tbs_certificate().issuer() == parsed.subject());
        if issued { Ok(authority) } else { Err(refused("the certificate was not created by `larder ca`")) }
    }

    /// Returns the CA's certificate in PEM, for clients to trust.
    pub fn certificate_pem(&self) -> &str {
        &self.pem
    }

    /// Returns the CA's certificate in DER.
    pub fn certificate_der(&self) -> &[u8] {
        &self.certificate
    }

    /// Returns the SHA-256 digest of the CA's certificate in hexadecimal.
    pub fn fingerprint(&self) -> String {
        let CipherSuite::Tls13(suite) = tls_provider::cipher_suite::TLS13_AES_128_GCM_SHA256 else {
            unreachable!("it is a suite of TLS 1.3")
        };
        hex(suite.common.hash_provider.hash(&self.certificate).as_ref())
    }

    /// Returns the CA's private key in PEM, to be written to the CA's file.
    pub fn key_pem(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// Returns the common name of the CA's certificate.
    pub fn name(&self) -> String {
        Certificate::from_der(&self.certificate).map_or_else(|_| String::new(), |it| common_name(it.tbs_certificate()))
    }

    /// Returns the time at which the CA's certificate expires.
    pub fn expires_at(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(self.until_secs.max(0).unsigned_abs())
    }

    /// Returns the host names that the CA may sign for, including all names below them. `None` means any name.
    pub fn permitted(&self) -> Option<&[Box<str>]> {
        self.permitted.as_deref()
    }

    /// Returns whether the CA may sign for `host`. Clients refuse a certificate of this CA for any other host.
    pub fn permits(&self, host: &str) -> bool {
        let is_within = |name: &str| host.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
        self.permitted.as_ref().is_none_or(|names| names.iter().any(|name| is_within(name)))
    }

    /// Returns whether the CA may sign for every host that `pattern` matches.
    ///
    /// Returns true for [`HostPattern::All`] even if the CA is limited: then hosts that it may not sign for are not
    /// intercepted.
    pub(crate) fn permits_all_of(&self, pattern: &HostPattern) -> bool {
        match pattern {
            HostPattern::All => true,
            HostPattern::Host(name) | HostPattern::Below(name) => self.permits(name),
        }
    }

    /// Creates a certificate for a host, with its key.
    ///
    /// # Errors
    /// The certificate cannot express the host.
    pub(crate) fn certify(&self, host: &str) -> io::Result<CertifiedKey> {
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.leaf_key.serialize_der()));
        let chain = vec![self.sign(host)?];
        CertifiedKey::from_der(chain, key, &tls_provider::default_provider()).map_err(io::Error::other)
    }

    fn sign(&self, host: &str) -> io::Result<CertificateDer<'static>> {
        let now = unix_secs(SystemTime::now());
        let from = (now - CLOCK_SLACK_SECS).max(self.from_secs);
        let mut params = base_params(from, (now + secs(LEAF_LIFETIME)).min(self.until_secs))?;
        let mut name = DistinguishedName::new();
        // Common names have a maximum length (RFC 5280, ub-common-name). Clients check only the alternative name.
        name.push(DnType::CommonName, if host.len() <= COMMON_NAME_BYTES_MAX { host } else { NAME });
        params.distinguished_name = name;
        params.subject_alt_names = vec![match host.parse::<IpAddr>() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName(host.try_into().map_err(io::Error::other)?),
        }];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        params.signed_by(&self.leaf_key, &self.issuer).map(|signed| signed.der().clone()).map_err(io::Error::other)
    }
}

/// Prints the CA without its private key.
impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").field("permitted", &self.permitted).finish_non_exhaustive()
    }
}

/// Returns the parameters that all certificates share: a serial number of their own, a validity period, and use by
/// servers only.
fn base_params(from_secs: i64, until_secs: i64) -> io::Result<CertificateParams> {
    let mut serial = [0; SERIAL_BYTES];
    fill(&mut serial)?;
    // The highest bits are set so that serial numbers are positive and have the same length.
    serial[0] = serial[0] & 0x7f | 0x40;
    let start = rcgen::date_time_ymd(1970, 1, 1);
    let at = |secs: i64| start + Duration::from_secs(secs.max(0).unsigned_abs());
    let mut params = CertificateParams::default();
    params.not_before = at(from_secs);
    params.not_after = at(until_secs);
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(params)
}

/// Returns the name constraints of a CA that may sign for `hosts` only. `None` if it may sign for any host.
fn constraints(hosts: &[HostPattern]) -> Option<NameConstraints> {
    if hosts.is_empty() || hosts.contains(&HostPattern::All) {
        return None;
    }
    let mut permitted = Vec::new();
    let mut has_v4 = false;
    let mut has_v6 = false;
    let mut has_name = false;
    for host in hosts {
        let (HostPattern::Host(name) | HostPattern::Below(name)) = host else { continue };
        permitted.push(match name.parse::<IpAddr>() {
            Ok(address) => {
                (has_v4, has_v6) = (has_v4 || address.is_ipv4(), has_v6 || address.is_ipv6());
                let width = if address.is_ipv4() { 32 } else { 128 };
                GeneralSubtree::IpAddress(CidrSubnet::from_addr_prefix(address, width))
            }
            Err(_) => {
                has_name = true;
                GeneralSubtree::DnsName(name.to_string())
            }
        });
    }
    // A kind without permitted names would permit all names of that kind, so each kind gets one that does not exist.
    let mut excluded = Vec::new();
    if !has_name {
        permitted.push(GeneralSubtree::DnsName(NOBODY.to_owned()));
    }
    if !has_v4 && !has_v6 {
        excluded.push(GeneralSubtree::IpAddress(CidrSubnet::V4([0; 4], [0; 4])));
        excluded.push(GeneralSubtree::IpAddress(CidrSubnet::V6([0; 16], [0; 16])));
    }
    Some(NameConstraints { permitted_subtrees: permitted, excluded_subtrees: excluded })
}

/// Returns the common name of a certificate's subject, or an empty string if it has none.
fn common_name(parsed: &TbsCertificate) -> String {
    parsed.subject().common_name().ok().flatten().map_or_else(String::new, |name| name.value().into_owned())
}

/// Returns the names that a CA certificate's constraints permit. `None` if it has no constraints.
fn permitted(parsed: &TbsCertificate) -> der::Result<Option<Vec<Box<str>>>> {
    let Some((_, constraints)) = parsed.get_extension::<pkix::NameConstraints>()? else { return Ok(None) };
    let subtrees = constraints.permitted_subtrees.iter().flatten();
    let names = subtrees.filter_map(|subtree| match &subtree.base {
        GeneralName::DnsName(name) => Some(name.as_str().into()),
        GeneralName::IpAddress(octets) => address(octets.as_bytes()).map(|address| address.to_string().into()),
        _ => None,
    });
    Ok(Some(names.collect()))
}

/// Returns the address in an IP constraint, which consists of an address and a mask of the same length.
fn address(octets: &[u8]) -> Option<IpAddr> {
    let half = octets.len() / 2;
    let address = octets.get(..half)?;
    let v4 = <[u8; 4]>::try_from(address).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(address).map(IpAddr::from)).ok()
}

fn fill(bytes: &mut [u8]) -> io::Result<()> {
    let provider = tls_provider::default_provider();
    provider.secure_random.fill(bytes).map_err(|_| io::Error::other("the system supplies no random numbers"))
}

fn unix_secs(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH).map_or(0, secs)
}

fn secs(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX / 2)
}

/// Lifetime of a host's certificate.
pub(crate) const LEAF_LIFETIME: Duration = Duration::from_hours(7 * 24);
/// First part of the common name of CAs that Larder generates.
const NAME: &str = "Larder local CA";
/// A name that is guaranteed not to exist (RFC 6761 6.4).
const NOBODY: &str = "invalid";
/// Seconds by which a certificate's validity begins before its creation, for clients whose clock is behind.
const CLOCK_SLACK_SECS: i64 = 24 * 3600;
const SERIAL_BYTES: usize = 16;
const COMMON_NAME_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests;
