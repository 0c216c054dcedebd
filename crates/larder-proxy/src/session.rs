//! A session: clients of one owner, who come through a listener of their own and are served by rules of their own.
//!
//! Owns: these rules, and the figures of what the clients were sent. Does not: listen (see `server::sessions`). Invariant: the
//! authority of a session is in memory only and ends with it, so nobody else's clients ever trust it.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use tokio::sync::watch;

use crate::{client::intercept::Interceptor, config::HostRules, outcome::Outcome};

/// What a session is opened with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionOptions {
    /// Hosts whose `https://` is answered and cached here, not tunnelled.
    pub hosts: HostRules,
    /// Whether origins are not asked at all: what is stored answers, also when it is stale, unless its origin forbids that.
    pub offline: bool,
}

/// A session. Dropped, its listener closes; connections that are open finish what they are at.
#[derive(Debug)]
pub struct Session {
    pub(crate) state: Arc<SessionState>,
    pub(crate) address: SocketAddr,
    /// Gone at the end, which ends the accepting.
    pub(crate) _open: watch::Sender<()>,
}

/// What the clients of a session were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionStats {
    /// Requests answered, and tunnels.
    pub requests: u64,
    /// Requests among them that the cache answered.
    pub hits: u64,
    /// Bytes of bodies, and of what tunnels brought.
    pub sent_bytes: u64,
    /// Bytes among them that the cache had.
    pub hit_bytes: u64,
}

/// A session as its clients' connections see it.
#[derive(Debug)]
pub(crate) struct SessionState {
    pub(crate) interceptor: Arc<Interceptor>,
    pub(crate) offline: bool,
    figures: Figures,
}

#[derive(Debug, Default)]
struct Figures {
    requests: AtomicU64,
    hits: AtomicU64,
    sent_bytes: AtomicU64,
    hit_bytes: AtomicU64,
}

impl Session {
    /// Where its clients connect, as to an HTTP proxy.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The certificate of its authority in PEM, which its clients have to trust.
    pub fn certificate_pem(&self) -> &str {
        self.state.interceptor.certificate_pem()
    }

    /// Figures since it was opened.
    pub fn stats(&self) -> SessionStats {
        let Figures { requests, hits, sent_bytes, hit_bytes } = &self.state.figures;
        SessionStats {
            requests: requests.load(Relaxed),
            hits: hits.load(Relaxed),
            sent_bytes: sent_bytes.load(Relaxed),
            hit_bytes: hit_bytes.load(Relaxed),
        }
    }
}

impl SessionState {
    pub(crate) fn new(interceptor: Arc<Interceptor>, offline: bool) -> Self {
        Self { interceptor, offline, figures: Figures::default() }
    }

    /// Counts an exchange.
    pub(crate) fn count(&self, outcome: Outcome) {
        self.figures.requests.fetch_add(1, Relaxed);
        self.figures.hits.fetch_add(outcome.is_hit().into(), Relaxed);
    }

    /// Counts what was sent of its response.
    pub(crate) fn count_sent(&self, outcome: Outcome, bytes: u64) {
        self.figures.sent_bytes.fetch_add(bytes, Relaxed);
        if outcome.is_hit() {
            self.figures.hit_bytes.fetch_add(bytes, Relaxed);
        }
    }
}
