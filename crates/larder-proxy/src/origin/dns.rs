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
        let failure = |fault| Failure::Unusable { host: origin.host.to_string(), fault };
        let resolver = self.resolver.get_or_init(|| build().map_err(|error| error.to_string()));
        let resolver = resolver
            .as_ref()
            .map_err(|why| failure(FaultReport::new(ProxyError::ProxyConfigurationError, why.clone())))?;
        let found = resolver.lookup_ip(&*origin.host).await.map_err(|error| failure(FaultReport::of_name(&error)))?;
        let addresses: Vec<_> =
            found.iter().take(ADDRESS_COUNT_MAX).map(|address| SocketAddr::new(address, origin.port)).collect();
        if addresses.is_empty() {
            return Err(failure(FaultReport::new(ProxyError::DnsError, "the name has no address")));
        }
        Ok(addresses)
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
