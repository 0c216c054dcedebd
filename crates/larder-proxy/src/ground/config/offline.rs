//! The offline mode: whether origins are contacted.

use std::{fmt, str::FromStr};

/// Whether origins are contacted, and which stored responses are served if they are not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offline {
    /// Origins are always contacted.
    #[default]
    Off,
    /// Origins are contacted unless the uplink seems to be down: several origins fail, and hardly any responds.
    ///
    /// While it is down, stored responses that may replace an error are served at once, and other requests get 504. It
    /// counts as up again when one of the failing origins responds.
    Auto,
    /// Origins are not contacted. A stored response is served at any age, unless its origin forbids that. Other
    /// requests get 504.
    On,
    /// Origins are not contacted. A stored response is served at any age, even if its origin forbids that (RFC 9111
    /// 5.2.2.2, 5.2.2.4).
    ///
    /// Other requests get 504.
    OnEvenForbidden,
}

impl Offline {
    /// All modes.
    pub const ALL: [Self; 4] = [Self::Off, Self::Auto, Self::On, Self::OnEvenForbidden];

    /// Returns the name of the mode, as configuration and commands use it.
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

/// Error: a text is not the name of an offline mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownOffline;

impl fmt::Display for UnknownOffline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not off, auto, on or on-even-forbidden")
    }
}

impl std::error::Error for UnknownOffline {}
