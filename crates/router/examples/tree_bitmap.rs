//! What Tree Bitmap costs under a whole routing table, alone and while routes change.
//!
//! `cargo run --release -p nilometer-router --example tree_bitmap PREFIXES.gz [PAIRS]`: bytes for each
//! prefix, updates a second, lookups a second by random addresses and by addresses of the prefixes, and
//! then the DER paper's Figure 27: the rate of a reader while a writer makes 1,000, 10,000 and 100,000
//! updates a second. The reader's CPU time is measured in PAIRS (11) pairs, one run without updates
//! and one with them; the median, least and greatest ratios are printed.

use std::fs;
use std::hint::black_box;
use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use flate2::read::GzDecoder;
use nilometer_router::{Fib, NextHop, Prefix, Reader, TreeBitmap};
use nilometer_stat::Rng;

/// Addresses of a measurement, and lookups of it.
const ADDRESSES: usize = 1 << 20;
const LOOKUPS: usize = 1 << 23;
const BATCH: usize = 64;

/// CPU time of this thread, nanoseconds.
fn cpu_nanos() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    text.split(' ').next().and_then(|n| n.parse().ok()).expect("a number")
}

fn any_next(rng: &mut Rng) -> NextHop {
    NextHop(1 + rng.below(64) as u16)
}

/// Millions of lookups in a second of this thread's CPU time.
fn rate(reader: &Reader<u32>, addresses: &[u32]) -> f64 {
    let mut next_hops = [None; BATCH];
    let begun = cpu_nanos();
    for batch in addresses.chunks_exact(BATCH).cycle().take(LOOKUPS / BATCH) {
        reader.lookup(batch, &mut next_hops);
        black_box(&next_hops);
    }
    LOOKUPS as f64 * 1e3 / (cpu_nanos() - begun) as f64
}

/// Withdraws and announces routes, an update per `every`, until `done`; returns the number of updates.
fn flap(
    table: &mut TreeBitmap<u32>,
    routes: &[Prefix<u32>],
    every: Duration,
    done: &AtomicBool,
) -> u64 {
    let mut rng = Rng::new(3, 1, 0);
    let mut updates = 0;
    let begun = Instant::now();
    while !done.load(Ordering::Relaxed) {
        let due = begun.elapsed().as_nanos() / every.as_nanos();
        while u128::from(updates) < due {
            let prefix = routes[rng.below(routes.len() as u64) as usize];
            if table.remove(prefix).expect("room").is_none() {
                table.insert(prefix, any_next(&mut rng)).expect("room");
            }
            updates += 1;
        }
        thread::sleep(Duration::from_micros(200));
    }
    updates
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().expect("the path of a file of prefixes, gzip");
    let pairs: usize = arguments.next().map_or(11, |text| text.parse().expect("a number"));
    let mut text = String::new();
    let packed = fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    GzDecoder::new(&packed[..]).read_to_string(&mut text).expect("text");
    let mut routes: Vec<Prefix<u32>> = text.lines().filter_map(|line| line.parse().ok()).collect();

    let mut rng = Rng::new(1, 1, 0);
    let mut table = TreeBitmap::<u32>::new(2_000_000).expect("room");
    let begun = Instant::now();
    for &prefix in &routes {
        table.insert(prefix, any_next(&mut rng)).expect("room");
    }
    let built = begun.elapsed().as_secs_f64();
    let bytes = table.bytes() as f64 / table.len() as f64;
    println!("{} prefixes, {bytes:.2} bytes each, inserted in {built:.2} s", table.len());

    rng.shuffle(&mut routes);
    let begun = cpu_nanos();
    for &prefix in &routes[..400_000] {
        table.remove(prefix).expect("room");
        table.insert(prefix, any_next(&mut rng)).expect("room");
    }
    println!("updates: {:.1} M/s", 800_000.0 * 1e3 / (cpu_nanos() - begun) as f64);

    let random: Vec<u32> = (0..ADDRESSES).map(|_| rng.next_u64() as u32).collect();
    let drawn: Vec<u32> = (0..ADDRESSES)
        .map(|_| {
            let prefix = routes[rng.below(routes.len() as u64) as usize];
            let host = rng.next_u64() as u32;
            prefix.address() | host.checked_shr(prefix.length()).unwrap_or(0)
        })
        .collect();
    let reader = table.reader().expect("a place");
    for (name, addresses) in [("random", &random), ("prefix-drawn", &drawn)] {
        let mut rates: Vec<f64> = (0..pairs).map(|_| rate(&reader, addresses)).collect();
        println!("lookups, {name}: {:.1} M/s", median(&mut rates));
    }
    for per_second in [1_000, 10_000, 100_000] {
        let mut ratios = Vec::new();
        let mut made = 0.0;
        for _ in 0..pairs {
            let alone = rate(&reader, &drawn);
            let done = AtomicBool::new(false);
            let every = Duration::from_secs(1) / per_second;
            let begun = Instant::now();
            let under = thread::scope(|scope| {
                let writer = scope.spawn(|| flap(&mut table, &routes, every, &done));
                let under = rate(&reader, &drawn);
                done.store(true, Ordering::Relaxed);
                made += writer.join().expect("sound") as f64 / begun.elapsed().as_secs_f64();
                under
            });
            ratios.push(under / alone);
        }
        let middle = median(&mut ratios);
        let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
        println!(
            "{per_second} updates/s asked, {:.0} made: rate x {middle:.3} ({least:.3} to {most:.3})",
            made / pairs as f64
        );
    }
}
