//! What a reader loses while routes come and go: Figure 27 of the DER paper.
//!
//! Lookups are timed twice in a pair, once while a writer withdraws and announces routes at a steady pace
//! and once while it wakes as often and does nothing, in alternating slices of some milliseconds, so that
//! other load on the machine affects both alike. The reader's CPU time counts, so that a writer on the
//! same core costs only its effect on the caches and on the table. Of the pairs' ratios the median is
//! given, with the interval between two of them that contains the true median with at least 95 %
//! confidence (order statistics; Conover, section 3.2).

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use nilometer_router::{Full, Lookups, Prefix, ServingFib};
use nilometer_stat::ConfidenceInterval;
use serde::Serialize;

use super::addresses::{BURST, Drawn, SplitMix64};
use nilometer_linux::clock::{median, thread_time};

/// Updates a second that are tried.
const PACES: [u32; 3] = [1_000, 10_000, 100_000];
/// CPU time of a slice, and slices of either kind in a pair.
const SLICE: Duration = Duration::from_millis(10);
const SLICES: u32 = 10;
/// Lookups between two looks at the clock.
const TOGETHER: usize = 1 << 14;
/// How long the writer sleeps when it is in time.
const NAP: Duration = Duration::from_millis(1);
/// Seed of the routes that are updated.
const SEED: u64 = 4;

/// The results at one pace.
#[derive(Clone, Debug, Serialize)]
pub struct UnderUpdates {
    /// The requested pace.
    pub updates_per_second: u32,
    /// The pace achieved, in elapsed time, median of the slices.
    pub updates_made_per_second: f64,
    /// Million lookups a second of CPU time without updates, median of the pairs.
    pub mlookups_alone: f64,
    /// The same with updates.
    pub mlookups: f64,
    /// What the second is less than the first, in per cent, median of the pairs.
    pub loss_percent: f64,
    /// The lower end of its interval.
    pub loss_percent_low: f64,
    /// The upper end.
    pub loss_percent_high: f64,
}

/// Times a reader at every pace, in `pairs` pairs.
///
/// # Errors
/// When there is no place for a reader.
pub fn time_under_updates<A: Drawn>(
    table: &mut dyn ServingFib<A>,
    prefixes: &[Prefix<A>],
    addresses: &[A],
    pairs: u32,
) -> Result<Vec<UnderUpdates>> {
    let mut reader = table.reader().ok_or_else(|| anyhow!("no place for a reader"))?;
    let mut writer = Writer { table, prefixes, stream: SplitMix64::new(SEED) };
    let mut times = Vec::new();
    for pace in PACES {
        let (mut alone, mut under, mut losses) = (Vec::new(), Vec::new(), Vec::new());
        let mut made = Vec::new();
        for pair in 0..pairs {
            let mut both = [(0.0, 0.0); 2];
            for slice in pair..pair + SLICES {
                for turn in [slice % 2, (slice + 1) % 2] {
                    let pace = if turn == 0 { 0 } else { pace };
                    let (slice, kept) = slice_under(&mut *reader, addresses, &mut writer, pace)?;
                    let sums = &mut both[turn as usize];
                    *sums = (sums.0 + slice.0, sums.1 + slice.1);
                    made.extend((turn == 1).then_some(kept));
                }
            }
            let [without, with] = both.map(|(lookups, seconds)| lookups / seconds / 1e6);
            alone.push(without);
            under.push(with);
            losses.push((1.0 - with / without) * 100.0);
        }
        let [loss_percent_low, loss_percent_high] =
            ConfidenceInterval::of_median(&losses, 0.95).expect("pairs of rounds").ends();
        times.push(UnderUpdates {
            updates_per_second: pace,
            updates_made_per_second: median(made),
            mlookups_alone: median(alone),
            mlookups: median(under),
            loss_percent: median(losses),
            loss_percent_low,
            loss_percent_high,
        });
    }
    Ok(times)
}

/// Lookups and seconds of a slice while another thread changes the table, and the pace that it kept.
fn slice_under<A: Drawn>(
    reader: &mut dyn Lookups<A>,
    addresses: &[A],
    writer: &mut Writer<'_, A>,
    pace: u32,
) -> Result<((f64, f64), f64)> {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let flaps = scope.spawn(|| writer.flap(pace, &done));
        let looked_up = look_up(reader, addresses);
        done.store(true, Ordering::Relaxed);
        let made = flaps.join().map_err(|_| anyhow!("the writer stopped"))?;
        Ok((looked_up, made))
    })
}

/// Lookups of a slice, and the seconds of this thread's CPU time that they took.
fn look_up<A: Drawn>(reader: &mut dyn Lookups<A>, addresses: &[A]) -> (f64, f64) {
    let mut next_hops = [None; BURST];
    let (begun, mut lookups) = (thread_time(), 0);
    for some in addresses.chunks_exact(TOGETHER).cycle() {
        for burst in some.chunks_exact(BURST) {
            reader.look_up(burst, &mut next_hops);
            black_box(&next_hops);
        }
        lookups += TOGETHER;
        let taken = thread_time() - begun;
        if taken >= SLICE {
            return (lookups as f64, taken.as_secs_f64());
        }
    }
    unreachable!("the addresses have no end")
}

/// The writer of the table.
struct Writer<'a, A: Drawn> {
    table: &'a mut dyn ServingFib<A>,
    prefixes: &'a [Prefix<A>],
    stream: SplitMix64,
}

impl<A: Drawn> Writer<'_, A> {
    /// Withdraws and announces routes at a pace until `done`, with every route in its place at the
    /// end; returns the pace that it kept.
    fn flap(&mut self, pace: u32, done: &AtomicBool) -> f64 {
        let (begun, mut updates) = (Instant::now(), 0u64);
        while !done.load(Ordering::Relaxed) {
            let due = begun.elapsed().as_secs_f64() * f64::from(pace);
            while (updates as f64) < due && !done.load(Ordering::Relaxed) {
                let fraction = u128::from(self.stream.output());
                let number = (fraction * self.prefixes.len() as u128) >> 64;
                let prefix = self.prefixes[number as usize];
                if let Some(next) = at_last(|| self.table.remove(prefix)) {
                    at_last(|| self.table.insert(prefix, next));
                }
                updates += 2;
            }
            thread::sleep(NAP);
        }
        updates as f64 / begun.elapsed().as_secs_f64()
    }
}

/// Repeats a change until readers have passed and there is room for it.
pub fn at_last<T>(mut change: impl FnMut() -> Result<T, Full>) -> T {
    loop {
        match change() {
            Ok(made) => return made,
            Err(Full) => thread::yield_now(),
        }
    }
}
