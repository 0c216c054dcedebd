//! The contract of devices towards a thread that drives its own ring.

use std::{future::Future, pin::pin, task::Context};

use larder_device::ThreadDriver;

use super::*;
use crate::runtime::{EventLoop, Wakes};

const READ_BYTES: usize = 3 * BLOCK_BYTES;

/// Returns a device whose blocks are all written, and a ring of this thread, or `None` if the system does not permit
/// rings.
fn attached() -> Option<(Subject, ThreadDriver)> {
    let subject = Subject::uring()?;
    write(&subject.device, 0, 1, LEN_BYTES as usize);
    let driver = subject.device.attach_thread().expect("a device with rings gives this thread one");
    Some((subject, driver))
}

#[track_caller]
fn check_read(buffer: &AlignedBuffer, offset_bytes: u64) {
    let all = pattern(1, LEN_BYTES as usize);
    assert!(buffer.as_slice() == &all.as_slice()[offset_bytes as usize..][..READ_BYTES], "wrong bytes");
}

fn offsets(count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(|index| index * 7919 % (LEN_BYTES / BLOCK_BYTES as u64 - 3) * BLOCK_BYTES as u64)
}

/// More reads at once than the ring accepts in one turn, or can have in flight.
#[test]
fn reads_complete_in_an_event_loop() {
    let Some((subject, driver)) = attached() else { return };
    let all = pattern(1, LEN_BYTES as usize);
    let mut event_loop = EventLoop::new(driver);
    for count in [1, 2, 600, 2000] {
        let reads: Vec<_> =
            offsets(count).map(|offset_bytes| (offset_bytes, subject.device.read(offset_bytes, READ_BYTES))).collect();
        event_loop.run(async {
            for (offset_bytes, read) in reads {
                let buffer = read.await.unwrap();
                assert!(buffer.as_slice() == &all.as_slice()[offset_bytes as usize..][..READ_BYTES]);
            }
        });
    }
}

/// Guards against a write that waits for a ring that no thread drives, or a read that is not woken by it.
#[test]
fn reads_and_writes_mix_in_an_event_loop() {
    let Some((subject, driver)) = attached() else { return };
    let mut event_loop = EventLoop::new(driver);
    event_loop.run(async {
        for round in 0..50 {
            let offset_bytes = round * READ_BYTES as u64;
            subject.device.write(offset_bytes, pattern(round, READ_BYTES)).await.unwrap();
            let buffer = subject.device.read(offset_bytes, READ_BYTES).await.unwrap();
            assert!(buffer.as_slice() == pattern(round, READ_BYTES).as_slice());
        }
        subject.device.sync().await.unwrap();
    });
}

/// Guards against a thread that sleeps although reads are queued, or is woken for each of them.
#[test]
fn a_queued_read_wakes_the_last_turn_once() {
    let Some((subject, mut driver)) = attached() else { return };
    let wakes = Arc::new(Wakes::default());
    let waker = Arc::clone(&wakes).into();
    let before = subject.device.read(0, READ_BYTES);
    // A turn that leaves work to be done at once triggers a wakeup itself, and needs no other.
    let told = loop {
        let told = wakes.count();
        driver.turn(&waker);
        if wakes.count() == told {
            break told;
        }
    };
    let reads: Vec<_> = offsets(5).map(|offset_bytes| subject.device.read(offset_bytes, READ_BYTES)).collect();
    assert_eq!(wakes.count(), told + 1);
    drop(driver);
    check_read(&block_on(before).unwrap(), 0);
    for (read, offset_bytes) in reads.into_iter().zip(offsets(5)) {
        check_read(&block_on(read).unwrap(), offset_bytes);
    }
}

/// Guards against queued and submitted reads that never complete, because their thread stops driving its ring.
#[test]
fn detaching_completes_what_is_in_flight_and_queued() {
    let Some((subject, mut driver)) = attached() else { return };
    let mut reads: Vec<_> = offsets(700).map(|offset_bytes| subject.device.read(offset_bytes, READ_BYTES)).collect();
    driver.turn(std::task::Waker::noop());
    reads.extend(offsets(700).map(|offset_bytes| subject.device.read(offset_bytes, READ_BYTES)));
    drop(driver);
    let mut context = Context::from_waker(std::task::Waker::noop());
    for read in reads {
        assert!(pin!(read).poll(&mut context).map(Result::unwrap).is_ready());
    }
    // From here on, the background ring serves this thread, which may get another ring.
    check_read(&block_on(subject.device.read(0, READ_BYTES)).unwrap(), 0);
    let driver = subject.device.attach_thread().unwrap();
    assert!(subject.device.attach_thread().is_none(), "one ring a thread");
    drop(driver);
}

#[test]
fn the_ring_outlives_its_device() {
    let Some((subject, mut driver)) = attached() else { return };
    let read = subject.device.read(0, READ_BYTES);
    driver.turn(std::task::Waker::noop());
    let volume = subject.volume.unwrap();
    drop(subject.device);
    let mut event_loop = EventLoop::new(driver);
    check_read(&event_loop.run(read).unwrap(), 0);
    assert!(VolumeFile::open(&volume.path).is_err(), "the ring still has the volume");
    drop(event_loop);
    VolumeFile::open(&volume.path).unwrap();
}

/// Guards against the use of another thread's ring, which the kernel does not permit.
#[test]
fn a_turn_elsewhere_does_nothing_and_a_drop_elsewhere_is_safe() {
    let Some((subject, driver)) = attached() else { return };
    let queued = subject.device.read(0, READ_BYTES);
    let driver = thread::spawn(move || {
        let mut driver = driver;
        driver.turn(std::task::Waker::noop());
        driver
    })
    .join()
    .unwrap();
    let mut queued = pin!(queued);
    assert!(queued.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop())).is_pending());
    thread::spawn(move || drop(driver)).join().unwrap();
    // The thread's next read notices that the ring was given up, which completes its reads.
    check_read(&block_on(subject.device.read(READ_BYTES as u64, READ_BYTES)).unwrap(), READ_BYTES as u64);
    assert!(queued.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop())).is_ready());
    assert!(subject.device.attach_thread().is_some());
}

#[test]
fn a_thread_that_ends_completes_its_reads() {
    let Some(subject) = Subject::uring() else { return };
    let device = Arc::clone(&subject.device);
    let (reads, driver) = thread::spawn(move || {
        let driver = device.attach_thread();
        let reads: Vec<_> = offsets(20).map(|offset_bytes| device.read(offset_bytes, READ_BYTES)).collect();
        (reads, driver)
    })
    .join()
    .unwrap();
    for read in reads {
        assert_eq!(block_on(read).unwrap().len(), READ_BYTES);
    }
    drop(driver);
}

/// Guards against a completion that submits or gives up the ring while the ring is borrowed.
#[test]
fn a_completion_may_submit_on_its_own_ring() {
    let Some((subject, driver)) = attached() else { return };
    let (later, pending) = Completion::pair();
    let device = Arc::clone(&subject.device);
    let completion = Completion::callback(move |result: io::Result<AlignedBuffer>| {
        result.unwrap();
        let buffer = AlignedBuffer::with_len(READ_BYTES);
        device.submit(Transfer::Read { offset_bytes: READ_BYTES as u64, buffer, completion: later });
    });
    let buffer = AlignedBuffer::with_len(READ_BYTES);
    subject.device.submit(Transfer::Read { offset_bytes: 0, buffer, completion });
    check_read(&EventLoop::new(driver).run(pending).unwrap(), READ_BYTES as u64);
}

/// Guards against wasted processor time, or a thread that sleeps forever, if the event is polled level-triggered.
#[test]
fn the_event_can_be_polled_by_hand() {
    let Some((subject, mut driver)) = attached() else { return };
    let mut read = pin!(subject.device.read(0, READ_BYTES));
    let mut context = Context::from_waker(std::task::Waker::noop());
    let buffer = loop {
        driver.turn(std::task::Waker::noop());
        if let std::task::Poll::Ready(buffer) = read.as_mut().poll(&mut context) {
            break buffer.unwrap();
        }
        let mut event = [rustix::event::PollFd::new(&driver, rustix::event::PollFlags::IN)];
        rustix::io::retry_on_intr(|| rustix::event::poll(&mut event, None)).unwrap();
    };
    check_read(&buffer, 0);
}
