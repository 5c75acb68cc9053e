//! Forwarding tables, timed on one table of prefixes and checked against each other.
//!
//! The tables are in memory together and take turns, round by round, so that a disturbance of the
//! machine affects all of them; the median of each table's rounds counts. A lookup's time is the CPU
//! time of its thread. Updates are timed while another thread looks up without a pause: what they
//! replace can only be reused when that reader has passed, and that is part of their price. Tables
//! of other implementations take their turns in a program of their own (`peer.rs`).

use std::hint::black_box;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use nilometer_router::prefix::Malformed;
use nilometer_router::{Engine, Lookups, NextHop, Prefix, Routed, ServingFib};

use super::addresses::{BURST, Drawn, SplitMix64, drawn, random};
pub use super::fib_times::{EngineTimes, FibTimes};
use super::peer::Peer;
use super::prefixes::{Family, Prefixes, read_prefixes};
use super::under_updates::{at_last, time_under_updates};
use nilometer_linux::clock::{median, thread_time};
use nilometer_linux::pages::ask_for_large_pages;

/// Passes over the addresses in one round.
const PASSES: usize = 2;
/// Withdrawals at most, each with an announcement behind it.
const UPDATES: usize = 100_000;
/// CPU time after which no more are begun: a table of few and short prefixes may take long for each.
const UPDATES_TIME: Duration = Duration::from_millis(500);
/// Withdrawals between two looks at the clock.
const UPDATES_TOGETHER: usize = 8;
/// Seed of the routes that are updated.
const UPDATES_SEED: u64 = 3;
/// Next hops there are.
const NEXT_HOPS: usize = 64;

/// What is to be timed.
#[derive(Clone, Debug)]
pub struct Options {
    /// The file of prefixes.
    pub table: PathBuf,
    /// Which of them.
    pub family: Family,
    /// Rounds of which the median counts.
    pub rounds: u32,
    /// The tables; if empty, all that support the family.
    pub engines: Vec<Engine>,
    /// A program with tables of others.
    pub peer: Option<PathBuf>,
    /// Pairs of measurements with and without updates; 0 for no such measurements.
    pub pairs_under_updates: u32,
}

/// Times all tables on the prefixes of a file.
///
/// # Errors
/// When the file cannot be read, a line is not a prefix, or there is none of the family.
pub fn time_family(options: &Options) -> Result<FibTimes> {
    match options.family {
        Family::V4 => time_all::<u32>(options, 4),
        Family::V6 => time_all::<u128>(options, 6),
    }
}

/// An engine's name and its table.
type Table<A> = (&'static str, Box<dyn ServingFib<A>>);

fn time_all<A: Drawn + Routed>(options: &Options, family: u8) -> Result<FibTimes>
where
    Prefix<A>: std::str::FromStr<Err = Malformed> + std::fmt::Display,
{
    let Prefixes { prefixes, skipped } = read_prefixes::<A>(&options.table)?;
    let (mut tables, load_seconds) = load_tables(options, &prefixes)?;
    let start = |program: &PathBuf| Peer::start(program, prefixes.iter());
    let mut peer = options.peer.as_ref().map(start).transpose()?;
    let sets = [random::<A>(), drawn(&prefixes)];
    let rates = lookup_rates(&tables, &sets, options.rounds, peer.as_mut())?;
    let peers = peer.map(Peer::finish).transpose()?.unwrap_or_default();
    let mut engines = Vec::new();
    for (((name, table), rates), load_seconds) in tables.iter_mut().zip(rates).zip(load_seconds) {
        let mut reader = table.reader().ok_or_else(|| anyhow!("{name}: no place for a reader"))?;
        let sums = sets.each_ref().map(|set| {
            let next_hops = look_up(&mut *reader, set);
            next_hops.iter().flatten().map(|next| u64::from(next.0)).sum()
        });
        drop(reader);
        let [checksum_random, checksum_prefix] = sums;
        let [mlookups_random, mlookups_prefix] = rates;
        let updates_per_second = update_rate(&mut **table, &prefixes, &sets[1])?;
        let pairs = options.pairs_under_updates;
        engines.push(EngineTimes {
            engine: (*name).to_owned(),
            bytes_per_prefix: table.bytes() as f64 / table.len() as f64,
            load_seconds: Some(load_seconds),
            mlookups_random,
            mlookups_prefix,
            updates_per_second,
            checksum_random,
            checksum_prefix,
            under_updates: match pairs {
                0 => Vec::new(),
                pairs => time_under_updates(&mut **table, &prefixes, &sets[1], pairs)?,
            },
        });
    }
    Ok(FibTimes { family, prefixes: prefixes.len(), skipped, engines, peers })
}

/// The tables with all prefixes in them, and the CPU time that each took to load.
fn load_tables<A: Drawn + Routed>(
    options: &Options,
    prefixes: &[Prefix<A>],
) -> Result<(Vec<Table<A>>, Vec<f64>)> {
    let engines = match options.engines.is_empty() {
        true => A::ENGINES.to_vec(),
        false => options.engines.clone(),
    };
    let (mut tables, mut load_seconds) = (Vec::new(), Vec::new());
    for engine in engines {
        let mut table = engine.table::<A>(prefixes.len())?;
        let begun = thread_time();
        let routes = prefixes.iter().enumerate();
        let mut routes = routes.map(|(number, prefix)| (*prefix, next_hop(number)));
        table.load(&mut routes).with_context(|| engine.name())?;
        load_seconds.push((thread_time() - begun).as_secs_f64());
        ask_for_large_pages(table.span());
        tables.push((engine.name(), table));
    }
    Ok((tables, load_seconds))
}

/// The next hop of the `number`-th prefix: those of neighbours differ.
fn next_hop(number: usize) -> NextHop {
    NextHop(1 + (number % NEXT_HOPS) as u16)
}

fn look_up<A: Drawn>(reader: &mut dyn Lookups<A>, set: &[A]) -> Vec<Option<NextHop>> {
    let mut next_hops = vec![None; set.len()];
    for (burst, next_hops) in set.chunks(BURST).zip(next_hops.chunks_mut(BURST)) {
        reader.look_up(burst, next_hops);
    }
    next_hops
}

/// Of each table the millions of lookups a second in each set, medians.
fn lookup_rates<A: Drawn>(
    tables: &[Table<A>],
    sets: &[Vec<A>; 2],
    rounds: u32,
    mut peer: Option<&mut Peer>,
) -> Result<Vec<[f64; 2]>> {
    let mut rates: Vec<[Vec<f64>; 2]> = vec![Default::default(); tables.len()];
    for _ in 0..rounds {
        for ((name, table), rates) in tables.iter().zip(&mut rates) {
            let mut reader =
                table.reader().ok_or_else(|| anyhow!("{name}: no place for a reader"))?;
            for (set, rates) in sets.iter().zip(rates) {
                rates.push(lookup_rate(&mut *reader, set));
            }
        }
        if let Some(peer) = &mut peer {
            peer.round()?;
        }
    }
    Ok(rates.into_iter().map(|sets| sets.map(median)).collect())
}

fn lookup_rate<A: Drawn>(reader: &mut dyn Lookups<A>, set: &[A]) -> f64 {
    let mut next_hops = [None; BURST];
    let begun = thread_time();
    for _ in 0..PASSES {
        for burst in set.chunks_exact(BURST) {
            reader.look_up(burst, &mut next_hops);
            black_box(&next_hops);
        }
    }
    (set.len() * PASSES) as f64 / (thread_time() - begun).as_secs_f64() / 1e6
}

/// Withdrawals and announcements a second of the writer's CPU time; every route is as before.
fn update_rate<A: Drawn>(
    table: &mut dyn ServingFib<A>,
    prefixes: &[Prefix<A>],
    set: &[A],
) -> Result<f64> {
    let reader = table.reader().ok_or_else(|| anyhow!("no place for a reader"))?;
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let looks_up = scope.spawn(|| {
            let mut reader = reader;
            while !done.load(Ordering::Relaxed) {
                lookup_rate(&mut *reader, &set[..1 << 14]);
            }
        });
        let mut stream = SplitMix64::new(UPDATES_SEED);
        let begun = thread_time();
        let mut updates = 0u64;
        for step in 0..UPDATES {
            if step % UPDATES_TOGETHER == 0 && thread_time() - begun > UPDATES_TIME {
                break;
            }
            let number = (u128::from(stream.output()) * prefixes.len() as u128) >> 64;
            let prefix = prefixes[number as usize];
            if let Some(next) = at_last(|| table.remove(prefix)) {
                at_last(|| table.insert(prefix, next));
                updates += 2;
            }
        }
        let seconds = (thread_time() - begun).as_secs_f64();
        done.store(true, Ordering::Relaxed);
        looks_up.join().map_err(|_| anyhow!("the reader has stopped"))?;
        Ok(updates as f64 / seconds)
    })
}
