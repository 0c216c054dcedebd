//! At stake: a disk bought for a rate that it cannot serve.

use super::*;

fn row<'a>(plan: &'a Plan, name: &str) -> &'a PlannedRow {
    plan.rows.iter().find(|row| row.policy == name).expect("it is a row")
}

/// HashCache's table, by the formulas of docs/how-to/planning.md: 70 seeks per second, 60% hits, 80% storable.
#[test]
fn a_spinning_disk_gives_the_papers_order_and_rates() {
    let mut figures = DeviceFigures::typical_spinning();
    for read in &mut figures.reads {
        read.per_second = 70.0;
    }
    for write in &mut figures.writes {
        write.per_second = 70.0;
    }
    figures.sequential_write = 1e12;
    let mut wishes = PlanWishes::new(1 << 40, 1 << 33);
    wishes.sizes = Sizes::sample(vec![1000, 1000, 1000, 9000]);
    wishes.group_size = 2.14;
    wishes.tuning.hashcache_first_read_bytes = 1 << 20;
    let plan = Plan::new(&wishes, &figures);
    for (name, expected) in [
        // t / (h (1 + q) + (1 - h) + (1 - h) c (1 + q)): here q adds to the cost of insertions too.
        ("hashcache-set", 70.0 / (0.6 * 1.25 + 0.4 + 0.4 * 0.8 * 1.25)),
        ("hashcache-setmem", 70.0 / (0.6 * 1.25 + 0.4 * 0.031 + 0.4 * 0.8 * 1.25)),
        ("hashcache-log-n", 70.0 / (0.6 + 0.4 * 0.031)),
        ("hashcache-log", 70.0 / (0.6 / 2.14 + 0.4 * 0.031)),
    ] {
        let found = row(&plan, name).requests_per_second;
        assert!((found / expected - 1.0).abs() < 0.02, "{name}: {found}, by the formula {expected}");
        assert_eq!(row(&plan, name).bound, PlanBound::Disk);
    }
    assert_eq!(plan.recommended, Some("hashcache-log"), "{}", plan.reason);
}

#[test]
fn less_memory_means_a_row_with_less_of_an_index() {
    let figures = DeviceFigures::typical_solid_state();
    let recommended = |memory_bytes| Plan::new(&PlanWishes::new(2_000_000_000_000, memory_bytes), &figures);
    let rich = recommended(16 << 30);
    assert_eq!(rich.recommended, Some("log"), "{}", rich.reason);
    let poor = recommended(256 << 20);
    let chosen = row(&poor, poor.recommended.expect("something fits"));
    assert!(chosen.index_bytes <= 0.75 * 256e6 * 1.05 && chosen.policy != "log", "{}", poor.reason);
    assert!(!row(&poor, "log").fits && poor.reason.contains("would be faster"), "{}", poor.reason);
    let none = recommended(1 << 20);
    let chosen = row(&none, none.recommended.expect("a row without an index always fits"));
    assert_eq!(chosen.index_bytes, 0.0);
}

#[test]
fn rows_that_keep_files_are_not_recommended_for_a_block_device() {
    let figures = figures::tests::round();
    let plan = Plan::new(&PlanWishes::new(1 << 40, 1 << 40), &figures);
    assert!(!row(&plan, "squid").known);
    assert!(plan.rows.iter().all(|row| row.requests_per_second > 1.0), "{:?}", plan.rows);
    assert_eq!(plan.rows.len(), Policy::all().len());
}

#[test]
fn processors_limit_what_the_disk_does_not() {
    let mut wishes = PlanWishes::new(1 << 40, 1 << 33);
    (wishes.request_cpu, wishes.processor_count) = (Duration::from_millis(10), 1.0);
    let plan = Plan::new(&wishes, &DeviceFigures::typical_solid_state());
    let log = row(&plan, "log");
    assert_eq!(log.bound, PlanBound::Processors);
    assert!((99.0..100.0).contains(&log.requests_per_second), "{log:?}");
    assert_eq!(plan.recommended, Some("log"), "of equally fast rows the first: {}", plan.reason);
}

/// Markatos et al., Table 2: each of their policies is at least as fast as the one before it.
#[test]
fn policies_of_one_paper_keep_its_order_on_a_spinning_disk() {
    let plan = Plan::new(&PlanWishes::new(1 << 40, 1 << 36), &DeviceFigures::typical_spinning());
    let names = ["simple", "squid", "multiple-dirs", "buddy", "stream", "stream-pack", "lazy-reads", "lazy-reads-loc"];
    let rates = names.map(|name| row(&plan, name).requests_per_second);
    assert!(rates.windows(2).all(|pair| pair[1] >= pair[0] * 0.999), "{rates:?}");
    assert!(rates[4] > rates[3] * 2.0, "one file instead of one per entry: {rates:?}");
}

#[test]
fn log_is_expected_to_hit_more_often_than_an_lru() {
    let plan = Plan::new(&PlanWishes::new(1 << 40, 1 << 36), &DeviceFigures::typical_solid_state());
    let hits = |name| row(&plan, name).hits_of_lru;
    assert!(hits("log") > hits("log-clock") && hits("log-clock") > hits("stream"), "{:?}", plan.rows);
}

/// At stake: policies whose processor times differ by a factor of twenty are planned at the same rate.
#[test]
fn fast_flash_ranks_policies_by_their_processor_time() {
    let mut figures = DeviceFigures::typical_solid_state();
    for read in &mut figures.reads {
        read.per_second = 2e6;
    }
    for write in &mut figures.writes {
        write.per_second = 2e6;
    }
    (figures.sequential_read, figures.sequential_write) = (1e11, 1e11);
    let plan = Plan::new(&PlanWishes::new(1 << 40, 1 << 36), &figures);
    let rate = |name| row(&plan, name).requests_per_second;
    assert_eq!(row(&plan, "log").bound, PlanBound::Processors);
    assert!(rate("log") > rate("tiny") && rate("tiny") > rate("hashcache-setmem"), "{:?}", plan.rows);
}
