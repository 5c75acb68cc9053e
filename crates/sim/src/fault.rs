//! The fault box's settings, counters, events and memory interface.

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
    /// The rate of the link; none for one that takes no time.
    pub rate: Option<Rate>,
    /// Bytes that may wait for a link with a rate.
    pub queue_bytes: u64,
    /// How long every packet is under way behind the link.
    pub delay: Span,
    /// By how much that varies at most, up and down.
    pub jitter: Span,
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

/// What a box asks of the memory that its frames lie in.
pub trait Frames<F> {
    /// The bytes that a frame takes on a link.
    fn link_bytes(&self, frame: &F) -> u64;

    /// Another frame with the same bytes, if there is room for one.
    fn copy(&mut self, frame: &F) -> Option<F>;

    /// Flips a bit of a frame, chosen by `draw`; false where it has none, and goes no further.
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

    /// A bit behind IP's header and the twenty bytes of TCP's, so that it is still known whose packet it was; where
    /// there is nothing behind them, one of the last byte.
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
    /// The port that the packet came by.
    pub port: Port,
    /// Its number among the packets that came by that port, from 0.
    pub number: u64,
    /// What.
    pub what: What,
}
