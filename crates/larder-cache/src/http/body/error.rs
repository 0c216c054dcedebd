//! The reasons for which a body ends before its end.

use std::fmt;

/// The reason why a body could not be completed. The client's connection must be closed, because the head of its
/// response was already sent, and no error can be reported any more.
///
/// ```
/// use larder_cache::http::body::error::BodyError;
///
/// assert_eq!(BodyError::TooSlow.token(), "client-too-slow");
/// assert_eq!(BodyError::TooSlow.to_string(), "the client fell too far behind");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// The origin closed the connection too early, or was silent for too long.
    OriginBroke,
    /// A part of a stored body is no longer in the store, and the origin did not send it again.
    PartMissing,
    /// The client held up other clients of the body for too long.
    TooSlow,
    /// The body does not have the digest that its URL or a listing names.
    WrongDigest,
    /// The body cannot be encoded in the content coding that its head announces.
    NotEncoded,
}

impl BodyError {
    /// All errors, in a fixed order for counters.
    pub const ALL: [Self; 5] =
        [Self::OriginBroke, Self::PartMissing, Self::TooSlow, Self::WrongDigest, Self::NotEncoded];

    /// Returns the name of this error in metrics.
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
