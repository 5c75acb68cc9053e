//! The laws of each class, from parts that are measured by themselves.
//!
//! Sums and series are of all conversations. Laws are of the first of each class in each part, so many
//! that nothing is left out of a few million, and that memory has a bound.

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;

use nilometer_flow::FlowRecord;
use nilometer_stat::Empirical;

use super::{Classed, UdpClass, UdpModel, Way, conversations, service};
use crate::model::Share;
use crate::sessions::{self, PairLife};

/// Knots of each law.
const KNOTS: usize = 256;
/// Conversations of a class in a part that its laws are taken from.
const LAWS_OF_MAX: usize = 16_384;

/// When the model's intervals are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grid {
    pub origin_ns: u64,
    pub interval_s: f64,
    pub intervals: usize,
    /// The longest time between two connections or requests of a pair, seconds.
    pub bound_s: f64,
}

impl Grid {
    /// The interval in which something starts.
    pub fn at(&self, start_ns: u64) -> usize {
        let seconds = start_ns.saturating_sub(self.origin_ns) as f64 / 1e9;
        ((seconds / self.interval_s) as usize).min(self.intervals - 1)
    }
}

/// What the conversations of one class in one part came to.
#[derive(Debug, Default)]
pub(crate) struct Measure {
    conversations: u64,
    answered: u64,
    carried: Share,
    packets: u64,
    request_bytes: Vec<f64>,
    response_bytes: Vec<f64>,
    packet_bytes: Vec<f64>,
    duration_s: Vec<f64>,
    packet_interval_s: Vec<f64>,
    inter_request_s: Vec<f64>,
    sessions: Vec<f64>,
}

/// The measures of a part's records, by class.
pub(crate) fn measure(records: &[FlowRecord], grid: Grid) -> Vec<Measure> {
    let found = conversations(records);
    let of = |class| found.iter().filter(|one| one.class == class).collect::<Vec<_>>();
    UdpClass::ALL.into_iter().map(|class| Measure::of(&of(class), grid)).collect()
}

/// A model of each class that occurs.
pub(crate) fn models(parts: Vec<Vec<Measure>>) -> Vec<UdpModel> {
    let mut sums: Vec<Measure> = UdpClass::ALL.map(|_| Measure::default()).into();
    for part in parts {
        sums.iter_mut().zip(part).for_each(|(sum, more)| sum.add(more));
    }
    let classes = UdpClass::ALL.into_iter().zip(sums);
    classes.filter_map(|(class, sum)| sum.model(class)).collect()
}

impl Measure {
    fn of(found: &[&Classed], grid: Grid) -> Measure {
        let seconds = |ns: u64| ns.saturating_sub(grid.origin_ns) as f64 / 1e9;
        let life = |one: &&Classed| PairLife {
            first_start_s: seconds(one.span_ns.0),
            last_end_s: seconds(one.span_ns.1),
        };
        let lives: Vec<PairLife> = found.iter().map(life).collect();
        let mut made = Measure {
            conversations: found.len() as u64,
            sessions: match found {
                [] => vec![0.0; grid.intervals],
                _ => sessions::direct(&lives, grid.interval_s, grid.intervals),
            },
            inter_request_s: inter_requests(found, grid.bound_s),
            ..Measure::default()
        };
        for (number, (one, life)) in found.iter().zip(&lives).enumerate() {
            let [asked, answer] = one.conversation.ways;
            made.answered += u64::from(answer.packets > 0);
            for way in [asked, answer].into_iter().filter(|way| way.packets > 0) {
                made.carried.add(Share { flows: 1, octets: way.octets });
                made.packets += way.packets;
            }
            if number < LAWS_OF_MAX {
                made.duration_s.push(life.last_end_s - life.first_start_s);
                made.note(asked, answer);
            }
        }
        made
    }

    /// Takes a conversation into the laws.
    fn note(&mut self, asked: Way, answer: Way) {
        self.request_bytes.push(asked.octets as f64);
        if answer.packets > 0 {
            self.response_bytes.push(answer.octets as f64);
        }
        for way in [asked, answer].into_iter().filter(|way| way.packets > 0) {
            self.packet_bytes.push(way.mean_bytes());
            if way.packets > 1 {
                self.packet_interval_s.push(way.lasts_s / (way.packets - 1) as f64);
            }
        }
    }

    fn add(&mut self, more: Measure) {
        self.conversations += more.conversations;
        self.answered += more.answered;
        self.carried.add(more.carried);
        self.packets += more.packets;
        self.request_bytes.extend(more.request_bytes);
        self.response_bytes.extend(more.response_bytes);
        self.packet_bytes.extend(more.packet_bytes);
        self.duration_s.extend(more.duration_s);
        self.packet_interval_s.extend(more.packet_interval_s);
        self.inter_request_s.extend(more.inter_request_s);
        self.sessions.resize(more.sessions.len().max(self.sessions.len()), 0.0);
        self.sessions.iter_mut().zip(&more.sessions).for_each(|(sum, more)| *sum += more);
    }

    fn model(self, class: UdpClass) -> Option<UdpModel> {
        let law = |values: Vec<f64>| Empirical::linear_from(values, KNOTS).ok();
        Some(UdpModel {
            class,
            conversations: self.conversations,
            answered_share: self.answered as f64 / self.conversations.max(1) as f64,
            carried: self.carried,
            packets: self.packets,
            request_bytes: law(self.request_bytes)?,
            response_bytes: law(self.response_bytes),
            packet_bytes: law(self.packet_bytes)?,
            duration_s: law(self.duration_s)?,
            packet_interval_s: law(self.packet_interval_s),
            inter_request_s: law(self.inter_request_s),
            sessions: self.sessions,
        })
    }
}

/// Seconds between conversations that one pair has one after another.
fn inter_requests(found: &[&Classed], bound_s: f64) -> Vec<f64> {
    let mut starts: BTreeMap<(IpAddr, IpAddr, u16), Vec<u64>> = BTreeMap::new();
    for one in found {
        starts.entry(service(one)).or_default().push(one.span_ns.0);
    }
    let mut gaps = Vec::new();
    for starts in starts.values_mut() {
        starts.sort_unstable();
        gaps.extend(starts.windows(2).map(|two| (two[1] - two[0]) as f64 / 1e9));
    }
    gaps.retain(|gap| *gap <= bound_s);
    gaps.truncate(LAWS_OF_MAX);
    gaps
}
