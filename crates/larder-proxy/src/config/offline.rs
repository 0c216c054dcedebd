//! The operator's setting for whether origins are contacted.

use std::{fmt, str::FromStr};

/// Whether origins are contacted, and how requests are answered if they are not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offline {
    /// Origins are always contacted.
    #[default]
    Off,
    /// Origins are contacted unless several of them fail and hardly any responds. In that case, stored responses that
    /// may replace an error are served at once, and all other requests get 504, until one of the failing origins
    /// responds again.
    Auto,
    /// No origin is contacted. A stored response is served at any age, unless its origin forbids that. All other
    /// requests get 504.
    On,
    /// No origin is contacted. A stored response is served at any age, even if its origin forbids that (RFC 9111
    /// 5.2.2.2, 5.2.2.4). All other requests get 504.
    OnEvenForbidden,
}

impl Offline {
    /// All modes.
    pub const ALL: [Self; 4] = [Self::Off, Self::Auto, Self::On, Self::OnEvenForbidden];

    /// Returns the mode's name in the configuration.
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

/// The error for an unknown mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownOffline;

impl fmt::Display for UnknownOffline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not off, auto, on or on-even-forbidden")
    }
}

impl std::error::Error for UnknownOffline {}
