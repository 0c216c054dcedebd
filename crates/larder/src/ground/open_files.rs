//! Raises the limit on open files, because every connection is an open file. If it stays too low, lowers the limits on
//! connections.
//!
//! Invariant: clients alone can never use up the descriptors, because then every request that needs a connection to an
//! origin would fail.

use larder_proxy::ProxyConfig;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Number of descriptors kept free for files other than connections: the store, logs, rings and listeners.
const OTHERS_COUNT: u64 = 100;
/// Number of connections that clients may always have, however low the limit on open files is.
const CONNECTION_COUNT_MIN: u64 = 16;

/// Raises the soft limit to the hard limit. Does nothing if the system refuses it.
pub(crate) fn raise() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // If the system refuses, the soft limit stays as it is. [`limit`] returns whatever is in force.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
}

/// Returns the limit on open files of this process. `None` if there is no limit.
pub(crate) fn limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Lowers the limits on connections if they and the other open files exceed `file_count_max`. Then half of the
/// remaining descriptors are for clients, and half for origins.
pub(crate) fn fit(config: &mut ProxyConfig, file_count_max: Option<u64>) {
    let Some(file_count_max) = file_count_max else { return };
    if config.limits.connection_count_max as u64 + OTHERS_COUNT <= file_count_max {
        return;
    }
    let half = (file_count_max.saturating_sub(OTHERS_COUNT) / 2).max(CONNECTION_COUNT_MIN);
    let half = usize::try_from(half).unwrap_or(usize::MAX);
    config.limits.connection_count_max = config.limits.connection_count_max.min(half);
    for policy in config.policies_mut() {
        policy.limits.origin_connection_count_max = policy.limits.origin_connection_count_max.min(half);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_proxy::Site;
    use std::collections::HashSet;

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        raise();
        assert_eq!(limit(), getrlimit(Resource::Nofile).maximum);
    }

    #[test]
    fn connections_are_limited_when_they_do_not_fit_into_the_limit_on_open_files() {
        let of = |connection_count_max, file_count_max| {
            let mut config = ProxyConfig::default();
            config.policy.limits.origin_connection_count_max = 1000;
            config.sites = vec![Site { policy: Some(config.policy.clone()), ..Site::default() }];
            config.limits.connection_count_max = connection_count_max;
            fit(&mut config, file_count_max);
            let of_origins: HashSet<_> =
                config.policies_mut().map(|policy| policy.limits.origin_connection_count_max).collect();
            assert_eq!(of_origins.len(), 1, "a site's limit does not fit: {of_origins:?}");
            (config.limits.connection_count_max, config.policy.limits.origin_connection_count_max)
        };
        assert_eq!(of(1000, None), (1000, 1000));
        assert_eq!(of(1000, Some(1100)), (1000, 1000));
        assert_eq!(of(1000, Some(1099)), (499, 499));
        assert_eq!(of(16_384, Some(256)), (78, 78));
        assert_eq!(of(16_384, Some(64)), (16, 16));
        assert_eq!(of(10, Some(256)), (10, 1000));
    }
}
