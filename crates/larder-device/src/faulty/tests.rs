//! Checks that each fault has exactly the effect that its name says, and that everything follows from the seed.

use super::*;
use crate::{AlignedBuffer, Completion};
use std::sync::{Arc, mpsc};

const LEN_BYTES: u64 = 1 << 20;
const ALWAYS: u32 = 1_000_000;

fn device(plan: FaultPlan) -> FaultyDevice {
    FaultyDevice::new(LEN_BYTES, 1, plan)
}

/// Writes, and returns the outcome if the write completed at once.
fn write(device: &FaultyDevice, offset_bytes: u64, byte: u8, len: usize) -> Option<io::Result<()>> {
    let mut buffer = AlignedBuffer::with_len(len);
    buffer.as_mut_slice().fill(byte);
    let (sender, receiver) = mpsc::channel();
    let completion = Completion::callback(move |outcome| drop(sender.send(outcome)));
    device.submit(Transfer::Write { offset_bytes, buffer: Arc::new(buffer), completion });
    receiver.try_recv().ok()
}

fn read(device: &FaultyDevice, offset_bytes: u64, len: usize) -> io::Result<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    let completion = Completion::callback(move |outcome: io::Result<AlignedBuffer>| {
        drop(sender.send(outcome.map(|buffer| buffer.as_slice().to_vec())));
    });
    device.submit(Transfer::Read { offset_bytes, buffer: AlignedBuffer::with_len(len), completion });
    receiver.try_recv().expect("it is not slow")
}

fn sync(device: &FaultyDevice) -> io::Result<()> {
    let (sender, receiver) = mpsc::channel();
    device.submit(Transfer::Sync { completion: Completion::callback(move |outcome| drop(sender.send(outcome))) });
    receiver.try_recv().expect("it is not slow")
}

fn wrong_bytes(contents: &[u8], right: u8) -> usize {
    contents.iter().filter(|byte| **byte != right).count()
}

#[test]
fn lost_and_torn_writes_are_acknowledged_and_do_not_land_whole() {
    let lossy = device(FaultPlan { lost_writes_ppm: ALWAYS, ..FaultPlan::default() });
    assert!(write(&lossy, 0, 7, 4096).unwrap().is_ok());
    assert_eq!(wrong_bytes(&lossy.contents(), 0), 0);
    let torn = device(FaultPlan { torn_writes_ppm: ALWAYS, ..FaultPlan::default() });
    assert!(write(&torn, 0, 7, 64 << 10).unwrap().is_ok());
    let landed = torn.contents().iter().take_while(|byte| **byte == 7).count();
    assert!(landed < 64 << 10 && landed % 512 == 0);
    assert_eq!(wrong_bytes(&torn.contents()[landed..], 0), 0);
    assert_eq!((lossy.stats().lies(), torn.stats().torn_writes), (1, 1));
}

#[test]
fn misdirected_transfers_are_whole_and_elsewhere() {
    let writes = device(FaultPlan { misdirected_writes_ppm: ALWAYS, ..FaultPlan::default() });
    assert!(write(&writes, 8192, 7, 4096).unwrap().is_ok());
    let contents = writes.contents();
    assert_eq!(wrong_bytes(&contents, 0), 4096);
    let at = contents.iter().position(|byte| *byte == 7).unwrap();
    assert!(at != 8192 && at.is_multiple_of(512));
    assert_eq!(wrong_bytes(&contents[at..at + 4096], 7), 0);
    let reads = device(FaultPlan { misdirected_reads_ppm: ALWAYS, ..FaultPlan::default() });
    write(&reads, 8192, 7, 4096).unwrap().unwrap();
    assert!(read(&reads, 8192, 4096).unwrap().contains(&0));
}

#[test]
fn a_flip_is_one_bit_and_on_reads_the_medium_stays_right() {
    let writes = device(FaultPlan { flipped_writes_ppm: ALWAYS, ..FaultPlan::default() });
    write(&writes, 0, 0, 4096).unwrap().unwrap();
    assert_eq!(writes.contents().iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
    let reads = device(FaultPlan { flipped_reads_ppm: ALWAYS, ..FaultPlan::default() });
    let bits: u32 = read(&reads, 0, 8192).unwrap().iter().map(|byte| byte.count_ones()).sum();
    assert_eq!(bits, 1);
    assert_eq!(wrong_bytes(&reads.contents(), 0), 0);
}

#[test]
fn failing_transfers_move_nothing_and_say_why() {
    let plan = FaultPlan {
        write_errors_ppm: ALWAYS,
        read_errors_ppm: ALWAYS,
        sync_errors_ppm: ALWAYS,
        ..FaultPlan::default()
    };
    let failing = device(plan);
    assert!(
        write(&failing, 0, 7, 4096).unwrap().is_err() && read(&failing, 0, 512).is_err() && sync(&failing).is_err()
    );
    assert_eq!(wrong_bytes(&failing.contents(), 0), 0);
    let full = device(FaultPlan { full_after: Some(2), ..FaultPlan::default() });
    let outcomes: Vec<_> = (0..3).map(|at| write(&full, at * 512, 7, 512).unwrap()).collect();
    assert!(outcomes[..2].iter().all(Result::is_ok));
    assert_eq!(outcomes[2].as_ref().unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert!(read(&full, 0, 512).is_ok() && sync(&full).is_ok());
    let dead = device(FaultPlan { dead_after: Some(1), ..FaultPlan::default() });
    assert!(write(&dead, 0, 7, 512).unwrap().is_ok());
    assert!(write(&dead, 0, 7, 512).unwrap().is_err() && read(&dead, 0, 512).is_err() && sync(&dead).is_err());
}

#[test]
fn short_transfers_come_to_the_same_end() {
    let short = device(FaultPlan { short_transfers_ppm: ALWAYS, ..FaultPlan::default() });
    for round in 0..50 {
        write(&short, 4096, round, 64 << 10).unwrap().unwrap();
        assert_eq!(wrong_bytes(&read(&short, 4096, 64 << 10).unwrap(), round), 0);
    }
    assert_eq!(wrong_bytes(&short.contents()[..4096], 0), 0);
}

#[test]
fn a_slow_transfer_is_done_when_its_turn_comes() {
    let slow = device(FaultPlan { slow_transfers_ppm: ALWAYS, ..FaultPlan::default() });
    for at in 0..20 {
        assert!(write(&slow, at * 512, 7, 512).is_none());
    }
    assert_eq!(wrong_bytes(&slow.contents(), 0), 0);
    assert_eq!(slow.waiting_count(), 20);
    while slow.turn() {}
    assert_eq!(wrong_bytes(&slow.contents(), 0), 20 * 512);
}

#[test]
fn a_kill_keeps_what_was_acknowledged_and_a_power_cut_what_was_synced() {
    let device = device(FaultPlan::default());
    write(&device, 0, 1, 4096).unwrap().unwrap();
    sync(&device).unwrap();
    for at in 0..64 {
        write(&device, 8192 + at * 4096, 2, 4096).unwrap().unwrap();
    }
    assert_eq!(device.kill().contents(), device.contents());
    let after = device.power_cut().contents();
    assert_eq!(wrong_bytes(&after[..4096], 1), 0);
    let landed = after.iter().filter(|byte| **byte == 2).count();
    assert!(landed > 0 && landed < 64 * 4096, "some came to the medium, some did not: {landed}");
}

#[test]
fn a_sync_covers_only_what_landed_before_it_was_asked_for() {
    let device = device(FaultPlan { slow_transfers_ppm: ALWAYS, ..FaultPlan::default() });
    device.submit(Transfer::Sync { completion: Completion::callback(|_| {}) });
    device.set_plan(FaultPlan::default());
    write(&device, 0, 7, 4096).unwrap().unwrap();
    assert!(device.turn());
    assert_eq!(wrong_bytes(&device.lock().durable.contents(), 0), 0);
    sync(&device).unwrap();
    assert_eq!(wrong_bytes(&device.power_cut().contents(), 0), 4096);
}

#[test]
fn of_the_write_that_a_dying_device_was_at_a_part_may_land() {
    let landed = |seed| {
        let device = FaultyDevice::new(LEN_BYTES, seed, FaultPlan { dead_after: Some(0), ..FaultPlan::default() });
        assert!(write(&device, 0, 7, 4096).unwrap().is_err() && write(&device, 8192, 7, 4096).unwrap().is_err());
        assert_eq!(wrong_bytes(&device.contents(), 0), 0);
        wrong_bytes(&device.kill().contents(), 0)
    };
    let landed: Vec<_> = (0..40).map(landed).collect();
    assert!(landed.contains(&0) && landed.contains(&4096) && landed.iter().any(|bytes| (1..4096).contains(bytes)));
}

/// Guards against a failing seed that passes when it is run again.
#[test]
fn the_same_seed_comes_to_the_same_end() {
    let run = |seed| {
        let some = 100_000;
        let plan = FaultPlan {
            torn_writes_ppm: some,
            lost_writes_ppm: some,
            misdirected_writes_ppm: some,
            flipped_writes_ppm: some,
            write_errors_ppm: some,
            misdirected_reads_ppm: some,
            flipped_reads_ppm: some,
            read_errors_ppm: some,
            sync_errors_ppm: some,
            short_transfers_ppm: some,
            slow_transfers_ppm: some,
            ..FaultPlan::default()
        };
        let mut device = FaultyDevice::new(LEN_BYTES, seed, plan);
        for round in 0..2000_u64 {
            let place = round * 7919 % 240 * 4096;
            write(&device, place, round as u8, 512 * (1 + round as usize % 20));
            device.submit(Transfer::Sync { completion: Completion::callback(|_| {}) });
            device.turn();
            match round % 500 {
                199 => device = device.kill(),
                399 => device = device.power_cut(),
                _ => {}
            }
        }
        (device.contents(), device.stats())
    };
    assert!(run(5) == run(5));
    assert_ne!(run(5).0, run(6).0);
    assert!(run(5).1.lies() > 300, "{:?}", run(5).1);
}
