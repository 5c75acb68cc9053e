//! What an instance gets and gives: packets in the ports' memory, verdicts, and what else is to happen.
//!
//! A batch notes which of its packets were dropped, and which were lent to be changed. Of the others the router knows
//! what it knew before, and looks at none of them again.

use alloc::string::String;
use alloc::vec::Vec;

use nilometer_wire::memory::{Memory, Place};

use super::PluginDecision;
use super::labels::{LabelVerdict, LabelVerdicts};
use super::packet_set::{PACKETS_MAX, PacketSet};
use crate::header::{ETHERNET_BYTES, Header};

/// Packets that one call may emit.
pub const EMITTED_MAX: usize = 256;
/// The longest packet that may be emitted, bytes: what a link of the usual MTU takes.
pub const EMITTED_BYTES_MAX: usize = 1_500;
/// Lines that one call may log.
const LINES_MAX: usize = 8;
/// The longest line, bytes.
const LINE_BYTES_MAX: usize = 256;

/// A port that there is not.
pub const NO_PORT: u16 = u16::MAX;

/// What is known of a packet besides its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketFacts {
    /// Where its frame lies.
    pub place: Place,
    /// Length and ports: they are copied for every packet, and few plugins ask for them.
    word: u64,
}

impl PacketFacts {
    /// A packet at `place`: bytes of the IP packet in it (of a labelled one, all behind the link header), the port that it
    /// came by, and on the output side the one that it leaves by.
    #[inline(always)]
    pub fn new(place: Place, ip_bytes: u16, (input, output): (u16, Option<u16>)) -> PacketFacts {
        let output = output.unwrap_or(NO_PORT);
        let word = u64::from(ip_bytes) | u64::from(input) << 16 | u64::from(output) << 32;
        PacketFacts { place, word }
    }

    /// Bytes of the IP packet; of a labelled one, all behind the link header.
    #[inline(always)]
    pub fn ip_bytes(&self) -> u16 {
        self.word as u16
    }

    /// The port that it came by.
    #[inline(always)]
    pub fn input(&self) -> u16 {
        (self.word >> 16) as u16
    }

    /// The port that it leaves by, on the output side.
    #[inline(always)]
    pub fn output(&self) -> Option<u16> {
        let output = (self.word >> 32) as u16;
        (output != NO_PORT).then_some(output)
    }

    /// From the lowest bits on its bytes, its input and its output, or [`NO_PORT`], in 16 bits each; then zeros.
    #[inline(always)]
    pub fn word(&self) -> u64 {
        self.word
    }
}

/// The packets of one call, none of them twice, and the verdicts on them, which are [`PluginDecision::Forward`] at
/// first.
pub struct Batch<'a> {
    packets: &'a [PacketFacts],
    memory: &'a mut (dyn Memory + 'a),
    share_bps: Option<u64>,
    is_labelled: bool,
    dropped: PacketSet,
    changed: PacketSet,
    label_verdicts: LabelVerdicts,
}

impl<'a> Batch<'a> {
    /// Of these `packets`.
    ///
    /// # Panics
    /// When there are more than [`PACKETS_MAX`].
    #[inline]
    pub fn new(packets: &'a [PacketFacts], memory: &'a mut (dyn Memory + 'a)) -> Batch<'a> {
        assert!(packets.len() <= PACKETS_MAX, "a batch has at most {PACKETS_MAX} packets");
        let (dropped, changed) = (PacketSet::default(), PacketSet::default());
        let (share_bps, is_labelled, label_verdicts) = (None, false, Vec::new());
        Batch { packets, memory, share_bps, is_labelled, dropped, changed, label_verdicts }
    }

    /// The same of packets that begin with a label stack.
    pub fn labelled(self, is_labelled: bool) -> Batch<'a> {
        Batch { is_labelled, ..self }
    }

    /// Whether its packets begin with a label stack, which is a part of them here.
    #[inline]
    pub fn is_labelled(&self) -> bool {
        self.is_labelled
    }

    /// The same, of a flow to which the scheduler of its output gives so much of the link.
    pub fn with_share(self, share_bps: Option<u64>) -> Batch<'a> {
        Batch { share_bps, ..self }
    }

    /// Bits per second that the scheduler of the output gives the flow of the first packet now; nothing on the input
    /// side, on a link without a rate, or where the discipline does not share the link by flows.
    pub fn share_bps(&self) -> Option<u64> {
        self.share_bps
    }

    /// What is known of each packet. (It outlives what is done to the batch meanwhile.)
    #[inline]
    pub fn packets(&self) -> &'a [PacketFacts] {
        self.packets
    }

    /// The IP packet `at`, without what its link put behind it.
    #[inline]
    pub fn packet(&self, at: usize) -> &[u8] {
        let facts = &self.packets[at];
        let end = ETHERNET_BYTES + usize::from(facts.ip_bytes());
        &self.memory.frame(facts.place)[ETHERNET_BYTES..end]
    }

    /// The same, to be changed.
    #[inline]
    pub fn packet_mut(&mut self, at: usize) -> &mut [u8] {
        self.note_changed(at);
        self.lend(at)
    }

    /// The same, for who looks at it and may change it: he notes it if he does ([`Batch::note_changed`]). What is
    /// changed without that may leave as it is, with whatever is wrong with it.
    #[inline]
    pub fn lend(&mut self, at: usize) -> &mut [u8] {
        let facts = &self.packets[at];
        let end = ETHERNET_BYTES + usize::from(facts.ip_bytes());
        &mut self.memory.frame_mut(facts.place)[ETHERNET_BYTES..end]
    }

    /// The packet `at` is to be looked at again.
    #[inline]
    pub fn note_changed(&mut self, at: usize) {
        self.changed.insert(at);
    }

    /// Decides on the packet `at`.
    #[inline]
    pub fn decide(&mut self, at: usize, verdict: PluginDecision) {
        match verdict {
            PluginDecision::Forward => self.dropped.remove(at),
            PluginDecision::Drop => self.dropped.insert(at),
        }
    }

    /// Says what becomes of the labels of the packet `at`, which leaves the chain. Packets are spoken of in their order,
    /// each once; one that is on the output side has its way already and is dropped.
    pub fn relabel(&mut self, at: usize, verdict: LabelVerdict) {
        self.dropped.insert(at);
        let is_next = self.label_verdicts.last().is_none_or(|last| usize::from(last.0) < at);
        if is_next && self.packets[at].output().is_none() {
            self.label_verdicts.push((at as u16, verdict));
        }
    }

    /// Takes what was said of labels.
    pub(super) fn take_label_verdicts(&mut self) -> LabelVerdicts {
        core::mem::take(&mut self.label_verdicts)
    }

    /// Those that go no further in the chain.
    pub fn dropped(&self) -> PacketSet {
        self.dropped
    }

    /// Those that may have been changed.
    pub fn changed(&self) -> PacketSet {
        self.changed
    }
}

/// What a call wants besides verdicts. It is bounded, and what is beyond a bound is counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    emitted: Vec<Vec<u8>>,
    lines: Vec<String>,
    refused: u64,
}

impl Effects {
    /// Sends an IP packet, if it is a sound one and there is room: whether it will be sent.
    pub fn emit(&mut self, packet: &[u8]) -> bool {
        let header = match packet.first().map(|first| first >> 4) {
            Some(4) => Header::read_ipv4(packet).ok(),
            Some(6) => Header::read_ipv6(packet).ok(),
            _ => None,
        };
        let is_sound = header.is_some_and(|header| usize::from(header.ip_bytes) == packet.len());
        let has_room = self.emitted.len() < EMITTED_MAX && packet.len() <= EMITTED_BYTES_MAX;
        if is_sound && has_room {
            self.emitted.push(packet.to_vec());
        } else {
            self.refused += 1;
        }
        is_sound && has_room
    }

    /// Writes a line for the operator; the first few of a call are kept, cut where they are long.
    pub fn log(&mut self, line: &str) {
        if self.lines.len() < LINES_MAX {
            let end =
                (0..=line.len().min(LINE_BYTES_MAX)).rev().find(|at| line.is_char_boundary(*at));
            self.lines.push(line[..end.unwrap_or(0)].into());
        }
    }

    /// Takes the packets to send.
    pub fn take_emitted(&mut self) -> Vec<Vec<u8>> {
        core::mem::take(&mut self.emitted)
    }

    /// Takes the lines.
    pub fn take_lines(&mut self) -> Vec<String> {
        core::mem::take(&mut self.lines)
    }

    /// Whether a call wanted nothing besides its verdicts.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.emitted.is_empty() && self.lines.is_empty() && self.refused == 0
    }

    /// Packets that could not be emitted.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Forgets everything: what a call that failed wanted does not happen.
    pub fn clear(&mut self) {
        *self = Effects::default();
    }
}
