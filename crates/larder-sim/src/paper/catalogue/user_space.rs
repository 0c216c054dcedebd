//! The printed results of *ESP*, ICS 2002, and of UCFS, IEEE TC, September 2002: user-space file systems for Squid.
//!
//! Of UCFS and of its earlier version (WPSFS, Sigmetrics 2001), only the abstracts were available.

use super::{PublishedResult, printed};

pub(super) const ESP_RESULTS: &[PublishedResult] = &[
    printed("evaluation", "ESP over Squid at 1.5 s", 2.0, "times").predicted("esp-squid"),
    printed("evaluation", "ESP over Squid at 2 s", 2.0, "times").predicted("esp-squid"),
    printed("evaluation", "ESP over Squid above 2 s", 2.0, "times").predicted("esp-squid"),
    printed("evaluation", "share of the hits that the threshold decides", 10.0, "%").predicted("esp-threshold"),
];

/// Why results of the earlier version are not reproduced.
const PAGES: &str = "the page-structured file system of the earlier version is described by its name only";

pub(super) const UCFS_RESULTS: &[PublishedResult] = &[
    printed("abstract", "over Squid on FFS", 8.0, "times").up_to(19.0).predicted("ucfs-squid"),
    printed("abstract", "over Squid on asynchronous FFS", 4.0, "times").up_to(7.5).predicted("ucfs-squid"),
    printed("abstract", "over SQUIDML", 3.0, "times").up_to(9.0).predicted("ucfs-squid"),
    printed("abstract of 2001", "PFS over Squid on FFS", 9.0, "times").up_to(20.0).impossible(PAGES),
    printed("abstract of 2001", "PFS over SQUIDML", 4.0, "times").up_to(10.0).impossible(PAGES),
];
