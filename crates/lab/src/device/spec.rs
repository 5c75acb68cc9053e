//! What a fault box is to do, as a person writes it: `rate=50Mbit,delay=20ms,loss=0.01,delay_back=5ms`.
//!
//! A key holds for both directions; the same key with `_back` replaces it for packets to the clients.

use std::fmt;
use std::str::FromStr;

use nilometer_report::format::percent;
use nilometer_sim::fault::{Faults, GilbertElliott};
use nilometer_sim::quantity::{rate, rate_text, size, span, span_text};
use nilometer_wire::Span;
use serde::{Deserialize, Serialize};

/// Bytes that may wait for a link with a rate, where nothing else is said.
const QUEUE_BYTES: u64 = 1_000_000;
/// How long a reordered packet is held back, where nothing else is said.
const REORDER_BY: Span = Span::from_nanos(1_000_000);
/// The longest delay, and so the longest of each time in a specification.
const DELAY_MAX: Span = Span::from_nanos(10_000_000_000);
/// The longest that a packet may stay.
const STAY_MAX: Span = Span::from_nanos(60_000_000_000);
/// The ending of keys that are of the way back alone.
const BACK: &str = "_back";
const KEYS: &str =
    "rate, queue, delay, jitter, loss, burst_loss, duplicate, reorder, reorder_by, corrupt";

/// Faults to the servers, then to the clients.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FaultSpec {
    /// Faults by direction.
    pub ways: [Faults; 2],
    text: String,
}

impl FaultSpec {
    /// The longest that a packet may stay in the box.
    pub fn longest_stay(&self) -> Span {
        let of = |faults: &Faults| {
            let queued =
                faults.rate.map_or(Span::ZERO, |rate| rate.span_of(faults.queue_bytes + 65_536));
            queued + faults.delay + faults.jitter + faults.reorder_by
        };
        self.ways.iter().map(of).max().unwrap_or(Span::ZERO)
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
        let mut ways = [usual; 2];
        let mut said: Vec<&str> = Vec::new();
        let pairs: Vec<&str> = text.split(',').filter(|pair| !pair.trim().is_empty()).collect();
        // The way back is said apart, whatever the order in which it is said.
        for is_back in [false, true] {
            for pair in &pairs {
                let (key, value) = pair.split_once('=').ok_or_else(|| {
                    format!(
                        "{:?} is no KEY=VALUE; write for instance rate=50Mbit,delay=20ms",
                        pair.trim()
                    )
                })?;
                let (key, value) = (key.trim(), value.trim());
                if key.ends_with(BACK) != is_back {
                    continue;
                }
                if said.contains(&key) {
                    return Err(format!("{key} is said twice"));
                }
                said.push(key);
                let name = key.strip_suffix(BACK).unwrap_or(key);
                for faults in &mut ways[usize::from(is_back)..] {
                    set(faults, name, value).map_err(|why| format!("{key}={value}: {why}"))?;
                }
            }
        }
        for faults in &mut ways {
            if faults.reorder > 0.0 && faults.reorder_by == Span::ZERO {
                return Err("reorder_by is no time, so that nothing would be reordered".to_owned());
            }
            if faults.jitter > faults.delay {
                return Err(format!(
                    "jitter {} exceeds the delay {}, so that packets would leave before they came",
                    span_text(faults.jitter),
                    span_text(faults.delay)
                ));
            }
        }
        let spec = FaultSpec { ways, text: text.to_owned() };
        let stay = spec.longest_stay();
        if stay > STAY_MAX {
            return Err(format!(
                "a packet could stay for {:.0} s until the queue is empty, and the most is {}; give a higher rate or \
                 a shorter queue (queue=100kB)",
                stay.as_secs_f64(),
                span_text(STAY_MAX)
            ));
        }
        Ok(spec)
    }
}

fn set(faults: &mut Faults, key: &str, value: &str) -> Result<(), String> {
    match key {
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
pub fn described(faults: &Faults) -> String {
    let mut words = Vec::new();
    if let Some(rate) = faults.rate {
        words.push(format!("{} with a queue of {} bytes", rate_text(rate), faults.queue_bytes));
    }
    if faults.delay > Span::ZERO {
        words.push(format!("{} delay", span_text(faults.delay)));
    }
    if faults.jitter > Span::ZERO {
        words.push(format!("± {} jitter", span_text(faults.jitter)));
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
    fn what_is_wrong_is_named_with_what_to_do() {
        for (text, words) in [
            ("rate", "no KEY=VALUE"),
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
}
