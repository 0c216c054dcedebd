//! The network between a proxy and the servers of PolyMix, which delay each packet.
//!
//! Owns: the time that packets take for a response from a server, beyond the server's think time. Delays are outside
//! Polygraph: the machines of the servers add them. PolyMix-4 prescribes them. PolyMix-3 has them too, "per connection
//! and per packet" (Pai et al., USITS 2003), and is taken to have the same. Between robots and proxy there are none.
//! Lost packets (0.05%), the bandwidth and the time of closing a connection are left out, so the result is a lower
//! bound.

use crate::paper::beds::{constant, whole};

/// Returns the time in seconds that packets to and from the server take for a response of `len_bytes`. This is the mean
/// time for opening a connection, and the round trips of the response.
pub(super) fn origin_s(len_bytes: u64) -> f64 {
    constant("queue.round_trip_s") * (new_connections() + f64::from(round_trips(len_bytes)))
}

/// Returns the number of round trips from a request to the end of its response of `len_bytes`.
fn round_trips(len_bytes: u64) -> u32 {
    let packets = len_bytes.div_ceil(whole("queue.segment_bytes")).max(1);
    // The first packets double with each round trip: after n of them, first * (2^n - 1) packets have been sent.
    (packets.div_ceil(whole("queue.first_packets")) + 1).next_power_of_two().ilog2()
}

/// Returns the share of requests that open a connection. The number of requests per connection follows Zipf's law.
fn new_connections() -> f64 {
    let most = whole("queue.connection_requests");
    let harmonic: f64 = (1..=most).map(|count| 1.0 / count as f64).sum();
    harmonic / most as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the time of misses. The first round trip brings two packets, the second four more, and so on.
    #[test]
    fn windows_double_with_each_round_trip() {
        let packets = [(0, 1), (1, 1), (2, 1), (3, 2), (6, 2), (7, 3), (14, 3), (15, 4), (30, 4), (31, 5)];
        let segment_bytes = whole("queue.segment_bytes");
        for (count, expected) in packets {
            assert_eq!(round_trips(count * segment_bytes), expected, "{count} packets");
        }
        assert_eq!(round_trips(2 * segment_bytes + 1), 2);
    }

    #[test]
    fn a_response_takes_its_round_trips_and_a_share_of_a_connection() {
        assert!((new_connections() - 0.2113).abs() < 0.0001, "{}", new_connections());
        assert!((origin_s(1000) - 0.0969).abs() < 0.0001, "{}", origin_s(1000));
    }
}
