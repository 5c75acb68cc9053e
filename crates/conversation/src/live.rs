//! A live connection: each packet shows its own direction, and by its acknowledgement the other one.
//!
//! An acknowledgement is processed before the data in the same packet: the bytes that it covers had arrived
//! before that data was sent. So bytes that the capture lost, that appear later because it is out of order, or
//! that it never shows because it is one-sided, get their proper place: before their answer.

use core::net::SocketAddr;

use alloc::vec::Vec;

use nilometer_flow::record::tcp_flags::{ACK, FIN, RST, SYN};
use nilometer_wire::packet::TcpSegment;

use crate::connection::{Act, Connection, Opening, Step};
use crate::half::Half;
use crate::side::Side;
use crate::stamped::Stamped;
use crate::unit::{QUIET_NS, Unit};

/// Assumed payload of a segment that was not seen.
const SEGMENT_UNSEEN_BYTES: u64 = 1_460;

/// A connection that is followed.
#[derive(Debug)]
pub(crate) struct Live {
    pub client: SocketAddr,
    pub server: SocketAddr,
    start_ns: u64,
    end_ns: u64,
    /// The client's first sequence number, its SYN's, and when that passed last.
    syn: Option<u32>,
    syn_ns: u64,
    syns: u32,
    /// When the last SYN+ACK passed, and how many did.
    answer_ns: Option<u64>,
    answers: u32,
    handshake_ns: [Option<u64>; 2],
    is_refused: bool,
    resets: [Option<Reset>; 2],
    is_concurrent: bool,
    stamped: Stamped,
    halves: [Half; 2],
    steps: Vec<Step>,
}

/// The first reset of an end.
#[derive(Clone, Copy, Debug)]
struct Reset {
    /// Its place in the steps.
    step: usize,
    stamp_ns: u64,
    /// When the end's last step before it occurred.
    before_ns: u64,
    /// How much of the other end's stream it acknowledged, and its pause since that passed.
    received: Option<(u64, u64)>,
    /// The socket was gone: later segments were answered by resets, and are not awaited.
    is_gone: bool,
}

/// A packet of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival<'a> {
    pub side: Side,
    pub stamp_ns: u64,
    pub segment: &'a TcpSegment,
    pub ip_bytes: u32,
}

impl Live {
    /// A connection whose first packet has this stamp.
    pub fn new(client: SocketAddr, server: SocketAddr, stamp_ns: u64) -> Live {
        Live {
            client,
            server,
            start_ns: stamp_ns,
            end_ns: stamp_ns,
            syn: None,
            syn_ns: stamp_ns,
            syns: 0,
            answer_ns: None,
            answers: 0,
            handshake_ns: [None; 2],
            is_refused: false,
            resets: [None; 2],
            is_concurrent: false,
            stamped: Stamped::default(),
            halves: [Half::new(stamp_ns), Half::new(stamp_ns)],
            steps: Vec::new(),
        }
    }

    /// Are only stragglers still expected?
    pub fn is_over(&self) -> bool {
        self.is_refused || self.resets.iter().any(Option::is_some) || self.is_closed()
    }

    /// Does this packet begin another connection between the same ports? A SYN does, unless it repeats the
    /// client's; and so does data whose numbers are far from this connection's in both directions.
    pub fn is_succeeded_by(&self, arrival: &Arrival<'_>) -> bool {
        let segment = arrival.segment;
        if segment.flags & (SYN | ACK) == SYN {
            let first = segment.sequence.wrapping_add(1);
            let is_own = match self.syn {
                Some(syn) => syn == segment.sequence,
                None => self.half(Side::Client).begins_at(first),
            };
            return arrival.side == Side::Server || !is_own;
        }
        let carries = segment.payload_bytes > 0 && segment.flags & (SYN | RST) == 0;
        let ack = (segment.flags & ACK != 0).then_some(segment.acknowledgement);
        carries
            && self.half(arrival.side).is_elsewhere(segment.sequence)
            && ack.is_none_or(|ack| self.half(arrival.side.other()).is_elsewhere(ack))
    }

    /// Takes a packet. Once there are `steps_max` steps, further data is added to the last step of its side.
    pub fn take(&mut self, arrival: &Arrival<'_>, steps_max: usize) {
        let Arrival { side, stamp_ns, segment, ip_bytes } = *arrival;
        let payload_bytes = segment.payload_bytes;
        if !self.is_over() {
            self.end_ns = self.end_ns.max(stamp_ns);
        }
        let carried = &mut self.halves[side.index()].carried;
        carried.packets += 1;
        carried.octets += u64::from(ip_bytes);
        carried.sizes.count(ip_bytes);
        carried.data_bytes += u64::from(payload_bytes);
        carried.data_packets += u64::from(payload_bytes > 0);
        carried.segment_max_bytes = carried.segment_max_bytes.max(payload_bytes);
        carried.resets += u64::from(segment.flags & RST != 0);
        if segment.flags & RST != 0 {
            return self.reset(side, stamp_ns, segment);
        }
        self.stamped.count(segment);
        if segment.flags & SYN != 0 {
            self.open(side, stamp_ns, segment);
        }
        if segment.flags & ACK != 0 {
            self.acknowledge(side, stamp_ns, segment, steps_max);
        }
        let first = segment.sequence.wrapping_add(u32::from(segment.flags & SYN != 0));
        if payload_bytes > 0 {
            self.data(side, stamp_ns, (first, payload_bytes), steps_max);
        }
        if segment.flags & FIN != 0 {
            self.fin(side, stamp_ns, first.wrapping_add(payload_bytes), steps_max);
        }
    }

    /// The connection as far as it was seen.
    pub fn into_connection(self) -> Connection {
        let opening = self.opening();
        Connection {
            client: self.client,
            server: self.server,
            start_ns: self.start_ns,
            end_ns: self.end_ns,
            opening,
            syns: self.syns,
            handshake_ns: self.handshake_ns,
            is_concurrent: self.is_concurrent,
            has_time_stamps: self.stamped.is_usual(),
            steps: self.steps,
            carried: self.halves.map(|half| half.carried),
        }
    }

    fn half(&self, side: Side) -> &Half {
        &self.halves[side.index()]
    }

    fn half_mut(&mut self, side: Side) -> &mut Half {
        &mut self.halves[side.index()]
    }

    fn is_closed(&self) -> bool {
        self.halves.iter().all(|half| half.fin.is_some())
    }

    fn opening(&self) -> Opening {
        let [client, server] = &self.halves;
        let is_silent = server.carried.packets == 0 && !server.is_anchored();
        match self.syn {
            _ if self.is_refused => Opening::Refused,
            Some(_) if is_silent && client.carried.payload_bytes == 0 => Opening::Unanswered,
            None if self.answer_ns.is_none() => Opening::Unseen,
            _ => Opening::Seen,
        }
    }

    fn open(&mut self, side: Side, stamp_ns: u64, segment: &TcpSegment) {
        if segment.flags & ACK == 0 && side == Side::Client {
            self.syn = Some(segment.sequence);
            self.syn_ns = stamp_ns;
            self.syns += 1;
        } else {
            self.answer_ns = Some(stamp_ns);
            self.answers += 1;
            let answers = |syn: u32| segment.acknowledgement == syn.wrapping_add(1);
            // (With several SYNs it is ambiguous which one was answered: Karn's algorithm, RFC 6298, section
            // 3.)
            if self.syn.is_some_and(answers) && self.syns == 1 {
                self.handshake_ns[0].get_or_insert(stamp_ns.saturating_sub(self.syn_ns));
            }
        }
        let half = self.half_mut(side);
        if !half.is_anchored() {
            half.anchor(segment.sequence.wrapping_add(1));
        }
    }

    fn acknowledge(&mut self, side: Side, stamp_ns: u64, segment: &TcpSegment, steps_max: usize) {
        let is_over = self.has_reset(side.other());
        let other = self.half_mut(side.other());
        let offset = other.offset(segment.acknowledgement);
        if offset < 0 || other.is_astray(offset) || (is_over && offset as u64 > other.high) {
            return;
        }
        // Nothing comes after a FIN.
        let to = other.fin.map_or(offset as u64, |fin| (offset as u64).min(fin + 1));
        if to > other.high {
            self.send_unseen(side.other(), stamp_ns, to, steps_max);
        }
        if let Some(answer_ns) = self.answer_ns
            && side == Side::Client
            && self.syn.is_some()
            && self.answers == 1
        {
            self.handshake_ns[1].get_or_insert(stamp_ns.saturating_sub(answer_ns));
        }
        self.receives(side, to);
    }

    /// This side has received the other's stream up to here.
    fn receives(&mut self, side: Side, to: u64) {
        if to > self.half(side).acknowledged {
            let passed_ns = self.half_mut(side.other()).arrived(to);
            let half = self.half_mut(side);
            half.acknowledged = to;
            half.acknowledged_ns = passed_ns.unwrap_or(half.acknowledged_ns);
        }
    }

    fn data(&mut self, side: Side, stamp_ns: u64, (sequence, bytes): (u32, u32), steps_max: usize) {
        let received = self.half(side.other()).acknowledged;
        let half = self.half_mut(side);
        let offset = half.offset(sequence);
        let to = offset + i64::from(bytes);
        if to <= half.high as i64 {
            half.carried.resent_packets += 1;
            half.active_ns = half.active_ns.max(stamp_ns);
            if to > received as i64 {
                self.sends_again(side, stamp_ns);
            }
        } else if !half.is_astray(offset) && half.fin.is_none() && !self.is_too_late(side, stamp_ns)
        {
            self.take_back_reset(side);
            self.send(side, stamp_ns, (to as u64, Some(bytes)), steps_max);
            self.was_under_way(side, stamp_ns);
        }
    }

    /// Data that had not arrived is sent again: its unit lasts until then.
    fn sends_again(&mut self, side: Side, stamp_ns: u64) {
        let half = &mut self.halves[side.index()];
        half.last_ns = half.last_ns.max(stamp_ns);
        half.passed_again(stamp_ns);
        if let Some(unit) = half.unit
            && let Act::Send { took_ns, .. } = &mut self.steps[unit.step].act
        {
            *took_ns = stamp_ns.saturating_sub(unit.began_ns).max(*took_ns);
        }
    }

    /// A direction without a packet in the capture is assumed to send after it has received all that the
    /// other one sent.
    fn infer_receipt(&mut self, side: Side) {
        let other = self.half(side.other());
        let (high, last_ns) = (other.high, other.last_ns);
        let half = self.half_mut(side);
        half.acknowledged = high;
        half.acknowledged_ns = last_ns;
    }

    /// An acknowledgement shows data of this side that was not seen.
    fn send_unseen(&mut self, side: Side, stamp_ns: u64, to: u64, steps_max: usize) {
        let is_last = to == self.half(side).high + 1 && self.half(side.other()).fin.is_some();
        if self.half(side).carried.packets == 0 {
            self.infer_receipt(side);
            // If the other end has sent its FIN, the one offset beyond the data is this side's FIN.
            if is_last {
                return self.ends_direction(side, stamp_ns);
            }
        }
        self.send(side, stamp_ns, (to, None), steps_max);
    }

    /// All data of this side up to offset `to` has been sent by now: in a segment of `segment_bytes`, if one was
    /// seen.
    fn send(
        &mut self,
        side: Side,
        stamp_ns: u64,
        (to, segment_bytes): (u64, Option<u32>),
        steps_max: usize,
    ) {
        let is_seen = segment_bytes.is_some();
        let other_high = self.half(side.other()).data_high();
        let at = self.steps.len();
        let half = &mut self.halves[side.index()];
        let new = to - half.high;
        let segments = if is_seen { 1 } else { new.div_ceil(SEGMENT_UNSEEN_BYTES) as u32 };
        let received = half.acknowledged.min(other_high);
        self.is_concurrent |= is_seen && received < other_high;
        let quiet_ns = stamp_ns.saturating_sub(half.active_ns);
        let goes_on = |unit: &Unit| unit.goes_on(received, quiet_ns, segment_bytes);
        match half.unit.as_mut().filter(|unit| at >= steps_max || goes_on(unit)) {
            Some(unit) => {
                unit.takes(segment_bytes);
                let step = &mut self.steps[unit.step];
                let Act::Send { bytes, segments: all, took_ns } = &mut step.act else {
                    unreachable!("a unit is a step that sends")
                };
                *bytes += new;
                *all = all.saturating_add(segments);
                *took_ns = stamp_ns.saturating_sub(unit.began_ns).max(*took_ns);
            }
            None => {
                half.unit = Some(Unit::new(at, received, stamp_ns, segment_bytes));
                let act = Act::Send { bytes: new, segments, took_ns: 0 };
                self.steps.push(step(half, side, stamp_ns, act));
            }
        }
        half.carried.payload_bytes += new;
        half.carried.unseen_bytes += if is_seen { 0 } else { new };
        half.passed(to, stamp_ns);
        half.last_ns = half.last_ns.max(stamp_ns);
        half.active_ns = half.last_ns;
    }

    fn fin(&mut self, side: Side, stamp_ns: u64, sequence: u32, steps_max: usize) {
        let half = self.half_mut(side);
        let offset = half.offset(sequence);
        let is_said = half.fin.is_some() || offset < half.high as i64 || half.is_astray(offset);
        if is_said || self.has_reset(side) || self.is_too_late(side, stamp_ns) {
            return;
        }
        let half = self.half_mut(side);
        if offset > half.high as i64 {
            self.send(side, stamp_ns, (offset as u64, None), steps_max);
        }
        self.ends_direction(side, stamp_ns);
        self.was_under_way(side, stamp_ns);
    }

    fn has_reset(&self, side: Side) -> bool {
        self.resets[side.index()].is_some()
    }

    /// Did the other end reset the connection longer ago than [`QUIET_NS`]?
    fn is_too_late(&self, side: Side, stamp_ns: u64) -> bool {
        self.resets[side.other().index()]
            .is_some_and(|reset| stamp_ns.saturating_sub(reset.stamp_ns) > QUIET_NS)
    }

    /// An end that continues after its reset did not send it: a middlebox did, and the other end ignored it.
    fn take_back_reset(&mut self, side: Side) {
        let Some(Reset { step, before_ns, .. }) = self.resets[side.index()].take() else { return };
        self.half_mut(side).last_ns = before_ns;
        self.steps.remove(step);
        let units = self.halves.iter_mut().filter_map(|half| half.unit.as_mut());
        let places = units.map(|unit| &mut unit.step);
        let others = self.resets.iter_mut().flatten().map(|reset| &mut reset.step);
        places.chain(others).filter(|place| **place > step).for_each(|place| *place -= 1);
    }

    /// Data that this side sends shortly after the other one's reset was in flight before the reset arrived. On
    /// shorter paths nothing would be in flight; so that the data is replayed at all, the reset awaits it, unless
    /// it is known that the socket was gone.
    fn was_under_way(&mut self, side: Side, stamp_ns: u64) {
        if let Some(Reset { step, is_gone, .. }) = self.resets[side.other().index()] {
            let half = self.half(side);
            let to = half.fin.map_or(half.high, |fin| fin + 1);
            if !is_gone {
                let reset = &mut self.steps[step];
                (reset.awaits, reset.pause_ns) = (reset.awaits.max(to), 0);
            }
            self.end_ns = self.end_ns.max(stamp_ns);
        }
    }

    fn ends_direction(&mut self, side: Side, stamp_ns: u64) {
        let half = self.half_mut(side);
        half.fin = Some(half.high);
        half.passed(half.high + 1, stamp_ns);
        self.ends(side, stamp_ns, Act::Fin);
    }

    fn reset(&mut self, side: Side, stamp_ns: u64, segment: &TcpSegment) {
        let answers = self.answers_unreceived_data(side, segment);
        if answers && !self.is_refused && self.is_gone(side, stamp_ns) || self.is_over() {
            return;
        }
        let server = &self.half(Side::Server).carried;
        let is_first = self.answer_ns.is_none() && server.payload_bytes == 0;
        if side == Side::Server && self.syn.is_some() && is_first {
            self.is_refused = true;
            return;
        }
        let other = self.half(side.other());
        let acked = other.peek(segment.acknowledgement).filter(|_| segment.flags & ACK != 0);
        let acked = acked.filter(|acked| (0..=other.high as i64).contains(acked));
        let received = acked.map(|acked| {
            self.receives(side, acked as u64);
            let step = step(self.half(side), side, stamp_ns, Act::Reset);
            (step.awaits, step.pause_ns)
        });
        // Whatever passed before the reset may have caused it, even if it acknowledges less.
        self.receives(side, self.half(side.other()).high);
        self.ends_by_reset(side, stamp_ns, received, false);
    }

    /// Is this a reset that answers a segment without a matching socket (RFC 9293, section 3.10.7.1: it has
    /// no acknowledgement), while the other end sent what this one never acknowledged?
    fn answers_unreceived_data(&self, side: Side, segment: &TcpSegment) -> bool {
        let received = match self.resets[side.index()] {
            Some(reset) => reset.received.map_or(u64::MAX, |(received, _)| received),
            None => self.half(side).acknowledged,
        };
        segment.flags & ACK == 0 && received < self.half(side.other()).high
    }

    /// This side answers segments by resets. If it had closed or reset the connection, its socket was gone by then,
    /// and received nothing more. False if it had done neither.
    fn is_gone(&mut self, side: Side, stamp_ns: u64) -> bool {
        if let Some(reset) = &mut self.resets[side.index()] {
            if let Some(received) = reset.received
                && !reset.is_gone
            {
                let step = &mut self.steps[reset.step];
                (step.awaits, step.pause_ns) = received;
                reset.is_gone = true;
            }
            return true;
        }
        let has_closed = self.half(side).fin.is_some();
        if has_closed {
            self.ends_by_reset(side, stamp_ns, None, true);
        }
        has_closed
    }

    fn ends_by_reset(
        &mut self,
        side: Side,
        stamp_ns: u64,
        received: Option<(u64, u64)>,
        is_gone: bool,
    ) {
        let before_ns = self.half(side).last_ns;
        let step = self.steps.len();
        self.resets[side.index()] = Some(Reset { step, stamp_ns, before_ns, received, is_gone });
        self.ends(side, stamp_ns, Act::Reset);
        if is_gone {
            // The socket was gone from its close on, or since the last data that it acknowledged.
            self.steps[step].pause_ns = 0;
        }
    }

    /// Records the last step of this side.
    fn ends(&mut self, side: Side, stamp_ns: u64, act: Act) {
        let half = &mut self.halves[side.index()];
        self.steps.push(step(half, side, stamp_ns, act));
        half.unit = None;
        half.last_ns = half.last_ns.max(stamp_ns);
    }
}

/// A step of this side at this moment, after what it did and received before.
fn step(half: &Half, by: Side, stamp_ns: u64, act: Act) -> Step {
    let since_ns = half.last_ns.max(half.acknowledged_ns);
    Step { by, awaits: half.acknowledged, pause_ns: stamp_ns.saturating_sub(since_ns), act }
}
