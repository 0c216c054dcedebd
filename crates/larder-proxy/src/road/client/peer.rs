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
    figures::outcome::Outcome,
    ground::{
        config::{Fleet, ProxyConfig},
        exchange_budget::StreamMemory,
        forwarded,
        target::{Origin, host_of, is_within},
        watch::{ConnectionPhase, WatchOrder, WatchedConnection},
    },
    road::{
        client::{
            floods::{ArrivedFrames, FloodGuard},
            flushed::FlushCounter,
            interim::InterimQueue,
            opaque::SwitchTaker,
            peer_user::NearEnds,
            session::SessionState,
            socket::ClientProtocol,
        },
        target::Target,
    },
    run::worker::Worker,
    targets::siblings::Siblings,
};

/// A client's connection, as the code that answers its requests sees it.
pub(crate) struct Client {
    /// The worker that accepted the connection. Requests use the latest configuration instead, see [`Worker::latest`].
    pub(crate) worker: Arc<Worker>,
    pub(crate) peer: SocketAddr,
    /// The listener that accepted the connection, by its address in the configuration.
    pub(crate) listener: SocketAddr,
    /// Whether a request with a bare path and a Host field is forwarded to that host, as from a transparent proxy.
    pub(crate) takes_origin_form: bool,
    /// Whether the client is another node of the fleet, as its certificate proves.
    pub(crate) is_node: bool,
    /// Whether the connection uses TLS.
    pub(crate) secure: bool,
    /// The host that the client requested in its TLS handshake (SNI).
    pub(crate) server_name: Option<Box<str>>,
    pub(crate) protocol: ClientProtocol,
    /// The origin of the intercepted tunnel that the connection is in. `None` outside tunnels.
    pub(crate) inside: Option<Origin>,
    /// The session (`larder exec`) whose listener the client connected to. `None` for all other clients.
    pub(crate) session: Option<Arc<SessionState>>,
    /// The addresses of both ends, if a program on this machine opened the connection and sent no PROXY header.
    pub(crate) near: Option<NearEnds>,
    /// Whether the client belongs to another user than its session, so that every request is refused.
    pub(crate) is_stranger: bool,
    /// Whether the next process can continue the connection: HTTP/1 without TLS, through a configured listener.
    pub(crate) is_movable: bool,
    /// Maximum time without progress while a request is answered, in seconds. It comes from the policy of the requests.
    pub(crate) stall_secs: AtomicU32,
    /// Number of requests that are being answered. At most 1 over HTTP/1.1.
    pub(crate) exchange_count: AtomicU32,
    pub(crate) abandoned: AbandonedRequests,
    /// Counts HTTP/2 frames to detect floods. `None` over HTTP/1.
    pub(crate) floods: Option<Box<FloodGuard>>,
    /// The memory reserved for the streams of an HTTP/2 connection.
    pub(crate) streams: Option<Box<StreamMemory>>,
    /// Whether a request's head is arriving over HTTP/2. Until it is complete, nothing else extends the deadline.
    pub(crate) in_head: AtomicBool,
    /// Why the connection must not be read any more, for example a flood. Checked before every read.
    pub(crate) fatal_fault: OnceLock<&'static str>,
    pub(crate) watched: WatchedConnection,
    /// Interim responses that wait to be sent before the final response.
    pub(crate) interim: InterimQueue,
    /// Passes on the socket if the connection switches to another protocol.
    pub(crate) switch: SwitchTaker,
    /// Counts how often all output of the HTTP/2 connection was written.
    pub(crate) flushed: FlushCounter,
}

/// Counts the requests that a client has abandoned recently.
///
/// Opening streams and resetting them at once costs a client nothing, but each costs Larder a request ("rapid reset").
#[derive(Default)]
pub(crate) struct AbandonedRequests {
    since_tick: AtomicU32,
    count: AtomicU32,
}

impl Client {
    /// Creates a client without a connection, for a request that `larder explain` only simulates. It counts as
    /// connected through a listener that no site names.
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

    /// Begins an exchange: counts it, and sets the connection's deadline. Call it when a request's head has arrived.
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

    /// Ends an exchange. `abandoned` says that the client left before the response was complete.
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

    /// Returns whether the connection uses one of the certificates that are configured for clients, and is not in a
    /// tunnel.
    pub(crate) fn shows_certificate(&self) -> bool {
        self.secure && self.inside.is_none() && !self.is_node
    }

    /// Returns whether the certificate of the connection covers the host of an authority (RFC 9110 7.4).
    pub(crate) fn speaks_for(&self, authority: &str) -> bool {
        let certificates = self.worker.shared.certificates.as_ref().filter(|_| self.shows_certificate());
        certificates.is_some_and(|certificates| certificates.speak_for(self.server_name(), host_of(authority)))
    }

    /// Returns whether a request's target addresses this proxy as a server (RFC 9112 3.2.1), not as a forward proxy.
    ///
    /// Over HTTP/2 both look alike. There, a target addresses the server if its host is the one requested in the TLS
    /// handshake. Without such a name, the certificate must cover the host, or the host must be this end of a loopback
    /// connection.
    pub(crate) fn is_server_for(&self, version: Version, target: &Uri) -> bool {
        let is_for_name = |authority: &Authority| match self.server_name() {
            Some(name) => authority.host().eq_ignore_ascii_case(name),
            None => self.speaks_for(authority.as_str()) || self.near.is_some_and(|near| near.is_called(authority)),
        };
        target.scheme().is_none() || version == Version::HTTP_2 && target.authority().is_some_and(is_for_name)
    }

    /// Returns whether responses must announce `Connection: close`, because the next process cannot continue the
    /// connection.
    pub(crate) fn says_goodbye(&self) -> bool {
        !self.is_http2() && !self.is_movable && self.worker.watches.says_goodbye()
    }

    /// Returns whether the next request must be left to the process that replaces this one.
    pub(crate) fn is_for_successor(&self) -> bool {
        // The order is checked first, because it is cheap and nearly always decides.
        matches!(self.watched.order(), WatchOrder::Leave | WatchOrder::Drain)
            && self.is_movable
            && self.worker.watches.has_successor()
    }

    /// Returns the host that the client requested in its TLS handshake (SNI).
    pub(crate) fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }

    /// Counts an exchange in the metrics of the worker and of the session.
    pub(crate) fn count(&self, outcome: Outcome) {
        self.worker.metrics.count(outcome);
        if let Some(session) = &self.session {
            session.count(outcome);
        }
    }

    /// Returns the client's address that a trusted proxy names in `fields`, or `None` if that is the peer itself.
    ///
    /// In an intercepted tunnel, the peer is always the client.
    pub(crate) fn named_in(&self, fields: &HeaderMap, fleet: &Fleet) -> Option<IpAddr> {
        if fleet.trusted_proxies.is_empty() || self.inside.is_some() {
            return None;
        }
        let named = forwarded::client_of(self.peer.ip(), fleet, fields);
        (named != self.peer.ip()).then_some(named)
    }

    /// Removes the fields that the sender of a request may not set (see [`telling::drop_untrusted`]).
    ///
    /// If another node of the fleet forwarded the request, it has removed them already.
    pub(crate) fn drop_untrusted(&self, config: &ProxyConfig, target: &Target, fields: &mut HeaderMap) {
        let is_by_proxy = || self.inside.is_none() && is_within(&config.fleet.trusted_proxies, self.peer.ip());
        let trust = FieldTrust {
            is_by_trusted_proxy: target.sibling().is_some() || is_by_proxy(),
            keeps_underscores: config.keep_underscores,
        };
        telling::drop_untrusted(fields, trust);
    }

    /// Returns the address of the client that sent the request: one that a trusted proxy named, otherwise the peer's.
    pub(crate) fn address_of(&self, target: &Target) -> IpAddr {
        target.named_client.unwrap_or(self.peer.ip())
    }

    /// Returns the address and port of the client that sent the request. If a trusted proxy named it, the port is 0.
    pub(crate) fn named_peer(&self, target: &Target) -> SocketAddr {
        target.named_client.map_or(self.peer, |address| SocketAddr::new(address, 0))
    }

    /// Returns whether a request is denied because of its client's address.
    ///
    /// A client must be in a network that is served. Another node of the fleet must prove itself by its certificate or
    /// its address, or be in such a network, because its request may have been recorded and replayed.
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

    /// Returns whether the client needs no password: it gave one when it opened its tunnel, or its session belongs to a
    /// user.
    pub(crate) fn is_admitted(&self) -> bool {
        self.inside.is_some() || self.session.is_some()
    }

    /// Returns whether the client may contact `origin`: whether the uplink is up, and the client's session is not
    /// offline.
    pub(crate) fn line_to(&self, origin: &Origin) -> UplinkState {
        let is_offline = self.session.as_ref().is_some_and(|session| session.offline);
        match self.worker.shared.origins.uplink.line_to(origin) {
            UplinkState::Up if is_offline => UplinkState::Down(StaleAllowed::HoweverOld),
            // A client whose session is offline accepts stored responses of any age, whatever the mode of the proxy.
            UplinkState::Down(StaleAllowed::AsOnError) if is_offline => UplinkState::Down(StaleAllowed::HoweverOld),
            line => line,
        }
    }

    /// Returns whether the connection uses HTTP/2, so that several requests can be answered at once.
    pub(crate) fn is_http2(&self) -> bool {
        self.protocol == ClientProtocol::Http2
    }

    /// Returns the scheme for requests whose target has none: `https` if the connection uses TLS.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.secure { "https" } else { "http" }
    }

    /// Records bytes received over HTTP/2. Returns how many of them h2 may process; the others are a flood.
    pub(crate) fn note_received(&self, bytes: &[u8]) -> usize {
        let limits = &self.worker.shared.config.limits;
        self.floods.as_ref().map_or(bytes.len(), |floods| {
            self.note_frames(floods.push(bytes, self.worker.watches.tick(), limits), bytes.len())
        })
    }

    /// Evaluates received HTTP/2 frames. Returns how many of the `count` bytes h2 may process.
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

    /// Returns why the connection must not be read any more: a faulty request body, or a flood. `None` if it may be
    /// read.
    pub(crate) fn fatal_fault(&self) -> Option<&'static str> {
        self.fatal_fault.get().copied()
    }

    /// Records bytes sent to the client, which count as progress.
    pub(crate) fn note_sent(&self, bytes: usize) {
        if let Some(floods) = &self.floods {
            floods.note_sent(bytes);
        }
        if self.is_busy() {
            self.arm(self.stall());
        }
    }

    /// Marks the connection as sending, if a request is being answered.
    pub(crate) fn note_sending(&self) {
        if self.watched.phase() == ConnectionPhase::Busy {
            self.watched.enter(ConnectionPhase::Sending);
        }
    }

    fn is_busy(&self) -> bool {
        matches!(self.watched.phase(), ConnectionPhase::Busy | ConnectionPhase::Sending)
    }

    /// Sets how long the client may make no progress, as the policy of a request permits. Of several requests, the
    /// longest time applies.
    pub(crate) fn permit_stall(&self, stall: Duration) {
        let secs = seconds_of(stall);
        let before = self.stall_secs.load(Relaxed);
        if secs > before || (secs < before && self.exchange_count.load(Relaxed) == 1) {
            self.stall_secs.store(secs, Relaxed);
            self.arm(stall);
        }
    }

    /// Returns how long the client may make no progress while a request is answered.
    pub(crate) fn stall(&self) -> Duration {
        Duration::from_secs(self.stall_secs.load(Relaxed).into())
    }

    /// Sets the connection's deadline to `after` from now, unless a request's head is arriving.
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
    /// Counts an abandoned request. Returns their number within the current interval of [`ABANDONED_TICKS`].
    fn count(&self, tick: u32) -> u32 {
        if tick.saturating_sub(self.since_tick.load(Relaxed)) >= ABANDONED_TICKS {
            self.since_tick.store(tick, Relaxed);
            self.count.store(0, Relaxed);
        }
        self.count.fetch_add(1, Relaxed) + 1
    }
}

/// Returns the whole seconds of a time limit, the resolution of deadlines.
pub(crate) fn seconds_of(limit: Duration) -> u32 {
    u32::try_from(limit.as_secs()).unwrap_or(u32::MAX)
}

/// Length of the interval over which abandoned requests are counted, in seconds.
const ABANDONED_TICKS: u32 = 10;
