//! The plans for the machines of two papers, with the memory that the papers print.
//!
//! Owns: those machines. What was measured and simulated on them is in `paper`. Invariant: the plan gets the
//! printed values of the set-up: disk, memory, sizes and the workload. One value is not printed but fitted to the
//! paper's rates: the objects that a read of a group brings in.

use super::figures::figures_of;
use crate::{Model, Table};
use larder_store::plan::{Plan, PlanWishes, Sizes};
use std::time::Duration;

/// A machine of a paper for which a plan is made.
struct PaperMachine {
    /// Name of the test bed.
    name: &'static str,
    model: &'static str,
    disk_count: u64,
    /// Size of the store on each disk, in bytes.
    size_bytes: u64,
    /// Memory for each disk, in bytes.
    memory_bytes: u64,
    mean_bytes: f64,
    hit_ratio: f64,
    /// Share of the misses that are stored.
    storable_share: f64,
    /// Number of useful objects that one read of a group brings in.
    group_size: f64,
    /// Name of the policy that is the fastest one in the paper.
    policy: &'static str,
}

const MACHINES: [PaperMachine; 5] = [
    PaperMachine {
        name: "HashCache, low end",
        model: "hashcache-sata",
        disk_count: 1,
        size_bytes: 60_000_000_000,
        memory_bytes: 256 << 20,
        mean_bytes: 8192.0,
        hit_ratio: 0.6,
        storable_share: 0.8,
        group_size: 2.14,
        policy: "hashcache-log",
    },
    PaperMachine {
        name: "HashCache, high end",
        model: "hashcache-scsi",
        disk_count: 5,
        size_bytes: 18_000_000_000,
        memory_bytes: 3_500_000_000 / 5,
        mean_bytes: 8192.0,
        hit_ratio: 0.6,
        storable_share: 0.8,
        group_size: 2.14,
        policy: "hashcache-log",
    },
    PaperMachine {
        name: "HashCache, 15,000 rpm",
        model: "hashcache-scsi-15k",
        disk_count: 1,
        size_bytes: 18_000_000_000,
        memory_bytes: 3_500_000_000,
        mean_bytes: 8192.0,
        hit_ratio: 0.6,
        storable_share: 0.8,
        group_size: 2.14,
        policy: "hashcache-log",
    },
    PaperMachine {
        name: "HashCache, large disks",
        model: "hashcache-usb",
        disk_count: 2,
        size_bytes: 1_000_000_000_000,
        memory_bytes: 1 << 30,
        mean_bytes: 8192.0,
        hit_ratio: 0.6,
        storable_share: 0.8,
        group_size: 2.14,
        policy: "hashcache-log-lru",
    },
    PaperMachine {
        name: "Markatos et al.",
        model: "st15150wc-ufs",
        disk_count: 1,
        size_bytes: 2 << 30,
        memory_bytes: 512 << 20,
        mean_bytes: 5390.0,
        hit_ratio: 42_085.0 / 720_125.0,
        storable_share: 1.0,
        group_size: 1.0,
        policy: "lazy-reads-loc",
    },
];

/// The requests per second in Table 2 of Markatos et al., by policy.
const MARKATOS_TABLE_2: [(&str, f64); 8] = [
    ("simple", 14.0),
    ("squid", 20.0),
    ("multiple-dirs", 23.0),
    ("buddy", 133.0),
    ("stream", 295.0),
    ("stream-pack", 358.0),
    ("lazy-reads", 396.0),
    ("lazy-reads-loc", 495.0),
];

/// Returns a table of the planned rates of the policies of Markatos et al. on their machine.
pub(super) fn markatos_table_2() -> Table {
    let plan = MACHINES[MACHINES.len() - 1].plan();
    let columns = ["Markatos et al., Table 2, requests/s", "planned", "printed"];
    let mut table = Table::new("", &columns);
    for (name, printed) in MARKATOS_TABLE_2 {
        let row = plan.rows.iter().find(|row| row.policy == name).expect("it is a policy");
        table.push(name, vec![row.requests_per_second, printed]);
    }
    table
}

/// Returns a table of the plans. If a plan recommends a policy that is not the fastest in the paper, also returns the
/// reason.
pub(super) fn plans() -> (Table, Vec<String>) {
    let columns = [
        "test bed; the paper's policy; the plan's",
        "planned for the paper's, requests/s",
        "planned for the plan's, requests/s",
        "hits of the plan's, of an LRU's, %",
    ];
    let mut table = Table::new("Plans for the machines of the papers", &columns);
    let mut reasons = Vec::new();
    for machine in MACHINES {
        let plan = machine.plan();
        let row = |name: &str| plan.rows.iter().find(|row| row.policy == name).expect("it is a policy");
        let recommended = plan.recommended.expect("policies without an index fit");
        let PaperMachine { name, disk_count, policy, .. } = machine;
        let rate = |name: &str| row(name).requests_per_second * disk_count as f64;
        table.push(
            format!("{name}; {policy}; {recommended}"),
            vec![rate(policy), rate(recommended), row(recommended).hits_of_lru * 100.0],
        );
        if recommended != policy {
            let fits = if row(policy).fits { "fits as well" } else { "does not fit" };
            reasons.push(format!("{name}: {recommended}, not {policy}, which {fits}: {}.", plan.reason));
        }
    }
    (table, reasons)
}

impl PaperMachine {
    fn plan(&self) -> Plan {
        let model = Model::open(self.model).expect("the machines that come along are right");
        let smaller = self.size_bytes as f64 / FIGURES_BYTES as f64;
        let figures = figures_of(&model.smaller(smaller), FIGURES_BYTES);
        let mut wishes = PlanWishes::new(self.size_bytes, self.memory_bytes);
        wishes.sizes = Sizes::Mean(self.mean_bytes);
        wishes.hit_ratio = self.hit_ratio;
        wishes.storable_share = self.storable_share;
        wishes.group_size = self.group_size;
        wishes.depth = 1;
        wishes.processor_count = f64::INFINITY;
        wishes.request_cpu = Duration::ZERO;
        Plan::new(&wishes, &figures)
    }
}

/// Size in bytes of the store for which figures are measured. The disk is made smaller by the same factor.
const FIGURES_BYTES: u64 = 256 << 20;
