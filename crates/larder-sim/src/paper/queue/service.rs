//! Serves requests at a given rate with one process, and with disks that sort the waiting operations.
//!
//! A request visits the process when it arrives and after each of its reads. Owns: the queues of the process and of the
//! disks, and the times of the requests. A disk serves its operations in the order of addresses, from the head to the
//! end and then from the beginning, as systems of that time do (`disksort` of BSD, Linux's elevator). The program gives
//! it a bounded number of operations at a time, and the others wait in order. Background operations come from the
//! system and do not count towards that number. The process serves requests in order of arrival.
//!
//! Invariant: time never goes back, and everything follows from the seed. Cost: a few events for each operation of a
//! disk.

use super::{Demand, Demands, Proxy};
use crate::{
    Arm, DiskOperation,
    paper::beds::{constant, whole},
};
use larder_workload::Random;
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap, VecDeque},
};

/// The result of serving requests at a rate: the mean times of hits, of misses and of all requests, and the rate of
/// responses. Reloads are neither hits nor misses, as in Polygraph's reports.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Service {
    pub(crate) hit_s: f64,
    pub(crate) miss_s: f64,
    pub(crate) response_s: f64,
    pub(crate) responses_per_s: f64,
}

/// Serves requests that arrive at random times, with `rate` per second on average.
pub(crate) fn serve(demands: &Demands, proxy: &Proxy, rate: f64, seed: u64) -> Service {
    let Some(mut machine) = machine(demands, proxy, rate, seed) else { return Service::default() };
    while machine.step() {}
    machine.totals.service()
}

/// Returns whether the mean response time at `rate` is at most `accepted_s`. Stops as soon as that is impossible.
pub(super) fn is_accepted(demands: &Demands, proxy: &Proxy, rate: f64, (accepted_s, seed): (f64, u64)) -> bool {
    let Some(mut machine) = machine(demands, proxy, rate, seed) else { return false };
    let sum_max_s = accepted_s * machine.arrivals_left as f64;
    while machine.totals.sum_s() <= sum_max_s {
        if !machine.step() {
            return true;
        }
    }
    false
}

/// Returns the process and the disks before the first request; `None` if there are no demands.
fn machine<'a>(demands: &'a Demands, proxy: &'a Proxy, rate: f64, seed: u64) -> Option<ServingMachine<'a>> {
    let arm = demands.arm.as_ref().filter(|_| !demands.requests.is_empty())?;
    let count = demands.requests.len();
    // Each disk starts at another position in the list of demands, so that successive operations on a disk remain
    // successive.
    let disk = |number: usize| DiskQueue {
        next_demand: number * count / proxy.disk_count,
        head: 0,
        free_ns: 0,
        waiting: BTreeMap::new(),
        given: 0,
        later: VecDeque::new(),
        serving: None,
    };
    let served_count = count * whole("queue.rounds") as usize;
    let mut machine = ServingMachine {
        demands: &demands.requests,
        arm,
        proxy,
        rate,
        random: Random::new(seed ^ 0x0071_7565),
        events: BinaryHeap::new(),
        event_count: 0,
        requests: Vec::with_capacity(served_count),
        arrivals_left: served_count,
        queue: VecDeque::new(),
        visiting: None,
        disks: (0..proxy.disk_count).map(disk).collect(),
        totals: ServiceTotals::default(),
    };
    machine.schedule(0, EventKind::Arrival);
    Some(machine)
}

/// The process and the disks that serve requests.
struct ServingMachine<'a> {
    demands: &'a [Demand],
    arm: &'a Arm,
    proxy: &'a Proxy,
    rate: f64,
    random: Random,
    events: BinaryHeap<Reverse<Event>>,
    event_count: u64,
    requests: Vec<ServedRequest>,
    arrivals_left: usize,
    /// Requests that wait for the process.
    queue: VecDeque<usize>,
    /// The request that the process works for, or for which it waits for a disk.
    visiting: Option<usize>,
    disks: Vec<DiskQueue>,
    totals: ServiceTotals,
}

/// An event: when it happens, and what happens.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    time_ns: u64,
    /// Number of the event, which decides the order of events at the same time.
    number: u64,
    kind: EventKind,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum EventKind {
    Arrival,
    VisitEnd,
    DiskDone(usize),
}

/// A request that is being served.
struct ServedRequest {
    arrived_ns: u64,
    demand: usize,
    disk: usize,
    /// Processor time of each visit to the process, in nanoseconds.
    visit_ns: u64,
    visits: usize,
    /// The disk operations for which the process waits, in order.
    blocking: VecDeque<DiskOperation>,
}

/// A disk and the operations that wait for it.
struct DiskQueue {
    next_demand: usize,
    head: u64,
    /// Time at which the disk has executed all operations that were given to it.
    free_ns: u64,
    /// The operations that were given to the disk, by address and number.
    waiting: BTreeMap<(u64, u64), QueuedOperation>,
    /// Number of operations of the program that were given to the disk. Includes the one that is being executed.
    given: usize,
    /// Operations of the program that were not given to the disk yet.
    later: VecDeque<QueuedOperation>,
    serving: Option<QueuedOperation>,
}

#[derive(Clone, Copy)]
struct QueuedOperation {
    operation: DiskOperation,
    /// The request that waits for this operation; `None` if none does.
    request: Option<usize>,
}

impl ServingMachine<'_> {
    /// Handles the next event. Returns `false` if there is none.
    fn step(&mut self) -> bool {
        let Some(Reverse(Event { time_ns, kind, .. })) = self.events.pop() else { return false };
        match kind {
            EventKind::Arrival => self.arrive(time_ns),
            EventKind::VisitEnd => self.end_visit(time_ns),
            EventKind::DiskDone(disk) => self.end_operation(time_ns, disk),
        }
        true
    }

    fn schedule(&mut self, time_ns: u64, kind: EventKind) {
        self.event_count += 1;
        self.events.push(Reverse(Event { time_ns, number: self.event_count, kind }));
    }

    fn arrive(&mut self, now_ns: u64) {
        let disk = self.random.below(self.disks.len() as u64) as usize;
        let next_demand = &mut self.disks[disk].next_demand;
        let demand = *next_demand % self.demands.len();
        *next_demand += 1;
        let visits = self.demands[demand].reads.len() + 1;
        let cpu_ns = self.proxy.cpu_s * self.random.exponential(1e9);
        self.requests.push(ServedRequest {
            arrived_ns: now_ns,
            demand,
            disk,
            visit_ns: (cpu_ns / visits as f64) as u64,
            visits: 0,
            blocking: VecDeque::new(),
        });
        self.enter(now_ns, self.requests.len() - 1);
        self.arrivals_left -= 1;
        if self.arrivals_left > 0 {
            let wait_ns = self.random.exponential(1e9 / self.rate) as u64;
            self.schedule(now_ns + wait_ns, EventKind::Arrival);
        }
    }

    /// Adds a request to the queue of the process.
    fn enter(&mut self, now_ns: u64, request: usize) {
        self.queue.push_back(request);
        if self.visiting.is_none() {
            self.begin_visit(now_ns);
        }
    }

    fn begin_visit(&mut self, now_ns: u64) {
        self.visiting = self.queue.pop_front();
        if let Some(request) = self.visiting {
            self.schedule(now_ns + self.requests[request].visit_ns, EventKind::VisitEnd);
        }
    }

    fn end_visit(&mut self, now_ns: u64) {
        let Some(number) = self.visiting else { return };
        let demands = self.demands;
        let request = &mut self.requests[number];
        let demand = &demands[request.demand];
        let disk = request.disk;
        let visit = request.visits;
        request.visits += 1;
        let read = demand.reads.get(visit).copied();
        let stores: &[DiskOperation] = if visit == 0 { &demand.stores } else { &[] };
        if self.proxy.waits {
            request.blocking.extend(stores.iter().copied().chain(read));
        } else {
            stores.iter().for_each(|operation| self.submit(now_ns, disk, *operation, None));
            read.into_iter().for_each(|operation| self.submit(now_ns, disk, operation, Some(number)));
        }
        if visit == 0 {
            demand.late.iter().for_each(|operation| self.submit(now_ns, disk, *operation, None));
        }
        if let Some(operation) = self.requests[number].blocking.pop_front() {
            self.submit(now_ns, disk, operation, Some(number));
            return;
        }
        if visit == demand.reads.len() {
            self.finish(now_ns, number);
        }
        self.begin_visit(now_ns);
    }

    fn submit(&mut self, now_ns: u64, number: usize, operation: DiskOperation, request: Option<usize>) {
        let disk = &mut self.disks[number];
        let queued = QueuedOperation { operation, request };
        if !operation.is_late && disk.given == self.proxy.disk_depth {
            disk.later.push_back(queued);
            return;
        }
        self.give(queued, number);
        if self.disks[number].serving.is_none() {
            self.begin_operation(now_ns, number);
        }
    }

    /// Gives an operation to the disk with this number.
    fn give(&mut self, queued: QueuedOperation, number: usize) {
        self.event_count += 1;
        let disk = &mut self.disks[number];
        disk.given += usize::from(!queued.operation.is_late);
        disk.waiting.insert((queued.operation.at, self.event_count), queued);
    }

    fn begin_operation(&mut self, now_ns: u64, number: usize) {
        let disk = &mut self.disks[number];
        let ahead = disk.waiting.range((disk.head, 0)..).next().or_else(|| disk.waiting.iter().next());
        let Some(place) = ahead.map(|(place, _)| *place) else { return };
        disk.serving = disk.waiting.remove(&place);
        let DiskOperation { at, len_bytes, .. } = disk.serving.expect("its place was found").operation;
        let took_ns = if at == disk.head && now_ns > disk.free_ns {
            self.arm.late_transfer_ns(at, len_bytes)
        } else {
            self.arm.transfer_ns(disk.head, at, len_bytes)
        };
        (disk.head, disk.free_ns) = (at + len_bytes, now_ns + took_ns);
        self.schedule(now_ns + took_ns, EventKind::DiskDone(number));
    }

    fn end_operation(&mut self, now_ns: u64, disk: usize) {
        let Some(QueuedOperation { operation, request }) = self.disks[disk].serving.take() else { return };
        if !operation.is_late {
            self.disks[disk].given -= 1;
            if let Some(queued) = self.disks[disk].later.pop_front() {
                self.give(queued, disk);
            }
        }
        self.begin_operation(now_ns, disk);
        let Some(number) = request else { return };
        if !self.proxy.waits {
            self.enter(now_ns, number);
            return;
        }
        if let Some(operation) = self.requests[number].blocking.pop_front() {
            self.submit(now_ns, disk, operation, Some(number));
            return;
        }
        // The process continues. If a read was made, the request visits it again.
        let ServedRequest { demand, visits, .. } = self.requests[number];
        if visits <= self.demands[demand].reads.len() {
            self.queue.push_back(number);
        } else {
            self.finish(now_ns, number);
        }
        self.begin_visit(now_ns);
    }

    fn finish(&mut self, now_ns: u64, number: usize) {
        let request = &self.requests[number];
        let service_s = (now_ns - request.arrived_ns) as f64 / 1e9;
        self.totals.add(&self.demands[request.demand], service_s, now_ns as f64 / 1e9, &mut self.random);
    }
}

/// Sums over all requests of a run.
#[derive(Default)]
struct ServiceTotals {
    hit_s: f64,
    hits: u64,
    miss_s: f64,
    misses: u64,
    reload_s: f64,
    reloads: u64,
    last_s: f64,
}

impl ServiceTotals {
    fn add(&mut self, demand: &Demand, service_s: f64, done_s: f64, random: &mut Random) {
        self.last_s = self.last_s.max(done_s);
        if demand.is_hit {
            (self.hit_s, self.hits) = (self.hit_s + service_s, self.hits + 1);
            return;
        }
        let think_s = (constant("queue.think_s") + constant("queue.think_deviation_s") * random.normal()).max(0.0);
        let (sum_s, count) = if demand.is_reload {
            (&mut self.reload_s, &mut self.reloads)
        } else {
            (&mut self.miss_s, &mut self.misses)
        };
        *sum_s += service_s + think_s + demand.network_s;
        *count += 1;
    }

    fn sum_s(&self) -> f64 {
        self.hit_s + self.miss_s + self.reload_s
    }

    fn service(&self) -> Service {
        let count = (self.hits + self.misses + self.reloads) as f64;
        Service {
            hit_s: self.hit_s / self.hits.max(1) as f64,
            miss_s: self.miss_s / self.misses.max(1) as f64,
            response_s: self.sum_s() / count.max(1.0),
            responses_per_s: count / self.last_s.max(f64::MIN_POSITIVE),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the mean response time of the Squid study. A reload waits for the server, like a miss. It counts in the
    /// mean of all requests, but neither as a hit nor as a miss.
    #[test]
    fn a_reload_is_neither_a_hit_nor_a_miss() {
        let mut totals = ServiceTotals::default();
        let mut random = Random::new(1);
        let hit = Demand { is_hit: true, ..Demand::default() };
        let reload = Demand { is_reload: true, network_s: 1000.0, ..Demand::default() };
        for demand in [&hit, &hit, &hit, &reload] {
            totals.add(demand, 1.0, 8.0, &mut random);
        }
        let Service { hit_s, miss_s, response_s, responses_per_s } = totals.service();
        assert!((hit_s - 1.0).abs() < 1e-9 && miss_s == 0.0, "{hit_s} {miss_s}");
        assert!((1004.0 / 4.0..(1004.0 + 8.0) / 4.0).contains(&response_s), "{response_s}");
        assert!((responses_per_s - 0.5).abs() < 1e-9, "{responses_per_s}");
    }

    #[test]
    fn packets_of_the_server_take_time_at_a_miss_only() {
        let mut totals = ServiceTotals::default();
        let mut random = Random::new(1);
        let of = |is_hit| Demand { is_hit, network_s: 1000.0, ..Demand::default() };
        totals.add(&of(true), 1.0, 1.0, &mut random);
        totals.add(&of(false), 1.0, 1.0, &mut random);
        let Service { hit_s, miss_s, .. } = totals.service();
        assert!(hit_s < 2.0 && miss_s > 1000.0, "{hit_s} {miss_s}");
    }
}
