//! Raises the limit on open files as far as the system permits, because every connection is an open file.
//!
//! Owns: raising the limit, and the check whether it stays too low. The limit on connections is not lowered. If
//! descriptors run out, connections are refused one by one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files that the process needs in addition to clients' connections: the store, logs, rings, listeners, and some
/// connections to origins.
const OTHERS_COUNT: u64 = 100;

/// Raises the soft limit to the hard limit. Returns the limit in effect, or `None` if there is none.
pub(crate) fn raise() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current == limit.maximum {
        return limit.current;
    }
    match setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    }
}

/// Returns whether `limit` is too low for `connection_count` clients.
pub(crate) fn is_low(limit: Option<u64>, connection_count: usize) -> bool {
    limit.is_some_and(|limit| limit < connection_count as u64 + OTHERS_COUNT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let raised = raise();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!((raised, limit.current), (limit.maximum, limit.maximum));
    }

    #[test]
    fn a_limit_is_low_when_connections_and_the_rest_do_not_fit() {
        assert!(is_low(Some(1000), 1000) && is_low(Some(1099), 1000));
        assert!(!is_low(Some(1100), 1000) && !is_low(None, 1000));
    }
}
