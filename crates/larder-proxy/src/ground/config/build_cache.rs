//! Build caches: paths of this proxy below which build tools keep their results.

use std::path::PathBuf;

use super::{OriginUrl, ProxyConfig, mirrors::is_plain_path};

/// A path of this proxy under which build tools store their results.
///
/// The results are separate from all responses of origins, and never become stale. They are removed only by clients,
/// purges and evictions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildCache {
    /// The path, such as `/cache`. It begins with a slash and does not end with one.
    pub path: String,
    /// A file of tokens, one of which a client must send to write. Default none: only `local_writers` may write.
    pub tokens: Option<PathBuf>,
    /// Programs on this machine that may write without a token. Default: none.
    pub local_writers: LocalWriters,
    /// Another build cache that supplies missing results. Nothing is written to it. Default none.
    pub origin: Option<OriginUrl>,
}

/// The programs on this machine that may write to a build cache without a token.
///
/// A request that another proxy on this machine forwards also comes from this machine, and may not show its real
/// client: nginx, configured as in its manual, adds no field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LocalWriters {
    /// No program may write without a token.
    #[default]
    None,
    /// Programs of Larder's own user and of root may write. A proxy on this machine usually runs as another user.
    OwnUser,
    /// All programs on this machine may write. Suits a machine without another proxy in front of Larder.
    All,
}

impl BuildCache {
    /// Creates a build cache under a path. Nobody may write to it yet.
    pub fn at(path: impl Into<String>) -> Self {
        Self { path: path.into(), tokens: None, local_writers: LocalWriters::None, origin: None }
    }

    /// Returns the error in these settings, or `None` if they are valid.
    pub fn fault(&self) -> Option<String> {
        (!is_plain_path(&self.path)).then(|| {
            format!(
                "a build cache's path must begin with a slash and consist of letters, digits and -_.~: `{}`",
                self.path
            )
        })
    }
}

impl ProxyConfig {
    /// Returns the first error in the build caches of this configuration, or `None` if they are valid.
    pub fn build_caches_fault(&self) -> Option<String> {
        let mut paths: Vec<&str> = self.mirrors.iter().map(|mirror| mirror.path.as_str()).collect();
        self.build_caches.iter().find_map(|cache| {
            let is_twice = paths.contains(&cache.path.as_str());
            paths.push(&cache.path);
            let why = || format!("two build caches or mirrors have the same path: {}", cache.path);
            cache.fault().or_else(|| is_twice.then(why))
        })
    }
}
