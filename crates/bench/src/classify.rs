//! The classifier, timed on one set of filters and checked against the linear search.
//!
//! Both classify every header, and the sums of their answers must be the same, also after all filters
//! have been updated. Rates are of the CPU time of one thread. The linear search only provides the
//! answers; it is not timed and may use all cores.

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context, Result, anyhow, bail};
use nilometer_router::classifier::classbench::{self, Malformed};
use nilometer_router::classifier::{FlowCache, Octet};
use nilometer_router::{Classifier, ClassifierLinear, Key, Ports, Rule, RuleId};
use serde::Serialize;

use super::addresses::SplitMix64;
use super::headers;
use nilometer_files::document::bounded::{LINES_BYTES_MAX, read_text};
use nilometer_linux::clock::{median, thread_time};
use nilometer_routerd::filter::ClassifierName;

/// Headers that are classified in one call, as many as a driver delivers at once.
const BURST: usize = 64;
/// Filters taken out, each replaced at once; that many twice, and even, are the updates of one round.
const UPDATES: usize = 50_000;
/// Seed of the filters that are updated.
const UPDATES_SEED: u64 = 5;
/// Most filters of a set.
const RULES_MAX: usize = 1 << 20;
/// Flows that the cache has room for.
const CACHED_FLOWS: usize = 1 << 16;

/// What is timed.
type Searched = dyn Classifier<u32> + Send;

/// What is to be timed.
#[derive(Clone, Debug)]
pub struct Options {
    /// The file of filters.
    pub rules: PathBuf,
    /// The file of headers, if they are not to be drawn.
    pub trace: Option<PathBuf>,
    /// Rounds of which the median counts.
    pub rounds: u32,
    /// Which classifier.
    pub classifier: ClassifierName,
    /// Whether the filters' flags are left open.
    pub without_flags: bool,
    /// Whether the flow cache is timed too.
    pub with_cache: bool,
}

/// The results.
#[derive(Clone, Debug, Serialize)]
pub struct ClassifyTimes {
    /// Which classifier.
    pub classifier: ClassifierName,
    /// Filters.
    pub rules: usize,
    /// Headers.
    pub headers: usize,
    /// Different ones among them.
    pub distinct_headers: usize,
    /// Million headers a second of CPU time, without a flow cache.
    pub mheaders_per_second: f64,
    /// The same as nanoseconds a header.
    pub ns_per_header: f64,
    /// The same with a flow cache, if it was requested.
    pub mheaders_per_second_flow_cache: Option<f64>,
    /// Insertions and removals a second of CPU time.
    pub updates_per_second: f64,
    /// CPU microseconds that all but a thousandth of the pairs of a removal and an insertion keep to.
    pub update_p999_us: f64,
    /// CPU seconds to insert all filters and to arrange them.
    pub load_seconds: f64,
    /// Bytes of what is searched.
    pub bytes: usize,
    /// Wrapping sum over the headers of 1 and the place of the filter in the file; 0 for none.
    pub checksum: u64,
    /// The same after the updates.
    pub checksum_after_updates: u64,
    /// The same by linear search.
    pub checksum_linear: u64,
}

impl ClassifyTimes {
    /// Whether all sums are the same.
    pub fn agree(&self) -> bool {
        self.checksum == self.checksum_linear && self.checksum_after_updates == self.checksum
    }
}

/// Times the classifier on the filters of a file.
///
/// # Errors
/// When a file cannot be read, a line is malformed, or there is nothing in it.
pub fn time_set(options: &Options) -> Result<ClassifyTimes> {
    let mut rules = read(&options.rules, classbench::read_rules)?;
    if rules.len() > RULES_MAX {
        bail!("{}: more than {RULES_MAX} filters; cut it", options.rules.display());
    }
    if options.without_flags {
        rules.iter_mut().for_each(|rule| rule.flags = Octet::ANY);
    }
    let keys = match &options.trace {
        Some(trace) => read(trace, classbench::read_trace)?,
        None => headers::drawn(&rules),
    };
    let mut classifier = options.classifier.classifier::<u32>(rules.len() as u32);
    let classifier = &mut *classifier;
    let begun = thread_time();
    fill(classifier, &rules)?;
    classifier.settle();
    let load_seconds = (thread_time() - begun).as_secs_f64();
    let bytes = classifier.bytes();
    let checksum = classify(&keys, |keys, found| classifier.classify_batch(keys, found));
    let rate = rate(&keys, options.rounds, |keys, found| classifier.classify_batch(keys, found));
    let cached = options.with_cache.then(|| rate_cached(classifier, &keys, options.rounds));
    let (updates_per_second, update_p999_us) = time_updates(classifier, options.rounds)?;
    Ok(ClassifyTimes {
        classifier: options.classifier,
        rules: rules.len(),
        headers: keys.len(),
        distinct_headers: headers::distinct(&keys),
        mheaders_per_second: rate,
        ns_per_header: 1e3 / rate,
        mheaders_per_second_flow_cache: cached,
        updates_per_second,
        update_p999_us,
        load_seconds,
        bytes,
        checksum,
        checksum_after_updates: classify(&keys, |keys, found| {
            classifier.classify_batch(keys, found);
        }),
        checksum_linear: classify_linear(&rules, &keys)?,
    })
}

fn read<T>(path: &Path, parse: fn(&str) -> Result<Vec<T>, Malformed>) -> Result<Vec<T>> {
    let shown = path.display();
    let text = read_text(path, LINES_BYTES_MAX)?;
    let found = parse(&text).map_err(|malformed| anyhow!("{shown}: {malformed}"))?;
    if found.is_empty() {
        bail!("{shown}: empty; give a file in ClassBench's format");
    }
    Ok(found)
}

fn fill(classifier: &mut (impl Classifier<u32> + ?Sized), rules: &[Rule<u32>]) -> Result<()> {
    for (id, rule) in rules.iter().enumerate() {
        classifier.insert(RuleId(id as u32), *rule)?;
    }
    Ok(())
}

/// The sum of the answers for all headers.
fn classify(keys: &[Key<u32>], mut search: impl FnMut(&[Key<u32>], &mut [Option<RuleId>])) -> u64 {
    let mut found = [None; BURST];
    let mut sum = 0u64;
    for keys in keys.chunks(BURST) {
        search(keys, &mut found[..keys.len()]);
        let places = found[..keys.len()].iter().flatten().map(|id| 1 + u64::from(id.0));
        sum = places.fold(sum, u64::wrapping_add);
    }
    sum
}

/// The same by linear search, with as many threads as there are cores.
fn classify_linear(rules: &[Rule<u32>], keys: &[Key<u32>]) -> Result<u64> {
    let mut linear = ClassifierLinear::<u32>::new(rules.len() as u32);
    fill(&mut linear, rules)?;
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let linear = &linear;
    thread::scope(|scope| {
        let shares = keys.chunks(keys.len().div_ceil(threads));
        let sums: Vec<_> = shares
            .map(|keys| {
                scope.spawn(|| classify(keys, |keys, found| linear.classify_batch(keys, found)))
            })
            .collect();
        sums.into_iter().try_fold(0u64, |sum, share| {
            let share = share.join().map_err(|_| anyhow!("the linear search has stopped"))?;
            Ok(sum.wrapping_add(share))
        })
    })
}

/// Million headers a second of CPU time, the median of `rounds`; a short trace goes round.
fn rate(
    keys: &[Key<u32>],
    rounds: u32,
    mut search: impl FnMut(&[Key<u32>], &mut [Option<RuleId>]),
) -> f64 {
    let passes = headers::HEADERS.div_ceil(keys.len());
    let mut found = [None; BURST];
    let mut round = || {
        let begun = thread_time();
        for _ in 0..passes {
            for keys in keys.chunks(BURST) {
                search(keys, &mut found[..keys.len()]);
                black_box(&found);
            }
        }
        (passes * keys.len()) as f64 / (thread_time() - begun).as_secs_f64() / 1e6
    };
    median((0..rounds).map(|_| round()).collect())
}

fn rate_cached(classifier: &Searched, keys: &[Key<u32>], rounds: u32) -> f64 {
    let mut cache = FlowCache::new(CACHED_FLOWS);
    rate(keys, rounds, |keys, found| cache.classify_batch(classifier, keys, found))
}

/// Updates a second of CPU time, the median of `rounds`, and the time within which 999 of 1,000 pairs of
/// them finish, in microseconds. A pair takes a filter out and puts another in its place, with one
/// source port; the next pair takes that out and puts the first one back, so that all are as before.
/// Reading the clock takes longer than an update, so rounds and single pairs are timed separately.
fn time_updates(classifier: &mut Searched, rounds: u32) -> Result<(f64, f64)> {
    let mut stream = SplitMix64::new(UPDATES_SEED);
    let rules = classifier.len() as u128;
    let mut away: Option<(RuleId, Rule<u32>)> = None;
    let mut update = |classifier: &mut Searched| -> Result<()> {
        let drawn = stream.output();
        let (id, back) = match away.take() {
            Some((id, rule)) => (id, Some(rule)),
            None => (RuleId(((u128::from(drawn) * rules) >> 64) as u32), None),
        };
        let out = classifier.remove(id).context("every filter is there")?;
        let rule = back.unwrap_or_else(|| {
            away = Some((id, out));
            Rule { source_ports: Ports::exact(drawn as u16), ..out }
        });
        Ok(classifier.insert(id, rule)?)
    };
    let mut rates = Vec::new();
    for _ in 0..rounds {
        let begun = thread_time();
        for _ in 0..UPDATES {
            update(classifier)?;
        }
        rates.push(2.0 * UPDATES as f64 / (thread_time() - begun).as_secs_f64());
    }
    let mut pairs = Vec::new();
    for _ in 0..UPDATES {
        let begun = thread_time();
        update(classifier)?;
        pairs.push(thread_time() - begun);
    }
    pairs.sort_unstable();
    Ok((median(rates), pairs[UPDATES - UPDATES / 1_000].as_secs_f64() * 1e6))
}
