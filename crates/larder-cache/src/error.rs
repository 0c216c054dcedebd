//! The error of a cache.

use std::{error, fmt, sync::Arc};

/// The result of a call to the cache.
///
/// ```
/// use larder_cache::Cache;
///
/// async fn name_of(cache: &Cache, id: u32) -> larder_cache::Result<String> {
///     let name = cache.get(format!("name/{id}")).await?;
///     Ok(name.map_or("unknown".to_owned(), |name| String::from_utf8_lossy(&name).into_owned()))
/// }
///
/// # let directory = tempfile::tempdir().unwrap();
/// # futures_executor::block_on(async {
/// # let cache = Cache::builder(directory.path()).disk("32MB").memory("8MB").open()?;
/// assert_eq!(name_of(&cache, 7).await?, "unknown");
/// # larder_cache::Result::Ok(())
/// # }).unwrap();
/// ```
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why a call failed. A missing, expired or damaged value is not an error: a lookup of it returns `None`.
///
/// ```
/// # use larder_cache::{Cache, Error};
/// # futures_executor::block_on(async {
/// # let directory = tempfile::tempdir().unwrap();
/// # let cache = Cache::builder(directory.path()).disk("32MB").memory("8MB").open()?;
/// let failed = cache.get_or_fetch("key", || async { Err::<&str, _>("the server is down") }).await;
/// match failed {
///     Err(Error::Fetch(cause)) => assert_eq!(cause.to_string(), "the server is down"),
///     other => panic!("{other:?}"),
/// }
/// # larder_cache::Result::Ok(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The store failed, or refused an argument.
    Store(larder_store::Error),
    /// An option of the builder is wrong, or an argument is too long. The text states the accepted values.
    Invalid(String),
    /// The caller's fetch failed. All callers that waited for this fetch get the same error.
    Fetch(Arc<dyn error::Error + Send + Sync>),
    /// A part of a long value was evicted or damaged while the value was being read.
    Gone,
    /// A value could not be converted to or from JSON (feature `serde`).
    Encode(Arc<dyn error::Error + Send + Sync>),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => write!(f, "{error}"),
            Self::Invalid(problem) => f.write_str(problem),
            Self::Fetch(error) => write!(f, "the fetch failed: {error}"),
            Self::Gone => f.write_str("a part of the value is gone: read it again from its source"),
            Self::Encode(error) => write!(f, "the value cannot be written as JSON: {error}"),
        }
    }
}

impl error::Error for Error {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Store(error) => Some(error),
            Self::Fetch(error) | Self::Encode(error) => Some(error.as_ref()),
            Self::Invalid(_) | Self::Gone => None,
        }
    }
}

impl From<larder_store::Error> for Error {
    fn from(error: larder_store::Error) -> Self {
        Self::Store(error)
    }
}
