//! Reads a `[[build_cache]]` section of the configuration file, and the flag `--build-cache`.
//!
//! Owns: the section's keys, and how sections and flags combine.

use super::{
    section::{ConfigProblem, ConfigSection, ConfigValue},
    values::{origin, path},
};
use crate::ground::value::BadValue;
use larder_proxy::{BuildCache, LocalWriters};

const HELP: &str = "give a path such as path = \"/cache\"";

/// Reads a `[[build_cache]]` section.
pub(super) fn read(section: &mut ConfigSection<'_>) -> Result<BuildCache, ConfigProblem> {
    let at = section.take("path", |value| value.parsed("a path", parse));
    let mut cache = at.ok_or_else(|| section.missing("path", HELP))?;
    cache.tokens = section.take("tokens", path);
    if section.take("local_writers", ConfigValue::boolean) == Some(true) {
        cache.local_writers = LocalWriters::All;
    }
    cache.origin = section.take("origin", origin);
    if cache.tokens.is_some() && cache.local_writers != LocalWriters::None {
        let help = "give writers a token, or remove `tokens`";
        return Err(section.refused(BadValue::new("a build cache with tokens has no `local_writers`", help)));
    }
    Ok(cache)
}

/// Parses the path of a build cache.
pub(crate) fn parse(text: &str) -> Result<BuildCache, BadValue> {
    let cache = BuildCache::at(text);
    cache.fault().map_or(Ok(cache), |fault| Err(BadValue::new(fault, HELP)))
}

/// Adds the build caches given as flags to those in the file. If both name a path, the settings in the file apply.
///
/// A user who types the flag wants to use the cache at once, so programs of the same user may write. Writes that
/// another proxy on the machine forwards are refused, because that proxy runs as a different user.
pub(crate) fn add(caches: &mut Vec<BuildCache>, flags: Vec<BuildCache>) {
    for flag in flags {
        if caches.iter().all(|known| known.path != flag.path) {
            caches.push(BuildCache { local_writers: LocalWriters::OwnUser, ..flag });
        }
    }
}
