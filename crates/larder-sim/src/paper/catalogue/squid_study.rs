//! The printed results of *Performance Issues in Squid*, ICS 2002: Tables 6.1 to 6.6.
//!
//! The peak rate of a version and its throughput are printed separately and differ by less than 0.1%. One store serves
//! expv1, expv2 and all rates of Table 6.6, so their hit ratios are one prediction.

use super::{PublishedResult, printed};

/// Lists what is printed of one version at its peak, and of the last version at a series of rates.
macro_rules! results {
    (
        $($table:literal $version:literal: $peak:literal $throughput:literal $response:literal $miss:literal $hit:literal
            $ratio:literal $ratio_basis:ident;)*
        @ $($rate:literal: $rate_response:literal $rate_miss:literal $rate_hit:literal $rate_ratio:literal;)*
    ) => {
        &[
            $(
                printed("summary", concat!($version, ": peak"), $peak, "requests/s").predicted("squid-peak"),
                printed($table, concat!($version, ": throughput"), $throughput, "replies/s").repeated("squid-peak"),
                printed($table, concat!($version, ": response"), $response, "ms").predicted("squid-peak"),
                printed($table, concat!($version, ": misses"), $miss, "ms").predicted("squid-peak"),
                printed($table, concat!($version, ": hits"), $hit, "ms").predicted("squid-peak"),
                printed($table, concat!($version, ": hit ratio"), $ratio, "%").$ratio_basis("squid-peak"),
            )*
            $(
                printed("Table 6.6", concat!($rate, "/s: response"), $rate_response, "ms").predicted("squid-peak"),
                printed("Table 6.6", concat!($rate, "/s: misses"), $rate_miss, "ms").predicted("squid-peak"),
                printed("Table 6.6", concat!($rate, "/s: hits"), $rate_hit, "ms").predicted("squid-peak"),
                printed("Table 6.6", concat!($rate, "/s: hit ratio"), $rate_ratio, "%").repeated("squid-peak"),
            )*
            printed("text", "gain of kqueue, up to", 8.0, "%").fitted("squid-peak"),
        ]
    };
}

pub(super) const RESULTS: &[PublishedResult] = results! {
    "Table 6.1" "Squid 2.3": 60.0 60.02 1809.0 3427.0 393.0 56.14 predicted;
    "Table 6.2" "Squid 2.4": 140.0 139.96 1482.0 2847.0 172.0 53.71 predicted;
    "Table 6.3" "expv1": 400.0 399.95 2631.0 4205.0 1039.0 52.91 predicted;
    "Table 6.4" "expv2": 450.0 449.8 2630.0 4720.0 988.0 52.11 repeated;
    @
    200: 1398.0 2941.0 58.0 56.4;
    240: 1424.0 2961.0 79.0 56.2;
    280: 1467.0 3002.0 104.0 55.8;
    300: 1494.0 3026.0 122.0 55.5;
    320: 1525.0 3053.0 142.0 55.2;
    340: 1570.0 3093.0 173.0 54.9;
    360: 1620.0 3141.0 206.0 54.5;
    380: 1747.0 3233.0 278.0 53.8;
    400: 1819.0 3338.0 365.0 52.9;
    420: 2231.0 3660.0 646.0 52.5;
    450: 2630.0 4720.0 1039.0 52.1;
};
