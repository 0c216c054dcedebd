//! A session: the clients of one owner, with a listener and rules of their own.
//!
//! Owns: the session's rules and metrics. `run::sessions` opens the listener. Invariant: the CA of a session exists
//! in memory only and ends with it, so no other clients ever trust it.

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
    figures::outcome::Outcome,
    ground::{config::HostRules, errors::Failure, target::permission},
    road::client::peer_user::{self, NearEnds},
    targets::intercept::{Interceptor, bypass::BypassReason},
};

/// The options of a new session.
#[derive(Clone, Debug, Default)]
pub struct SessionOptions {
    /// Hosts whose `https://` requests are decrypted and cached, instead of passed through a tunnel.
    pub hosts: HostRules,
    /// Whether the session never contacts origins. Stale responses are then served too, unless their origin forbids
    /// that.
    pub offline: bool,
    /// Caching rules for the session's clients. The rules of the configuration take precedence.
    pub rules: Rules,
    /// The process of the session's owner. While any of its descendants runs as another user, that user may use the
    /// session.
    ///
    /// `apt`, for example, downloads as a user of its own. Default none: only this program's user and root may use the
    /// session.
    pub owner_process: Option<u32>,
}

/// An open session: a listener on a loopback port, whose clients have caching rules and a CA of their own. Dropping it
/// closes its listener; open connections finish their exchanges.
#[derive(Debug)]
pub struct Session {
    pub(crate) state: Arc<SessionState>,
    pub(crate) address: SocketAddr,
    /// Closes the session's listener when it is dropped.
    pub(crate) _open: watch::Sender<()>,
}

/// Counters of a session, and lists of what may need the owner's attention.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionStats {
    /// Number of requests that were answered, including CONNECT.
    pub requests: u64,
    /// Number of requests that the cache answered.
    pub hits: u64,
    /// Bytes of bodies and tunnels that were sent to clients.
    pub sent_bytes: u64,
    /// Bytes of bodies that were sent from the cache.
    pub hit_bytes: u64,
    /// Number of tunnels that were not decrypted although their hosts are listed for interception.
    pub bypassed_count: u64,
    /// Targets of the tunnels that were not decrypted, as `host:port`, each with the reason. At most 50.
    pub bypassed: Vec<(String, BypassReason)>,
    /// Number of requests that failed because origins must not be contacted.
    pub missing_count: u64,
    /// URLs of the requests that failed because origins must not be contacted. The method precedes the URL unless it is
    /// GET. At most 50.
    pub missing: Vec<String>,
    /// Number of requests and tunnels that the rules for targets refused.
    pub denied_count: u64,
    /// Refused targets, each with the reason and the setting that would permit it. At most 50.
    pub denied: Vec<(String, String)>,
    /// Number of tunnels that failed because the client rejected the certificate of the session's CA.
    pub rejected_count: u64,
    /// Hosts whose certificates clients rejected, each with the client's alert. At most 50.
    pub rejected: Vec<(String, String)>,
}

/// The state of a session, which the connections of its clients share.
#[derive(Debug)]
pub(crate) struct SessionState {
    pub(crate) interceptor: Arc<Interceptor>,
    pub(crate) offline: bool,
    pub(crate) rules: Arc<Rules>,
    owner_process: Option<u32>,
    figures: SessionFigures,
    notes: Mutex<SessionNotes>,
}

/// The lists of a session, without duplicates. Each has at most [`NOTE_COUNT_MAX`] members.
#[derive(Debug, Default)]
struct SessionNotes {
    bypassed_count: u64,
    bypassed: Vec<(String, BypassReason)>,
    missing_count: u64,
    missing: Vec<String>,
    denied_count: u64,
    denied: Vec<(String, String)>,
    rejected_count: u64,
    rejected: Vec<(String, String)>,
}

#[derive(Debug, Default)]
struct SessionFigures {
    requests: AtomicU64,
    hits: AtomicU64,
    sent_bytes: AtomicU64,
    hit_bytes: AtomicU64,
}

impl Session {
    /// Returns the address of the session's listener, which is an HTTP proxy.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the certificate of the session's CA in PEM. The session's clients must trust it.
    pub fn certificate_pem(&self) -> &str {
        self.state.interceptor.certificate_pem()
    }

    /// Returns the session's counters and lists since it was opened.
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
            rejected_count: notes.rejected_count,
            rejected: notes.rejected.clone(),
        }
    }
}

impl SessionState {
    /// Creates the state of a session.
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

    /// Returns whether the program at the other end of a loopback connection may use the session.
    ///
    /// It may if it runs as this program's user, as root, or as the same user as a descendant of the session's owner.
    /// `None` stands for an unknown program, which may not use the session.
    pub(crate) async fn admits(&self, client: Option<NearEnds>) -> bool {
        let Some(user) = client.and_then(NearEnds::user) else { return false };
        if peer_user::is_own_or_root(user) {
            return true;
        }
        let Some(owner) = self.owner_process else { return false };
        let found = tokio::task::spawn_blocking(move || peer_user::has_descendant_of(owner, user)).await;
        found.unwrap_or(false)
    }

    /// Counts an exchange with one of the session's clients.
    pub(crate) fn count(&self, outcome: Outcome) {
        self.figures.requests.fetch_add(1, Relaxed);
        self.figures.hits.fetch_add(outcome.is_hit().into(), Relaxed);
    }

    /// Counts the bytes of a response that was sent to one of the session's clients.
    pub(crate) fn count_sent(&self, outcome: Outcome, bytes: u64) {
        self.figures.sent_bytes.fetch_add(bytes, Relaxed);
        if outcome.is_hit() {
            self.figures.hit_bytes.fetch_add(bytes, Relaxed);
        }
    }

    /// Records a tunnel that is not decrypted although its host is listed for interception.
    pub(crate) fn note_bypass(&self, target: &str, why: BypassReason) {
        let mut notes = self.notes();
        notes.bypassed_count += 1;
        let is_known = notes.bypassed.iter().any(|(known, reason)| known == target && *reason == why);
        if !is_known && notes.bypassed.len() < NOTE_COUNT_MAX {
            notes.bypassed.push((target.to_owned(), why));
        }
    }

    /// Records a request that failed because origins must not be contacted.
    pub(crate) fn note_missing(&self, what: String) {
        let mut notes = self.notes();
        notes.missing_count += 1;
        if notes.missing.len() < NOTE_COUNT_MAX && what.len() <= NOTE_BYTES_MAX && !notes.missing.contains(&what) {
            notes.missing.push(what);
        }
    }

    /// Records the failure if the rules for targets caused it.
    pub(crate) fn note_failure(&self, failure: &Failure) {
        let Failure::TargetDenied { host, address, why } = failure else { return };
        let reason = format!("{address}, {why}{}", permission(*address, why));
        let mut notes = self.notes();
        notes.denied_count += 1;
        add(&mut notes.denied, host, reason);
    }

    /// Records a tunnel that failed because the client rejected the certificate for `host`. `why` is its alert.
    pub(crate) fn note_rejection(&self, host: &str, why: String) {
        let mut notes = self.notes();
        notes.rejected_count += 1;
        add(&mut notes.rejected, host, why);
    }

    fn notes(&self) -> MutexGuard<'_, SessionNotes> {
        self.notes.lock().ignore_poison()
    }
}

/// Adds a host and a reason to a list, unless the host is in it or the list is full.
fn add(list: &mut Vec<(String, String)>, host: &str, reason: String) {
    let is_known = list.iter().any(|(known, _)| known == host);
    if !is_known && list.len() < NOTE_COUNT_MAX && host.len() + reason.len() <= NOTE_BYTES_MAX {
        list.push((host.to_owned(), reason));
    }
}

/// Maximum members of each list of a session. With this limit and [`NOTE_BYTES_MAX`], all lists fit in one message.
const NOTE_COUNT_MAX: usize = 50;
const NOTE_BYTES_MAX: usize = 400;
