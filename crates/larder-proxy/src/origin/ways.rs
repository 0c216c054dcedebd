//! The ways to an origin: through one of several parents, or past them.
//!
//! Owns: which parent a request goes through, and what it tries next. Does not: connect. Invariants: a parent that
//! answers and refuses is not bypassed; origins are contacted directly only where the operator said so and no
//! parent can be reached; what a parent did wrong is not noted of the origin. Cost: without parents, a comparison.

use std::sync::Arc;

use larder_http::key::KeyOf;

use crate::{
    config::{DirectFallback, Parent, Parents},
    errors::Failure,
    origin::{
        group::{OriginChoice, OriginGroup},
        parent,
        target::{Origin, OriginWay},
    },
};

/// The parents through which origins are asked that clients and mirrors name.
pub(crate) struct ParentGroup {
    pub(crate) group: Arc<OriginGroup>,
    parents: Vec<Arc<Parent>>,
    config: Parents,
}

/// A request's way to its origin, and the others that it can still try.
pub(crate) struct OriginWays {
    /// The origin by the way that is tried now.
    origin: Origin,
    choice: Option<ParentChoice>,
}

struct ParentChoice {
    parents: Arc<ParentGroup>,
    choice: OriginChoice,
    /// The parents that were tried, the one that is tried now among them.
    tried: Vec<Origin>,
}

impl ParentGroup {
    /// Returns the group of the parents that a configuration has, if it has any.
    pub(crate) fn new(config: &Parents) -> Option<Arc<Self>> {
        if config.members.is_empty() {
            return None;
        }
        let parents: Vec<_> = config.members.iter().map(|(parent, _)| Arc::new(parent.clone())).collect();
        let origins = parents.iter().map(|parent| parent::origin_of(parent)).collect();
        let group = Arc::new(OriginGroup::new(origins, &config.nodes(), &config.rules));
        Some(Arc::new(Self { group, parents, config: config.clone() }))
    }

    /// Returns the parents that lead to an origin, as the configuration lists them.
    pub(crate) fn leading_to(&self, origin: &Origin) -> &[Arc<Parent>] {
        if self.config.lead_to(&origin.host) { &self.parents } else { &[] }
    }

    fn falls_back(&self) -> bool {
        self.config.direct == DirectFallback::OnFailure
    }

    fn by(&self, chosen: &Origin) -> OriginWay {
        let place = self.group.place_of(chosen).expect("the group chooses one of its own");
        OriginWay::By(Arc::clone(&self.parents[place]))
    }
}

impl OriginWays {
    /// Returns the ways to an origin for a request with this key, or `None` if the usual way is the only one.
    pub(crate) fn new(parents: Option<&Arc<ParentGroup>>, origin: &Origin, key: Option<&[u8]>) -> Option<Self> {
        if origin.way != OriginWay::Usual {
            return None;
        }
        let parents = parents.filter(|parents| !parents.leading_to(origin).is_empty())?;
        // Tunnels to one host go through one parent. No other machine knows what is behind the URL in a key.
        let key =
            key.and_then(KeyOf::parse).and_then(|key| key.url()).map_or_else(|| origin.to_string(), str::to_owned);
        let choice = parents.group.choice(Some(key.as_bytes()));
        if parents.falls_back() && parents.group.is_out() {
            return Some(Self { origin: Origin { way: OriginWay::Direct, ..origin.clone() }, choice: None });
        }
        let first = choice.first();
        let origin = Origin { way: parents.by(&first), ..origin.clone() };
        let parents = Arc::clone(parents);
        Some(Self { origin, choice: Some(ParentChoice { parents, choice, tried: vec![first] }) })
    }

    /// Returns the origin by the way that is tried now.
    pub(crate) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Notes how the way did, and takes the next one if its parent failed and the request `may_repeat`. Returns whether
    /// it took one.
    pub(crate) fn note<T>(&mut self, outcome: Result<T, &Failure>, may_repeat: bool) -> bool {
        let (Some(ParentChoice { choice, tried, .. }), OriginWay::By(parent)) = (&self.choice, &self.origin.way) else {
            return false;
        };
        let is_good = match outcome {
            Ok(_) => true,
            Err(failure) if is_parents(failure, &self.origin, parent) => false,
            // The parent did its part; it is the origin that failed.
            Err(_) => return false,
        };
        choice.note(tried.last().expect("a parent is tried"), is_good);
        !is_good && may_repeat && self.advance()
    }

    /// Takes the next way. Returns whether there is one.
    fn advance(&mut self) -> bool {
        let Some(ParentChoice { parents, choice, tried }) = &mut self.choice else { return false };
        let other = choice.other(tried).filter(|_| tried.len() < PARENT_COUNT_MAX);
        match other {
            Some(other) => {
                self.origin.way = parents.by(&other);
                tried.push(other);
            }
            None if parents.falls_back() => {
                self.origin.way = OriginWay::Direct;
                self.choice = None;
            }
            None => return false,
        }
        true
    }
}

/// Returns whether a failure is the parent's, not that of the origin behind it.
fn is_parents(failure: &Failure, origin: &Origin, parent: &Parent) -> bool {
    match failure {
        Failure::Unusable { fault, .. } if fault.is_said_by_parent => false,
        Failure::Unusable { host, .. } if *host == parent.to_string() => true,
        // Without a tunnel all that comes over the connection is the parent's.
        Failure::Unusable { .. } | Failure::Broken { .. } => parent::takes_absolute_form(origin),
        _ => false,
    }
}

/// Most parents that one request is tried with.
const PARENT_COUNT_MAX: usize = 3;
