//! A constant at another value than in its file, to learn which results depend on it.
//!
//! Owns: the scope of one simulation, which varies at most one constant and notes those that are used. A scope applies
//! to a thread; [`PaperOptions::each`](super::PaperOptions) passes it on to the threads that it starts. Outside of a
//! scope nothing is varied or noted.

use larder_device::IgnorePoison;
use std::{
    cell::RefCell,
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

/// The constant that is varied in a simulation, and the constants that the simulation uses.
#[derive(Debug, Default)]
pub(super) struct VariedScope {
    /// The constant that is varied, and its value; `None` if none is.
    varied: Option<(String, f64)>,
    /// Names of the lines of the report that are needed.
    wanted: BTreeSet<String>,
    /// Names of the test beds' constants and of the machines that the simulation has used.
    used: Mutex<BTreeSet<String>>,
}

thread_local! {
    static SCOPE: RefCell<Option<Arc<VariedScope>>> = const { RefCell::new(None) };
}

impl VariedScope {
    /// Creates a scope in which the constant `name` has `value`, and only the lines in `wanted` are needed.
    pub(super) fn varying(name: &str, value: f64, wanted: BTreeSet<String>) -> Self {
        Self { varied: Some((name.to_owned(), value)), wanted, used: Mutex::default() }
    }

    /// Returns whether a line of the report is needed.
    pub(super) fn wants(&self, line: &str) -> bool {
        self.wanted.contains(line)
    }

    /// Returns the names of the constants and machines that were used in this scope.
    pub(super) fn used(&self) -> BTreeSet<String> {
        self.used.lock().ignore_poison().clone()
    }

    fn note(&self, name: &str) {
        let mut used = self.used.lock().ignore_poison();
        if !used.contains(name) {
            used.insert(name.to_owned());
        }
    }
}

/// Returns the scope of this thread; `None` if there is none.
pub(super) fn current() -> Option<Arc<VariedScope>> {
    SCOPE.with_borrow(Clone::clone)
}

/// Calls `work` in a scope.
pub(super) fn within<R>(scope: Option<Arc<VariedScope>>, work: impl FnOnce() -> R) -> R {
    let before = SCOPE.replace(scope);
    let result = work();
    SCOPE.set(before);
    result
}

/// Returns whether a line of a report is needed. Outside of a scope, all are.
pub(super) fn is_wanted(line: &str) -> bool {
    SCOPE.with_borrow(|scope| scope.as_ref().is_none_or(|scope| scope.wants(line)))
}

/// Notes that the simulation uses a constant of a test bed. If the constant is varied in the scope of this thread,
/// returns its value there.
pub(super) fn bed_value(name: &str) -> Option<f64> {
    SCOPE.with_borrow(|scope| {
        let scope = scope.as_ref()?;
        scope.note(name);
        scope.varied.as_ref().filter(|(varied, _)| varied == name).map(|(_, value)| *value)
    })
}

/// Notes that the simulation uses a machine. If one of its parameters is varied in the scope of this thread, returns
/// the parameter's name and its value there.
pub(super) fn machine_value(machine: &str) -> Option<(String, f64)> {
    SCOPE.with_borrow(|scope| {
        let scope = scope.as_ref()?;
        scope.note(machine);
        let (varied, value) = scope.varied.as_ref()?;
        let (_, field) = varied.split_once(' ').filter(|(of, _)| *of == machine)?;
        Some((field.to_owned(), *value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_is_varied_in_its_scope_only() {
        let scope = Arc::new(VariedScope::varying("squid.disk_count", 5.0, BTreeSet::new()));
        within(Some(Arc::clone(&scope)), || {
            assert_eq!(bed_value("squid.disk_count"), Some(5.0));
            assert_eq!(bed_value("squid.disk_bytes"), None);
            assert_eq!(machine_value("squid-scsi"), None);
        });
        assert_eq!(bed_value("squid.disk_count"), None);
        assert_eq!(
            scope.used().into_iter().collect::<Vec<_>>(),
            ["squid-scsi", "squid.disk_bytes", "squid.disk_count"]
        );
        let scope = VariedScope::varying("squid-scsi disk.overhead_ms", 2.0, BTreeSet::new());
        let field = within(Some(Arc::new(scope)), || machine_value("squid-scsi"));
        assert_eq!(field, Some(("disk.overhead_ms".to_owned(), 2.0)));
    }
}
