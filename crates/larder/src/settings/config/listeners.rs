//! Reads the addresses on which clients connect: `listen`, `listen_tls`, `[[listener]]` and `[[certificate]]`.
//!
//! Owns: how these keys combine. Invariant: every key that names an address replaces the default address.

use super::section::{ConfigProblem, ConfigSection, ConfigValue};
use crate::ground::value;
use larder_proxy::{Listener, ProxyConfig, TlsIdentity};
use std::{net::SocketAddr, ops::Range};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// Reads the listening addresses and certificates into `proxy`.
pub(super) fn read(top: &mut ConfigSection<'_>, proxy: &mut ProxyConfig) {
    let plain = top.take("listen", |value| value.each("an address", value::listen_address));
    let tls = top.take("listen_tls", |value| value.each("an address", value::listen_address));
    let more = top.tables("listener", listener);
    if plain.is_some() || tls.is_some() || !more.is_empty() {
        let plain = plain.into_iter().flatten().map(Listener::plain);
        let tls = tls.into_iter().flatten().map(Listener::tls);
        proxy.listeners = plain.chain(tls).chain(more).collect();
    }
    proxy.identities = top.tables("certificate", identity);
}

/// Returns the listening addresses in a configuration file, each with its place in the text.
pub(super) fn places(text: &str) -> Vec<(SocketAddr, Range<usize>)> {
    let Ok(table) = DeTable::parse(text) else { return Vec::new() };
    let table = table.into_inner();
    let members = |key| table.get(key).and_then(|value| value.get_ref().as_array()).into_iter().flatten();
    let addresses = members("listener").filter_map(|value| value.get_ref().as_table()?.get("address"));
    let alone = ["listen", "listen_tls"].into_iter().filter_map(|key| table.get(key));
    let all = alone.chain(members("listen")).chain(members("listen_tls")).chain(addresses);
    let placed = |value: &Spanned<DeValue<'_>>| {
        let address = value::listen_address(value.get_ref().as_str()?).ok()?;
        Some((address, value.span()))
    };
    all.filter_map(placed).collect()
}

/// Reads a `[[listener]]` section: an address and its settings.
fn listener(section: &mut ConfigSection<'_>) -> Result<Listener, ConfigProblem> {
    let help = "give the address to listen on, such as address = \"192.168.0.1:8080\"";
    let address = section.take("address", |value| value.parsed("an address", value::listen_address));
    let mut listener = Listener::plain(address.ok_or_else(|| section.missing("address", help))?);
    section.set("tls", &mut listener.tls, ConfigValue::boolean);
    section.set("origin_form", &mut listener.origin_form, ConfigValue::boolean);
    let networks = &mut listener.proxied_by;
    section.set("proxy_protocol_from", networks, |value| value.each("a network", value::network));
    Ok(listener)
}

/// Reads a `[[certificate]]` section: the files of a certificate and its key.
fn identity(section: &mut ConfigSection<'_>) -> Result<TlsIdentity, ConfigProblem> {
    let help = "give the file with the certificate chain, such as file = \"/etc/larder/example.pem\"";
    let certificate = section.take("file", |value| value.parsed("a path", value::path));
    let certificate = certificate.ok_or_else(|| section.missing("file", help))?;
    let help = "give the file with the private key, such as key = \"/etc/larder/example.key\"";
    let key = section.take("key", |value| value.parsed("a path", value::path));
    let key = key.ok_or_else(|| section.missing("key", help))?;
    Ok(TlsIdentity { certificate, key })
}
