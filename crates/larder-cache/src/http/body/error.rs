//! The reasons for which a body ends before its end.

use std::fmt;

/// Why a body could not be completed. The client's connection must then be closed, because the head of its response has
/// already been sent.
///
/// ```
/// use larder_cache::http::body::error::BodyError;
///
/// assert_eq!(BodyError::TooSlow.token(), "client-too-slow");
/// assert_eq!(BodyError::TooSlow.to_string(), "the client fell too far behind");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// The origin broke off or was silent for too long.
    OriginBroke,
    /// Part of a stored body is gone, and the origin no longer has it.
    PartMissing,
    /// The reader fell further behind than the body's memory permits.
    TooSlow,
    /// The body does not have the digest that its URL names.
    WrongDigest,
    /// The body cannot be encoded in the content coding that its head announces.
    NotEncoded,
}

impl BodyError {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 5] =
        [Self::OriginBroke, Self::PartMissing, Self::TooSlow, Self::WrongDigest, Self::NotEncoded];

    /// Returns the reason's name in metrics.
    pub const fn token(self) -> &'static str {
        match self {
            Self::OriginBroke => "origin-broke",
            Self::PartMissing => "part-missing",
            Self::TooSlow => "client-too-slow",
            Self::WrongDigest => "wrong-digest",
            Self::NotEncoded => "not-encoded",
        }
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OriginBroke => "the origin broke off before the end of its response",
            Self::PartMissing => "part of the stored response is missing",
            Self::TooSlow => "the client fell too far behind",
            Self::NotEncoded => "the response cannot be encoded",
            Self::WrongDigest => "the response does not have the digest that its URL or a stored listing names",
        })
    }
}

impl std::error::Error for BodyError {}
