//! Least hit density (Beckmann, Chen, Cidon, NSDI 2018): evicts the object of a sample with the fewest expected hits
//! for its bytes and time.
//!
//! Expected hits are learnt from the ages at which objects were hit or evicted, in classes of objects that were hit
//! again after a similar time. Constants are the authors', except that distributions are updated every 16,384 requests
//! instead of every million, because our traces are shorter. Cost: 24 bytes per object in addition to the list's, and a
//! sample for each eviction.

use super::eviction::Eviction;
use crate::lists::{Lists, NodeId};
use larder_store::SplitMix64;

const CLASSES: usize = 16;
/// Number of different ages, in steps. Objects that are older than the greatest age have the greatest age.
const AGES: usize = 20_000;
/// Number of random objects that are compared at each eviction. As many of the newest objects are compared too.
const SAMPLE: u64 = 32;
const ADMITTED: usize = 8;
/// Factor by which earlier counts are multiplied at each update.
const DECAY: f64 = 0.9;
const REQUESTS_PER_LESSON: u64 = 1 << 14;
/// Numbers of updates after which the length of an age step is chosen again. A step is a hundredth of the time in which
/// as many requests arrive as there are objects.
const SETTING_LESSONS: [u64; 3] = [1, 5, 25];
const STEP_ERROR: f64 = 0.01;

/// A cache with LHD.
pub(super) struct Lhd {
    objects: Lists<1>,
    /// All objects, from which samples are drawn.
    drawn_from: Vec<NodeId>,
    /// The requests of each object, by its [`NodeId`].
    histories: Vec<History>,
    admitted: [NodeId; ADMITTED],
    admitted_count: usize,
    classes: Vec<Class>,
    /// Number of requests in one age step.
    step: u64,
    clock: u64,
    lessons: u64,
    random: SplitMix64,
    size_bytes: u64,
}

/// The time of an object's last request, its age at its last two hits, and its place in the samples.
#[derive(Clone, Copy, Default)]
struct History {
    asked_at: u64,
    last_hit_age: u32,
    hit_age_before: u32,
    /// Index of the object in the list from which samples are drawn.
    place: u32,
}

/// The number of hits and evictions at each age, and the expected hits of an object at that age.
struct Class {
    hits: Vec<f64>,
    evictions: Vec<f64>,
    densities: Vec<f64>,
}

impl Lhd {
    pub(super) fn new(size_bytes: u64) -> Self {
        Self {
            objects: Lists::new(),
            drawn_from: Vec::new(),
            histories: Vec::new(),
            admitted: [0; ADMITTED],
            admitted_count: 0,
            classes: (0..CLASSES).map(Class::new).collect(),
            step: 1,
            clock: 0,
            lessons: 0,
            random: SplitMix64::new(1),
            size_bytes,
        }
    }

    /// Evicts the object of a sample with the fewest expected hits. The cache must not be empty.
    fn evict(&mut self) {
        let sampled = (0..SAMPLE).map(|_| self.drawn_from[self.random.below(self.drawn_from.len() as u64) as usize]);
        let mut sampled: Vec<_> = sampled.collect();
        let admitted = &self.admitted[..self.admitted_count.min(ADMITTED)];
        // One of the newest may be gone and its number reused by another object, which is as good a candidate.
        let is_there = |id: &NodeId| {
            self.drawn_from.get(self.histories[*id as usize].place as usize).is_some_and(|there| there == id)
        };
        sampled.extend(admitted.iter().copied().filter(is_there));
        let worst = sampled.into_iter().min_by(|&one, &other| self.rank(one).total_cmp(&self.rank(other)));
        let Some(worst) = worst else { return };
        let age = self.age(worst);
        let history = self.histories[worst as usize];
        self.classes[class_of(&history)].evictions[age] += 1.0;
        self.drawn_from.swap_remove(history.place as usize);
        if let Some(&moved) = self.drawn_from.get(history.place as usize) {
            self.histories[moved as usize].place = history.place;
        }
        self.objects.remove(worst);
    }

    /// Returns the expected hits of an object, per byte and age step.
    fn rank(&self, id: NodeId) -> f64 {
        let density = self.classes[class_of(&self.histories[id as usize])].densities[self.age(id)];
        density / self.objects.node(id).size_bytes.max(1) as f64
    }

    /// Returns the age of an object: the steps since its last request.
    fn age(&self, id: NodeId) -> usize {
        ((self.clock - self.histories[id as usize].asked_at) / self.step).min(AGES as u64 - 1) as usize
    }

    fn learn(&mut self) {
        self.lessons += 1;
        if SETTING_LESSONS.contains(&self.lessons) {
            let step = (self.drawn_from.len() as f64 / (STEP_ERROR * AGES as f64)).max(1.0) as u64;
            if step != self.step {
                // Ages learnt with another step length are meaningless.
                self.classes.iter_mut().for_each(Class::forget);
                self.step = step;
                return;
            }
        }
        self.classes.iter_mut().for_each(Class::learn);
    }
}

impl Eviction for Lhd {
    fn request(&mut self, key: u64, size_bytes: u64) -> bool {
        self.clock += 1;
        if self.clock.is_multiple_of(REQUESTS_PER_LESSON) {
            self.learn();
        }
        if let Some(id) = self.objects.find(key) {
            let age = self.age(id);
            let history = &mut self.histories[id as usize];
            self.classes[class_of(history)].hits[age] += 1.0;
            (history.hit_age_before, history.last_hit_age) = (history.last_hit_age, age as u32);
            history.asked_at = self.clock;
            return true;
        }
        if size_bytes > self.size_bytes {
            return false;
        }
        while self.objects.bytes(0) + size_bytes > self.size_bytes {
            self.evict();
        }
        let id = self.objects.insert(0, key, size_bytes);
        if self.histories.len() <= id as usize {
            self.histories.resize(id as usize + 1, History::default());
        }
        let oldest = AGES as u32;
        let place = self.drawn_from.len() as u32;
        self.histories[id as usize] = History { asked_at: self.clock, last_hit_age: 0, hit_age_before: oldest, place };
        self.drawn_from.push(id);
        self.admitted[self.admitted_count % ADMITTED] = id;
        self.admitted_count += 1;
        false
    }

    fn approach(&self, keys: &[u64]) {
        self.objects.approach(keys.iter().copied());
    }
}

impl Class {
    /// Creates a class without any counts yet. Its first guess is that objects with a shorter time between their hits
    /// are hit sooner again.
    fn new(number: usize) -> Self {
        let densities = (0..AGES).map(|age| (number + 1) as f64 / (age + 1) as f64).collect();
        Self { hits: vec![0.0; AGES], evictions: vec![0.0; AGES], densities }
    }

    fn learn(&mut self) {
        let mut hits = 0.0;
        let mut events = 0.0;
        let mut lifetime = 0.0;
        for age in (0..AGES).rev() {
            hits += self.hits[age];
            events += self.hits[age] + self.evictions[age];
            lifetime += events;
            self.densities[age] = if events > 1.0e-5 { hits / lifetime } else { 0.0 };
            self.hits[age] *= DECAY;
            self.evictions[age] *= DECAY;
        }
    }

    fn forget(&mut self) {
        self.hits.fill(0.0);
        self.evictions.fill(0.0);
    }
}

/// Returns the class of an object, by the time between its last hits. The class with the shortest time is last.
fn class_of(history: &History) -> usize {
    let age = u64::from(history.last_hit_age) + u64::from(history.hit_age_before);
    let mut age = age.max(1);
    let mut class = 0;
    while age < AGES as u64 && class < CLASSES - 1 {
        age *= 2;
        class += 1;
    }
    class
}
