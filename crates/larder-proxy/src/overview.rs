//! What people look at: the figures of a running proxy in one piece, as `/overview.json` has them.
//!
//! Owns: its form. Does not: count, or show it (see `admin`, and `larder top`). Cost: nothing until somebody asks.

use serde::{Deserialize, Serialize};

use crate::{
    history::{Book, Moment, Point, Series, Sums},
    outcome::MissReason,
    shared::Shared,
};

/// The figures of a running proxy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Overview {
    /// The version of the program.
    pub version: String,
    /// When this was looked at, in seconds of Unix time.
    pub now_s: i64,
    /// Since when `ever` counts, in seconds of Unix time.
    pub since_s: i64,
    /// What was answered in the last minute.
    pub minute: Counted,
    /// What was answered since midnight.
    pub today: Counted,
    /// What was answered over all runs with this store.
    pub ever: Counted,
    /// The last minute, second by second, the oldest first.
    pub by_second: Vec<Counted>,
    /// The last hour, minute by minute.
    pub by_minute: Vec<Counted>,
    /// The last day, a quarter of an hour each.
    pub by_quarter: Vec<Counted>,
    /// Why bodies came from origins today, most often first.
    pub misses_today: Vec<Named>,
    /// Why they did over all runs.
    pub misses_ever: Vec<Named>,
}

/// What was answered in some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counted {
    /// Requests whose body came from the cache.
    pub hits: u64,
    /// Requests whose body came from an origin.
    pub misses: u64,
    /// Tunnels, refusals and failures.
    pub others: u64,
    /// Body bytes sent to clients.
    pub client_bytes: u64,
    /// Body bytes received from origins.
    pub origin_bytes: u64,
    /// Body bytes sent to clients that came from the cache.
    pub saved_bytes: u64,
}

/// How often something was so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Named {
    /// Its name.
    pub name: String,
    /// How often.
    pub count: u64,
}

impl Overview {
    pub(crate) fn of(shared: &Shared) -> Self {
        let moment = Moment::now();
        let Book { kept, seconds, .. } = shared.history.book_at(moment);
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            now_s: moment.unix_s(),
            since_s: kept.since_s,
            minute: Counted::of(&seconds.sum()),
            today: Counted::of(&kept.today.point()),
            ever: Counted::of(&kept.ever.point()),
            by_second: counted(&seconds),
            by_minute: counted(&kept.minutes),
            by_quarter: counted(&kept.quarters),
            misses_today: reasons(&kept.today),
            misses_ever: reasons(&kept.ever),
        }
    }
}

impl Counted {
    fn of(point: &Point) -> Self {
        let Point { hits, misses, others, client_bytes, origin_bytes, hit_bytes: saved_bytes } = *point;
        Self { hits, misses, others, client_bytes, origin_bytes, saved_bytes }
    }
}

fn counted(series: &Series) -> Vec<Counted> {
    series.points().map(Counted::of).collect()
}

/// Why bodies came from origins, most often first.
fn reasons(sums: &Sums) -> Vec<Named> {
    let reasons = MissReason::all().map(|reason| Named { name: reason.token().to_owned(), count: sums.missed(reason) });
    let mut reasons: Vec<Named> = reasons.filter(|reason| reason.count > 0).collect();
    reasons.sort_by_key(|reason| std::cmp::Reverse(reason.count));
    reasons
}
