//! Plays single acts, and judges what each call returns.

use super::super::{
    chronicle::Subject,
    plan::LawTally,
    stage::{ActorFuture, Manner, Timers},
};
use super::{
    Act, Reads, Source, SourceEnd,
    model::{Look, Model, Version, VersionOrigin},
    source::{Fetch, OpenWrite, pieces, tag_name},
};
use crate::content;
use larder_cache::{Cache, EntryRequest, Error, Value, ValueWriter};
use larder_device::IgnorePoison;
use larder_store::{ErrorKind, SplitMix64};
use std::{
    ops::Range,
    sync::{Arc, Mutex},
    time::Duration,
};

/// The parts that every act needs.
#[derive(Clone)]
pub(super) struct Props {
    pub(super) cache: Cache,
    pub(super) model: Arc<Mutex<Model>>,
    pub(super) tally: Arc<Mutex<LawTally>>,
    pub(super) timers: Arc<Timers>,
}

impl Props {
    /// Returns a future that does the act and judges the result, and how its actor behaves while it waits.
    pub(super) fn play(self, act: Act) -> (ActorFuture, Manner) {
        let mut how = Manner::Stays;
        let future: ActorFuture = match act {
            Act::GetOrFetch { key, source, manner } => {
                how = manner;
                Box::pin(async move { self.get_or_fetch(key, source).await })
            }
            Act::OpenOrFetch { key, source, manner } => {
                how = manner;
                Box::pin(async move { self.get_value_or_fetch(key, source).await })
            }
            Act::Get { key, manner } => {
                how = manner;
                Box::pin(async move { self.get(key).await })
            }
            Act::Open { key, reads, manner } => {
                how = manner;
                Box::pin(async move { self.open(key, reads).await })
            }
            Act::Insert { key, source, manner } => {
                how = manner;
                Box::pin(async move { self.insert(key, source).await })
            }
            Act::Write { key, source, is_conditional } => {
                Box::pin(async move { self.write(key, source, is_conditional).await })
            }
            Act::Remove { key } => Box::pin(async move { self.purge(Subject::Key(key)).await }),
            Act::RemoveTag { tag } => Box::pin(async move { self.purge(Subject::Tag(tag)).await }),
            Act::Clear => Box::pin(async move { self.purge(Subject::All).await }),
            Act::Pin { key } => Box::pin(async move {
                let _ = self.cache.pin(content::key_bytes(key)).await;
                Ok(())
            }),
            Act::Sync => Box::pin(async move {
                let called = self.model(|model| model.chronicle.tick());
                if self.cache.sync().await.is_ok() {
                    self.model(|model| model.chronicle.note_sync(called));
                }
                Ok(())
            }),
            Act::Wait { .. } | Act::Kill { .. } => unreachable!("these happen at once"),
        };
        (future, how)
    }

    pub(super) fn model<T>(&self, use_it: impl FnOnce(&mut Model) -> T) -> T {
        use_it(&mut self.model.lock().ignore_poison())
    }

    fn entry(&self, key: u64, source: Source) -> EntryRequest {
        let mut entry = self.cache.entry(content::key_bytes(key));
        if let Some(fresh_ms) = source.fresh_ms {
            entry = entry.fresh_for(Duration::from_millis(fresh_ms));
        }
        for tag in (0..2).filter(|tag| source.tags & 1 << tag != 0) {
            entry = entry.tag(&tag_name(tag));
        }
        entry
    }

    async fn get_or_fetch(self, key: u64, source: Source) -> Result<(), String> {
        let look = self.model(|model| model.begin_look(key));
        let fetch = || {
            let fetched = Fetch::begin(&self, source, &look);
            async move { fetched.bytes().await }
        };
        let outcome = self.entry(key, source).get_or_fetch(fetch).await;
        match outcome {
            Ok(bytes) => self.answered(&look, &bytes),
            Err(error) => self.failed(&error),
        }
    }

    async fn get_value_or_fetch(self, key: u64, source: Source) -> Result<(), String> {
        let look = self.model(|model| model.begin_look(key));
        let fetch = |mut writer: ValueWriter| {
            let fetched = Fetch::begin(&self, source, &look);
            async move {
                let bytes = fetched.whole();
                for piece in pieces(&bytes) {
                    fetched.wait().await;
                    writer.write(piece).await.map_err(|error| error.to_string())?;
                }
                fetched.end()?;
                Ok::<_, String>(writer)
            }
        };
        match self.entry(key, source).get_value_or_fetch(fetch).await {
            Ok(value) => self.read(&look, &value, Reads::Paced { ms: source.delay_ms }).await,
            Err(error) => self.failed(&error),
        }
    }

    async fn get(self, key: u64) -> Result<(), String> {
        let look = self.model(|model| model.begin_look(key));
        self.tally.lock().ignore_poison().required += u64::from(look.is_required);
        match self.cache.get(content::key_bytes(key)).await {
            Ok(Some(bytes)) => {
                self.model(|model| model.judge_freshness(&look, bytes.len() as u64))?;
                self.answered(&look, &bytes)
            }
            Ok(None) => self.model(|model| model.judge_miss(&look)),
            Err(error) => self.failed(&error),
        }
    }

    async fn open(self, key: u64, reads: Reads) -> Result<(), String> {
        let look = self.model(|model| model.begin_look(key));
        match self.cache.get_value(content::key_bytes(key)).await {
            Ok(Some(value)) => self.read(&look, &value, reads).await,
            Ok(None) => self.model(|model| model.judge_miss(&look)),
            Err(error) => self.failed(&error),
        }
    }

    /// Reads a value that a lookup found. Checks law 9: it can be read to its end unless it is removed, replaced or
    /// evicted.
    async fn read(&self, look: &Look, value: &Value, reads: Reads) -> Result<(), String> {
        let len = value.len();
        let judge = |range: Range<u64>, bytes: &[u8]| self.model(|model| model.judge(look, len, range, bytes));
        let outcome = async {
            match reads {
                Reads::Whole => judge(0..len, &value.bytes().await?),
                Reads::Ranges(number) => {
                    let mut random = SplitMix64::new(number);
                    for _ in 0..3 {
                        let from = random.below(len + 1);
                        let to = from + random.below(len - from + 1);
                        if let Err(law) = judge(from..to, &value.read(from..to).await?) {
                            return Ok(Err(law));
                        }
                    }
                    Ok(())
                }
                Reads::Paced { ms } => {
                    let mut reader = value.reader();
                    let mut at = 0;
                    while let Some(bytes) = reader.next().await? {
                        let end = at + bytes.len() as u64;
                        if let Err(law) = judge(at..end, &bytes) {
                            return Ok(Err(law));
                        }
                        at = end;
                        self.timers.sleep(Duration::from_millis(ms)).await;
                    }
                    if at == len { Ok(()) } else { Err(format!("law 3: {at} of {len} bytes and no error")) }
                }
            }
            .map_or_else(|law| Ok(Err(law)), |()| Ok(Ok(())))
        };
        match outcome.await {
            Ok(judged) => {
                self.tally.lock().ignore_poison().answers += 1;
                judged
            }
            Err(Error::Gone) => {
                let number = self.model(|model| {
                    let is_it = |version: &&Version| version.key == look.key && version.len == len;
                    let found = model.versions.iter().find(is_it);
                    // The store drops expired values, and what was not synced may have lost a part in a power loss.
                    found
                        .filter(|version| version.fresh_ms.is_none())
                        .filter(|version| version.is_stored || model.is_present(version))
                        .map(|version| version.number)
                });
                match number {
                    Some(number) if !self.model(|model| model.may_refuse(number)) => {
                        Err(format!("law 9: version {number} of key {} is gone while it is read", look.key))
                    }
                    _ => Ok(()),
                }
            }
            Err(error) => self.failed(&error),
        }
    }

    async fn insert(self, key: u64, source: Source) -> Result<(), String> {
        let number = self.begin_write(key, source, VersionOrigin::Written);
        let _settled = OpenWrite { props: self.clone(), number };
        let len = self.model(|model| model.version(number).len);
        self.model(|model| model.complete(number));
        let entry = self.entry(key, source);
        match entry.insert(content::body(key, number, len)).await {
            Ok(()) => self.expect_stored(number),
            Err(error) => self.failed(&error),
        }
    }

    async fn write(self, key: u64, source: Source, is_conditional: bool) -> Result<(), String> {
        let origin = if is_conditional { VersionOrigin::Conditional } else { VersionOrigin::Written };
        let number = self.begin_write(key, source, origin);
        let _settled = OpenWrite { props: self.clone(), number };
        let len = self.model(|model| model.version(number).len);
        let body = content::body(key, number, len);
        let mut writer = self.entry(key, source).writer().map_err(|error| format!("law 10: no writer: {error}"))?;
        for piece in pieces(&body) {
            self.timers.sleep(Duration::from_millis(source.delay_ms)).await;
            if let Err(error) = writer.write(piece).await {
                return self.failed(&error);
            }
        }
        if source.end != SourceEnd::Whole {
            return Ok(());
        }
        self.model(|model| {
            model.complete(number);
            if !is_conditional {
                // It takes effect between this call and its end.
                model.version(number).effect_from = model.chronicle.tick();
            }
        });
        let outcome = match is_conditional {
            true => writer.finish_if_unchanged().await,
            false => writer.finish().await.map(|()| true),
        };
        match outcome {
            Ok(true) => self.expect_stored(number),
            Ok(false) if self.model(|model| model.may_refuse(number)) => Ok(()),
            Ok(false) => Err(format!("law 10: version {number} is not stored without a reason")),
            Err(error) => self.failed(&error),
        }
    }

    fn begin_write(&self, key: u64, source: Source, origin: VersionOrigin) -> u64 {
        self.model(|model| {
            let asked = model.chronicle.tick();
            model.begin(source.version(key, origin, asked))
        })
    }

    /// Checks law 12 for a write that succeeded: the cache has sent an event that the value is stored.
    fn expect_stored(&self, number: u64) -> Result<(), String> {
        self.model(|model| {
            if !model.version(number).is_stored {
                return Err(format!("law 12: version {number} is stored without an event"));
            }
            model.settle(number, true);
            Ok(())
        })
    }

    async fn purge(self, subject: Subject) -> Result<(), String> {
        let purge = self.model(|model| model.chronicle.begin_purge(subject));
        let outcome = match subject {
            Subject::Key(key) => self.cache.remove(content::key_bytes(key)).await,
            Subject::Tag(tag) => self.cache.remove_tag(&tag_name(tag)).await,
            Subject::All => self.cache.clear().await,
        };
        match outcome {
            Ok(()) => {
                self.model(|model| model.chronicle.acknowledge(purge));
                self.tally.lock().ignore_poison().purges += 1;
                Ok(())
            }
            Err(error) => self.failed(&error),
        }
    }

    fn answered(&self, look: &Look, bytes: &[u8]) -> Result<(), String> {
        self.tally.lock().ignore_poison().answers += 1;
        let len = bytes.len() as u64;
        self.model(|model| model.judge(look, len, 0..len, bytes))
    }

    /// Checks that an error has an excuse: a source may fail at any time, the store only if its device fails or room is
    /// short.
    fn failed(&self, error: &Error) -> Result<(), String> {
        let is_excused = match error {
            Error::Store(error) if error.kind() == ErrorKind::Full && self.model(|model| model.is_crowded()) => true,
            Error::Store(_) | Error::Gone => self.model(|model| !model.chronicle.is_harmless || !model.has_room()),
            _ => true,
        };
        if is_excused { Ok(()) } else { Err(format!("law 10: an error although the device is well: {error}")) }
    }
}
