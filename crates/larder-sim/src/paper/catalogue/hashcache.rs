//! The printed results of Badam, Park, Pai and Peterson, *HashCache*, NSDI 2009.

use super::{PublishedResult, printed};

/// Why results of the commercial cache are not reproduced.
const COMMERCIAL: &str = "Tiger is a commercial cache whose design is not published";
/// Why sizes of other systems' indexes are not reproduced.
const OTHER_INDEX: &str = "it describes the index of another system, which is not simulated";
/// Why the sizes of objects are not reproduced.
const TRACE: &str = "the trace of CoDeeN is not available; the workload has PolyMix's sizes";

pub(super) const RESULTS: &[PublishedResult] = &[
    printed("low end", "hashcache-basic", 45.0, "requests/s").predicted("hashcache-low-end"),
    printed("low end", "hashcache-set", 45.0, "requests/s").predicted("hashcache-low-end"),
    printed("low end", "squid", 60.0, "requests/s").predicted("hashcache-low-end"),
    printed("low end", "hashcache-setmem", 75.0, "requests/s").predicted("hashcache-low-end"),
    printed("low end", "hashcache-log", 275.0, "requests/s").predicted("hashcache-low-end"),
    printed("low end", "Tiger", 250.0, "requests/s").impossible(COMMERCIAL),
    printed("low end", "hashcache-setmem on two disks", 160.0, "requests/s").predicted("hashcache-low-end"),
    printed("low end", "hits of hashcache-set of those offered", 100.0, "%").predicted("hashcache-low-end"),
    printed("low end", "hits of squid of those offered", 100.0, "%").predicted("hashcache-low-end"),
    printed("low end", "hits of hashcache-setmem of those offered", 100.0, "%").predicted("hashcache-low-end"),
    printed("low end", "hits of hashcache-log of those offered", 100.0, "%").predicted("hashcache-low-end"),
    printed("high end", "hashcache-log", 2200.0, "requests/s").up_to(2300.0).predicted("hashcache-high-end"),
    printed("high end", "squid", 400.0, "requests/s").predicted("hashcache-high-end"),
    printed("high end", "Tiger", 2200.0, "requests/s").up_to(2300.0).impossible(COMMERCIAL),
    printed("high end", "hashcache-log, each disk of 15,000 rpm", 700.0, "requests/s").predicted("hashcache-high-end"),
    printed("high end", "memory that is not used", 65.0, "%")
        .impossible("it depends on the process and its memory cache, whose sizes are not printed"),
    printed("large disks", "hashcache-log on two disks", 600.0, "requests/s").predicted("hashcache-large"),
    printed("large disks", "hashcache-log-lru on two disks", 600.0, "requests/s").predicted("hashcache-large"),
    printed("large disks", "hashcache-log on one disk", 300.0, "requests/s").predicted("hashcache-large"),
    printed("large disks", "hashcache-log-lru on one disk", 300.0, "requests/s").predicted("hashcache-large"),
    printed("large disks", "memory of hashcache-log", 60.0, "% of 2 GB").or_more().predicted("hashcache-memory"),
    printed("large disks", "memory of hashcache-setmem", 10.0, "% of 2 GB").or_less().predicted("hashcache-memory"),
    printed("expectation", "hashcache-log expected at 67 to 70 seeks/s", 250.0, "requests/s")
        .fitted("hashcache-formulas"),
    printed("expectation", "hashcache-log expected at 90 to 95 seeks/s", 320.0, "requests/s")
        .fitted("hashcache-formulas"),
    printed("memory", "hashcache-basic", 0.0, "bits an object").predicted("hashcache-memory"),
    printed("memory", "hashcache-set", 0.0, "bits an object").predicted("hashcache-memory"),
    printed("memory", "hashcache-setmem", 11.0, "bits an object").predicted("hashcache-memory"),
    printed("memory", "hashcache-setmem-lru", 11.0, "bits an object").or_less().predicted("hashcache-memory"),
    printed("memory", "hashcache-log-n", 47.0, "bits an object").predicted("hashcache-memory"),
    printed("memory", "hashcache-log-n without generations", 43.0, "bits an object").repeated("hashcache-memory"),
    printed("memory", "hashcache-log-lru without groups", 31.0, "bits an object").predicted("hashcache-memory"),
    printed("memory", "hashcache-log-lru", 35.0, "bits an object").predicted("hashcache-memory"),
    printed("memory", "resident sets at which setmem-lru takes as much as setmem", 50.0, "%")
        .repeated("hashcache-memory"),
    printed("memory", "index of current proxies", 10.0, "GB/TB").impossible(OTHER_INDEX),
    printed("memory", "index of the leanest commercial proxy", 4.0, "GB/TB").impossible(OTHER_INDEX),
    printed("memory", "disk that 256 MB can index", 30.0, "GB").impossible(OTHER_INDEX),
    printed("abstract", "less memory than others", 6.0, "times").up_to(20.0).repeated("hashcache-memory"),
    printed("memory", "less memory than others, log", 6.0, "times").up_to(12.0).repeated("hashcache-memory"),
    printed("memory", "less memory than others, log-lru", 9.0, "times").up_to(20.0).repeated("hashcache-memory"),
    printed("workload", "objects below 8 KB", 75.0, "%").impossible(TRACE),
    printed("workload", "objects below 16 KB", 87.2, "%").impossible(TRACE),
];
