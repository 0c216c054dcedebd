//! A client as its requests see it: the facts about its connection, the connection's phase, and the reasons to close
//! it.
//!
//! Owns: the changes of its phase and its deadline, which are in `watch`. `connection` drives the connection.
//! Invariant: every phase of a connection has a deadline, except the wait for an origin, which has its own deadlines.
//! Cost: no timers and no allocation per request.

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use http::{HeaderMap, Uri, Version, uri::Authority};
use larder_http::{
    reuse::StaleAllowed,
    route::UplinkState,
    telling::{self, FieldTrust},
};

use crate::{
    client::{
        floods::{ArrivedFrames, FloodGuard},
        flushed::FlushCounter,
        interim::InterimQueue,
        opaque::SwitchTaker,
        peer_user::NearEnds,
        socket::ClientProtocol,
    },
    config::{Fleet, ProxyConfig},
    exchange_budget::StreamMemory,
    forwarded,
    origin::target::{Origin, host_of, is_within},
    outcome::Outcome,
    request::target::Target,
    session::SessionState,
    siblings::Siblings,
    watch::{ConnectionPhase, WatchOrder, WatchedConnection},
    worker::Worker,
};

/// A client connection, as its requests see it.
pub(crate) struct Client {
    /// The worker that accepted the connection, for the connection's own state. Each request uses the worker's current
    /// configuration.
    pub(crate) worker: Arc<Worker>,
    pub(crate) peer: SocketAddr,
    /// The client's listener, by its address in the configuration.
    pub(crate) listener: SocketAddr,
    /// Whether requests that name their target by Host alone are forward requests.
    pub(crate) takes_origin_form: bool,
    /// Whether the client is another node of the fleet, as its certificate proves.
    pub(crate) is_node: bool,
    /// Whether the connection uses TLS.
    pub(crate) secure: bool,
    /// The name that the client requested in its TLS handshake.
    pub(super) server_name: Option<Box<str>>,
    pub(super) protocol: ClientProtocol,
    /// The origin that the client addresses, if the connection is inside an intercepted tunnel.
    pub(crate) inside: Option<Origin>,
    /// The session of the client, if it connected through a session's listener.
    pub(crate) session: Option<Arc<SessionState>>,
    /// The ends of the connection if a program on this machine opened it and sent no PROXY header.
    pub(crate) near: Option<NearEnds>,
    /// Whether the session is another user's, so that every request is refused.
    pub(crate) is_stranger: bool,
    /// Whether another process can continue the connection: HTTP/1 without TLS, through a configured listener.
    pub(crate) is_movable: bool,
    /// Longest time in seconds without progress while a request is answered, as the policy of the requests says.
    pub(super) stall_secs: AtomicU32,
    /// Requests that are being answered. Over HTTP/1.1, there is at most one.
    pub(super) exchange_count: AtomicU32,
    pub(super) abandoned: AbandonedRequests,
    /// Counts of HTTP/2 frames, to detect floods.
    pub(super) floods: Option<Box<FloodGuard>>,
    /// The memory of an HTTP/2 connection's streams.
    pub(super) streams: Option<Box<StreamMemory>>,
    /// Whether the head of an HTTP/2 request is arriving. In that case nothing else may extend its deadline.
    pub(super) in_head: AtomicBool,
    /// The reason to read nothing more, once there is one. It is checked before every read.
    pub(super) fatal_fault: OnceLock<&'static str>,
    pub(crate) watched: WatchedConnection,
    /// Interim responses to send before the final response.
    pub(crate) interim: InterimQueue,
    /// The recipient of the socket if the connection switches to another protocol.
    pub(crate) switch: SwitchTaker,
    /// Number of complete flushes over HTTP/2.
    pub(crate) flushed: FlushCounter,
}

/// The requests that a client has recently abandoned.
///
/// Opening streams and resetting them at once costs a client nothing, but each costs Larder a request ("rapid reset").
#[derive(Default)]
pub(super) struct AbandonedRequests {
    since_tick: AtomicU32,
    count: AtomicU32,
}

impl Client {
    /// Creates a client that has no connection, for a request that is only imagined. Its listener is none that a site
    /// has for itself.
    pub(crate) fn imagined(worker: &Arc<Worker>, peer: SocketAddr) -> Self {
        Self {
            worker: Arc::clone(worker),
            peer,
            listener: SocketAddr::from(([0; 4], 0)),
            takes_origin_form: false,
            is_node: false,
            secure: false,
            server_name: None,
            protocol: ClientProtocol::Http1,
            inside: None,
            session: None,
            near: None,
            is_stranger: false,
            is_movable: false,
            stall_secs: AtomicU32::new(seconds_of(worker.policy.limits.stall)),
            exchange_count: AtomicU32::new(0),
            abandoned: AbandonedRequests::default(),
            floods: None,
            streams: None,
            in_head: AtomicBool::new(false),
            fatal_fault: OnceLock::new(),
            watched: worker.watches.register(),
            interim: InterimQueue::default(),
            switch: SwitchTaker::default(),
            flushed: FlushCounter::default(),
        }
    }

    /// Begins a request whose head has arrived.
    pub(crate) fn begin(&self) {
        let count = self.exchange_count.fetch_add(1, Relaxed) + 1;
        if let Some(streams) = &self.streams {
            streams.note(count);
        }
        self.watched.enter(ConnectionPhase::Busy);
        self.arm(self.stall());
        if let Some(floods) = &self.floods {
            floods.note_begun();
        }
    }

    /// Ends an exchange. `abandoned` says that the client gave it up before the response was complete.
    pub(crate) fn end(&self, abandoned: bool) {
        let limits = &self.worker.shared.config.limits;
        if self.exchange_count.fetch_sub(1, Relaxed) == 1 {
            self.watched.enter(ConnectionPhase::Idle);
            self.arm(limits.idle);
        }
        if abandoned && self.is_http2() && self.abandoned.count(self.worker.watches.tick()) > limits.abandoned_count_max
        {
            tracing::debug!(peer = %self.peer, "closing a client's connection: it cancelled too many requests");
            self.watched.expire();
        }
    }

    /// Returns whether the client's connection uses TLS with one of our certificates for clients and is not inside a
    /// tunnel.
    pub(crate) fn shows_certificate(&self) -> bool {
        self.secure && self.inside.is_none() && !self.is_node
    }

    /// Returns whether the connection's certificate covers an authority's host (RFC 9110 7.4).
    pub(crate) fn speaks_for(&self, authority: &str) -> bool {
        let certificates = self.worker.shared.certificates.as_ref().filter(|_| self.shows_certificate());
        certificates.is_some_and(|certificates| certificates.speak_for(self.server_name(), host_of(authority)))
    }

    /// Returns whether a target is in the form for an origin server (RFC 9112 3.2.1), not for a proxy.
    ///
    /// Over HTTP/2 both forms look alike. There, a target counts as one for a server if it names the host that the
    /// client requested in its handshake. Without such a name, the certificate must cover the target's host, or the
    /// target must be this end of a connection on this machine.
    pub(crate) fn is_server_for(&self, version: Version, target: &Uri) -> bool {
        let is_for_name = |authority: &Authority| match self.server_name() {
            Some(name) => authority.host().eq_ignore_ascii_case(name),
            None => self.speaks_for(authority.as_str()) || self.near.is_some_and(|near| near.is_called(authority)),
        };
        target.scheme().is_none() || version == Version::HTTP_2 && target.authority().is_some_and(is_for_name)
    }

    /// Returns whether responses must announce that their connection closes, because another process replaces this one.
    pub(crate) fn says_goodbye(&self) -> bool {
        !self.is_http2() && !self.is_movable && self.worker.watches.says_goodbye()
    }

    /// Returns whether the next request must be left to the process that replaces this one.
    pub(crate) fn is_for_successor(&self) -> bool {
        // The order is checked first, because before most reads it is the only cost.
        matches!(self.watched.order(), WatchOrder::Leave | WatchOrder::Drain)
            && self.is_movable
            && self.worker.watches.has_successor()
    }

    /// Returns the name that the connection requested in its TLS handshake.
    pub(crate) fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }

    /// Counts an exchange with the client.
    pub(crate) fn count(&self, outcome: Outcome) {
        self.worker.metrics.count(outcome);
        if let Some(session) = &self.session {
            session.count(outcome);
        }
    }

    /// Returns the address of a request's client, if a trusted proxy names one in `fields`. Inside a tunnel the client
    /// speaks for itself.
    pub(crate) fn named_in(&self, fields: &HeaderMap, fleet: &Fleet) -> Option<IpAddr> {
        if fleet.trusted_proxies.is_empty() || self.inside.is_some() {
            return None;
        }
        let named = forwarded::client_of(self.peer.ip(), fleet, fields);
        (named != self.peer.ip()).then_some(named)
    }

    /// Removes the fields of a request that its sender may not send (see [`telling::drop_untrusted`]). Another node of
    /// the fleet has removed them already.
    pub(crate) fn drop_untrusted(&self, config: &ProxyConfig, target: &Target, fields: &mut HeaderMap) {
        let is_by_proxy = || self.inside.is_none() && is_within(&config.fleet.trusted_proxies, self.peer.ip());
        let trust = FieldTrust {
            is_by_trusted_proxy: target.sibling().is_some() || is_by_proxy(),
            keeps_underscores: config.keep_underscores,
        };
        telling::drop_untrusted(fields, trust);
    }

    /// Returns the address of a request's client: the peer's, unless a trusted proxy named another.
    pub(crate) fn address_of(&self, target: &Target) -> IpAddr {
        target.named_client.unwrap_or(self.peer.ip())
    }

    /// Returns the same with a port; without the client's own port it is 0.
    pub(crate) fn named_peer(&self, target: &Target) -> SocketAddr {
        target.named_client.map_or(self.peer, |address| SocketAddr::new(address, 0))
    }

    /// Returns whether the address of a request's client is outside the networks that are served, or the request is no
    /// node's on a connection for nodes.
    ///
    /// A node must have a certificate, or the address of a node, or one that is served: others may have recorded its
    /// request.
    pub(crate) fn is_denied(&self, config: &ProxyConfig, siblings: Option<&Siblings>, target: &Target) -> bool {
        let networks = &config.clients;
        let is_outside = |address| !networks.is_empty() && !is_within(networks, address);
        if target.sibling().is_none() {
            return self.is_node || is_outside(self.address_of(target));
        }
        let address = self.peer.ip().to_canonical();
        let is_at_node = || siblings.is_some_and(|siblings| siblings.has_address(address));
        !self.is_node && is_outside(address) && !is_at_node()
    }

    /// Returns whether the client needs no credentials. It gave them when it opened its tunnel, or its session belongs
    /// to a user.
    pub(crate) fn is_admitted(&self) -> bool {
        self.inside.is_some() || self.session.is_some()
    }

    /// Returns the state of the uplink to `origin`, as far as this client is concerned.
    pub(crate) fn line_to(&self, origin: &Origin) -> UplinkState {
        let is_offline = self.session.as_ref().is_some_and(|session| session.offline);
        match self.worker.shared.origins.uplink.line_to(origin) {
            UplinkState::Up if is_offline => UplinkState::Down(StaleAllowed::HoweverOld),
            // A session that is offline accepts stored responses of any age, whatever the mode of the proxy.
            UplinkState::Down(StaleAllowed::AsOnError) if is_offline => UplinkState::Down(StaleAllowed::HoweverOld),
            line => line,
        }
    }

    /// Returns whether several requests may be answered at once.
    pub(crate) fn is_http2(&self) -> bool {
        self.protocol == ClientProtocol::Http2
    }

    /// Returns the scheme of requests on this connection that do not name one.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.secure { "https" } else { "http" }
    }

    /// Records bytes received over HTTP/2. Returns how many of them may be passed on.
    pub(crate) fn note_received(&self, bytes: &[u8]) -> usize {
        let limits = &self.worker.shared.config.limits;
        self.floods.as_ref().map_or(bytes.len(), |floods| {
            self.note_frames(floods.push(bytes, self.worker.watches.tick(), limits), bytes.len())
        })
    }

    /// Records received HTTP/2 frames. Returns how many of their bytes may be passed on.
    ///
    /// Frames that belong to no request do not extend the connection's deadline.
    fn note_frames(&self, ArrivedFrames { in_head, flood }: ArrivedFrames, count: usize) -> usize {
        let limits = &self.worker.shared.config.limits;
        let is_busy = self.is_busy();
        match (self.in_head.swap(in_head, Relaxed), in_head) {
            (false, true) => self.watched.arm(limits.header),
            (true, true) => {}
            (_, false) if is_busy => self.watched.arm(self.stall()),
            (true, false) => self.watched.arm(limits.idle),
            (false, false) => {}
        }
        let Some(flood) = flood else { return count };
        tracing::debug!(peer = %self.peer, flood, "closing a client's connection: it floods the proxy with frames");
        self.fatal_fault.get_or_init(|| flood);
        0
    }

    /// Returns the reason to read nothing more, if there is one: a fault in the body of the current request, or a
    /// flood.
    pub(crate) fn fatal_fault(&self) -> Option<&'static str> {
        self.fatal_fault.get().copied()
    }

    /// Records sent bytes.
    pub(crate) fn note_sent(&self, bytes: usize) {
        if let Some(floods) = &self.floods {
            floods.note_sent(bytes);
        }
        if self.is_busy() {
            self.arm(self.stall());
        }
    }

    /// Notes that a response is being sent, if a request is being answered.
    pub(super) fn note_sending(&self) {
        if self.watched.phase() == ConnectionPhase::Busy {
            self.watched.enter(ConnectionPhase::Sending);
        }
    }

    fn is_busy(&self) -> bool {
        matches!(self.watched.phase(), ConnectionPhase::Busy | ConnectionPhase::Sending)
    }

    /// Takes over how long the client may make no progress, as the policy of a request says. If other requests are
    /// being answered, the longest time applies.
    pub(crate) fn permit_stall(&self, stall: Duration) {
        let secs = seconds_of(stall);
        let before = self.stall_secs.load(Relaxed);
        if secs > before || (secs < before && self.exchange_count.load(Relaxed) == 1) {
            self.stall_secs.store(secs, Relaxed);
            self.arm(stall);
        }
    }

    /// Returns how long the client may make no progress while a request is answered.
    pub(super) fn stall(&self) -> Duration {
        Duration::from_secs(self.stall_secs.load(Relaxed).into())
    }

    /// Moves the deadline to `after` from now.
    fn arm(&self, after: Duration) {
        if !self.in_head.load(Relaxed) {
            self.watched.arm(after);
        }
    }

    /// Wakes the connection's task to check for data to write.
    pub(crate) fn wake(&self) {
        self.watched.wake();
    }
}

impl AbandonedRequests {
    /// Counts one more abandoned request. Returns the number within the current interval.
    fn count(&self, tick: u32) -> u32 {
        if tick.saturating_sub(self.since_tick.load(Relaxed)) >= ABANDONED_TICKS {
            self.since_tick.store(tick, Relaxed);
            self.count.store(0, Relaxed);
        }
        self.count.fetch_add(1, Relaxed) + 1
    }
}

/// Returns the whole seconds of a time limit, which is all that a deadline regards.
pub(super) fn seconds_of(limit: Duration) -> u32 {
    u32::try_from(limit.as_secs()).unwrap_or(u32::MAX)
}

/// Seconds over which a client's abandoned requests are counted together.
const ABANDONED_TICKS: u32 = 10;
