//! A session: the clients of one owner, who have their own listener and their own rules.
//!
//! Owns: these rules, and the session's metrics. `server::sessions` opens the listener. Invariant: the CA of a session
//! exists in memory only and ends with it, so no other clients ever trust it.

use larder_device::IgnorePoison;
use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use larder_http::Rules;
use tokio::sync::watch;

use crate::{
    client::{
        intercept::{Interceptor, bypass::BypassReason},
        peer_user::{self, NearEnds},
    },
    config::HostRules,
    errors::Failure,
    origin::target::permission,
    outcome::Outcome,
};

/// The options of a new session.
#[derive(Clone, Debug, Default)]
pub struct SessionOptions {
    /// Hosts whose `https://` requests are decrypted and cached instead of tunneled.
    pub hosts: HostRules,
    /// Whether origins are never contacted. Stored responses are then served even if stale, unless their origin forbids
    /// that.
    pub offline: bool,
    /// Caching rules for the session's clients, which apply after those of the configuration.
    pub rules: Rules,
    /// The process of the session's owner. While a process that it started runs as another user, that user's processes
    /// may use the session, such as `apt`, which downloads as a user of its own. Default none: only this program's user
    /// and root may use it.
    pub owner_process: Option<u32>,
}

/// A session. When it is dropped, its listener closes; open connections finish their exchanges.
#[derive(Debug)]
pub struct Session {
    pub(crate) state: Arc<SessionState>,
    pub(crate) address: SocketAddr,
    /// Dropped with the session, which ends accepting.
    pub(crate) _open: watch::Sender<()>,
}

/// The metrics of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionStats {
    /// Requests answered, and tunnels.
    pub requests: u64,
    /// Requests that the cache answered.
    pub hits: u64,
    /// Bytes of bodies and tunnels.
    pub sent_bytes: u64,
    /// Bytes of bodies from the cache.
    pub hit_bytes: u64,
    /// Tunnels that bypassed the cache although their hosts are listed for interception.
    pub bypassed_count: u64,
    /// Targets of these tunnels, as `host:port`, with the reasons. The list has a limit.
    pub bypassed: Vec<(String, BypassReason)>,
    /// Requests without a response, because origins must not be contacted.
    pub missing_count: u64,
    /// The URLs of these requests, with the method unless it is GET. The list has a limit.
    pub missing: Vec<String>,
    /// Requests and tunnels whose targets the rules for targets refuse.
    pub denied_count: u64,
    /// The targets of these requests, each with the reason and the setting that allows it. The list has a limit.
    pub denied: Vec<(String, String)>,
}

/// A session, as its clients' connections use it.
#[derive(Debug)]
pub(crate) struct SessionState {
    pub(crate) interceptor: Arc<Interceptor>,
    pub(crate) offline: bool,
    pub(crate) rules: Arc<Rules>,
    owner_process: Option<u32>,
    figures: SessionFigures,
    notes: Mutex<SessionNotes>,
}

/// The lists of a session, each without duplicates and with a limit.
#[derive(Debug, Default)]
struct SessionNotes {
    bypassed_count: u64,
    bypassed: Vec<(String, BypassReason)>,
    missing_count: u64,
    missing: Vec<String>,
    denied_count: u64,
    denied: Vec<(String, String)>,
}

#[derive(Debug, Default)]
struct SessionFigures {
    requests: AtomicU64,
    hits: AtomicU64,
    sent_bytes: AtomicU64,
    hit_bytes: AtomicU64,
}

impl Session {
    /// Returns the address of the session's HTTP proxy.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the certificate of the session's CA in PEM. Its clients must trust it.
    pub fn certificate_pem(&self) -> &str {
        self.state.interceptor.certificate_pem()
    }

    /// Returns the metrics since the session was opened.
    pub fn stats(&self) -> SessionStats {
        let SessionFigures { requests, hits, sent_bytes, hit_bytes } = &self.state.figures;
        let notes = self.state.notes();
        SessionStats {
            requests: requests.load(Relaxed),
            hits: hits.load(Relaxed),
            sent_bytes: sent_bytes.load(Relaxed),
            hit_bytes: hit_bytes.load(Relaxed),
            bypassed_count: notes.bypassed_count,
            bypassed: notes.bypassed.clone(),
            missing_count: notes.missing_count,
            missing: notes.missing.clone(),
            denied_count: notes.denied_count,
            denied: notes.denied.clone(),
        }
    }
}

impl SessionState {
    /// Creates a session whose other options are applied already.
    pub(crate) fn new(interceptor: Arc<Interceptor>, options: SessionOptions) -> Self {
        let SessionOptions { hosts: _, offline, rules, owner_process } = options;
        Self {
            interceptor,
            offline,
            rules: Arc::new(rules),
            owner_process,
            figures: SessionFigures::default(),
            notes: Mutex::default(),
        }
    }

    /// Returns whether a program may use the session: one of this program's user, of root, or of a user as whom the
    /// owner runs something. A program whose user is unknown may not.
    pub(crate) async fn admits(&self, client: Option<NearEnds>) -> bool {
        let Some(user) = client.and_then(NearEnds::user) else { return false };
        if peer_user::is_own_or_root(user) {
            return true;
        }
        let Some(owner) = self.owner_process else { return false };
        let found = tokio::task::spawn_blocking(move || peer_user::has_descendant_of(owner, user)).await;
        found.unwrap_or(false)
    }

    /// Counts an exchange.
    pub(crate) fn count(&self, outcome: Outcome) {
        self.figures.requests.fetch_add(1, Relaxed);
        self.figures.hits.fetch_add(outcome.is_hit().into(), Relaxed);
    }

    /// Counts a sent response.
    pub(crate) fn count_sent(&self, outcome: Outcome, bytes: u64) {
        self.figures.sent_bytes.fetch_add(bytes, Relaxed);
        if outcome.is_hit() {
            self.figures.hit_bytes.fetch_add(bytes, Relaxed);
        }
    }

    /// Records a tunnel that bypasses the cache although its host is listed for interception.
    pub(crate) fn note_bypass(&self, target: &str, why: BypassReason) {
        let mut notes = self.notes();
        notes.bypassed_count += 1;
        let is_known = notes.bypassed.iter().any(|(known, reason)| known == target && *reason == why);
        if !is_known && notes.bypassed.len() < NOTE_COUNT_MAX {
            notes.bypassed.push((target.to_owned(), why));
        }
    }

    /// Records a request without a response, because origins must not be contacted.
    pub(crate) fn note_missing(&self, what: String) {
        let mut notes = self.notes();
        notes.missing_count += 1;
        if notes.missing.len() < NOTE_COUNT_MAX && what.len() <= NOTE_BYTES_MAX && !notes.missing.contains(&what) {
            notes.missing.push(what);
        }
    }

    /// Records a failure if the rules for targets are its reason.
    pub(crate) fn note_failure(&self, failure: &Failure) {
        let Failure::TargetDenied { host, address, why } = failure else { return };
        let reason = format!("{address}, {why}{}", permission(*address, why));
        let mut notes = self.notes();
        notes.denied_count += 1;
        let is_known = notes.denied.iter().any(|(known, _)| known == host);
        if !is_known && notes.denied.len() < NOTE_COUNT_MAX && host.len() + reason.len() <= NOTE_BYTES_MAX {
            notes.denied.push((host.clone(), reason));
        }
    }

    fn notes(&self) -> MutexGuard<'_, SessionNotes> {
        self.notes.lock().ignore_poison()
    }
}

/// Most notes in each list of a session, and longest note. Together the notes fit in one message of a control socket.
const NOTE_COUNT_MAX: usize = 50;
const NOTE_BYTES_MAX: usize = 400;
