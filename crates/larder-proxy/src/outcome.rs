//! How an exchange was answered, in the words of Squid's access log.

/// How an exchange was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// From the store.
    Hit,
    /// From memory.
    MemoryHit,
    /// With 304 or another short answer to a condition, from a stored response.
    ConditionalHit,
    /// From the store although stale, as the rules and settings allow.
    StaleHit,
    /// From the origin.
    Miss,
    /// From the store, after the origin confirmed it.
    RefreshUnmodified,
    /// From the origin, which replaced a stored response.
    RefreshModified,
    /// From the store although stale, because the origin failed.
    RefreshFailed,
    /// As bytes both ways.
    Tunnel,
    /// With a refusal.
    Denied,
    /// By the proxy itself: with an error, or as the last recipient.
    Failed,
}

impl Outcome {
    /// Every outcome, in the order of their numbers.
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

    /// Squid's code.
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

    /// Whether the body came from the cache.
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
}
