//! Closes a store once, no matter how many callers request it.
//!
//! Owns: the order of closing. Each engine closes itself in [`AnyEngine::finish`]. Invariant: every caller returns when
//! the store is closed, with the same outcome. The callers drive the close by polling it. If one of them is dropped,
//! the others, or the next caller, continue.

use super::EngineVolumes;
use crate::{Result, families::AnyEngine};
use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared, join_all},
};
use std::sync::{Arc, OnceLock};

/// The single close of a store; set by the first caller.
#[derive(Clone, Default)]
pub(super) struct StoreClosing(Arc<OnceLock<Shared<BoxFuture<'static, Result<()>>>>>);

impl StoreClosing {
    /// Closes `volumes`, or waits for the caller that does; returns the outcome.
    pub(super) async fn outcome(&self, volumes: &EngineVolumes) -> Result<()> {
        let close = self.0.get_or_init(|| close(volumes.clone()).boxed().shared());
        close.clone().await
    }
}

async fn close(volumes: EngineVolumes) -> Result<()> {
    let end = async |engine| {
        volumes.take_back(engine, true).await;
        engine.retry_pending(true).await;
    };
    join_all(volumes.all().map(end)).await;
    for engine in volumes.all() {
        engine.volume().close();
    }
    volumes.record_outages().await;
    let recorded = join_all(volumes.all().map(|engine| engine.volume().ensure_emptied())).await;
    let emptied = join_all(volumes.all().map(AnyEngine::empty_if_pending)).await;
    let sound = volumes.all().filter(|engine| !engine.volume().health.is_out());
    let finished = join_all(sound.map(AnyEngine::finish)).await;
    recorded.into_iter().chain(emptied).chain(finished).collect()
}
