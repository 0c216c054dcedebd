//! The exhaustive model of `larder_cache::object`: `Core` and `plan` alone, in a world of clients, an origin and a
//! store, in all orders of events.
//!
//! Covered: three clients that read a whole, a range or two ranges of a body of four chunks while nothing fails, and
//! stand still as long as they like; the first may leave at any time (all three of a stored body). The object is
//! stored, whole or with gaps, or arrives as a 200 or a 206, to be stored or not, from origins with and without
//! validator, length and ranges. Two clients meet each misfortune alone, one client meets each pair: break-offs,
//! changed versions, lies (start, length, too many bytes), short 206s, lost, doubtful and skipped chunks, a store in
//! trouble or refusing, a share that shrinks. Parts of chunks and clients on other terms meet some of them.
//! `keep`, 304s, purges, and an origin and a store so slow that a timer fires first are counted among the misfortunes.
//!
//! A client that once came too late for its bytes goes first from then on (`MISSES_BEFORE_HASTE`). Where memory is
//! short, the clients of a divisible body want 11 bytes, and a part arrives in pieces of a chunk: more has too many
//! states.
//!
//! Not covered: clients that are slow again and again, while memory is short; three misfortunes in one history, or two
//! with two clients; small pieces or leaving clients together with misfortunes of two clients; a body whose last chunk
//! is short; requests for more than two ranges, or cut ones; a client that takes a part of what is there, or comes after the first
//! second; time between timers; two objects of one key; everything outside of `Core` (locks, tasks, sockets, commits).

mod environment;
mod exploration;
mod laws;
mod scenario;
mod tests;
