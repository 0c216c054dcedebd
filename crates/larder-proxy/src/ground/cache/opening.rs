//! Opens the cache as a configuration describes it, and adapts it after a reload.

use std::{io, sync::Arc};

use larder_cache::{
    MemoryCache,
    http::{
        pins::Pins,
        survivors::{CacheSurvivors, SurvivorParts},
        tier::Tier,
    },
    purges::{PurgeLimits, Purges},
};
use larder_store::Store;

use crate::ground::{config::ProxyConfig, exchange_budget::ExchangeBudget, tokens::read_secret};

/// Opens the cache, and the memory budget that it shares with connections and exchanges.
///
/// # Errors
/// The journal of the second tier cannot be opened.
pub(crate) fn open(config: &ProxyConfig, store: Option<&Store>) -> io::Result<(CacheSurvivors, Arc<ExchangeBudget>)> {
    // Pins are opened first, because nothing may be stored before they are known.
    let pins = Pins::open(config.state_file("pins"), config.state_file("pinned"), store);
    let peers = config.fleet.log_names();
    let purges = Purges::open(config.state_file("purges"), store, &peers, PurgeLimits::RESPONSES);
    // Other nodes may have purged stored responses while this one was down, so all must be validated until their logs
    // were read.
    if !peers.is_empty()
        && let Err(error) = purges.doubt()
    {
        tracing::warn!(%error, "the record of purges cannot be written: everything is validated before use");
    }
    let hot = Arc::new(MemoryCache::new(config.hot_bytes));
    let places = Arc::new(ExchangeBudget::new(config.exchange_bytes(), Arc::clone(&hot)));
    let exchanges = Arc::clone(&places);
    let survivors = CacheSurvivors::new(SurvivorParts {
        hot,
        store: store.cloned(),
        tier: open_tier(config, store)?,
        pins,
        purges: Arc::new(purges),
        body_bytes: config.window_bytes(),
        are_exchanges_many: Box::new(move || exchanges.are_many()),
    });
    Ok((survivors, places))
}

/// Adapts the cache to a new configuration: resizes the memory cache, and empties it if the settings for Via and
/// Cache-Status changed.
pub(crate) fn adapt(cache: &CacheSurvivors, places: &ExchangeBudget, before: &ProxyConfig, after: &ProxyConfig) {
    if marking(after) != marking(before) {
        // Entries in memory contain fields that were prepared with the old marks.
        cache.hot.clear();
    }
    places.set_max_bytes(after.exchange_bytes());
    cache.hot.set_capacity_bytes(after.hot_bytes.min(places.cache_bytes_max()));
    cache.bodies.set_max_bytes(after.window_bytes());
    cache.purges.set_peers(&after.fleet.log_names());
}

/// Reads the secret of the second tier from its file. `None` if none is configured.
///
/// # Errors
/// The file cannot be used; the error says why.
pub(crate) fn tier_secret(config: &ProxyConfig) -> Result<Option<String>, String> {
    config.tier.secret.as_deref().map(|path| read_secret(path, "secret of the second tier")).transpose()
}

/// Returns the settings for Via and Cache-Status. Entries in the memory cache contain these fields or their parts.
fn marking(config: &ProxyConfig) -> (bool, bool, Option<&str>) {
    (config.add_via, config.add_cache_status, config.marking_name())
}

/// Opens the second tier. `None` if none is configured.
fn open_tier(config: &ProxyConfig, store: Option<&Store>) -> io::Result<Option<Arc<Tier>>> {
    let Some(place) = config.tier.place() else { return Ok(None) };
    let Some((store, path)) = store.zip(config.state_file("tier")) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a second tier needs a store"));
    };
    let secret = tier_secret(config).map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
    #[cfg(feature = "tier-s3")]
    crate::ground::tls_provider::install();
    Tier::open(&config.tier, place, secret.as_deref(), &path, store).map(Some)
}
