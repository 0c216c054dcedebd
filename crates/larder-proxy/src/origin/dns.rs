//! Resolves names to addresses, cached for as long as their records allow.
//!
//! Owns: a worker's resolver. Addresses are checked against the rules elsewhere. Cost: a cached name costs a lookup in
//! memory; a literal address nothing.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::OnceLock,
};

use hickory_resolver::{
    TokioResolver,
    config::{NameServerConfig, ResolverConfig},
    net::{NetError, runtime::TokioRuntimeProvider},
};

use larder_http::proxy_status::ProxyError;

use crate::{
    errors::Failure,
    origin::{fault::FaultReport, target::Origin},
};

/// A worker's resolver. Its background tasks live on that worker's runtime, so it is never shared.
#[derive(Default)]
pub(crate) struct DnsResolver {
    resolver: OnceLock<Result<TokioResolver, String>>,
}

impl DnsResolver {
    /// Returns the addresses of an origin, at least one.
    pub(crate) async fn resolve(&self, origin: &Origin) -> Result<Vec<SocketAddr>, Failure> {
        if let Ok(address) = origin.host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, origin.port)]);
        }
        self.resolve_all(&origin.host, origin.port, ADDRESS_COUNT_MAX).await
    }

    /// Returns at most `count_max` addresses of a host, at least one, with this port.
    pub(crate) async fn resolve_all(
        &self,
        host: &str,
        port: u16,
        count_max: usize,
    ) -> Result<Vec<SocketAddr>, Failure> {
        let failure = |fault| Failure::Unusable { host: host.to_owned(), fault };
        let resolver = self.resolver.get_or_init(|| build().map_err(|error| error.to_string()));
        let resolver = resolver
            .as_ref()
            .map_err(|why| failure(FaultReport::new(ProxyError::ProxyConfigurationError, why.clone())))?;
        let found = resolver.lookup_ip(host).await.map_err(|error| failure(FaultReport::of_name(&error)))?;
        let addresses: Vec<_> = found.iter().take(count_max).map(|address| SocketAddr::new(address, port)).collect();
        if addresses.is_empty() {
            return Err(failure(FaultReport::new(ProxyError::DnsError, "the name has no address")));
        }
        Ok(addresses)
    }
}

#[cfg(test)]
impl DnsResolver {
    /// Creates a resolver that asks only this server, over UDP.
    pub(crate) fn asking(server: SocketAddr) -> Self {
        let mut named = NameServerConfig::udp(server.ip());
        named.connections.iter_mut().for_each(|connection| connection.port = server.port());
        let config = ResolverConfig::from_name_servers(vec![named]);
        let built = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default()).build();
        Self { resolver: OnceLock::from(built.map_err(|error| error.to_string())) }
    }
}

/// Returns a resolver with the system's configuration. Without one it queries this host, as the C library does.
fn build() -> Result<TokioResolver, NetError> {
    match TokioResolver::builder_tokio().and_then(|builder| builder.build()) {
        Ok(resolver) => Ok(resolver),
        Err(error) => {
            tracing::info!(%error, "no usable resolver configuration: using the resolver on this host");
            let local = NameServerConfig::udp_and_tcp(IpAddr::V4(Ipv4Addr::LOCALHOST));
            let config = ResolverConfig::from_name_servers(vec![local]);
            TokioResolver::builder_with_config(config, TokioRuntimeProvider::default()).build()
        }
    }
}

/// Addresses of one name that are tried.
const ADDRESS_COUNT_MAX: usize = 16;

#[cfg(test)]
pub(crate) mod tests {
    use std::{
        net::UdpSocket,
        sync::{Arc, Mutex},
        thread,
    };

    use super::*;

    /// Answers every question for addresses with these, or with an error if there are none. The answers may be kept for
    /// no time.
    pub(crate) fn name_server(addresses: Arc<Mutex<Vec<Ipv4Addr>>>) -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        thread::spawn(move || {
            let mut question = [0; 512];
            while let Ok((len, from)) = socket.recv_from(&mut question) {
                let name_len = question[12..len].iter().position(|octet| *octet == 0).unwrap() + 1;
                let end = 12 + name_len + 4;
                let is_ipv4 = question[12 + name_len..end - 2] == [0, 1];
                let found = if is_ipv4 { addresses.lock().unwrap().clone() } else { Vec::new() };
                let code = if found.is_empty() && is_ipv4 { 2 } else { 0 };
                let mut answer = question[..2].to_vec();
                answer.extend([0x81, 0x80 | code, 0, 1, 0, found.len() as u8, 0, 0, 0, 0]);
                answer.extend(&question[12..end]);
                for address in found {
                    answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
                    answer.extend(address.octets());
                }
                socket.send_to(&answer, from).unwrap();
            }
        });
        address
    }

    #[tokio::test]
    async fn names_in_punycode_are_resolved() {
        // Clients send names beyond ASCII in Punycode, and the resolver has no tables of Unicode to check them with.
        let dns = DnsResolver::asking(name_server(Arc::new(Mutex::new(vec![Ipv4Addr::LOCALHOST]))));
        for host in ["xn--mnchen-3ya.example.", "xn--fiqs8s.", "XN--BCHER-KVA.example.", "site.xn--p1ai."] {
            let found = dns.resolve_all(host, 80, 1).await.map_err(|_| host);
            assert_eq!(found, Ok(vec!["127.0.0.1:80".parse().unwrap()]));
        }
    }
}
