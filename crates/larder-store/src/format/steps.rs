//! Counts the octets that decoders read, so that tests and fuzzing can bound the cost of an input.
//!
//! A decoder of any structure reads its octets by a `FieldReader`, or to compute a checksum. Octets that are read again
//! and again count as often, so an input of a few kilobytes shows a cost that grows with the square of the length. The
//! crate larder-http counts the steps of its parsers in the same way. Invariant: outside of tests and fuzzing, nothing
//! is counted.

#[cfg(any(test, fuzzing))]
thread_local! {
    static COUNT: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Counts `octet_count` octets that a decoder reads.
pub(crate) fn take(octet_count: usize) {
    #[cfg(any(test, fuzzing))]
    COUNT.set(COUNT.get().wrapping_add(octet_count as u64));
    #[cfg(not(any(test, fuzzing)))]
    let _ = octet_count;
}

/// Runs a decoder on an input of `octet_count` octets, and bounds its cost.
///
/// # Panics
/// If the decoder reads more than [`PER_OCTET_MAX`] octets for each octet of the input.
#[cfg(any(test, fuzzing))]
pub(crate) fn bounded<T>(octet_count: usize, decode: impl FnOnce() -> T) -> T {
    let before = COUNT.get();
    let decoded = decode();
    let steps = COUNT.get().wrapping_sub(before);
    let most = (octet_count as u64 + FREE_OCTETS) * PER_OCTET_MAX;
    assert!(steps <= most, "{steps} octets are read of an input of {octet_count}, at most {most}");
    decoded
}

/// Maximum number of times that a decoder may read an octet of its input. More than one, because a fuzz target decodes
/// its input several times.
#[cfg(any(test, fuzzing))]
const PER_OCTET_MAX: u64 = 32;
/// Octets by which [`bounded`] counts every input as longer than it is, because some decoders read blocks of a fixed
/// length even for a short input.
#[cfg(any(test, fuzzing))]
const FREE_OCTETS: u64 = 4096;
