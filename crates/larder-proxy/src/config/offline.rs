//! What the operator says of the line to the origins.

use std::{fmt, str::FromStr};

/// Whether origins are asked, and what answers if they are not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offline {
    /// They are, always.
    #[default]
    Off,
    /// They are, unless several of them do not answer and hardly any does. Then what might stand in for an error of the origin does so
    /// at once, and anything else is 504, until one of them answers again.
    Auto,
    /// They are not. What is stored answers, however old, unless its origin forbids that; anything else is 504.
    On,
    /// They are not. What is stored answers, however old, although its origin forbids that (RFC 9111 5.2.2.2, 5.2.2.4).
    OnEvenForbidden,
}

impl Offline {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Off, Self::Auto, Self::On, Self::OnEvenForbidden];

    /// Returns its name in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Auto => "auto",
            Self::On => "on",
            Self::OnEvenForbidden => "on-even-forbidden",
        }
    }
}

impl fmt::Display for Offline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Offline {
    type Err = UnknownOffline;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|mode| mode.name() == text).ok_or(UnknownOffline)
    }
}

/// A text names none of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownOffline;

impl fmt::Display for UnknownOffline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not off, auto, on or on-even-forbidden")
    }
}

impl std::error::Error for UnknownOffline {}
