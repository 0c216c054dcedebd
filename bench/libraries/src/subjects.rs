//! The libraries that are compared, behind one interface.
//!
//! Owns: how each library is opened with a limit on its disk and its memory. Everything that a limit does not concern
//! keeps the library's defaults. A subject that has no limit says so in its name.

use std::{error::Error, path::Path};

use bytes::Bytes;

/// The result of a library's call.
pub type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The limits of a subject, in bytes.
#[derive(Clone, Copy)]
pub struct Limits {
    pub disk: u64,
    pub memory: u64,
}

/// One library with an open cache.
pub enum Subject {
    Larder(larder_cache::Cache),
    Foyer(foyer::HybridCache<Vec<u8>, Vec<u8>>),
    Fjall { keyspace: fjall::Keyspace, database: fjall::Database },
    Cacache(std::path::PathBuf),
}

/// The names of all subjects.
pub const NAMES: [&str; 5] = ["larder-cache", "larder-cache, tiny", "foyer", "fjall, fifo", "cacache, no limit"];

impl Subject {
    /// Opens the cache of a library in a folder.
    pub async fn open(name: &str, folder: &Path, limits: Limits) -> Outcome<Self> {
        Ok(match name {
            "larder-cache" | "larder-cache, tiny" => {
                let is_tiny = name.ends_with("tiny");
                let builder =
                    larder_cache::Cache::builder(folder.join("cache")).disk(limits.disk).memory(limits.memory);
                let builder = match is_tiny {
                    true => builder.configure_store(|store| {
                        store.policy = tiny();
                        store.mean_entry_bytes = 512;
                    }),
                    false => builder,
                };
                let cache = builder.open()?;
                cache.ready().await;
                Self::Larder(cache)
            }
            "foyer" => {
                use foyer::{BlockEngineConfig, DeviceBuilder, FsDeviceBuilder, HybridCacheBuilder, HybridCachePolicy};
                let device = FsDeviceBuilder::new(folder).with_capacity(usize::try_from(limits.disk)?).build()?;
                let cache = HybridCacheBuilder::new()
                    .with_policy(HybridCachePolicy::WriteOnInsertion)
                    .memory(usize::try_from(limits.memory)?)
                    .with_weighter(|key: &Vec<u8>, value: &Vec<u8>| key.len() + value.len())
                    .storage()
                    .with_engine_config(BlockEngineConfig::new(device))
                    .build()
                    .await?;
                Self::Foyer(cache)
            }
            "fjall, fifo" => {
                let database = fjall::Database::builder(folder).cache_size(limits.memory).open()?;
                let oldest_go = std::sync::Arc::new(fjall::compaction::Fifo::new(limits.disk, None));
                let options = move || fjall::KeyspaceCreateOptions::default().compaction_strategy(oldest_go.clone());
                Self::Fjall { keyspace: database.keyspace("values", options)?, database }
            }
            "cacache, no limit" => Self::Cacache(folder.to_owned()),
            other => return Err(format!("there is no library {other:?}; there are {NAMES:?}").into()),
        })
    }

    /// Stores a value.
    pub async fn put(&self, key: &[u8], value: Bytes) -> Outcome<()> {
        match self {
            Self::Larder(cache) => cache.insert(key, value).await?,
            Self::Foyer(cache) => drop(cache.insert(key.to_vec(), value.to_vec())),
            Self::Fjall { keyspace, .. } => keyspace.insert(key, &value[..])?,
            Self::Cacache(folder) => drop(cacache::write_sync(folder, name_of(key), value)?),
        }
        Ok(())
    }

    /// Returns a value if it is still there.
    pub async fn get(&self, key: &[u8]) -> Outcome<Option<Bytes>> {
        Ok(match self {
            Self::Larder(cache) => cache.get(key).await?,
            Self::Foyer(cache) => cache.get(&key.to_vec()).await?.map(|entry| Bytes::copy_from_slice(entry.value())),
            Self::Fjall { keyspace, .. } => keyspace.get(key)?.map(|value| Bytes::copy_from_slice(&value)),
            Self::Cacache(folder) => match cacache::read_sync(folder, name_of(key)) {
                Ok(value) => Some(value.into()),
                Err(cacache::Error::EntryNotFound(..)) => None,
                Err(error) => return Err(error.into()),
            },
        })
    }

    /// Waits until everything is written, and closes the cache.
    pub async fn close(self) -> Outcome<()> {
        match self {
            Self::Larder(cache) => cache.close().await?,
            Self::Foyer(cache) => cache.close().await?,
            Self::Fjall { keyspace, database } => {
                drop(keyspace);
                database.persist(fjall::PersistMode::SyncAll)?;
            }
            Self::Cacache(_) => {}
        }
        Ok(())
    }
}

/// Returns the policy for small values.
fn tiny() -> &'static larder_store::Policy {
    larder_store::Policy::all().iter().find(|policy| policy.name == "tiny").expect("the store has the policy")
}

fn name_of(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}
