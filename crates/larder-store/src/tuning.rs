//! The constants of the rows, each with its meaning, its range and its default: one table for the engine, for
//! configuration and for documents.
//!
//! Owns: [`Tuning`] and the list of its fields. Does not: know what a row makes of them. Invariant: a store is opened
//! only with constants that are in their ranges. Constants that fix where bytes lie count only for a new volume; an
//! existing one keeps its own. A new constant is one entry in the table at the end.

use crate::{Error, ErrorKind, Result};
use std::{ops::RangeInclusive, time::Duration};

/// One constant, as configuration and documents see it.
#[derive(Debug)]
#[non_exhaustive]
pub struct TuningField {
    /// Its name.
    pub name: &'static str,
    /// The rows it is of, its meaning, and what more or less of it does.
    pub about: &'static str,
    /// What values it takes.
    pub kind: TuningKind,
}

/// What values a constant takes.
#[derive(Clone, Debug, PartialEq)]
pub enum TuningKind {
    /// On or off.
    Switch,
    /// A count.
    Count(RangeInclusive<u64>),
    /// A length in bytes.
    Bytes(RangeInclusive<u64>),
    /// A length in bytes that is a power of two.
    Power(RangeInclusive<u64>),
    /// A time.
    Time(RangeInclusive<Duration>),
    /// A share of a whole.
    Share(RangeInclusive<f64>),
}

/// A value of a constant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TuningValue {
    /// On or off.
    Switch(bool),
    /// A count or a length in bytes.
    Number(u64),
    /// A time.
    Time(Duration),
    /// A share of a whole.
    Share(f64),
}

impl TuningKind {
    /// Whether `value` is of this kind and in its range.
    pub fn admits(&self, value: TuningValue) -> bool {
        match (self, value) {
            (Self::Switch, TuningValue::Switch(_)) => true,
            (Self::Count(range) | Self::Bytes(range), TuningValue::Number(number)) => range.contains(&number),
            (Self::Power(range), TuningValue::Number(number)) => number.is_power_of_two() && range.contains(&number),
            (Self::Time(range), TuningValue::Time(time)) => range.contains(&time),
            (Self::Share(range), TuningValue::Share(share)) => range.contains(&share),
            _ => false,
        }
    }
}

impl Tuning {
    /// Sets the constant of this name.
    ///
    /// # Errors
    /// `Invalid`: there is none, or `value` is not of its kind or out of its range.
    pub fn set(&mut self, name: &str, value: TuningValue) -> Result<()> {
        let Some(field) = Self::fields().iter().find(|field| field.name == name) else {
            return Err(Error::new(ErrorKind::Invalid, format!("no such constant: {name}")));
        };
        field.check(value)?;
        self.put(name, value);
        Ok(())
    }

    /// Refuses constants out of their ranges.
    pub(crate) fn check(&self) -> Result<()> {
        Self::fields().iter().try_for_each(|field| match self.value(field.name) {
            Some(value) => field.check(value),
            None => Ok(()),
        })
    }
}

impl TuningField {
    fn check(&self, value: TuningValue) -> Result<()> {
        if self.kind.admits(value) {
            return Ok(());
        }
        let place = format!("{} is out of its range ({:?}): {value:?}", self.name, self.kind);
        Err(Error::new(ErrorKind::Invalid, place))
    }
}

/// A type that a constant can have.
trait Constant: Sized {
    fn value(self) -> TuningValue;

    /// `None` if `value` is of another kind, or too large for the type.
    fn of(value: TuningValue) -> Option<Self>;
}

macro_rules! constant {
    ($($type:ty, $kind:ident;)*) => {
        $(impl Constant for $type {
            fn value(self) -> TuningValue {
                TuningValue::$kind(self.try_into().expect("no constant is larger than its kind of value"))
            }

            fn of(value: TuningValue) -> Option<Self> {
                if let TuningValue::$kind(value) = value { value.try_into().ok() } else { None }
            }
        })*
    };
}

constant! {
    bool, Switch;
    u32, Number;
    u64, Number;
    usize, Number;
    Duration, Time;
    f64, Share;
}

/// What each word for a kind in the table stands for.
macro_rules! kind {
    (switch) => {
        TuningKind::Switch
    };
    (count $range:expr) => {
        TuningKind::Count($range)
    };
    (bytes $range:expr) => {
        TuningKind::Bytes($range)
    };
    (power $range:expr) => {
        TuningKind::Power($range)
    };
    (time $range:expr) => {
        TuningKind::Time($range)
    };
    (share $range:expr) => {
        TuningKind::Share($range)
    };
}

macro_rules! table {
    ($($(#[doc = $about:literal])* $name:ident: $type:ty = $default:expr, $kind:ident $(in $range:expr)?;)*) => {
        /// Constants of the policy rows. The defaults are the papers' where a paper names them.
        #[derive(Clone, Debug, PartialEq)]
        #[non_exhaustive]
        pub struct Tuning {
            $($(#[doc = $about])* pub $name: $type,)*
        }

        impl Default for Tuning {
            fn default() -> Self {
                Self { $($name: $default,)* }
            }
        }

        impl Tuning {
            /// Every constant, in the order of the table.
            pub fn fields() -> &'static [TuningField] {
                static FIELDS: &[TuningField] = &[$(TuningField {
                    name: stringify!($name),
                    about: concat!($($about),*),
                    kind: kind!($kind $($range)?),
                },)*];
                FIELDS
            }

            /// What the constant of this name is set to.
            pub fn value(&self, name: &str) -> Option<TuningValue> {
                match name {
                    $(stringify!($name) => Some(self.$name.value()),)*
                    _ => None,
                }
            }

            /// Sets a constant to a value that was checked.
            fn put(&mut self, name: &str, value: TuningValue) {
                match name {
                    $(stringify!($name) => if let Some(value) = Constant::of(value) { self.$name = value },)*
                    _ => {}
                }
            }
        }
    };
}

// name: type = default, kind in range;   kinds: switch, count, bytes, power (of two, in bytes), time, share
table! {
    /// `log`: whether entries that were hit are written again when their segment is reclaimed, up to a
    /// quarter of the segment. On: more hits, up to a third more bytes written.
    reinsertion: bool = true, switch;
    /// `log`: bytes written for checkpoints of the index, as a share of the log's. More: less to replay after a
    /// crash; less: fewer bytes written. 0: only at close.
    checkpoint_share: f64 = 0.02, share in 0.0..=1.0;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_in_their_ranges_and_every_constant_can_be_set() {
        let defaults = Tuning::default();
        defaults.check().unwrap();
        for field in Tuning::fields() {
            let value = defaults.value(field.name).expect("it is in the table");
            let other = match (value, &field.kind) {
                (TuningValue::Switch(on), _) => TuningValue::Switch(!on),
                (_, TuningKind::Count(range) | TuningKind::Bytes(range) | TuningKind::Power(range)) => {
                    TuningValue::Number(*range.end())
                }
                (_, TuningKind::Time(range)) => TuningValue::Time(*range.end()),
                (_, TuningKind::Share(range)) => TuningValue::Share(*range.end()),
                (_, TuningKind::Switch) => panic!("a switch has a switch's value"),
            };
            let mut tuning = Tuning::default();
            tuning.set(field.name, other).unwrap();
            assert_eq!(tuning.value(field.name), Some(other));
            assert!(!field.about.trim().is_empty());
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let mut tuning = Tuning::default();
        for (name, value) in [
            ("no_such", TuningValue::Switch(true)),
            ("reinsertion", TuningValue::Number(1)),
            ("reinsertion", TuningValue::Share(0.5)),
        ] {
            assert_eq!(tuning.set(name, value).unwrap_err().kind(), ErrorKind::Invalid);
        }
        assert!(TuningKind::Count(1..=8).admits(TuningValue::Number(8)));
        assert!(!TuningKind::Count(1..=8).admits(TuningValue::Number(9)));
        assert!(TuningKind::Power(512..=8192).admits(TuningValue::Number(8192)));
        assert!(!TuningKind::Power(512..=8192).admits(TuningValue::Number(6144)));
        assert!(!TuningKind::Share(0.0..=1.0).admits(TuningValue::Share(f64::NAN)));
        let times = Duration::ZERO..=Duration::from_secs(1);
        assert!(!TuningKind::Time(times).admits(TuningValue::Time(Duration::from_secs(2))));
        assert_eq!(tuning, Tuning::default());
    }
}
