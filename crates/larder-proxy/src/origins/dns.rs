//! Resolves names to addresses, cached for as long as their records allow.
//!
//! Owns: a worker's resolver, the hosts file, and the order of the queries. Addresses are checked against the rules
//! elsewhere. Invariants: a name in the hosts file is never asked about, whatever families it has there. A query that
//! nobody answers does not hold up the addresses of the other family (RFC 8305 3). Cost: a cached name costs a lookup
//! in memory; a literal address nothing.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    path::Path,
    pin::pin,
    sync::OnceLock,
    time::Duration,
};

use hickory_resolver::{
    TokioResolver,
    config::{NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts},
    net::{NetError, runtime::TokioRuntimeProvider},
    proto::{
        op::Query,
        rr::{Name, Record, RecordType},
    },
    system_conf::read_system_conf,
};
use larder_http::proxy_status::ProxyError;
use tokio::time::timeout;

use crate::{
    ground::{errors::Failure, fault::FaultReport, target::Origin},
    origins::hosts_file::{self, HostsFile},
};

/// A worker's resolver. Its background tasks run on the worker's runtime, so workers do not share it.
#[derive(Default)]
pub(crate) struct DnsResolver {
    lookups: OnceLock<Result<NameLookups, String>>,
}

/// Whether a lookup may return before the answers for both address families (IPv4 and IPv6) have arrived.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Completeness {
    /// The lookup waits only [`RESOLUTION_DELAY`] for the second family, once the first has an address that this
    /// machine can reach.
    Usable,
    /// The lookup waits for the answers for both families.
    Complete,
}

impl DnsResolver {
    /// Returns at least one address of an origin.
    pub(crate) async fn resolve(&self, origin: &Origin) -> Result<Vec<SocketAddr>, Failure> {
        if let Ok(address) = origin.host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, origin.port)]);
        }
        self.find(&origin.host, origin.port, ADDRESS_COUNT_MAX, Completeness::Usable).await
    }

    /// Returns between one and `count_max` addresses of a host, each with `port`.
    pub(crate) async fn resolve_all(
        &self,
        host: &str,
        port: u16,
        count_max: usize,
    ) -> Result<Vec<SocketAddr>, Failure> {
        self.find(host, port, count_max, Completeness::Complete).await
    }

    async fn find(
        &self,
        host: &str,
        port: u16,
        count_max: usize,
        completeness: Completeness,
    ) -> Result<Vec<SocketAddr>, Failure> {
        let failure = |fault| Failure::Unusable { host: host.to_owned(), fault };
        let lookups = self.lookups.get_or_init(|| NameLookups::of_system().map_err(|error| error.to_string()));
        let lookups = lookups
            .as_ref()
            .map_err(|why| failure(FaultReport::new(ProxyError::ProxyConfigurationError, why.clone())))?;
        let found = lookups.find(host, completeness).await.map_err(|error| failure(FaultReport::of_name(&error)))?;
        if found.is_empty() {
            return Err(failure(FaultReport::new(ProxyError::DnsError, "the name has no address")));
        }
        Ok(found.into_iter().take(count_max).map(|address| SocketAddr::new(address, port)).collect())
    }
}

/// The name servers, hosts file and search list of the system.
struct NameLookups {
    resolver: TokioResolver,
    hosts: HostsFile,
    /// The domains that are appended to incomplete names, in this order.
    search: Vec<Name>,
    /// A name with at least this many dots is tried unchanged before the search list is used (`ndots`).
    dot_count: usize,
}

impl NameLookups {
    /// Reads the system's configuration. Without one, queries go to this machine, as the C library does.
    fn of_system() -> Result<Self, NetError> {
        let hosts = || HostsFile::at(Path::new(hosts_file::SYSTEM_FILE));
        let configured = || -> Result<Self, NetError> {
            let (config, options) = read_system_conf()?;
            Self::new(config, options, hosts())
        };
        configured().or_else(|error| {
            tracing::info!(%error, "cannot use the resolver configuration of this system: sending queries to 127.0.0.1");
            let local = NameServerConfig::udp_and_tcp(IpAddr::V4(Ipv4Addr::LOCALHOST));
            Self::new(ResolverConfig::from_name_servers(vec![local]), ResolverOpts::default(), hosts())
        })
    }

    fn new(config: ResolverConfig, mut options: ResolverOpts, hosts: HostsFile) -> Result<Self, NetError> {
        let mut search = config.search().to_vec();
        if let Some(domain) = config.domain().filter(|domain| !search.contains(domain)) {
            search.insert(0, domain.clone());
        }
        let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        let dot_count = options.ndots;
        // The resolver would treat the families separately, and query for one that the hosts file lacks.
        options.use_hosts_file = ResolveHosts::Never;
        *builder.options_mut() = options;
        Ok(Self { resolver: builder.build()?, hosts, search, dot_count })
    }

    /// Returns the addresses of a host. Of its candidate names, the first that has addresses is used.
    async fn find(&self, host: &str, completeness: Completeness) -> Result<Vec<IpAddr>, NetError> {
        let name = Name::from_utf8(host)?;
        let mut outcome = Ok(self.in_hosts(&name));
        for candidate in self.candidates(&name) {
            if outcome.as_ref().is_ok_and(|found| !found.is_empty()) {
                break;
            }
            let listed = self.in_hosts(&candidate);
            outcome = if listed.is_empty() { self.ask(&candidate, completeness).await } else { Ok(listed) };
        }
        outcome
    }

    /// Returns the full names that a host may stand for, in the order in which the C library tries them.
    fn candidates(&self, name: &Name) -> Vec<Name> {
        let mut whole = name.clone();
        whole.set_fqdn(true);
        if name.is_fqdn() {
            return vec![whole];
        }
        let mut names: Vec<Name> =
            self.search.iter().filter_map(|domain| name.clone().append_domain(domain).ok()).collect();
        let is_first = usize::from(name.num_labels()) > self.dot_count || name.is_localhost();
        names.insert(if is_first { 0 } else { names.len() }, whole);
        names
    }

    /// Returns the IPv6 and IPv4 addresses of a name in the hosts file.
    fn in_hosts(&self, name: &Name) -> Vec<IpAddr> {
        let hosts = self.hosts.hosts();
        let families = [RecordType::AAAA, RecordType::A];
        let found = families.map(|family| hosts.lookup_static_host(&Query::query(name.clone(), family)));
        found.iter().flatten().flat_map(|lookup| addresses_in(lookup.answers())).collect()
    }

    /// Queries the name servers for both address families at once.
    async fn ask(&self, name: &Name, completeness: Completeness) -> Result<Vec<IpAddr>, NetError> {
        let mut ipv6 = pin!(self.ask_family(name, RecordType::AAAA));
        let mut ipv4 = pin!(self.ask_family(name, RecordType::A));
        let outcome = tokio::select! {
            biased;
            found = &mut ipv6 => with_other(found, ipv4, completeness).await,
            found = &mut ipv4 => with_other(found, ipv6, completeness).await,
        };
        outcome.map(|mut found| {
            found.sort_by_key(IpAddr::is_ipv4);
            found
        })
    }

    async fn ask_family(&self, name: &Name, family: RecordType) -> Result<Vec<IpAddr>, NetError> {
        let lookup = self.resolver.lookup(name.clone(), family).await?;
        Ok(addresses_in(lookup.answers()).collect())
    }
}

fn addresses_in(records: &[Record]) -> impl Iterator<Item = IpAddr> {
    records.iter().filter_map(|record| record.data.ip_addr())
}

/// Adds the addresses of the second family to `found`, the result for the family that was answered first.
async fn with_other(
    found: Result<Vec<IpAddr>, NetError>,
    other: impl Future<Output = Result<Vec<IpAddr>, NetError>>,
    completeness: Completeness,
) -> Result<Vec<IpAddr>, NetError> {
    // Reachable addresses are needed to stop waiting. With DNS64, IPv6 addresses always arrive later than IPv4 ones,
    // and may be the only ones that work.
    let is_usable = found.as_ref().is_ok_and(|found| found.iter().any(|address| has_route(*address)));
    let other = if is_usable && completeness == Completeness::Usable {
        timeout(RESOLUTION_DELAY, other).await.unwrap_or_else(|_| Ok(Vec::new()))
    } else {
        other.await
    };
    match (found, other) {
        (Ok(found), Ok(more)) => Ok([found, more].concat()),
        (Ok(found), Err(_)) | (Err(_), Ok(found)) => Ok(found),
        (Err(error), Err(_)) => Err(error),
    }
}

/// Returns whether this machine has a route to an address. Sends nothing.
fn has_route(address: IpAddr) -> bool {
    let any: IpAddr = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    UdpSocket::bind((any, 0)).and_then(|socket| socket.connect((address, ANY_PORT))).is_ok()
}

#[cfg(test)]
impl DnsResolver {
    /// Creates a resolver that queries only this server, over UDP.
    pub(crate) fn asking(server: SocketAddr) -> Self {
        Self::asking_with_hosts(server, Path::new(""))
    }

    /// Creates a resolver like [`DnsResolver::asking`] that also reads this hosts file.
    fn asking_with_hosts(server: SocketAddr, hosts: &Path) -> Self {
        let mut named = NameServerConfig::udp(server.ip());
        named.connections.iter_mut().for_each(|connection| connection.port = server.port());
        let config = ResolverConfig::from_name_servers(vec![named]);
        let built = NameLookups::new(config, ResolverOpts::default(), HostsFile::at(hosts));
        Self { lookups: OnceLock::from(built.map_err(|error| error.to_string())) }
    }
}

/// Maximum number of a name's addresses that are tried.
const ADDRESS_COUNT_MAX: usize = 16;
/// Time to wait for the second address family once the first has an address that can be reached (RFC 8305 3).
const RESOLUTION_DELAY: Duration = Duration::from_millis(50);
/// Port for looking up routes. Any port will do, because routes do not depend on it.
const ANY_PORT: u16 = 9;

#[cfg(test)]
pub(crate) mod tests {
    use std::{
        net::UdpSocket,
        sync::{Arc, Mutex},
        thread,
    };

    use super::*;

    /// Starts a name server that answers every query with these addresses, or with an error if there are none. Its
    /// answers have a TTL of 0, so the resolver does not keep them.
    pub(crate) fn name_server(addresses: Arc<Mutex<Vec<Ipv4Addr>>>) -> SocketAddr {
        answering(addresses, true)
    }

    /// Starts a name server like [`name_server`]. `answers_ipv6` says whether it also answers queries for IPv6
    /// addresses.
    fn answering(addresses: Arc<Mutex<Vec<Ipv4Addr>>>, answers_ipv6: bool) -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        thread::spawn(move || {
            let mut question = [0; 512];
            while let Ok((len, from)) = socket.recv_from(&mut question) {
                let name_len = question[12..len].iter().position(|octet| *octet == 0).unwrap() + 1;
                let end = 12 + name_len + 4;
                let is_ipv4 = question[12 + name_len..end - 2] == [0, 1];
                if !is_ipv4 && !answers_ipv6 {
                    continue;
                }
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

    /// Time limit for a lookup that must not wait for a missing answer. Waiting for one takes ten seconds.
    const AT_ONCE: Duration = Duration::from_secs(4);

    #[tokio::test]
    async fn name_in_the_hosts_file_needs_no_name_server() {
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let text = "127.0.0.5 four.example\n::1 six.example\n127.0.0.6 Both.example both\n::2 both.example # x\n";
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let dns = DnsResolver::asking_with_hosts(silent.local_addr().unwrap(), file.path());
        for (host, addresses) in [
            ("four.example", &["127.0.0.5:80"][..]),
            ("six.example", &["[::1]:80"]),
            ("BOTH.example", &["[::2]:80", "127.0.0.6:80"]),
            ("both", &["127.0.0.6:80"]),
        ] {
            let expected: Vec<SocketAddr> = addresses.iter().map(|address| address.parse().unwrap()).collect();
            for completeness in [Completeness::Usable, Completeness::Complete] {
                let found = timeout(AT_ONCE, dns.find(host, 80, 16, completeness)).await;
                assert_eq!(found.expect("it waits for nobody").map_err(|_| host), Ok(expected.clone()));
            }
        }
    }

    #[tokio::test]
    async fn unanswered_question_for_ipv6_does_not_lose_the_addresses_of_ipv4() {
        let address = Ipv4Addr::new(127, 0, 0, 7);
        let dns = DnsResolver::asking(answering(Arc::new(Mutex::new(vec![address])), false));
        let origin = Origin::of_client("four.example.", 80);
        let found = timeout(AT_ONCE, dns.resolve(&origin)).await.expect("it waits for 50 ms only");
        assert_eq!(found.map_err(|_| ()), Ok(vec![SocketAddr::new(address.into(), 80)]));
    }

    #[test]
    fn names_are_searched_for_in_the_order_of_the_c_library() {
        let lookups = |search: &[&str]| {
            let search = search.iter().map(|domain| Name::from_utf8(domain).unwrap()).collect();
            let config = ResolverConfig::from_parts(None, search, Vec::new());
            NameLookups::new(config, ResolverOpts::default(), HostsFile::at(Path::new(""))).unwrap()
        };
        let names = |search: &[&str], host: &str| -> Vec<String> {
            let name = Name::from_utf8(host).unwrap();
            lookups(search).candidates(&name).iter().map(ToString::to_string).collect()
        };
        assert_eq!(names(&["a.example", "b.example"], "web"), ["web.a.example.", "web.b.example.", "web."]);
        assert_eq!(names(&["a.example"], "www.web"), ["www.web.", "www.web.a.example."]);
        assert_eq!(names(&["a.example"], "localhost"), ["localhost.", "localhost.a.example."]);
        assert_eq!(names(&["a.example"], "web."), ["web."]);
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
