//! PolyMix-4: pages with their images, revisits, special requests (SYSTEMS 6; the workload files of Web Polygraph 4.9.0).
//!
//! Owns: which object an arrival asks for. Does not: name hosts (one origin answers for all), or loop through robots: arrivals
//! are those of all robots together, each of which would make 0.4 requests a second. Invariant: images come only with
//! their page, and those of a page seen before were seen before.

use super::{Arrival, Asked, Kind, basic};
use crate::{
    content::{Class, Object},
    random::{Random, Zipf, mix},
};

/// Which objects there are so far.
pub(super) struct PolyMix {
    /// How many of HTML, downloads and others.
    made: [u64; 3],
    /// Objects that can be revisited at most.
    working_set: u64,
    images: Zipf,
}

impl PolyMix {
    pub(super) fn new(working_set: u64) -> Self {
        Self { made: [0; 3], working_set, images: Zipf::new(IMAGES_MAX, 1.0) }
    }

    /// A page and its images are several requests.
    pub(super) fn requests_per_arrival() -> f64 {
        let harmonic: f64 = (1..=IMAGES_MAX).map(|count| 1.0 / count as f64).sum();
        1.0 + DIRECT[0].1 / direct_total() * IMAGES_MAX as f64 / harmonic
    }

    pub(super) fn arrival(&mut self, random: &mut Random, recurrence: f64, specials: f64) -> Arrival {
        let mut drawn = random.share() * direct_total();
        let at = DIRECT.iter().position(|(_, share)| {
            drawn -= share;
            drawn < 0.0
        });
        let at = at.unwrap_or(DIRECT.len() - 1);
        let class = DIRECT[at].0;
        let is_revisit = self.made[at] > 0 && random.happens(RECURRENCE * recurrence);
        let number = if is_revisit { self.revisited(random, at) } else { self.made[at] };
        self.made[at] += u64::from(!is_revisit);
        let first = self.asked(random, Object { class, number }, is_revisit, specials);
        let embedded = match (class, first.kind) {
            (Class::Html, Kind::Basic | Kind::ImsOld | Kind::ImsNew | Kind::Reload) => {
                let count = self.images.draw(&mut Random::new(mix(number ^ PAGE_SALT))) + 1;
                let image = |position| Object { class: Class::Image, number: number * IMAGES_MAX + position };
                (0..count).map(|position| self.asked(random, image(position), is_revisit, specials)).collect()
            }
            _ => Vec::new(),
        };
        Arrival { first: Some(first), embedded }
    }

    /// An object of the working set: 1% of it gets 10% of the revisits, and of three that could be the shortest is taken nearly
    /// always, so that bytes are hit less often than objects.
    fn revisited(&self, random: &mut Random, at: usize) -> u64 {
        let share = DIRECT[at].1 / direct_total() / Self::requests_per_arrival();
        let window = ((self.working_set as f64 * share) as u64).clamp(1, self.made[at]);
        let oldest = self.made[at] - window;
        let hot = (window / 100).max(1);
        let draw = |random: &mut Random| {
            oldest + if random.happens(HOT_REQUESTS) { random.below(hot) } else { random.below(window) }
        };
        let candidates = [draw(random), draw(random), draw(random)];
        let len = |number: &u64| Object { class: DIRECT[at].0, number: *number }.nature().len_bytes;
        let shortest = candidates.into_iter().min_by_key(len).unwrap_or(candidates[0]);
        if random.happens(DISCRIMINATION) { shortest } else { candidates[0] }
    }

    fn asked(&self, random: &mut Random, object: Object, is_revisit: bool, specials: f64) -> Asked {
        let mut asked = basic(object);
        asked.goes_away = random.happens(ABORTS * specials);
        let drawn = random.share() / specials.max(f64::MIN_POSITIVE);
        let is_image = object.class == Class::Image;
        asked.kind = match drawn {
            // Special kinds are of what was seen before; methods are of what is asked for directly.
            0.0..0.05 if is_revisit => Kind::ImsOld,
            0.05..0.15 if is_revisit => Kind::ImsNew,
            0.15..0.20 if is_revisit => Kind::Reload,
            0.20..0.215 if !is_image => Kind::Post(random.below(POST_BYTES_MAX)),
            0.215..0.216 if !is_image => Kind::Head,
            _ => Kind::Basic,
        };
        asked
    }
}

/// A class for an object that is nothing but a number, in PolyMix' shares.
pub(super) fn class_of(number: u64) -> Class {
    match mix(number ^ PAGE_SALT) % 1000 {
        0..650 => Class::Image,
        650..800 => Class::Html,
        800..805 => Class::Download,
        _ => Class::Other,
    }
}

/// What is asked for directly, with its share of all requests.
const DIRECT: [(Class, f64); 3] = [(Class::Html, 0.15), (Class::Download, 0.005), (Class::Other, 0.195)];

fn direct_total() -> f64 {
    DIRECT.iter().map(|(_, share)| share).sum()
}

/// A page has a Zipf-distributed number of images up to this.
const IMAGES_MAX: u64 = 13;
/// 55% of document hits, of what is storable to 80%.
const RECURRENCE: f64 = 0.55 / 0.8;
const HOT_REQUESTS: f64 = 0.1;
const DISCRIMINATION: f64 = 0.9;
const ABORTS: f64 = 0.001;
const POST_BYTES_MAX: u64 = 8 << 10;
const PAGE_SALT: u64 = 0x5041_4745;
