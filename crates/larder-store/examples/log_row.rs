//! Measures the policy `log` on a real file: memory and bytes written per entry, reads per hit and miss, the speed of
//! reads relative to the device's own, and the time of a start. `docs/internals/measurements.md` has results.
//!
//! Owns: the given file. Each entry is generated from its number, so a later run can check the entries of an earlier
//! one.

#[cfg(target_os = "linux")]
#[path = "lab/event_loop.rs"]
mod event_loop;

#[cfg(target_os = "linux")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    linux::main()
}

#[cfg(not(target_os = "linux"))]
fn main() {
    eprintln!("this reads /proc, which only Linux has");
}

#[cfg(target_os = "linux")]
mod linux {
    use super::event_loop::{EventLoop, cpu_seconds};
    use futures_executor::block_on;
    use futures_util::{StreamExt, stream};
    use larder_store::{Hints, SplitMix64, Stats, Store, StoreOptions};
    use std::{
        env,
        error::Error,
        fs,
        pin::pin,
        task::{Context, Poll},
        time::{Duration, Instant},
    };

    type Outcome<T> = Result<T, Box<dyn Error>>;

    const USAGE: &str = "\
measure the log row on a file

usage: log_row COMMAND FILE ENTRIES LEN_MIN LEN_MAX [...]

  fill          makes a store and fills it; closes it, or with `crash` dies like after kill -9
  start         opens it and says when the first entry was found, and when all were
  read [DEPTH [COUNT]]
                reads random entries, DEPTH at once (default 64), on this thread's own ring

  ENTRIES       how many, with bodies from LEN_MIN to LEN_MAX bytes";

    pub(super) fn main() -> Outcome<()> {
        let arguments: Vec<String> = env::args().skip(1).collect();
        let [command, file, entries, len_min, len_max, rest @ ..] = &arguments[..] else {
            println!("{USAGE}");
            return Ok(());
        };
        let set = Set { file: file.clone(), entries: entries.parse()?, lens: (len_min.parse()?, len_max.parse()?) };
        match command.as_str() {
            "fill" => set.fill(rest.first().is_some_and(|word| word == "crash")),
            "start" => set.start(),
            "read" => {
                let number = |at: usize, default| rest.get(at).map_or(Ok(default), |text| text.parse::<u64>());
                set.read(number(0, 64)? as usize, number(1, 500_000)?)
            }
            _ => Err(USAGE.into()),
        }
    }

    /// The entries of one measurement.
    struct Set {
        file: String,
        entries: u64,
        lens: (u64, u64),
    }

    impl Set {
        /// Options of a volume and an index that the entries just fit into.
        fn options(&self) -> StoreOptions {
            let mean = self.lens.0.midpoint(self.lens.1) + 500;
            let size_bytes = (self.entries * mean).next_multiple_of(1 << 20) + (256 << 20);
            let mean_entry_bytes = size_bytes / self.entries;
            StoreOptions { mean_entry_bytes, ..StoreOptions::new(&self.file, size_bytes) }
        }

        fn len(&self, number: u64) -> usize {
            (self.lens.0 + SplitMix64::new(number).next_u64() % (self.lens.1 - self.lens.0 + 1)) as usize
        }

        fn fill(&self, crash: bool) -> Outcome<()> {
            let pool: bytes::Bytes = (0..(2 << 20) / 8)
                .flat_map(|word| SplitMix64::new(word).next_u64().to_le_bytes())
                .collect::<Vec<_>>()
                .into();
            let begun = Instant::now();
            let before = resident_bytes()?;
            let store = Store::open(self.options())?;
            for number in 0..self.entries {
                let mut writer = store.insert(key(number).as_bytes(), head(number), Hints::default())?;
                let from = (SplitMix64::new(number).next_u64() >> 40) as usize % (1 << 20);
                writer.write(pool.slice(from..from + self.len(number)))?;
                block_on(writer.commit())?;
            }
            block_on(store.sync())?;
            let seconds = begun.elapsed().as_secs_f64();
            let growth = resident_bytes()? - before;
            let Stats { entries, written_bytes, admitted_bytes, displaced, index_bytes, .. } = store.stats();
            println!("filled in {seconds:.1} s, {:.0} MB/s", written_bytes as f64 / seconds / 1e6);
            println!("entries {entries}, lost for their address or bucket {displaced}");
            println!(
                "memory: index {:.2} bits an entry, growth of the process {:.2}",
                index_bytes as f64 * 8.0 / entries as f64,
                growth as f64 * 8.0 / entries as f64
            );
            println!(
                "written {written_bytes} for {admitted_bytes}: factor {:.4}",
                written_bytes as f64 / admitted_bytes as f64
            );
            if crash {
                std::process::abort();
            }
            let begun = Instant::now();
            block_on(store.close())?;
            println!("closed in {:.3} s", begun.elapsed().as_secs_f64());
            Ok(())
        }

        fn start(&self) -> Outcome<()> {
            let begun = Instant::now();
            let store = Store::open(self.options())?;
            let opened = begun.elapsed();
            let mut first = None;
            // Among the newest, which are loaded first.
            for number in (1..=self.entries.min(1000)).map(|back| self.entries - back).cycle() {
                if store.stats().loaded {
                    break;
                }
                if first.is_none() && block_on(store.get(key(number).as_bytes()))?.is_some() {
                    first = Some(begun.elapsed());
                }
                if first.is_some() {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            let loaded = begun.elapsed();
            let Stats { entries, recovered_segments, index_bytes, .. } = store.stats();
            let sample = 20_000;
            let mut found = 0;
            for at in 0..sample {
                found += u64::from(self.check(&store, SplitMix64::new(at).next_u64() % self.entries)?);
            }
            let in_ms = |time: Duration| time.as_secs_f64() * 1e3;
            println!(
                "opened {:.1} ms, first hit {:.1} ms, all loaded {:.1} ms; {recovered_segments} segments replayed, index {} MiB",
                in_ms(opened),
                in_ms(first.unwrap_or(loaded)),
                in_ms(loaded),
                index_bytes >> 20
            );
            println!("entries {entries}; of {sample} at random {found} found and right");
            Ok(())
        }

        /// Returns whether an entry exists. Panics if its content is wrong.
        fn check(&self, store: &Store, number: u64) -> Outcome<bool> {
            let Some(reader) = block_on(store.get(key(number).as_bytes()))? else { return Ok(false) };
            let body = block_on(reader.read(0..reader.len()))?.ok_or("a damaged body")?;
            assert!(reader.head() == head(number) && body.len() == self.len(number), "entry {number} is wrong");
            Ok(true)
        }

        fn read(&self, depth: usize, count: u64) -> Outcome<()> {
            let store = Store::open(self.options())?;
            while !store.stats().loaded {
                std::thread::sleep(Duration::from_millis(10));
            }
            let mut event_loop = EventLoop::new(store.attach_thread().pop())?;
            for (name, numbers) in [("hits", 0..self.entries), ("misses", self.entries..self.entries * 2)] {
                let before = store.stats();
                let begun = Instant::now();
                let cpu_begun = cpu_seconds()?;
                let span = numbers.end - numbers.start;
                let gets = stream::iter(0..count).map(|at| {
                    let store = &store;
                    let number = numbers.start + SplitMix64::new(at ^ 0x5eed).next_u64() % span;
                    async move {
                        let Ok(Some(reader)) = store.get(key(number).as_bytes()).await else { return 0 };
                        let body = reader.read(0..reader.len()).await;
                        u64::from(body.is_ok_and(|body| body.is_some()))
                    }
                });
                let found: u64 =
                    run(&mut event_loop, gets.buffer_unordered(depth).fold(0, async |sum, one| sum + one))?;
                let seconds = begun.elapsed().as_secs_f64();
                let cpu = cpu_seconds()? - cpu_begun;
                let after = store.stats();
                let reads = after.reads - before.reads;
                let bytes = after.read_bytes - before.read_bytes;
                println!(
                    "{name}: {count} in {seconds:.2} s, {:.0}/s, {:.2} us of processor each; found {found}; {:.4} reads each, {:.0} bytes a read",
                    count as f64 / seconds,
                    cpu * 1e6 / count as f64,
                    reads as f64 / count as f64,
                    bytes as f64 / reads.max(1) as f64
                );
            }
            Ok(())
        }
    }

    fn key(number: u64) -> String {
        format!("http://entries.example/{number}")
    }

    fn head(number: u64) -> bytes::Bytes {
        format!("HTTP/1.1 200 OK\r\ncontent-type: image/png\r\netag: \"{number:016x}\"\r\ncache-control: max-age=3600\r\n\r\n").into()
    }

    /// Returns the resident memory of this process.
    fn resident_bytes() -> Outcome<u64> {
        let status = fs::read_to_string("/proc/self/statm")?;
        let pages: u64 = status.split_whitespace().nth(1).ok_or("an empty statm")?.parse()?;
        Ok(pages * rustix::param::page_size() as u64)
    }

    /// Runs `future` on this thread, turning its ring between the polls.
    fn run<F: Future>(event_loop: &mut EventLoop, future: F) -> Outcome<F::Output> {
        let mut future = pin!(future);
        let waker = event_loop.waker.clone();
        // A future that was never polled has registered no waker.
        waker.wake_by_ref();
        loop {
            if event_loop.take_woken()
                && let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker))
            {
                return Ok(output);
            }
            if event_loop.turn() {
                event_loop.wait()?;
            }
        }
    }
}
