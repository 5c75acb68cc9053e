//! The specification of a fault box, as a user writes it: `rate=50Mbit,delay=20ms,loss=0.01,delay_back=5ms`.
//!
//! A key holds for both directions; the same key with `_back` replaces it for packets to the clients. Keys that name
//! packets or times have lists: `lose=3+10-12` (numbers from 0), `cut=5s-8s+20s-21s` (since the traffic began).
//! `delay_trace=FILE` is read by [`FaultSpec::load`]: lines `SECONDS,DELAY_MS`, by rising times; the last delay stays.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use anyhow::Result;
use nilometer_report::format::percent;
use nilometer_sim::fault::{Faults, GilbertElliott, JitterLaw, Timetable};
use nilometer_sim::quantity::{rate, rate_text, size, span, span_text};
use nilometer_wire::Span;
use serde::{Deserialize, Serialize};

use super::trace::{DELAY_MAX, Trace};

/// Bytes that may wait for a link with a rate, by default.
const QUEUE_BYTES: u64 = 1_000_000;
/// How long a reordered packet is held back, by default.
const REORDER_BY: Span = Span::from_nanos(1_000_000);
/// The longest that a packet may stay.
const STAY_MAX: Span = Span::from_nanos(60_000_000_000);
/// The ending of keys that apply only to the way back.
const BACK: &str = "_back";
const KEYS: &str = "rate, queue, delay, delay_trace, jitter, jitter_law, loss, burst_loss, lose, cut, duplicate, \
                    reorder, reorder_by, corrupt";
/// The most ranges of packets, and cuts: each packet is compared with each of them.
const LIST_MAX: usize = 1_024;

/// Faults to the servers, then to the clients.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FaultSpec {
    /// Faults by direction.
    pub ways: [Faults; 2],
    /// What happens at stated packets and times, by direction.
    pub timetables: [Timetable; 2],
    traces: [Option<Trace>; 2],
    text: String,
}

impl FaultSpec {
    /// Reads the traces that it names, relative to `folder`.
    ///
    /// # Errors
    /// What is wrong with one, and in which line.
    pub fn load(&mut self, folder: &Path) -> Result<()> {
        for (trace, timetable) in self.traces.iter_mut().zip(&mut self.timetables) {
            let Some(trace) = trace else { continue };
            timetable.delays = trace.read(folder)?;
        }
        self.check_jitter().and_then(|()| self.check_stay()).map_err(anyhow::Error::msg)
    }

    /// The same specification, with unique names for its traces, and the contents of the files of these names.
    pub fn with_traces_kept(&self, files: &mut Vec<(String, String)>) -> FaultSpec {
        let mut keep = |pair: &str| {
            let way = match pair.split_once('=').map(|(key, _)| key.trim()) {
                Some("delay_trace") => 0,
                Some("delay_trace_back") => 1,
                _ => return pair.to_owned(),
            };
            let name = format!("trace-{}.csv", files.len() + 1);
            let trace = self.traces[way].as_ref().expect("a trace that the text names");
            files.push((name.clone(), trace.text.clone()));
            format!("delay_trace{}={name}", ["", BACK][way])
        };
        let text = self.text.split(',').map(&mut keep).collect::<Vec<_>>().join(",");
        FaultSpec { text, ..self.clone() }
    }

    /// Faults and timetable of both directions, as a fault box takes them.
    pub fn both(&self) -> [(Faults, Timetable); 2] {
        [0, 1].map(|way| (self.ways[way], self.timetables[way].clone()))
    }

    /// Checks that uniform jitter does not exceed the least delay, which is unknown while a trace is yet to be
    /// read.
    fn check_jitter(&self) -> Result<(), String> {
        let ways = self.ways.iter().zip(&self.timetables).zip(&self.traces);
        for ((faults, timetable), trace) in ways {
            let traced = timetable.delays.iter().map(|step| step.1).min();
            let is_unread = trace.is_some() && traced.is_none();
            let least = traced.unwrap_or(faults.delay);
            if faults.jitter_law == JitterLaw::Uniform && faults.jitter > least && !is_unread {
                return Err(format!(
                    "jitter {} exceeds the delay {}, so that packets would leave before they came",
                    span_text(faults.jitter),
                    span_text(least)
                ));
            }
        }
        Ok(())
    }

    fn check_stay(&self) -> Result<(), String> {
        let stay = self.longest_stay();
        if stay > STAY_MAX {
            return Err(format!(
                "a packet could stay for {:.0} s until the queue is empty, and the most is {}; give a higher rate or \
                 a shorter queue (queue=100kB)",
                stay.as_secs_f64(),
                span_text(STAY_MAX)
            ));
        }
        Ok(())
    }

    /// The longest that a packet may stay in the box.
    pub fn longest_stay(&self) -> Span {
        let of = |(faults, timetable): (&Faults, &Timetable)| {
            let queued =
                faults.rate.map_or(Span::ZERO, |rate| rate.span_of(faults.queue_bytes + 65_536));
            let traced = timetable.delays.iter().map(|step| step.1).max().unwrap_or(Span::ZERO);
            let varies = faults.jitter_law.most(faults.jitter);
            queued + faults.delay.max(traced) + varies + faults.reorder_by
        };
        self.ways.iter().zip(&self.timetables).map(of).max().unwrap_or(Span::ZERO)
    }
}

impl fmt::Display for FaultSpec {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

impl From<FaultSpec> for String {
    fn from(spec: FaultSpec) -> String {
        spec.text
    }
}

impl TryFrom<String> for FaultSpec {
    type Error = String;

    fn try_from(text: String) -> Result<FaultSpec, String> {
        text.parse()
    }
}

impl FromStr for FaultSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<FaultSpec, String> {
        let usual =
            Faults { queue_bytes: QUEUE_BYTES, reorder_by: REORDER_BY, ..Faults::default() };
        let usual = Way { faults: usual, timetable: Timetable::default(), trace: None };
        let mut ways = [usual.clone(), usual];
        let mut seen: Vec<&str> = Vec::new();
        let pairs: Vec<&str> = text.split(',').filter(|pair| !pair.trim().is_empty()).collect();
        // Keys for the way back are applied last, whatever their order.
        for is_back in [false, true] {
            for pair in &pairs {
                let (key, value) = pair.split_once('=').ok_or_else(|| {
                    format!(
                        "{:?} is not of the form KEY=VALUE; write for instance rate=50Mbit,delay=20ms",
                        pair.trim()
                    )
                })?;
                let (key, value) = (key.trim(), value.trim());
                if key.ends_with(BACK) != is_back {
                    continue;
                }
                if seen.contains(&key) {
                    return Err(format!("{key} is said twice"));
                }
                seen.push(key);
                let name = key.strip_suffix(BACK).unwrap_or(key);
                for way in &mut ways[usize::from(is_back)..] {
                    set(way, name, value).map_err(|why| format!("{key}={value}: {why}"))?;
                }
            }
        }
        for Way { faults, .. } in &ways {
            if faults.reorder > 0.0 && faults.reorder_by == Span::ZERO {
                return Err(
                    "reorder_by is not a time, so that nothing would be reordered".to_owned()
                );
            }
        }
        let [forth, back] = ways;
        let spec = FaultSpec {
            ways: [forth.faults, back.faults],
            timetables: [forth.timetable, back.timetable],
            traces: [forth.trace, back.trace],
            text: text.to_owned(),
        };
        spec.check_jitter()?;
        spec.check_stay()?;
        Ok(spec)
    }
}

/// One direction while it is read.
#[derive(Clone, Debug)]
struct Way {
    faults: Faults,
    timetable: Timetable,
    trace: Option<Trace>,
}

fn set(way: &mut Way, key: &str, value: &str) -> Result<(), String> {
    let Way { faults, timetable, trace } = way;
    match key {
        "lose" => timetable.losses = list(value, packets)?,
        "cut" => timetable.cuts = list(value, cut)?,
        "delay_trace" => *trace = Some(Trace::named(value)),
        "jitter_law" => {
            let names = JitterLaw::ALL.map(JitterLaw::name).join(", ");
            let law = JitterLaw::from_name(value);
            faults.jitter_law = law.ok_or_else(|| format!("the laws are {names}"))?;
        }
        "rate" => faults.rate = Some(rate(value)?),
        "queue" => faults.queue_bytes = size(value)?,
        "delay" => faults.delay = time(value)?,
        "jitter" => faults.jitter = time(value)?,
        "reorder_by" => faults.reorder_by = time(value)?,
        "loss" => faults.loss = probability(value)?,
        "duplicate" => faults.duplicate = probability(value)?,
        "reorder" => faults.reorder = probability(value)?,
        "corrupt" => faults.corrupt = probability(value)?,
        "burst_loss" => {
            let why = "give two probabilities P:R, of a burst to begin and to end at a packet";
            let (worsens, recovers) = value.split_once(':').ok_or(why)?;
            let (worsens, recovers) = (probability(worsens)?, probability(recovers)?);
            if recovers == 0.0 && worsens > 0.0 {
                return Err("a burst that never ends loses everything; give R above 0".to_owned());
            }
            let channel = GilbertElliott { worsens, recovers, loss_good: 0.0, loss_bad: 1.0 };
            faults.bursts = (worsens > 0.0).then_some(channel);
        }
        _ => {
            return Err(format!(
                "there is no such fault; the keys are {KEYS}, each also with {BACK}"
            ));
        }
    }
    Ok(())
}

/// The items of a list, which have `+` between them.
fn list<T>(value: &str, item: fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    let items: Vec<&str> = value.split('+').collect();
    if items.len() > LIST_MAX {
        return Err(format!("a list has {LIST_MAX} items at most"));
    }
    items.into_iter().map(item).collect()
}

/// A packet, or the first and the last of a range.
fn packets(text: &str) -> Result<[u64; 2], String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.trim().parse(), last.trim().parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok([first, last]),
        _ => Err("give numbers of packets from 0, and ranges of them: 3+10-12".to_owned()),
    }
}

/// From when to when.
fn cut(text: &str) -> Result<[Span; 2], String> {
    let why = "give from when to when the link is cut, since the traffic began: 5s-8s+20s-21s";
    let (from, to) = text.split_once('-').ok_or(why)?;
    let (from, to) = (span(from)?, span(to)?);
    if from < to { Ok([from, to]) } else { Err(why.to_owned()) }
}

fn time(value: &str) -> Result<Span, String> {
    let time = span(value)?;
    if time > DELAY_MAX {
        return Err(format!("the most is {}", span_text(DELAY_MAX)));
    }
    Ok(time)
}

fn probability(value: &str) -> Result<f64, String> {
    let number = value.trim().parse().ok().filter(|share| (0.0..=1.0).contains(share));
    number.ok_or_else(|| "give a probability from 0 to 1".to_owned())
}

/// The faults of a direction, in words.
pub fn described(faults: &Faults, timetable: &Timetable) -> String {
    let mut words = Vec::new();
    if let Some(rate) = faults.rate {
        words.push(format!("{} with a queue of {} bytes", rate_text(rate), faults.queue_bytes));
    }
    let delays = timetable.delays.iter().map(|step| step.1);
    match (delays.clone().min(), delays.max()) {
        (Some(low), Some(high)) => {
            words.push(format!("{} to {} delay by a trace", span_text(low), span_text(high)));
        }
        _ if faults.delay > Span::ZERO => words.push(format!("{} delay", span_text(faults.delay))),
        _ => {}
    }
    if faults.jitter > Span::ZERO {
        words.push(match faults.jitter_law {
            JitterLaw::Uniform => format!("± {} jitter", span_text(faults.jitter)),
            law => format!("{} {law} jitter", span_text(faults.jitter)),
        });
    }
    let stated = timetable
        .losses
        .iter()
        .fold(0u64, |sum, [first, last]| sum.saturating_add((last - first).saturating_add(1)));
    if stated > 0 {
        words.push(format!("{stated} stated packets lost"));
    }
    if !timetable.cuts.is_empty() {
        words.push(format!("cut {} times", timetable.cuts.len()));
    }
    if let Some(bursts) = faults.bursts {
        words.push(format!("{} lost in bursts", percent(bursts.mean_loss())));
    }
    for (share, what) in [
        (faults.loss, "lost"),
        (faults.duplicate, "duplicated"),
        (faults.corrupt, "corrupted"),
        (faults.reorder, "held back"),
    ] {
        if share > 0.0 {
            words.push(format!("{} {what}", percent(share)));
        }
    }
    if faults.reorder > 0.0 {
        words.push(format!("by {}", span_text(faults.reorder_by)));
    }
    if words.is_empty() { "nothing is done to packets".to_owned() } else { words.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_wire::Rate;

    #[test]
    fn a_key_holds_for_both_ways_and_its_back_for_the_way_back() {
        let text =
            "delay_back=5ms,rate=50Mbit,delay=20ms,loss=0.01,burst_loss=0.01:0.25,reorder=0.1";
        let spec: FaultSpec = text.parse().expect("a specification");
        let [forth, back] = spec.ways;
        assert_eq!(forth.rate, Some(Rate::from_megabits(50)));
        assert_eq!(forth.delay, Span::from_nanos(20_000_000));
        assert_eq!(
            (forth.loss, forth.queue_bytes, forth.reorder_by),
            (0.01, QUEUE_BYTES, REORDER_BY)
        );
        assert!(
            forth.bursts.is_some_and(|bursts| (bursts.mean_loss() - 0.01 / 0.26).abs() < 1e-12)
        );
        assert_eq!(back, Faults { delay: Span::from_nanos(5_000_000), ..forth });
        // As it is kept in files.
        let kept = serde_json::to_string(&spec).expect("text");
        assert_eq!(serde_json::from_str::<FaultSpec>(&kept).expect("the same"), spec);
        assert_eq!("".parse::<FaultSpec>().expect("none").ways[0].rate, None);
    }

    #[test]
    fn errors_of_fault_specifications_name_a_remedy() {
        for (text, words) in [
            ("rate", "is not of the form KEY=VALUE"),
            ("speed=3", "there is no such fault; the keys are rate, queue"),
            ("loss=2", "loss=2: give a probability from 0 to 1"),
            ("loss=NaN", "give a probability"),
            ("delay=1h", "delay=1h"),
            ("delay=11s", "the most is 10 s"),
            ("loss=0.1,loss=0.2", "loss is said twice"),
            ("jitter=1ms", "exceeds the delay"),
            ("burst_loss=0.1", "P:R"),
            ("burst_loss=0.1:0", "never ends"),
            ("reorder=0.1,reorder_by=0ms", "nothing would be reordered"),
            ("rate=64kbit", "until the queue is empty, and the most is 60 s"),
            ("lose=5-3", "numbers of packets from 0"),
            ("cut=5s", "from when to when"),
            ("cut=8s-5s", "from when to when"),
            ("jitter_law=cauchy", "the laws are uniform, normal, exponential"),
            ("jitter=9s,jitter_law=exponential", "and the most is 60 s"),
        ] {
            let why = text.parse::<FaultSpec>().expect_err(text);
            assert!(why.contains(words), "{text}: {why}");
        }
    }

    #[test]
    fn the_longest_stay_is_queue_and_delay() {
        let spec: FaultSpec = "rate=1Mbit,queue=100000,delay=20ms".parse().expect("one");
        let stay_ms = spec.longest_stay().as_nanos() / 1_000_000;
        assert!((820..1_400).contains(&stay_ms), "{stay_ms}");
    }

    #[test]
    fn stated_packets_cuts_and_traces_are_read() {
        let folder = std::env::temp_dir().join(format!("nilometer-trace-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let text = "lose=3+10-12,cut=5s-8s+20s-21s,delay_trace_back = trace.csv,jitter_law=normal";
        let mut spec: FaultSpec = text.parse().expect("a specification");
        let put = |text: &str| std::fs::write(folder.join("trace.csv"), text).expect("a file");
        for (text, words) in [
            ("", "no steps"),
            ("seconds,delay_ms\n0,20\n1;5\n", "line 3"),
            ("0,20\n0,30\n", "line 2: times must rise"),
            ("0,-1\n", "is not from 0 to 10000 ms"),
            ("0,NaN\n", "is not from 0"),
        ] {
            put(text);
            let why = format!("{:#}", spec.load(&folder).expect_err(text));
            assert!(why.contains(words) && why.contains("trace.csv"), "{why}");
        }
        put("seconds,delay_ms\n0,20 # at first\n\n1.5,30\n");
        spec.load(&folder).expect("a trace");
        let [forth, back] = &spec.timetables;
        let s = |seconds: f64| Span::from_secs_f64(seconds);
        assert_eq!(forth.losses, [[3, 3], [10, 12]]);
        assert_eq!(back.cuts, [[s(5.0), s(8.0)], [s(20.0), s(21.0)]]);
        assert_eq!(back.delays, [(s(0.0), s(0.02)), (s(1.5), s(0.03))]);
        assert!(forth.delays.is_empty());
        // A copy kept beside results reads back as the same.
        let mut files = Vec::new();
        let kept = spec.with_traces_kept(&mut files);
        let [(name, text)] = &files[..] else { panic!("{files:?}") };
        assert!(kept.to_string().contains("delay_trace_back=trace-1.csv"), "{kept}");
        let results = folder.join("results");
        std::fs::create_dir_all(&results).expect("a folder");
        std::fs::write(results.join(name), text).expect("a file");
        let mut again: FaultSpec = kept.to_string().parse().expect("its text");
        again.load(&results).expect("its trace");
        assert_eq!((&again.timetables, again.ways), (&spec.timetables, spec.ways));
        assert_eq!(
            described(&spec.ways[1], back),
            "20 ms to 30 ms delay by a trace, 4 stated packets lost, cut 2 times"
        );
        std::fs::remove_dir_all(&folder).expect("its end");
    }
}
