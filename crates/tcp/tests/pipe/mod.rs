//! Two connections and a network between them that delays, loses, repeats and reorders as configured.
#![allow(dead_code)] // each test uses its part

pub mod record;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use nilometer_tcp::{Connection, Outgoing, Segment};
use nilometer_wire::{Ecn, Span, Time};

/// A millisecond.
pub const MS: Span = Span::from_nanos(1_000_000);

/// A small generator for chances in tests.
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        n > 0 && self.below(n) == 0
    }
}

/// What the network does to packets; a chance of `n` is one in n, 0 is never.
#[derive(Clone, Copy, Default)]
pub struct Faults {
    pub loss: u64,
    pub duplication: u64,
    pub reordering: u64,
    pub marking: u64,
    /// Time between two packets that leave in the same direction.
    pub spacing: Span,
    /// Longest wait for the link, beyond which a packet is dropped; zero: as long as it takes.
    pub buffer: Span,
}

/// Decides on a packet: from which end, the how many-th of that end; true drops it.
pub type Drops = Box<dyn FnMut(usize, u64, &Segment) -> bool>;

/// Left and right end, and what is on the way.
pub struct Pipe {
    pub now: Time,
    pub ends: [Connection; 2],
    pub delay: Span,
    pub faults: Faults,
    pub chance: Chance,
    /// What is dropped on purpose.
    pub drops: Drops,
    /// Everything sent: when, by which end, what.
    pub log: Vec<(Time, usize, Segment)>,
    pub keeps_log: bool,
    flying: BinaryHeap<Reverse<(Time, u64, usize)>>,
    packets: Vec<Option<Outgoing>>,
    sent: [u64; 2],
    free_at: [Time; 2],
}

impl Pipe {
    pub fn new(left: Connection, right: Connection, seed: u64) -> Pipe {
        Pipe {
            now: Time::ZERO,
            ends: [left, right],
            delay: MS * 10,
            faults: Faults::default(),
            chance: Chance::new(seed),
            drops: Box::new(|_, _, _| false),
            log: Vec::new(),
            keeps_log: false,
            flying: BinaryHeap::new(),
            packets: Vec::new(),
            sent: [0; 2],
            free_at: [Time::ZERO; 2],
        }
    }

    /// Takes everything that both ends have to send now.
    pub fn flush(&mut self) {
        for end in 0..2 {
            let before = self.sent[end];
            while let Some(outgoing) = self.ends[end].poll_transmit(self.now) {
                self.launch(end, outgoing);
                assert!(self.sent[end] < before + 100_000, "it never stops: {:#?}", self.ends[end]);
            }
        }
    }

    /// Everything on the way is held up for `span`, and what leaves meanwhile comes after it.
    pub fn stall(&mut self, span: Span) {
        let held = core::mem::take(&mut self.flying).into_iter();
        self.flying =
            held.map(|Reverse((at, number, end))| Reverse((at + span, number, end))).collect();
        self.free_at = self.free_at.map(|at| at.max(self.now) + span);
    }

    fn launch(&mut self, end: usize, mut outgoing: Outgoing) {
        if self.keeps_log {
            self.log.push((self.now, end, outgoing.segment));
        }
        self.sent[end] += 1;
        if (self.drops)(end, self.sent[end], &outgoing.segment)
            || self.chance.one_in(self.faults.loss)
        {
            return;
        }
        if outgoing.ecn.is_capable() && self.chance.one_in(self.faults.marking) {
            outgoing.ecn = Ecn::Congestion;
        }
        let leaves = self.free_at[end].max(self.now);
        let wait = leaves.since(self.now);
        if self.faults.buffer > Span::ZERO && wait > self.faults.buffer {
            return;
        }
        self.free_at[end] = leaves + self.faults.spacing;
        let copies = 1 + u64::from(self.chance.one_in(self.faults.duplication));
        for _ in 0..copies {
            let mut at = leaves + self.delay;
            if self.chance.one_in(self.faults.reordering) {
                at += Span(self.chance.below(MS.0 * 15));
            }
            let number = self.packets.len() as u64;
            self.packets.push(Some(outgoing));
            self.flying.push(Reverse((at, number, 1 - end)));
        }
    }

    /// One event, if there is any before `until`; false when nothing will ever happen again.
    pub fn step(&mut self, until: Time) -> bool {
        self.flush();
        let arrival = self.flying.peek().map(|Reverse((at, _, _))| *at);
        let alarm = self.ends.iter().filter_map(Connection::poll_timeout).min();
        let Some(at) = arrival.into_iter().chain(alarm).min() else { return false };
        if at > until {
            self.now = until;
            return false;
        }
        self.now = self.now.max(at);
        if arrival == Some(at) {
            let Some(Reverse((_, number, end))) = self.flying.pop() else { return false };
            if let Some(packet) = self.packets[number as usize].take() {
                self.ends[end].receive(self.now, &packet.segment, packet.ecn);
            }
        } else {
            for end in &mut self.ends {
                if end.poll_timeout().is_some_and(|at| at <= self.now) {
                    end.handle_timeout(self.now);
                }
            }
        }
        self.flush();
        true
    }

    /// Runs until nothing is left to do or `until`.
    pub fn run(&mut self, until: Time) {
        while self.step(until) {}
    }
}
