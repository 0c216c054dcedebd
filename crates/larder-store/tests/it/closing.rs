//! Guards against a close that never returns, or one that reports a closed store while another close is still writing
//! dirty data.

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::{Arc, Barrier, Mutex},
    task::{Context, Poll, Waker},
    thread,
};

use larder_device::{Device, MemoryDevice, MemoryDirectory, Transfer};
use larder_store::{Error, ErrorKind, Policy, Store, StoreOptions};
use larder_torture::{SIZE_BYTES, options};

use crate::support::{block_on, insert, version_of};

const KEYS: std::ops::Range<u64> = 0..8;
const CLOSE_COUNT: usize = 4;

/// A memory device that can be made to hang or to fail.
struct Moody {
    inner: MemoryDevice,
    mood: Mutex<Mood>,
}

enum Mood {
    Sound,
    Hung(Vec<Transfer>),
    Broken,
}

impl Moody {
    /// Changes the mood. Operations that hung are completed in the new one.
    fn turn(&self, mood: Mood) {
        let before = std::mem::replace(&mut *self.mood.lock().unwrap(), mood);
        if let Mood::Hung(kept) = before {
            kept.into_iter().for_each(|transfer| self.submit(transfer));
        }
    }

    /// Waits until an operation hangs.
    fn await_asked(&self) {
        while !matches!(&*self.mood.lock().unwrap(), Mood::Hung(kept) if !kept.is_empty()) {
            thread::yield_now();
        }
    }
}

impl Device for Moody {
    fn submit(&self, transfer: Transfer) {
        // A completion may submit again, so no lock is held while the device works.
        let is_broken = match &mut *self.mood.lock().unwrap() {
            Mood::Hung(kept) => return kept.push(transfer),
            Mood::Sound => false,
            Mood::Broken => true,
        };
        let failed = || io::Error::from(io::ErrorKind::StorageFull);
        match transfer {
            Transfer::Write { completion, .. } | Transfer::Sync { completion } if is_broken => {
                completion.complete(Err(failed()));
            }
            transfer => self.inner.submit(transfer),
        }
    }

    larder_device::delegate_device!(inner);
}

/// A row's store on such a device.
struct Subject {
    options: StoreOptions,
    device: Arc<Moody>,
    directory: Arc<MemoryDirectory>,
}

impl Subject {
    fn new(policy: &'static Policy, background: bool) -> Self {
        let device = Moody { inner: MemoryDevice::new(SIZE_BYTES), mood: Mutex::new(Mood::Sound) };
        let options = StoreOptions { background, ..options(policy, 1) };
        Self { options, device: Arc::new(device), directory: Arc::new(MemoryDirectory::new(SIZE_BYTES)) }
    }

    fn open(&self) -> Store {
        let device = Arc::clone(&self.device) as Arc<dyn Device>;
        let store = if self.options.policy.layout.keeps_files() {
            Store::open_on_files(device, Arc::clone(&self.directory) as _, &self.options).unwrap()
        } else {
            Store::open_on(device, &self.options).unwrap()
        };
        block_on(store.ready());
        store
    }

    /// Opens a store, stores an entry, and makes the device hang.
    fn open_and_hang(&self) -> Store {
        let store = self.open();
        assert!(KEYS.filter(|&key| insert(&store, key, 1, 500)).count() > 0, "{}", self.options.policy);
        self.device.turn(Mood::Hung(Vec::new()));
        store
    }

    fn check_contents(mut self) {
        // Time stands still, so only a reader submits its batch of reads.
        self.options.background = false;
        let store = self.open();
        let found = KEYS.filter(|&key| version_of(&store, key) == Some(1)).count();
        assert!(found > KEYS.count() / 2, "{}: {found} entries are found again", self.options.policy);
    }
}

type Close<'a> = Pin<Box<dyn Future<Output = larder_store::Result<()>> + 'a>>;

fn poll(close: &mut Close<'_>) -> Poll<larder_store::Result<()>> {
    close.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

fn text(outcome: &larder_store::Result<()>) -> Option<String> {
    outcome.as_ref().err().map(Error::to_string)
}

#[test]
fn nobody_who_closes_a_store_returns_before_it_is_closed() {
    for policy in Policy::all() {
        let subject = Subject::new(policy, false);
        let store = subject.open_and_hang();
        let mut closes: Vec<Close<'_>> = (0..CLOSE_COUNT).map(|_| Box::pin(store.close()) as Close<'_>).collect();
        let is_closed = closes.iter_mut().map(|close| poll(close).is_ready()).collect::<Vec<_>>();
        assert_eq!(is_closed, [false; CLOSE_COUNT], "{policy}: the device does not answer");
        // The first caller gives up, and another one continues.
        drop(closes.swap_remove(0));
        subject.device.turn(Mood::Sound);
        let outcomes: Vec<_> = closes.into_iter().map(|close| text(&block_on(close))).collect();
        assert_eq!(outcomes, [const { None }; CLOSE_COUNT - 1], "{policy}");
        assert_eq!(text(&block_on(store.close())), None, "{policy}: and once more");
        let error = block_on(store.get(b"key")).err().map(|error| error.kind());
        assert_eq!(error, Some(ErrorKind::Closed), "{policy}");
        drop(store);
        subject.check_contents();
    }
}

#[test]
fn closes_of_several_threads_return_the_same_when_a_hung_device_answers() {
    for (policy, is_broken) in Policy::all().iter().flat_map(|policy| [(policy, false), (policy, true)]) {
        let subject = Subject::new(policy, true);
        let store = subject.open_and_hang();
        let barrier = Barrier::new(CLOSE_COUNT);
        let outcomes: Vec<_> = thread::scope(|scope| {
            let close = |late: bool| {
                let store = store.clone();
                let barrier = &barrier;
                let device = &subject.device;
                scope.spawn(move || {
                    barrier.wait();
                    if late {
                        // Begins while the device completes the operations of the others.
                        device.await_asked();
                        device.turn(if is_broken { Mood::Broken } else { Mood::Sound });
                    }
                    text(&block_on(store.close()))
                })
            };
            let closing: Vec<_> = (0..CLOSE_COUNT).map(|at| close(at == 0)).collect();
            closing.into_iter().map(|close| close.join().unwrap()).collect()
        });
        assert!(outcomes.windows(2).all(|pair| pair[0] == pair[1]), "{policy}: {outcomes:?}");
        assert_eq!(outcomes[0].is_some(), is_broken, "{policy}: {outcomes:?}");
        drop(store);
        if !is_broken {
            subject.check_contents();
        }
    }
}
