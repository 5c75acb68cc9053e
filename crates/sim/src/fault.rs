//! The fault box's settings, counters, events and memory interface.

use alloc::vec::Vec;

use nilometer_wire::memory::{Memory, Place};
use nilometer_wire::{Port, Rate, Span, Time};

use crate::packet::Packet;

/// A channel with a good and a bad state (Gilbert 1960, Elliott 1963). Probabilities for each
/// packet; the channel is good at first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GilbertElliott {
    /// From good to bad.
    pub worsens: f64,
    /// From bad to good.
    pub recovers: f64,
    /// Loss while good.
    pub loss_good: f64,
    /// Loss while bad.
    pub loss_bad: f64,
}

impl GilbertElliott {
    /// The share of packets lost in the long run.
    pub fn mean_loss(&self) -> f64 {
        let bad = self.worsens / (self.worsens + self.recovers);
        self.loss_good * (1.0 - bad) + self.loss_bad * bad
    }
}

/// What a box does to packets of one direction. Probabilities are for each packet; zero switches a fault off.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// Lost, each independently.
    pub loss: f64,
    /// Every `loss_period`-th packet is lost, counted from the first; zero for none.
    pub loss_period: u64,
    /// Lost in bursts.
    pub bursts: Option<GilbertElliott>,
    /// Damaged.
    pub corrupt: f64,
    /// Sent twice.
    pub duplicate: f64,
    /// Held back.
    pub reorder: f64,
    /// For how long a packet is held back.
    pub reorder_by: Span,
    /// The rate of the link; `None` for one that takes no time.
    pub rate: Option<Rate>,
    /// Bytes that may wait for a link with a rate.
    pub queue_bytes: u64,
    /// How long every packet is under way behind the link.
    pub delay: Span,
    /// By how much that varies, in the sense of its law.
    pub jitter: Span,
    /// The law of the jitter.
    pub jitter_law: JitterLaw,
}

nilometer_wire::named! {
    /// How delays vary from packet to packet.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum JitterLaw {
        /// Evenly, up and down by the jitter at most.
        #[default]
        Uniform = "uniform",
        /// Normally: the jitter is the standard deviation, four of them at most, and no delay is below zero.
        Normal = "normal",
        /// Upwards only, exponentially: the jitter is the mean, sixteen times that at most.
        Exponential = "exponential",
    }
}

impl JitterLaw {
    /// The most that it adds to a delay.
    pub fn most(self, jitter: Span) -> Span {
        let times = match self {
            JitterLaw::Uniform => 1,
            JitterLaw::Normal => 4,
            JitterLaw::Exponential => 16,
        };
        Span::from_nanos(jitter.as_nanos().saturating_mul(times))
    }
}

/// What happens to one direction of a path at stated packets and times. Packets are numbered from the first that the
/// path sees in this direction; times are since the traffic began, and before that nothing happens by them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timetable {
    /// Packets that are lost, by their numbers from 0: from the first to the last of each range.
    pub losses: Vec<[u64; 2]>,
    /// When the link is cut, and when it is restored: packets that arrive in between are lost.
    pub cuts: Vec<[Span; 2]>,
    /// Times, rising, and the delay from each on; they replace the constant delay from the first on.
    pub delays: Vec<(Span, Span)>,
}

impl Timetable {
    /// Whether the packet with this number is lost, if it arrives `since` the traffic began.
    pub fn loses(&self, number: u64, since: Option<Span>) -> bool {
        let is_cut = |since: Span| self.cuts.iter().any(|&[from, to]| from <= since && since < to);
        self.losses.iter().any(|[first, last]| (*first..=*last).contains(&number))
            || since.is_some_and(is_cut)
    }

    /// The delay at `since`, counted from the beginning of the traffic; `None` where the timetable
    /// has no entry.
    pub fn delay(&self, since: Option<Span>) -> Option<Span> {
        let steps = self.delays.partition_point(|&(from, _)| Some(from) <= since);
        steps.checked_sub(1).map(|step| self.delays[step].1)
    }
}

/// What a box has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Packets that came in.
    pub received: u64,
    /// Packets that went out.
    pub sent: u64,
    /// Packets lost.
    pub lost: u64,
    /// Packets damaged.
    pub corrupted: u64,
    /// Copies made.
    pub duplicated: u64,
    /// Packets held back.
    pub reordered: u64,
    /// Packets that were not lost by chance and went no further: the link's queue was full, the memory had no room
    /// for a copy, or a damaged packet had no bytes to be damaged in.
    pub discarded: u64,
}

/// What a box needs from the memory that holds its frames.
pub trait Frames<F> {
    /// The bytes that a frame takes on a link.
    fn link_bytes(&self, frame: &F) -> u64;

    /// Another frame with the same bytes, if there is room for one.
    fn copy(&mut self, frame: &F) -> Option<F>;

    /// Flips a bit of a frame, chosen by `draw`; false if it has none, and is then dropped.
    fn corrupt(&mut self, frame: &F, draw: u64) -> bool;

    /// Takes back a frame that goes no further.
    fn discard(&mut self, frame: &F);
}

const ETHERNET_BYTES: usize = 14;
/// Preamble, check sequence and gap, which a link carries with each frame.
const LINK_OVERHEAD_BYTES: u64 = 24;

/// Frames of Ethernet in a packet memory.
impl<M: Memory> Frames<Place> for M {
    fn link_bytes(&self, frame: &Place) -> u64 {
        u64::from(frame.bytes) + LINK_OVERHEAD_BYTES
    }

    fn copy(&mut self, frame: &Place) -> Option<Place> {
        let copy = self.take(frame.bytes)?;
        let bytes = self.frame(*frame).to_vec();
        self.frame_mut(copy).copy_from_slice(&bytes);
        Some(copy)
    }

    /// Flips a bit behind the IP header and the twenty bytes of TCP's, so that the packet's flow can still be
    /// identified; where there is nothing behind them, one of the last byte.
    fn corrupt(&mut self, frame: &Place, draw: u64) -> bool {
        let bytes = self.frame_mut(*frame);
        let is_six = bytes.get(12..14) == Some(&[0x86, 0xdd]);
        let headers = ETHERNET_BYTES + if is_six { 60 } else { 40 };
        let first = headers.min(bytes.len() - 1);
        let at = first + (draw / 8) as usize % (bytes.len() - first);
        bytes[at] ^= 1 << (draw % 8);
        true
    }

    fn discard(&mut self, frame: &Place) {
        self.give(*frame);
    }
}

/// Records have no bytes, and a receiver's checksum finds what was damaged.
impl Frames<Packet> for () {
    fn link_bytes(&self, packet: &Packet) -> u64 {
        u64::from(packet.bytes)
    }

    fn copy(&mut self, packet: &Packet) -> Option<Packet> {
        Some(*packet)
    }

    fn corrupt(&mut self, _: &Packet, _: u64) -> bool {
        false
    }

    fn discard(&mut self, _: &Packet) {}
}

/// What happened to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// It came.
    Came,
    /// It was lost.
    Lost,
    /// It was damaged.
    Corrupted,
    /// It went no further, for another reason.
    Discarded,
    /// It is held back.
    HeldBack,
    /// It left.
    Left,
    /// A copy of it left.
    CopyLeft,
}

/// Something that happened to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub at: Time,
    /// The port by which the packet arrived.
    pub port: Port,
    /// Its number among the packets that arrived by that port, from 0.
    pub number: u64,
    /// The number of its path, from 0.
    pub path: u32,
    /// The bytes that it took on a link when it came.
    pub link_bytes: u64,
    /// What.
    pub what: What,
}
