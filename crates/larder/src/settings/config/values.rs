//! Readers of values that several sections contain: sizes, durations, paths and origins.

use super::section::{ConfigProblem, ConfigValue};
use crate::ground::{
    size,
    value::{self, BadValue},
};
use larder_proxy::{HostSent, OriginUrl};
use std::{path::PathBuf, time::Duration};

pub(super) fn origin(value: ConfigValue<'_>) -> Result<OriginUrl, ConfigProblem> {
    value.parsed("a URL", value::origin)
}

pub(super) fn host_sent(value: ConfigValue<'_>) -> Result<HostSent, ConfigProblem> {
    value.parsed_or_boolean("true, false or a host", value::host_sent)
}

pub(super) fn proxy_protocol(value: ConfigValue<'_>) -> Result<bool, ConfigProblem> {
    value.parsed("v2 or off", value::proxy_protocol)
}

pub(super) fn duration(value: ConfigValue<'_>) -> Result<Duration, ConfigProblem> {
    value.parsed("a duration", crate::ground::duration::parse)
}

/// Reads a duration, and refuses one shorter than `least`.
pub(super) fn duration_from(value: ConfigValue<'_>, least: Duration) -> Result<Duration, ConfigProblem> {
    value.parsed("a duration", |text| {
        let fitting = Some(crate::ground::duration::parse(text)?).filter(|found| *found >= least);
        fitting.ok_or_else(|| BadValue::new(format!("too short: `{text}`"), format!("give at least {least:?}")))
    })
}

pub(super) fn path(value: ConfigValue<'_>) -> Result<PathBuf, ConfigProblem> {
    value.parsed("a path", value::path)
}

pub(super) fn small_count(value: ConfigValue<'_>) -> Result<u32, ConfigProblem> {
    value.parsed("a count", value::small_count)
}

pub(super) fn count(value: ConfigValue<'_>) -> Result<usize, ConfigProblem> {
    value.parsed("a count", value::count)
}

pub(super) fn bytes(value: ConfigValue<'_>) -> Result<u64, ConfigProblem> {
    value.parsed("a size", size::parse)
}
