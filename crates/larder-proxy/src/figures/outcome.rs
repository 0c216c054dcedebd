//! The outcomes of an exchange, in the words of Squid's access log, and the reasons why a body came from an origin, in
//! the words of Cache-Status.

use crate::ground::cache::answer::AnswerKind;
use larder_http::{
    CacheStatus, Reason,
    cache_status::{Forward, RequestHandling},
};

/// The way in which an exchange was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The stored response was served from the store.
    Hit,
    /// The stored response was served from memory.
    MemoryHit,
    /// A stored response sufficed to answer a conditional request, for example with 304.
    ConditionalHit,
    /// A stale response was served from the store, as rules and settings permit.
    StaleHit,
    /// The response came from the origin, because none was stored.
    Miss,
    /// The stored response was served after the origin confirmed it.
    RefreshUnmodified,
    /// The response came from the origin and replaced a stored one.
    RefreshModified,
    /// A stale response was served from the store, because the origin failed.
    RefreshFailed,
    /// The request opened a tunnel.
    Tunnel,
    /// The request was refused.
    Denied,
    /// The proxy created the response itself: an error, or a response as the request's final recipient.
    Failed,
}

impl Outcome {
    /// All outcomes, in the order of their discriminants.
    pub const ALL: [Self; 11] = [
        Self::Hit,
        Self::MemoryHit,
        Self::ConditionalHit,
        Self::StaleHit,
        Self::Miss,
        Self::RefreshUnmodified,
        Self::RefreshModified,
        Self::RefreshFailed,
        Self::Tunnel,
        Self::Denied,
        Self::Failed,
    ];

    /// Returns the code for the outcome in Squid's access log.
    pub const fn squid_code(self) -> &'static str {
        match self {
            Self::Hit => "TCP_HIT",
            Self::MemoryHit => "TCP_MEM_HIT",
            Self::ConditionalHit => "TCP_IMS_HIT",
            Self::StaleHit => "TCP_STALE_HIT",
            Self::Miss => "TCP_MISS",
            Self::RefreshUnmodified => "TCP_REFRESH_UNMODIFIED",
            Self::RefreshModified => "TCP_REFRESH_MODIFIED",
            Self::RefreshFailed => "TCP_REFRESH_FAIL_OLD",
            Self::Tunnel => "TCP_TUNNEL",
            Self::Denied => "TCP_DENIED",
            Self::Failed => "NONE",
        }
    }

    /// Returns whether the body came from the cache.
    pub const fn is_hit(self) -> bool {
        matches!(
            self,
            Self::Hit
                | Self::MemoryHit
                | Self::ConditionalHit
                | Self::StaleHit
                | Self::RefreshUnmodified
                | Self::RefreshFailed
        )
    }
    /// Returns the kind of the outcome.
    pub(crate) const fn kind(self) -> OutcomeKind {
        match self {
            _ if self.is_hit() => OutcomeKind::Hit,
            Self::Tunnel => OutcomeKind::Tunnel,
            Self::Denied => OutcomeKind::Denied,
            Self::Failed => OutcomeKind::Failed,
            _ => OutcomeKind::Miss,
        }
    }

    /// Returns whether the body came from an origin, for a request that the cache could have answered.
    pub const fn is_miss(self) -> bool {
        matches!(self, Self::Miss | Self::RefreshModified)
    }
}

impl From<AnswerKind> for Outcome {
    fn from(kind: AnswerKind) -> Self {
        match kind {
            AnswerKind::Hit => Self::Hit,
            AnswerKind::MemoryHit => Self::MemoryHit,
            AnswerKind::ConditionalHit => Self::ConditionalHit,
            AnswerKind::StaleHit => Self::StaleHit,
            AnswerKind::Miss => Self::Miss,
            AnswerKind::RefreshUnmodified => Self::RefreshUnmodified,
            AnswerKind::RefreshModified => Self::RefreshModified,
            AnswerKind::RefreshFailed => Self::RefreshFailed,
        }
    }
}

/// The kinds of outcomes, which metrics distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutcomeKind {
    Hit,
    Miss,
    Tunnel,
    Denied,
    Failed,
}

impl OutcomeKind {
    /// All kinds, in the order of their discriminants.
    pub(crate) const ALL: [Self; 5] = [Self::Hit, Self::Miss, Self::Tunnel, Self::Denied, Self::Failed];

    /// Returns the label value in metrics that stands for this kind.
    pub(crate) const fn token(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Miss => "miss",
            Self::Tunnel => "tunnel",
            Self::Denied => "denied",
            Self::Failed => "failed",
        }
    }
}

/// Why a body came from an origin: the rule that decided, or the reason for forwarding if no rule did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MissReason(u8);

impl MissReason {
    /// All reasons, in the order of their numbers.
    pub(crate) const ALL: [Self; Reason::ALL.len() + FORWARDS.len()] = {
        let mut all = [Self(0); _];
        let mut number = 0;
        while number < all.len() {
            all[number] = Self(number as u8);
            number += 1;
        }
        all
    };

    /// Returns the reason for which a request went to the origin. `None` for a hit.
    pub(crate) fn of(status: CacheStatus) -> Option<Self> {
        let RequestHandling::Forwarded { why, .. } = status.handling else { return None };
        let reason = status.detail.or(match why {
            Forward::Method => Some(Reason::Method),
            Forward::Partial => Some(Reason::Partial),
            _ => None,
        });
        let number = match reason {
            Some(reason) => reason as usize,
            None => Reason::ALL.len() + FORWARDS.iter().position(|forward| *forward == why)?,
        };
        Some(Self(number as u8))
    }

    /// Returns the reason's position in [`Self::ALL`].
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Returns the reason's name, as Cache-Status and metrics contain it.
    pub(crate) fn token(self) -> &'static str {
        let index = self.index();
        Reason::ALL.get(index).map_or_else(|| FORWARDS[index - Reason::ALL.len()].token(), |reason| reason.token())
    }
}

/// The reasons for forwarding that have no rule of the same name.
const FORWARDS: [Forward; 6] =
    [Forward::Bypass, Forward::UriMiss, Forward::VaryMiss, Forward::Miss, Forward::Request, Forward::Stale];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_reason_has_a_number_and_a_token_of_its_own() {
        let tokens: HashSet<&str> = MissReason::ALL.into_iter().map(MissReason::token).collect();
        assert_eq!(tokens.len(), MissReason::ALL.len());
        for reason in Reason::ALL {
            let status = CacheStatus::forwarded(Forward::Stale).because(reason);
            assert_eq!(MissReason::of(status).unwrap().token(), reason.token());
        }
        for why in Forward::ALL {
            assert_eq!(MissReason::of(CacheStatus::forwarded(why)).unwrap().token(), why.token());
        }
        assert_eq!(MissReason::of(CacheStatus::hit(1)), None);
    }
}
