//! The scripted sources: fetches that bring bytes or fail, and writes of callers.

use super::super::stage::{ScriptedPanic, Timers};
use super::{
    Source, SourceEnd,
    model::{Look, Model, Version, VersionOrigin},
    play::Props,
};
use crate::content;
use bytes::Bytes;
use larder_device::IgnorePoison;
use std::{
    panic::resume_unwind,
    sync::{Arc, Mutex},
    time::Duration,
};

impl Source {
    pub(super) fn version(self, key: u64, origin: VersionOrigin, asked: u64) -> Version {
        Version {
            key,
            number: 0,
            len: self.len,
            tags: self.tags,
            origin,
            asked,
            began: 0,
            effect_from: 0,
            complete: None,
            settled: None,
            is_stored: false,
            fresh_ms: self.fresh_ms,
            fresh_until_ms: None,
            life: 0,
        }
    }
}

/// A fetch that the cache runs. Dropping it notes in the model that the fetch has ended.
pub(super) struct Fetch {
    model: Arc<Mutex<Model>>,
    timers: Arc<Timers>,
    source: Source,
    key: u64,
    number: u64,
    len: u64,
}

impl Fetch {
    pub(super) fn begin(props: &Props, source: Source, look: &Look) -> Self {
        props.tally.lock().ignore_poison().fetches += 1;
        let version = source.version(look.key, VersionOrigin::Fetched, look.began);
        let (number, len) = props.model(|model| {
            let number = model.begin_fetch(version, look);
            (number, model.version(number).len)
        });
        let model = Arc::clone(&props.model);
        let timers = Arc::clone(&props.timers);
        Self { model, timers, source, key: look.key, number, len }
    }

    pub(super) async fn bytes(self) -> Result<Bytes, String> {
        self.wait().await;
        let bytes = self.whole();
        self.end()?;
        Ok(bytes)
    }

    pub(super) fn whole(&self) -> Bytes {
        content::body(self.key, self.number, self.len)
    }

    pub(super) async fn wait(&self) {
        self.timers.sleep(Duration::from_millis(self.source.delay_ms)).await;
    }

    pub(super) fn end(&self) -> Result<(), String> {
        match self.source.end {
            SourceEnd::Whole => self.model.lock().ignore_poison().complete(self.number),
            SourceEnd::Fails => return Err("it was to fail".to_owned()),
            SourceEnd::Panics => resume_unwind(Box::new(ScriptedPanic)),
        }
        Ok(())
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        let mut model = self.model.lock().ignore_poison();
        if model.version(self.number).complete.is_none() {
            model.settle(self.number, false);
        }
    }
}

/// A write by a caller. Dropping it notes in the model that the write has ended.
pub(super) struct OpenWrite {
    pub(super) props: Props,
    pub(super) number: u64,
}

impl Drop for OpenWrite {
    fn drop(&mut self) {
        self.props.model(|model| model.settle(self.number, false));
    }
}

pub(super) fn tag_name(tag: u64) -> String {
    format!("tag {tag}")
}

/// Divides a body into three pieces, some of which are empty if the body is short.
pub(super) fn pieces(bytes: &Bytes) -> [Bytes; 3] {
    let third = bytes.len() / 3;
    [bytes.slice(..third), bytes.slice(third..2 * third), bytes.slice(2 * third..)]
}
