//! The parameters that a sweep varies: the size of the store or of the memory, or the used share of the store.
//!
//! This module runs nothing. Invariant: each step is one [`Point`], which contains all differences.

use crate::figure::Scale;
use larder_store::{Tuning, TuningValue};

/// The parameter that a sweep varies, with its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Steps {
    /// Sizes of the store in bytes.
    Disk(Vec<u64>),
    /// Sizes of the memory cache in bytes.
    Memory(Vec<u64>),
    /// Shares of the store that entries may take, in percent.
    Utilization(Vec<u64>),
}

impl Steps {
    /// Returns the constants that policies need for these steps. If the share that entries may take is varied, policies
    /// must not limit it themselves.
    pub fn tuning(&self) -> Tuning {
        let mut tuning = Tuning::default();
        if matches!(self, Self::Utilization(_)) {
            for (name, percent) in [("stream_used_percent", 95), ("buddy_used_percent", 99)] {
                tuning.set(name, TuningValue::Number(percent)).expect("they are constants within their bounds");
            }
        }
        tuning
    }

    /// Returns every step. A parameter that is not varied has the value of the argument.
    pub(super) fn points(&self, disk_bytes: u64, memory_bytes: u64) -> Vec<Point> {
        let point = |at| Point { at, disk_bytes, memory_bytes, utilization: None };
        match self {
            Self::Disk(sizes) => {
                sizes.iter().map(|&disk_bytes| Point { disk_bytes, ..point(disk_bytes as f64 / 1e9) }).collect()
            }
            Self::Memory(sizes) => {
                sizes.iter().map(|&memory_bytes| Point { memory_bytes, ..point(memory_bytes as f64 / 1e6) }).collect()
            }
            Self::Utilization(shares) => {
                let share = |percent: u64| Some(percent as f64 / 100.0);
                shares.iter().map(|&percent| Point { utilization: share(percent), ..point(percent as f64) }).collect()
            }
        }
    }

    /// Returns a remark on the size of the store; `None` if the table has a column for it.
    pub(super) fn remark(&self, disk_bytes: u64) -> Option<String> {
        let store = format!("The store has {} GB", disk_bytes as f64 / 1e9);
        match self {
            Self::Disk(_) => None,
            Self::Memory(_) => Some(store + "."),
            Self::Utilization(_) => {
                Some(store + "; entries beyond the share are removed, those used least recently first.")
            }
        }
    }

    /// Returns the name of the column of the parameter that is varied.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Disk(_) => "size, GB",
            Self::Memory(_) => "memory, MB",
            Self::Utilization(_) => "utilization, %",
        }
    }

    pub(super) fn axis(&self) -> (&'static str, Scale) {
        match self {
            Self::Disk(_) => ("size of the store, GB", Scale::LogarithmicX),
            Self::Memory(_) => ("memory in front of the store, MB", Scale::LogarithmicX),
            Self::Utilization(_) => ("share of the store that entries take, %", Scale::Even),
        }
    }
}

/// One step of a sweep: a store, the memory cache in front of it, and the share of the store that entries may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    /// Value of the varied parameter, on the axis of a figure.
    pub(super) at: f64,
    pub(super) disk_bytes: u64,
    pub(super) memory_bytes: u64,
    pub(super) utilization: Option<f64>,
}

impl Point {
    /// Returns how many bytes the published algorithms get for the comparison.
    pub(super) fn cache_bytes(&self) -> u64 {
        (self.disk_bytes as f64 * self.utilization.unwrap_or(1.0)) as u64 + self.memory_bytes
    }
}
