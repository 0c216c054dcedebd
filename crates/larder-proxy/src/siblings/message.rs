//! The field with which one node requests a resource from another, and with which the other proves that the response is
//! its own.
//!
//! Owns: the format of the field, and its codes. Invariants: a request counts as a sibling's only if its code proves
//! that the sender knows the secret and addresses this node. A response counts only with the code for this request. The
//! field never reaches an origin or a client.
//!
//! ```text
//! larder-peer: FROM TO NONCE MARK STATE PURGES CODE  in a request, whose target is the resource's URL
//! larder-peer: CODE                                  in a response that is not an error of the node itself
//!
//! The code of a response covers its status and the fields that decide how it is stored and used, not its body.
//! ```
//!
//! `MARK` names the origin in the key, or is `-`. `STATE` is `changed` if a client changed the resource, or `-`.
//! `PURGES` has the position up to which the sender has applied each log of purges, as `NAME:LOG:NUMBER,...`. If the
//! fleet has a shared log, only that one is named.

use std::{fmt::Write as _, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, uri::PathAndQuery};

use super::Siblings;
use crate::{
    cache::{mark::OriginMark, purges::Purges},
    fleet::secret,
};

/// The field.
pub(crate) static PEER_FIELD: HeaderName = HeaderName::from_static("larder-peer");

/// A request of another node, in the request's extensions.
#[derive(Clone, Debug)]
pub(crate) struct PeerRequest {
    pub(crate) scheme: &'static str,
    /// The host in the key.
    pub(crate) authority: String,
    /// The path and query, as the target of a request to a server.
    pub(crate) path: Uri,
    /// The name of the origin in the key; `None` if it is the URL's own server.
    pub(crate) mark: Option<String>,
    /// Whether a client changed the resource through the other node, so that what is stored here is outdated.
    pub(crate) is_changed: bool,
    nonce: String,
    purges: String,
}

/// The words of one request to another node.
pub(crate) struct PeerWords {
    nonce: String,
    positions: String,
    is_changed: bool,
}

impl PeerWords {
    /// Returns the words of a request for the resource with this key. `None` if other nodes cannot know all purges made
    /// here yet, or if the system has no random numbers.
    pub(crate) fn new(siblings: &Siblings, key: &[u8], purges: &Purges) -> Option<Self> {
        let (positions, is_changed) = (positions(siblings, purges)?, siblings.changed.contains(key));
        secret::nonce().map(|nonce| Self { nonce, positions, is_changed })
    }

    /// Notes that a node responded, and has therefore dropped any outdated response.
    pub(crate) fn settle(&self, siblings: &Siblings, key: &[u8], node: &str) {
        if self.is_changed {
            siblings.settle_change(key, node);
        }
    }

    /// Adds the field to a request for `url`.
    pub(crate) fn put(&self, siblings: &Siblings, (to, mark): (&str, Option<&str>), url: &Uri, fields: &mut HeaderMap) {
        let (from, nonce, mark) = (&*siblings.own_name, &*self.nonce, mark.unwrap_or("-"));
        let (state, positions) = (if self.is_changed { CHANGED } else { "-" }, &*self.positions);
        let code = siblings.secret.sign(&[REQUEST, from, to, nonce, mark, state, positions, &url.to_string()]);
        let value = HeaderValue::try_from(format!("{from} {to} {nonce} {mark} {state} {positions} {code}"));
        fields.insert(&PEER_FIELD, value.expect("names and codes are printable"));
    }

    /// Removes the field from a response. Returns whether the response comes from a node that knows the secret.
    pub(crate) fn take_proof(&self, siblings: &Siblings, status: StatusCode, fields: &mut HeaderMap) -> bool {
        let code = fields.remove(&PEER_FIELD);
        let (code, head) = (code.as_ref().and_then(|code| code.to_str().ok()), signed_head(status, fields));
        code.is_some_and(|code| siblings.secret.verify(&[RESPONSE, &self.nonce, &head], code))
    }
}

impl PeerRequest {
    /// Reads the field of a request. Returns `None` if the request is not from a node of the fleet to this node.
    pub(crate) fn verify<B>(siblings: &Siblings, request: &Request<B>) -> Option<Self> {
        let mut words = request.headers().get(&PEER_FIELD)?.to_str().ok()?.split(' ');
        let mut next = || words.next();
        let (from, to, nonce, mark) = (next()?, next()?, next()?, next()?);
        let (state, purges, code) = (next()?, next()?, next()?);
        let is_plain = words.next().is_none() && matches!(*request.method(), Method::GET | Method::HEAD);
        let url = request.uri().to_string();
        let is_right = || siblings.secret.verify(&[REQUEST, from, to, nonce, mark, state, purges, &url], code);
        if !is_plain || !siblings.is_own_name(to) || !is_right() {
            return None;
        }
        let path = request.uri().path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        Some(Self {
            scheme: if request.uri().scheme_str()? == "https" { "https" } else { "http" },
            authority: request.uri().authority()?.to_string(),
            path: path.into(),
            mark: (mark != "-").then(|| mark.to_owned()),
            is_changed: state == CHANGED,
            nonce: nonce.to_owned(),
            purges: purges.to_owned(),
        })
    }

    /// Returns the sibling's request that was recognized in `request`, if there is one.
    pub(crate) fn of<B>(request: &Request<B>) -> Option<&Self> {
        request.extensions().get()
    }

    /// Returns the scheme, authority and mark in the key of the resource.
    pub(crate) fn name(&self) -> (&str, &str, OriginMark<'_>) {
        (self.scheme, &self.authority, self.mark.as_deref().map_or(OriginMark::NONE, OriginMark::of_origin))
    }

    /// Returns whether this node has applied all purges that the other node has applied. If not, a response from this
    /// cache may have been purged there.
    pub(crate) fn knows_its_purges(&self, siblings: &Siblings, purges: &Purges) -> bool {
        self.purges.split(',').all(|position| {
            let mut parts = position.rsplitn(3, ':');
            let (Some(number), Some(log), Some(name)) = (parts.next(), parts.next(), parts.next()) else {
                return false;
            };
            let (Ok(number), Ok(log)) = (number.parse::<u64>(), u64::from_str_radix(log, 16)) else { return false };
            if name == &*siblings.own_name {
                // A position in a log with another identity does not matter, because that log is lost.
                return true;
            }
            // The identity of a shared log is that of the entry at the position.
            let is_same = |known: u64| known == log || siblings.shared_log.as_deref() == Some(name);
            log == 0 || purges.position(name).is_some_and(|known| is_same(known.log) && known.number >= number)
        })
    }

    /// Waits for a short time until these purges are applied. Returns whether they are.
    pub(crate) async fn await_purges(&self, siblings: &Siblings, purges: &Purges) -> bool {
        for _ in 0..CATCH_UP_STEPS {
            if self.knows_its_purges(siblings, purges) {
                return true;
            }
            tokio::time::sleep(CATCH_UP_INTERVAL).await;
        }
        self.knows_its_purges(siblings, purges)
    }

    /// Adds the proof to a response that this node made it.
    pub(crate) fn prove(&self, siblings: &Siblings, status: StatusCode, fields: &mut HeaderMap) {
        let code = siblings.secret.sign(&[RESPONSE, &self.nonce, &signed_head(status, fields)]);
        fields.insert(&PEER_FIELD, HeaderValue::try_from(code).expect("a code is hexadecimal digits"));
    }
}

/// Returns the part of a response's head that its code covers. Fields of the connection and of the node's own log are
/// not in it, because both ends change them.
fn signed_head(status: StatusCode, fields: &HeaderMap) -> String {
    let mut text = status.as_str().to_owned();
    for name in SIGNED_FIELDS {
        for value in fields.get_all(name) {
            write!(text, "\n{name}: {}", value.as_bytes().escape_ascii())
                .expect("a string takes what is written to it");
        }
    }
    text
}

/// Returns the positions up to which this node has applied the purges of all nodes. `None` if some of its own purges
/// are not in the shared log yet.
fn positions(siblings: &Siblings, purges: &Purges) -> Option<String> {
    let end = *purges.log_end().borrow();
    if let Some(name) = &siblings.shared_log {
        let known = purges.position(name)?;
        return (known.sent >= end).then(|| format!("{name}:{:x}:{}", known.log, known.number));
    }
    let mut text = format!("{}:{:x}:{end}", siblings.own_name, purges.log_id());
    let members = siblings.members()?;
    for sibling in members.others() {
        let (log, number) = purges.position(&sibling.name).map_or((0, 0), |known| (known.log, known.number));
        write!(text, ",{}:{log:x}:{number}", sibling.name).expect("a string takes what is written to it");
    }
    Some(text)
}

/// Fields that decide how a response is stored, selected, validated and shown.
const SIGNED_FIELDS: [&str; 20] = [
    "age",
    "cache-control",
    "cache-tag",
    "cdn-cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-location",
    "content-range",
    "content-security-policy",
    "content-type",
    "etag",
    "expires",
    "last-modified",
    "link",
    "location",
    "set-cookie",
    "surrogate-control",
    "surrogate-key",
    "vary",
];
const REQUEST: &str = "sibling request";
const RESPONSE: &str = "sibling response";
const CHANGED: &str = "changed";
/// Number of intervals for which a request waits for purges that its sender has applied. Between running nodes, a purge
/// takes a fraction of that time.
const CATCH_UP_STEPS: u32 = 50;
const CATCH_UP_INTERVAL: Duration = Duration::from_millis(10);
