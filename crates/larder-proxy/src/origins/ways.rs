//! The ways to an origin: through one of several parents, or directly.
//!
//! Owns: which parent a request goes through, and what it tries next. Connecting is elsewhere. Invariants: a parent
//! that responds with a refusal is not bypassed. An origin is contacted directly only where the configuration allows it
//! and no parent can be reached. A parent's failure never counts against the origin. Cost: without parents, a
//! comparison.

use std::sync::Arc;

use larder_http::key::KeyOf;

use crate::{
    ground::{
        config::{DirectFallback, Parent, Parents},
        errors::Failure,
        target::{Origin, OriginWay},
    },
    origins::{
        group::{OriginChoice, OriginGroup},
        parent,
    },
};

/// The parents for all origins that clients and mirrors name.
pub(crate) struct ParentGroup {
    pub(crate) group: Arc<OriginGroup>,
    parents: Vec<Arc<Parent>>,
    config: Parents,
}

/// The way in which a request reaches its origin (through a parent, or directly), and the other ways that are left.
pub(crate) struct OriginWays {
    /// The origin, to be contacted in the way that is tried now.
    origin: Origin,
    choice: Option<ParentChoice>,
}

struct ParentChoice {
    parents: Arc<ParentGroup>,
    choice: OriginChoice,
    /// The parents tried so far, including the current one.
    tried: Vec<Origin>,
}

impl ParentGroup {
    /// Creates a group of the configured parents, or returns `None` if there are none.
    pub(crate) fn new(config: &Parents) -> Option<Arc<Self>> {
        if config.members.is_empty() {
            return None;
        }
        let parents: Vec<_> = config.members.iter().map(|(parent, _)| Arc::new(parent.clone())).collect();
        let origins = parents.iter().map(|parent| parent::origin_of(parent)).collect();
        let group = Arc::new(OriginGroup::new(origins, &config.nodes(), &config.rules));
        Some(Arc::new(Self { group, parents, config: config.clone() }))
    }

    /// Returns the parents for an origin, in the order of the configuration.
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
    /// Chooses how a request with this key reaches an origin: through which parent, or directly. Returns `None` if the
    /// general parents are not used for the origin.
    pub(crate) fn new(parents: Option<&Arc<ParentGroup>>, origin: &Origin, key: Option<&[u8]>) -> Option<Self> {
        if origin.way != OriginWay::Usual {
            return None;
        }
        let parents = parents.filter(|parents| !parents.leading_to(origin).is_empty())?;
        // All tunnels to one host use the same parent. The choice depends on the URL, because keys differ between
        // machines.
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

    /// Returns the origin, with the way (through a parent, or directly) that is used now.
    pub(crate) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Records whether the current parent proxy worked. If it failed and `may_repeat` is set, switches to the next
    /// parent, or to a direct connection if that is allowed.
    ///
    /// Returns whether it switched: then the request must be sent again.
    pub(crate) fn note<T>(&mut self, outcome: Result<T, &Failure>, may_repeat: bool) -> bool {
        let (Some(ParentChoice { choice, tried, .. }), OriginWay::By(parent)) = (&self.choice, &self.origin.way) else {
            return false;
        };
        let is_good = match outcome {
            Ok(_) => true,
            Err(failure) if is_parents(failure, &self.origin, parent) => false,
            // The parent did its part, but the origin failed.
            Err(_) => return false,
        };
        choice.note(tried.last().expect("a parent is tried"), is_good);
        !is_good && may_repeat && self.advance()
    }

    /// Switches to the next parent, or to a direct connection if that is allowed. Returns false if neither is left.
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

/// Returns whether the parent failed, not the origin behind it.
fn is_parents(failure: &Failure, origin: &Origin, parent: &Parent) -> bool {
    match failure {
        Failure::Unusable { fault, .. } if fault.is_said_by_parent => false,
        Failure::Unusable { host, .. } if *host == parent.to_string() => true,
        // Without a tunnel, the connection belongs to the parent, so its faults are the parent's.
        Failure::Unusable { .. } | Failure::Broken { .. } => parent::takes_absolute_form(origin),
        _ => false,
    }
}

/// Maximum number of parents that are tried for one request.
const PARENT_COUNT_MAX: usize = 3;
