//! The field with which one node requests a resource from another, and with which the other proves that the response is
//! its own.
//!
//! Owns: the format of the field, and its codes. Invariants: a request counts as a sibling's only if its code proves
//! that the sender knows the secret and addresses this node, and only for [`AGE_SECS_MAX`]: a recorded request is of no
//! use later. A response counts only with the code for this request. The field never reaches an origin or a client.
//!
//! ```text
//! larder-peer: FROM TO TIME RULES NONCE MARK STATE PURGES CODE  in a request, whose target is the resource's URL
//! larder-peer: CODE                   in a response that is not an error of the node itself
//! larder-peer: DIFFERENCE CODE        in a refusal of a request that does know the secret
//!
//! The code of a response covers its status and the fields that decide how it is stored and used, not its body.
//! ```
//!
//! `TIME` is the sender's, in seconds, and `RULES` the digest of its list of nodes and rules for keys. `DIFFERENCE` is
//! `clock` or `rules`: two nodes that differ in one of these do without each other.
//!
//! A node greets the others when it starts: its field then stands in a request for their log of purges, and `PURGES` is
//! `-`. Only the answer of a node that differs has a field.
//!
//! `MARK` names the origin in the key, or is `-`. `STATE` is `changed` if a client changed the resource, or `-`.
//! `PURGES` has the position up to which the sender has applied each log of purges, as `NAME:LOG:NUMBER,...`. If the
//! fleet has a shared log, only that one is named.

use std::{fmt::Write as _, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, uri::PathAndQuery};

use larder_http::Timestamp;

use super::Siblings;
use crate::{
    fleet::secret,
    ground::{
        cache::{mark::OriginMark, purges::Purges},
        clock,
    },
};

/// The request field with which one node requests a resource from another. The other node's response proves itself in
/// the same field.
pub(crate) static PEER_FIELD: HeaderName = HeaderName::from_static("larder-peer");

/// The facts that another node sent with its request.
#[derive(Clone, Debug)]
pub(crate) struct PeerRequest {
    pub(crate) scheme: &'static str,
    /// The authority in the resource's key.
    pub(crate) authority: String,
    /// The resource's path and query, as a request target in origin form.
    pub(crate) path: Uri,
    /// The origin mark in the resource's key. `None` if the origin is the URL's own server.
    pub(crate) mark: Option<String>,
    /// Whether a client changed the resource through the other node, so that this node's stored responses are outdated.
    pub(crate) is_changed: bool,
    nonce: String,
    purges: String,
}

/// The parts of [`PEER_FIELD`] that one request to another node sends.
pub(crate) struct PeerWords {
    time: String,
    nonce: String,
    positions: String,
    is_changed: bool,
}

/// The result of checking [`PEER_FIELD`] in a request.
#[derive(Debug)]
pub(crate) enum PeerClaim {
    /// Another node of the fleet sent the request.
    Proved(PeerRequest),
    /// Another node sent the request, but its clock or rules differ, or the request is a replay. The refusing response
    /// gets this value in [`PEER_FIELD`].
    Refused(HeaderValue),
}

/// A difference between two nodes that prevents them from sharing entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PeerDifference {
    /// The nodes' clocks differ.
    Clock,
    /// The nodes' lists of nodes, key rules or piece lengths differ.
    Rules,
}

impl PeerDifference {
    const ALL: [Self; 2] = [Self::Clock, Self::Rules];

    /// Returns the word that stands for the difference in [`PEER_FIELD`].
    fn word(self) -> &'static str {
        match self {
            Self::Clock => "clock",
            Self::Rules => "rules",
        }
    }
}

/// The result of checking [`PEER_FIELD`] in another node's response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerProof {
    /// The other node proved that it made this response, and made it for this request.
    Given,
    /// The other node refuses requests from this node, because of this difference.
    Refused(PeerDifference),
    Missing,
}

impl PeerWords {
    /// Creates the parts of the field for a request for the resource with this key.
    ///
    /// `None` if other nodes cannot know all purges of this node yet, or if the system provides no random numbers.
    pub(crate) fn new(siblings: &Siblings, key: &[u8], purges: &Purges) -> Option<Self> {
        let positions = positions(siblings, purges)?;
        let is_changed = siblings.changed.contains(key);
        let time = secs_of(clock::now()).to_string();
        secret::nonce().map(|nonce| Self { time, nonce, positions, is_changed })
    }

    /// Creates the parts of the field for a greeting, by which two nodes find out whether they agree. `None` if the
    /// system provides no random numbers.
    pub(super) fn of_greeting() -> Option<Self> {
        let time = secs_of(clock::now()).to_string();
        secret::nonce().map(|nonce| Self { time, nonce, positions: "-".to_owned(), is_changed: false })
    }

    /// Records that a node has answered a request, so it has dropped the outdated responses for the key.
    pub(crate) fn settle(&self, siblings: &Siblings, key: &[u8], node: &str) {
        if self.is_changed {
            siblings.settle_change(key, node);
        }
    }

    /// Adds [`PEER_FIELD`] to a request for `url` to the node `to`. `mark` is the origin mark in the resource's key.
    pub(crate) fn put(&self, siblings: &Siblings, (to, mark): (&str, Option<&str>), url: &Uri, fields: &mut HeaderMap) {
        let from = &*siblings.own_name;
        let time = &*self.time;
        let rules = &*siblings.rules;
        let nonce = &*self.nonce;
        let mark = mark.unwrap_or("-");
        let positions = &*self.positions;
        let state = if self.is_changed { CHANGED } else { "-" };
        let signed = [REQUEST, from, to, time, rules, nonce, mark, state, positions, &url.to_string()];
        let code = siblings.secret.sign(&signed);
        let value =
            HeaderValue::try_from(format!("{from} {to} {time} {rules} {nonce} {mark} {state} {positions} {code}"));
        fields.insert(&PEER_FIELD, value.expect("names and codes are printable"));
    }

    /// Removes [`PEER_FIELD`] from a response, and returns what it proves.
    pub(crate) fn take_proof(&self, siblings: &Siblings, status: StatusCode, fields: &mut HeaderMap) -> PeerProof {
        let value = fields.remove(&PEER_FIELD);
        let Some(text) = value.as_ref().and_then(|value| value.to_str().ok()) else { return PeerProof::Missing };
        let proves = |parts: &[&str], code| siblings.secret.verify(parts, code);
        let Some((word, code)) = text.split_once(' ') else {
            let is_given = proves(&[RESPONSE, &self.nonce, &signed_head(status, fields)], text);
            return if is_given { PeerProof::Given } else { PeerProof::Missing };
        };
        let difference = PeerDifference::ALL.into_iter().find(|difference| difference.word() == word);
        let difference = difference.filter(|_| proves(&[REFUSAL, &self.nonce, word], code));
        difference.map_or(PeerProof::Missing, PeerProof::Refused)
    }
}

impl PeerRequest {
    /// Checks [`PEER_FIELD`] in a request. Returns `None` if it does not prove that a node of the fleet sent the
    /// request to this node.
    pub(crate) fn verify<B>(siblings: &Siblings, request: &Request<B>, now: Timestamp) -> Option<PeerClaim> {
        let mut words = request.headers().get(&PEER_FIELD)?.to_str().ok()?.split(' ');
        let mut next = || words.next();
        let from = next()?;
        let to = next()?;
        let time = next()?;
        let rules = next()?;
        let nonce = next()?;
        let mark = next()?;
        let state = next()?;
        let purges = next()?;
        let code = next()?;
        let is_plain = words.next().is_none() && matches!(*request.method(), Method::GET | Method::HEAD);
        let url = request.uri().to_string();
        let signed = [REQUEST, from, to, time, rules, nonce, mark, state, purges, &url];
        if !is_plain || !siblings.is_own_name(to) || !siblings.secret.verify(&signed, code) {
            return None;
        }
        let age_secs = secs_of(now).abs_diff(time.parse().ok()?);
        let difference = match (age_secs > AGE_SECS_MAX, *rules == *siblings.rules) {
            (true, _) => Some(PeerDifference::Clock),
            (false, false) => Some(PeerDifference::Rules),
            (false, true) => None,
        };
        if let Some(difference) = difference {
            siblings.differences.note(from, difference);
            let word = difference.word();
            let value = format!("{word} {}", siblings.secret.sign(&[REFUSAL, nonce, word]));
            return Some(PeerClaim::Refused(HeaderValue::try_from(value).expect("it is a word and digits")));
        }
        let path = request.uri().path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        Some(PeerClaim::Proved(Self {
            scheme: if request.uri().scheme_str()? == "https" { "https" } else { "http" },
            authority: request.uri().authority()?.to_string(),
            path: path.into(),
            mark: (mark != "-").then(|| mark.to_owned()),
            is_changed: state == CHANGED,
            nonce: nonce.to_owned(),
            purges: purges.to_owned(),
        }))
    }

    /// Returns the scheme, authority and origin mark in the cache key of the requested resource.
    pub(crate) fn name(&self) -> (&str, &str, OriginMark<'_>) {
        (self.scheme, &self.authority, self.mark.as_deref().map_or(OriginMark::NONE, OriginMark::of_origin))
    }

    /// Returns whether this node has applied all purges that the other node has applied.
    ///
    /// If it has not, a response stored here may have been purged at the other node.
    pub(crate) fn knows_its_purges(&self, siblings: &Siblings, purges: &Purges) -> bool {
        self.purges.split(',').all(|position| {
            let mut parts = position.rsplitn(3, ':');
            let (Some(number), Some(log), Some(name)) = (parts.next(), parts.next(), parts.next()) else {
                return false;
            };
            let (Ok(number), Ok(log)) = (number.parse::<u64>(), u64::from_str_radix(log, 16)) else { return false };
            if name == &*siblings.own_name {
                // A position in a log with another identity does not matter, because that log was lost.
                return true;
            }
            // In a shared log, the identity is the digest of the entry at the position, so it may differ.
            let is_same = |known: u64| known == log || siblings.shared_log.as_deref() == Some(name);
            log == 0 || purges.position(name).is_some_and(|known| is_same(known.log) && known.number >= number)
        })
    }

    /// Waits briefly until all purges that the other node has applied are applied here too. Returns false if they are
    /// not applied in time.
    pub(crate) async fn await_purges(&self, siblings: &Siblings, purges: &Purges) -> bool {
        for _ in 0..CATCH_UP_STEPS {
            if self.knows_its_purges(siblings, purges) {
                return true;
            }
            tokio::time::sleep(CATCH_UP_INTERVAL).await;
        }
        self.knows_its_purges(siblings, purges)
    }

    /// Adds the proof that this node made a response to its fields.
    pub(crate) fn prove(&self, siblings: &Siblings, status: StatusCode, fields: &mut HeaderMap) {
        let code = siblings.secret.sign(&[RESPONSE, &self.nonce, &signed_head(status, fields)]);
        fields.insert(&PEER_FIELD, HeaderValue::try_from(code).expect("a code is hexadecimal digits"));
    }
}

/// Returns the part of a response's head that the code in [`PEER_FIELD`] covers. It leaves out fields that may change
/// on the way between nodes.
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

/// Returns how far this node has applied the purges of all nodes, in the format of [`PEER_FIELD`].
///
/// `None` if some purges of this node are not in the shared log yet.
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

fn secs_of(time: Timestamp) -> i64 {
    time.as_secs()
}

/// Maximum difference between the time in a request and this node's clock, in seconds.
const AGE_SECS_MAX: u64 = 30;
/// Response fields that the code in [`PEER_FIELD`] covers, because they decide how a response is stored, selected,
/// validated and shown.
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
const REFUSAL: &str = "sibling refusal";
const CHANGED: &str = "changed";
/// Number of intervals for which a request waits for purges. Between running nodes, a purge usually arrives in a
/// fraction of the total time.
const CATCH_UP_STEPS: u32 = 50;
const CATCH_UP_INTERVAL: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{fleet::secret::FleetSecret, ground::config::Fleet};

    const URL: &str = "http://site.example/x";

    fn siblings(own: &str, rules: u64) -> Arc<Siblings> {
        let nodes = ["a=10.0.0.1:80", "b=10.0.0.2:80"].map(|node| node.parse().unwrap());
        let fleet = Fleet { nodes: nodes.into(), shares_entries: true, ..Fleet::default() };
        let secret = Arc::new(FleetSecret::new("0123456789abcdef"));
        Siblings::new(&fleet, &own.into(), &secret, &[], rules).unwrap()
    }

    fn words(time: i64) -> PeerWords {
        PeerWords { time: time.to_string(), nonce: "07".into(), positions: "a:0:0".into(), is_changed: false }
    }

    fn request(words: &PeerWords, from: &Siblings) -> Request<()> {
        let mut request = Request::builder().uri(URL).body(()).unwrap();
        words.put(from, ("b", None), &URL.parse().unwrap(), request.headers_mut());
        request
    }

    /// Returns the difference because of which `to` refuses the request, or `None` if `to` accepts it.
    fn difference(words: &PeerWords, from: &Siblings, to: &Siblings, now: i64) -> Option<PeerDifference> {
        match PeerRequest::verify(to, &request(words, from), Timestamp::from_secs(now)).unwrap() {
            PeerClaim::Proved(_) => None,
            PeerClaim::Refused(value) => {
                let mut fields = HeaderMap::from_iter([(PEER_FIELD.clone(), value)]);
                match words.take_proof(from, StatusCode::FORBIDDEN, &mut fields) {
                    PeerProof::Refused(difference) => Some(difference),
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    /// Guards against a recorded request that someone sends again later, to find out what is stored.
    #[test]
    fn recorded_request_is_refused_after_half_a_minute_and_one_from_the_future_too() {
        let from = siblings("a", 1);
        let to = siblings("b", 1);
        for (now, expected) in [
            (1000, None),
            (1030, None),
            (1031, Some(PeerDifference::Clock)),
            (970, None),
            (969, Some(PeerDifference::Clock)),
            (i64::MAX / 1000, Some(PeerDifference::Clock)),
        ] {
            assert_eq!(difference(&words(1000), &from, &to, now), expected, "{now}");
        }
        // The time is signed.
        let mut renewed = request(&words(1000), &from);
        let text = renewed.headers()[&PEER_FIELD].to_str().unwrap().replace(" 1000 ", " 2000 ");
        renewed.headers_mut().insert(&PEER_FIELD, text.parse().unwrap());
        assert!(PeerRequest::verify(&to, &renewed, Timestamp::from_secs(2000)).is_none());
        assert_eq!(to.differences.count(PeerDifference::Clock), 3);
    }

    #[test]
    fn nodes_with_other_rules_do_without_each_other() {
        let from = siblings("a", 1);
        let to = siblings("b", 2);
        assert_eq!(difference(&words(1000), &from, &to, 1000), Some(PeerDifference::Rules));
        assert_eq!(to.differences.count(PeerDifference::Rules), 1);
        let mut forged = HeaderMap::from_iter([(PEER_FIELD.clone(), HeaderValue::from_static("rules 00"))]);
        assert_eq!(words(1000).take_proof(&from, StatusCode::FORBIDDEN, &mut forged), PeerProof::Missing);
    }
}
