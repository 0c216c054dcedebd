//! Build caches: paths of this proxy below which build tools keep their results.

use std::path::PathBuf;

use super::{OriginUrl, ProxyConfig, mirrors::is_plain_path};

/// A path of this proxy below which build tools keep their results.
///
/// The results are separate from all responses of origins. They never become stale. They are removed only by their
/// clients, by purges, or to make room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildCache {
    /// The path, such as `/cache`. It begins with a slash and does not end with one.
    pub path: String,
    /// A file of tokens. A client must send one of them to write. Default none: nobody writes but `local_writers`.
    pub tokens: Option<PathBuf>,
    /// The programs on this machine that may write without a token. Default none.
    pub local_writers: LocalWriters,
    /// Another build cache, from which missing results are requested. It is never written to. Default none.
    pub origin: Option<OriginUrl>,
}

/// The programs on this machine that may write to a build cache without tokens.
///
/// The requests that a proxy on this machine forwards come from this machine, too, and need not say so: nginx, as its
/// manual shows it, adds no field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LocalWriters {
    /// None.
    #[default]
    None,
    /// Those of Larder's own user and of root. A proxy on this machine usually runs as another user.
    OwnUser,
    /// All. For a machine without a proxy in front of Larder.
    All,
}

impl BuildCache {
    /// Returns a build cache under a path, which nobody may write.
    pub fn at(path: impl Into<String>) -> Self {
        Self { path: path.into(), tokens: None, local_writers: LocalWriters::None, origin: None }
    }

    /// Returns the error in the settings, if there is one.
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
    /// Returns the error in the build caches, if there is one.
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
