//! Closes a store once, no matter how many callers request it.
//!
//! Owns: the order of closing. Each engine closes itself in `AnyEngine::finish`. Invariant: every caller returns when
//! the store is closed, with the same outcome. The callers drive the close by polling it. If one of them is dropped,
//! the others, or the next caller, continue.

use super::EngineVolumes;
use crate::{Result, families::AnyEngine};
use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared, join_all},
};
use std::sync::{Arc, OnceLock};

/// The closing of a store: one future, which all callers of [`Store::close`] share. The first caller creates it.
#[derive(Clone, Default)]
pub(super) struct StoreClosing(Arc<OnceLock<Shared<BoxFuture<'static, Result<()>>>>>);

impl StoreClosing {
    /// Closes `volumes`, or waits for the caller that is closing them. Returns the outcome.
    pub(super) async fn outcome(&self, volumes: &EngineVolumes) -> Result<()> {
        let close = self.0.get_or_init(|| close(volumes.clone()).boxed().shared());
        close.clone().await
    }
}

async fn close(volumes: EngineVolumes) -> Result<()> {
    let taken_back: Vec<_> = (0..volumes.count()).map(|index| take_back(&volumes, index)).collect();
    join_all(taken_back).await;
    let engines: Vec<AnyEngine> = volumes.all().collect();
    engines.iter().for_each(|engine| engine.volume().close());
    volumes.record_outages().await;
    let emptied: Vec<_> = engines.iter().map(|engine| engine.empty_if_pending().boxed()).collect();
    let emptied = join_all(emptied).await;
    let sound = engines.iter().filter(|engine| !engine.volume().health.is_out());
    let finished: Vec<_> = sound.map(|engine| engine.finish().boxed()).collect();
    let finished = join_all(finished).await;
    // Also those whose last sync has just failed.
    let doubted: Vec<_> = engines.iter().map(|engine| engine.volume().ensure_doubted().boxed()).collect();
    let doubted = join_all(doubted).await;
    doubted.into_iter().chain(emptied).chain(finished).collect()
}

/// Puts an excluded volume back in use if it works, and retries its pending removals. If its engine failed, the volume
/// stays excluded, and the next start empties it.
fn take_back(volumes: &EngineVolumes, index: usize) -> BoxFuture<'_, ()> {
    let end = async move {
        volumes.take_back_with_its_engine(index, true).await;
        volumes.at(index).retry_pending(true).await;
    };
    end.boxed()
}
