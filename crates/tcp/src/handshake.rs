//! How a connection begins: SYNs, their options, and what both ends agree on (RFC 9293, 3.5).

use nilometer_wire::{Ecn, Span, Time};

use crate::config::Recovery;
use crate::connection::{Connection, Urgent};
use crate::segment::{ACK, CWR, ECE, FIN, RST, SYN, Segment};
use crate::sender::NEVER;
use crate::sequence::{unwrap, wrap};
use crate::state::State;
use crate::timestamps;

/// MSS of a peer that does not name one (RFC 9293, 3.7.1).
const DEFAULT_MSS: u16 = 536;
/// Least MSS that is accepted; with a smaller one, segments would be headers without payload.
const LEAST_MSS: u16 = 48;
/// Largest shift of a window field (RFC 7323, 2.3).
const SCALE_LIMIT: u8 = 14;
/// Bytes of the timestamp option in a segment that is not a SYN.
const TIMESTAMP_BYTES: u32 = 12;
/// The timeout with which data starts after a handshake that lost a segment (RFC 6298, 5.7).
const CAUTIOUS_TIMEOUT: Span = Span::from_secs(3);

impl Connection {
    /// A segment for a connection that waits for a SYN (RFC 9293, 3.10.7.2).
    #[inline(never)]
    pub(crate) fn receive_listening(&mut self, now: Time, segment: &Segment) {
        if segment.has(RST) {
            return;
        }
        if segment.has(ACK) {
            self.urgent = Urgent::Reset(segment.acknowledgement, None);
            return;
        }
        if segment.has(SYN) {
            self.accept_syn(now, segment);
            self.has_ecn = self.config.ecn && segment.has(ECE | CWR);
            self.state = State::SynReceived;
            self.urgent = Urgent::Syn;
        }
    }

    /// A segment for a connection whose SYN was sent (RFC 9293, 3.10.7.3).
    #[inline(never)]
    pub(crate) fn receive_syn_sent(&mut self, now: Time, segment: &Segment) {
        let has_ack = segment.has(ACK);
        if has_ack {
            let ack = unwrap(self.sender.initial, self.sender.una, segment.acknowledgement);
            if ack.is_none_or(|ack| ack == 0 || ack > self.sender.max) {
                if !segment.has(RST) {
                    self.urgent = Urgent::Reset(segment.acknowledgement, None);
                }
                return;
            }
        }
        if segment.has(RST) {
            if has_ack {
                self.enter_closed();
            }
            return;
        }
        if !segment.has(SYN) {
            return;
        }
        self.accept_syn(now, segment);
        if has_ack {
            self.has_ecn = self.config.ecn && segment.flags & (ECE | CWR) == ECE;
            self.syn_acknowledged(now, segment);
            self.sender.update_window(0, 1, u64::from(segment.window));
            self.receiver.acknowledge_now();
        } else {
            // Both ends opened at once: our SYN goes out again, with an ACK.
            self.has_ecn = self.config.ecn && segment.has(ECE | CWR);
            self.state = State::SynReceived;
            self.urgent = Urgent::Syn;
        }
    }

    /// An acknowledgement in SYN-RECEIVED: whether it completes the handshake.
    pub(crate) fn complete_handshake(
        &mut self,
        now: Time,
        ack: Option<u64>,
        segment: &Segment,
    ) -> bool {
        if ack.is_none_or(|ack| ack == 0 || ack > self.sender.max) {
            self.urgent = Urgent::Reset(segment.acknowledgement, None);
            return false;
        }
        self.syn_acknowledged(now, segment);
        let window = u64::from(segment.window) << self.peer_scale;
        self.sender.update_window(0, 1, window);
        true
    }

    /// Our SYN has been received.
    fn syn_acknowledged(&mut self, now: Time, segment: &Segment) {
        let sender = &mut self.sender;
        if self.urgent == Urgent::Syn {
            self.urgent = Urgent::Nothing;
        }
        sender.una = 1;
        sender.next = sender.next.max(1);
        sender.deadline = NEVER;
        match sender.timed.take() {
            Some((_, sent)) => sender.rtt.sample(now.since(sent)),
            None => {
                // A SYN was lost: one segment to begin with (RFC 5681, 3.1).
                sender.window.cwnd = u64::from(sender.window.mss);
                sender.rtt.restart(CAUTIOUS_TIMEOUT);
            }
        }
        sender.retries = 0;
        if self.has_timestamps
            && let Some(rtt) = self.echoed(now, segment).filter(|_| self.smoothed_rtt().is_none())
        {
            self.sender.rtt.sample(rtt);
        }
        self.state = if self.sender.has_fin { State::FinWait1 } else { State::Established };
    }

    /// What the peer's SYN says.
    fn accept_syn(&mut self, now: Time, segment: &Segment) {
        self.receiver.begin(segment.sequence);
        let mss = segment.mss().unwrap_or(DEFAULT_MSS).max(LEAST_MSS).min(self.config.mss);
        let mut mss = u32::from(mss);
        self.has_timestamps = self.config.timestamps && segment.has_timestamps();
        if self.has_timestamps {
            self.recent_timestamp = segment.timestamps[0];
            self.recent_at = now;
            mss = mss.saturating_sub(TIMESTAMP_BYTES).max(1);
        }
        if let (Some(ours), Some(theirs)) = (self.config.window_scale, segment.scale()) {
            self.receiver.set_scale(Some(ours.min(SCALE_LIMIT)));
            self.peer_scale = theirs.min(SCALE_LIMIT);
        }
        let offers_sack = matches!(self.config.recovery, Recovery::Sack | Recovery::Rack);
        self.sender.has_sack = offers_sack && segment.sack_permitted();
        if offers_sack && !self.sender.has_sack {
            self.sender.recovery = Recovery::NewReno;
        }
        self.sender.begin(mss, &self.config);
    }

    /// The timer of a SYN ran out.
    pub(crate) fn repeat_syn(&mut self) {
        if self.sender.retries >= self.config.syn_retries {
            self.enter_closed();
            return;
        }
        self.sender.retries += 1;
        self.sender.rtt.back_off();
        self.sender.timed = None;
        self.statistics.timeouts += 1;
        self.urgent = Urgent::Syn;
    }

    /// Sends the SYN or the reset that is due.
    #[inline(never)]
    pub(crate) fn transmit_urgent(&mut self, now: Time, segment: &mut Segment) -> Option<Ecn> {
        *segment = match core::mem::replace(&mut self.urgent, Urgent::Nothing) {
            Urgent::Nothing => return None,
            Urgent::Syn => self.syn(now),
            Urgent::Reset(sequence, acknowledgement) => {
                let mut segment = Segment::default();
                segment.sequence = sequence;
                segment.flags = RST;
                if let Some(number) = acknowledgement {
                    segment.flags |= ACK;
                    segment.acknowledgement = number;
                    if self.has_timestamps {
                        let value = timestamps::at(now);
                        segment.set_timestamps(value, self.recent_timestamp);
                    }
                }
                self.statistics.segments_sent += 1;
                segment
            }
        };
        Some(Ecn::NotCapable)
    }

    fn syn(&mut self, now: Time) -> Segment {
        let has_peer = self.state == State::SynReceived;
        let scale = self.config.window_scale.filter(|_| !has_peer || self.receiver.scales());
        let mut segment = Segment::default();
        segment.sequence = wrap(self.sender.initial, 0);
        segment.flags = SYN;
        segment.window = self.config.receive_buffer.min(65_535) as u16;
        segment.set_mss(self.config.mss);
        if let Some(shift) = scale {
            segment.set_scale(shift.min(SCALE_LIMIT));
        }
        let sack = matches!(self.config.recovery, Recovery::Sack | Recovery::Rack);
        if sack && (!has_peer || self.sender.has_sack) {
            segment.set_sack_permitted();
        }
        if self.config.timestamps && (!has_peer || self.has_timestamps) {
            segment.set_timestamps(timestamps::at(now), self.recent_timestamp);
        }
        if has_peer {
            segment.flags |= ACK;
            segment.acknowledgement = self.receiver.acknowledge(self.sender.window.mss).0;
            self.receiver.limit_edge(u64::from(segment.window));
            segment.flags |= if self.has_ecn { ECE } else { 0 };
        } else if self.config.ecn {
            segment.flags |= ECE | CWR;
        }
        let sender = &mut self.sender;
        if sender.max > 0 {
            self.statistics.retransmitted_segments += 1;
        } else {
            sender.timed = Some((0, now));
        }
        sender.next = 1;
        sender.max = 1;
        sender.deadline = now + sender.rtt.rto();
        self.statistics.segments_sent += 1;
        segment
    }

    /// A segment for no connection (RFC 9293, 3.10.7.1): a reset, unless it is one.
    #[inline(never)]
    pub(crate) fn receive_closed(&mut self, segment: &Segment) {
        self.statistics.refused_segments += 1;
        if segment.has(RST) {
            return;
        }
        self.urgent = if segment.has(ACK) {
            Urgent::Reset(segment.acknowledgement, None)
        } else {
            let end = segment.sequence.wrapping_add(segment.sequence_length());
            self.has_timestamps = false;
            Urgent::Reset(0, Some(end))
        };
    }

    /// A segment of a synchronised connection with a RST, a SYN, or without an ACK.
    #[inline(never)]
    pub(crate) fn receive_exception(&mut self, start: u64, segment: &Segment) {
        if segment.has(RST) {
            if start == self.receiver.next {
                let returns = self.state == State::SynReceived && self.was_passive;
                if returns {
                    *self = Connection::listen(self.config, self.sender.initial);
                } else {
                    self.enter_closed();
                }
            } else {
                // Perhaps a blind attack: the peer confirms by a reset with the right number
                // (RFC 5961, 3.2).
                self.receiver.acknowledge_now();
            }
            return;
        }
        self.statistics.refused_segments += 1;
        if segment.has(SYN) {
            self.receiver.acknowledge_now(); // RFC 5961, 4.2
        }
    }

    /// A segment that does not fit into the window.
    #[inline(never)]
    pub(crate) fn receive_outside(&mut self, now: Time, start: Option<u64>, segment: &Segment) {
        if segment.has(RST) {
            self.statistics.refused_segments += 1;
            return;
        }
        let is_repeated_syn = start == Some(0) && segment.has(SYN);
        if self.state == State::SynReceived && is_repeated_syn {
            if segment.has(ACK) {
                // Both ends opened at once, and this is the peer's answer to our SYN.
                let ack = unwrap(self.sender.initial, self.sender.una, segment.acknowledgement);
                if ack == Some(1) && self.sender.max >= 1 {
                    self.syn_acknowledged(now, segment);
                    self.sender.update_window(0, 1, u64::from(segment.window));
                }
                self.receiver.acknowledge_now();
            } else {
                // The peer has not seen ours; its answer may be to either (RFC 6298, section 3).
                self.urgent = Urgent::Syn;
                self.sender.timed = None;
            }
            return;
        }
        if segment.has(FIN) {
            self.restart_time_wait(now);
        }
        self.refuse(start, segment);
    }

    /// Answers a segment that is not taken.
    #[inline(never)]
    pub(crate) fn refuse(&mut self, start: Option<u64>, segment: &Segment) {
        self.statistics.refused_segments += 1;
        self.receiver.note_old(start, segment.length, &mut self.statistics);
        self.receiver.acknowledge_now();
    }
}
