//! Where clients connect, as the configuration file says it: `listen`, `listen_tls` and `[[certificate]]`.
//!
//! Owns: how these go together. Invariant: any of the keys that name addresses replaces the default address.

use super::{
    each,
    section::{Problem, Section},
};
use crate::value;
use larder_proxy::{Listener, ProxyConfig, TlsIdentity};

/// Reads the keys at the top of the file into `proxy`.
pub(super) fn read(top: &mut Section<'_>, proxy: &mut ProxyConfig) -> Result<(), Problem> {
    let plain = top.take("listen", |value| each(value, "an address", value::listen_address))?;
    let tls = top.take("listen_tls", |value| each(value, "an address", value::listen_address))?;
    if plain.is_some() || tls.is_some() {
        let plain = plain.into_iter().flatten().map(Listener::plain);
        proxy.listeners = plain.chain(tls.into_iter().flatten().map(Listener::tls)).collect();
    }
    proxy.identities = top.tables("certificate", identity)?;
    Ok(())
}

/// One `[[certificate]]`: its file and that of its key.
fn identity(section: &mut Section<'_>) -> Result<TlsIdentity, Problem> {
    let help = "say where the certificate and those above it are, such as file = \"/etc/larder/example.pem\"";
    let certificate = section.take("file", |value| value.parsed("a path", value::path))?;
    let certificate = certificate.ok_or_else(|| section.missing("file", help))?;
    let help = "say where its private key is, such as key = \"/etc/larder/example.key\"";
    let key = section.take("key", |value| value.parsed("a path", value::path))?;
    let key = key.ok_or_else(|| section.missing("key", help))?;
    Ok(TlsIdentity { certificate, key })
}
