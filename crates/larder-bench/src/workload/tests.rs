//! Guards against a workload that differs from the one it is named after.

use super::*;
use std::time::Duration;

fn arrivals(workload: Workload, count: u64) -> Vec<BenchRequest> {
    let mut source = RequestSource::new(workload, WorkloadOptions::new(workload), Vec::new());
    source.warm_up();
    let arrivals = (0..count).map(|_| source.arrival(1.0, 1.0).unwrap());
    arrivals.flat_map(|arrival| arrival.first.into_iter().chain(arrival.embedded)).collect()
}

#[test]
fn polymix_has_its_mix_its_recurrence_and_its_kinds() {
    let asked = arrivals(Workload::PolyMix(PolyMixVersion::Four), 60_000);
    let share = |wanted: &dyn Fn(&BenchRequest) -> bool| {
        asked.iter().filter(|asked| wanted(asked)).count() as f64 / asked.len() as f64
    };
    assert!((asked.len() as f64 / 60_000.0 / PolyMix::requests_per_arrival() - 1.0).abs() < 0.08, "{}", asked.len());
    for (class, expected) in [(PolyMixClass::Image, 0.65), (PolyMixClass::Html, 0.15), (PolyMixClass::Other, 0.195)] {
        let found = share(&|asked| asked.object.class == ObjectClass::Mix(class));
        assert!((found / expected - 1.0).abs() < 0.1, "{class:?}: {found}");
    }
    let offered = share(&|asked| asked.is_offered);
    assert!((0.50..0.58).contains(&offered), "{offered}: 55% basic hits, less what is reloaded");
    let bytes = |wanted: &dyn Fn(&BenchRequest) -> bool| {
        asked.iter().filter(|asked| wanted(asked)).map(|asked| asked.object.nature().len_bytes).sum::<u64>() as f64
    };
    let byte_ratio = bytes(&|asked| asked.is_offered) / bytes(&|_| true);
    assert!(byte_ratio < offered - 0.05, "{byte_ratio}: short objects are revisited more");
    for (kind, expected) in [(Kind::ImsOld, 0.034), (Kind::ImsNew, 0.069), (Kind::Reload, 0.034)] {
        let found = share(&|asked| asked.kind == kind);
        assert!((found / expected - 1.0).abs() < 0.1, "{kind:?}: {found}");
    }
    let posts = share(&|asked| {
        matches!(asked.kind, Kind::Post(_)) && asked.object.class != ObjectClass::Mix(PolyMixClass::Image)
    });
    assert!((posts / (0.015 * 0.35) - 1.0).abs() < 0.25, "{posts}");
    assert!((share(&|asked| asked.goes_away) / 0.001 - 1.0).abs() < 0.5);
}

/// PolyMix-3 has the method GET only, no aborts, and no preference for short objects.
#[test]
fn polymix_3_differs_from_polymix_4_as_published() {
    let asked = arrivals(Workload::PolyMix(PolyMixVersion::Three), 60_000);
    let is_plain = |asked: &BenchRequest| !asked.goes_away && !matches!(asked.kind, Kind::Post(_) | Kind::Head);
    assert!(asked.iter().all(is_plain));
    let count = |asked: &[BenchRequest]| asked.iter().filter(|asked| asked.is_offered).count() as f64;
    let offered = count(&asked) / asked.len() as f64;
    assert!((0.52..0.60).contains(&offered), "{offered}: 72.4% revisits, 80% of them storable, less the reloads");
    // The mean length of direct objects that are revisited shows whether short ones are preferred.
    let ratio = |asked: &[BenchRequest]| {
        let others = asked.iter().filter(|asked| asked.object.class == ObjectClass::Mix(PolyMixClass::Other));
        let (again, new): (Vec<_>, Vec<_>) = others.partition(|asked| asked.is_offered);
        let mean = |asked: &[&BenchRequest]| {
            asked.iter().map(|asked| asked.object.nature().len_bytes).sum::<u64>() as f64 / asked.len() as f64
        };
        mean(&again) / mean(&new)
    };
    let four = arrivals(Workload::PolyMix(PolyMixVersion::Four), 60_000);
    let three = ratio(&asked);
    let four = ratio(&four);
    assert!((three - 1.0).abs() < 0.1 && four < 0.85, "{three} and {four}");
}

#[test]
fn every_workload_asks_for_what_it_says() {
    assert!(arrivals(Workload::AllHit, 1000).iter().all(|asked| asked.is_offered));
    assert!(arrivals(Workload::AllMiss, 1000).iter().all(|asked| !asked.is_offered));
    let ranges = arrivals(Workload::Ranges, 1000);
    let within = |asked: &BenchRequest| asked.range.is_some_and(|(first, len)| len > 0 && first + len <= 32 << 20);
    assert!(ranges.iter().all(within));
    let zipf = arrivals(Workload::Zipf, 20_000);
    let first = zipf.iter().filter(|asked| asked.object.number == 0).count();
    assert!((100..2000).contains(&first), "{first}");
    for (name, workload) in Workload::ALL {
        assert_eq!((Workload::named(name), workload.name()), (Some(workload), name));
        assert_eq!(arrivals(workload, 50), arrivals(workload, 50), "{name}: one seed, the same requests");
    }
}

#[test]
fn phases_take_the_time_they_are_given() {
    for version in [PolyMixVersion::Three, PolyMixVersion::Four] {
        let phases = Phase::of(Workload::PolyMix(version), Duration::from_secs(740));
        let sum: Duration = phases.iter().map(|phase| phase.time).sum();
        assert!((sum.as_secs_f64() - 740.0).abs() < 0.001);
        assert_eq!(
            phases.iter().filter(|phase| phase.counts).map(|phase| phase.name).collect::<Vec<_>>(),
            ["top1", "top2"]
        );
        assert!(phases.windows(2).all(|pair| (pair[0].load.1 - pair[1].load.0).abs() < 0.06), "load never jumps");
        let is_warm = phases[0].name == "warm";
        assert_eq!(is_warm, version == PolyMixVersion::Three, "only PolyMix-3 begins with a phase for warming up");
    }
    assert_eq!(Phase::of(Workload::Zipf, Duration::from_secs(3)).len(), 1);
}

#[test]
fn trace_is_replayed_in_its_order_to_its_end() {
    let request = |key, size_bytes| Request { time_ms: 0, key, size_bytes, site: 0, client: 0 };
    let trace = vec![request(7, 100), request(8, 0), request(7, 200), request(9, 5)];
    let options = WorkloadOptions { arrivals_max: 3, ..WorkloadOptions::new(Workload::Trace) };
    let mut source = RequestSource::new(Workload::Trace, options, trace);
    let objects = std::iter::from_fn(|| source.arrival(1.0, 1.0)?.first).map(|asked| (asked.object, asked.is_offered));
    let object = |number, len_bytes| BenchObject { class: ObjectClass::Fixed(len_bytes), number };
    let expected = [(object(7, 100), false), (object(8, 1), false), (object(7, 100), true)];
    assert_eq!(
        objects.collect::<Vec<_>>(),
        expected,
        "an object keeps its first length, and three arrivals are the most"
    );
}

#[test]
fn zipf_may_have_objects_of_one_length() {
    let options = WorkloadOptions { object_bytes: 2000, ..WorkloadOptions::new(Workload::Zipf) };
    let mut source = RequestSource::new(Workload::Zipf, options, Vec::new());
    let first = source.arrival(1.0, 1.0).and_then(|arrival| arrival.first).unwrap();
    assert_eq!(first.object.class, ObjectClass::Fixed(2000));
}
