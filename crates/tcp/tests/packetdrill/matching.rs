//! Between a script's numbers and those on the wire, and whether what left was expected.
//!
//! Sequence numbers of a script are relative to the initial ones, except on a SYN. Timestamp values
//! are carried over by a table from script to wire, filled by every packet that leaves.
//!
//! Two things are not compared. PSH: Linux sets it by how its `write` calls filled its buffers and
//! on every batch that goes to the network card as one, and a segment without a buffer has neither.
//! The order and padding of options: a [`Segment`] holds them as a set. As in packetdrill, one
//! packet of a script may be several segments on the wire.

use std::collections::BTreeMap;

use nilometer_tcp::Segment;
use nilometer_tcp::segment::{ACK, CWR, ECE, FIN, PSH, RST, SYN, URG};
use nilometer_wire::Ecn;

use super::packet::{Mark, Opt, Packet};

/// Where script and wire differ in their numbers.
#[derive(Clone, Debug, Default)]
pub struct Numbers {
    local_script: u32,
    local_live: u32,
    remote: u32,
    /// The first timestamp value that left, in the script and on the wire.
    first_value: Option<(u32, u32)>,
    values: BTreeMap<u32, u32>,
}

impl Numbers {
    /// The segment that a packet of the script puts on the wire.
    pub fn inbound(&mut self, packet: &Packet) -> Result<Segment, String> {
        let is_syn = packet.flags & SYN != 0;
        let mut segment = Segment::default();
        segment.flags = packet.flags;
        if is_syn {
            self.remote = packet.sequence;
        }
        let sequence_base = if is_syn { 0 } else { self.remote };
        let base = if is_syn { self.local_script } else { 0 };
        let live = |number: u32| number.wrapping_sub(base).wrapping_add(self.local_live);
        segment.sequence = packet.sequence.wrapping_add(sequence_base);
        segment.length = u16::try_from(packet.length).map_err(|_| "too long".to_string())?;
        segment.window = packet.window.unwrap_or(0);
        if packet.flags & ACK != 0 {
            segment.acknowledgement = live(packet.acknowledgement);
        }
        for option in packet.options.iter().flatten() {
            match option {
                Opt::Mss(bytes) => segment.set_mss(*bytes),
                Opt::Scale(shift) => segment.set_scale(*shift),
                Opt::SackPermitted => segment.set_sack_permitted(),
                Opt::Timestamps(value, echo) => {
                    let echoed = self.values.get(echo).copied();
                    let echo = if packet.flags & ACK == 0 { Some(*echo) } else { echoed };
                    let echo = echo.ok_or("an echoed timestamp that was never sent")?;
                    segment.set_timestamps(*value, echo);
                }
                Opt::Sack(blocks) => {
                    for [left, right] in blocks {
                        segment.push_block(live(*left), live(*right));
                    }
                }
                Opt::Foreign(name) => return Err(format!("option {name}")),
            }
        }
        Ok(segment)
    }

    /// A segment as a script would write it.
    pub fn describe(&self, segment: &Segment) -> String {
        let letters = [(SYN, 'S'), (FIN, 'F'), (RST, 'R'), (ECE, 'E'), (CWR, 'W'), (URG, 'U')];
        let shown = letters.iter().filter(|(flag, _)| segment.has(*flag));
        let mut text: String = shown.map(|(_, letter)| *letter).collect();
        let sequence = self.script_sequence(segment);
        let end = sequence.wrapping_add(u32::from(segment.length));
        if segment.has(ACK) {
            text.push('.');
        }
        text.push_str(&format!(" {sequence}:{end}({})", segment.length));
        if segment.has(ACK) {
            text.push_str(&format!(" ack {}", self.script_acknowledgement(segment)));
        }
        for [left, right] in segment.blocks() {
            let [left, right] = [left, right].map(|edge| edge.wrapping_sub(self.remote));
            text.push_str(&format!(" sack {left}:{right}"));
        }
        text
    }

    fn script_sequence(&self, segment: &Segment) -> u32 {
        let relative = segment.sequence.wrapping_sub(self.local_live);
        if segment.has(SYN) { relative.wrapping_add(self.local_script) } else { relative }
    }

    fn script_acknowledgement(&self, segment: &Segment) -> u32 {
        let base = if segment.has(SYN) { 0 } else { self.remote };
        segment.acknowledgement.wrapping_sub(base)
    }

    /// Whether `segment` may be the next part of `packet`, after `before` bytes of it.
    ///
    /// `tick` is the microseconds of a timestamp's tick where the script checks values, and how far
    /// they may be off.
    pub fn compare(
        &mut self,
        packet: &Packet,
        (segment, ecn): (&Segment, Ecn),
        before: u32,
        tick: Option<(u32, u32)>,
    ) -> Result<(), String> {
        if segment.has(SYN) && packet.flags & SYN != 0 {
            self.local_script = packet.sequence;
            self.local_live = segment.sequence;
        }
        let is_last = before + u32::from(segment.length) == packet.length;
        let compared = if is_last { !PSH } else { !(PSH | FIN | CWR) };
        let seen = self.describe(segment);
        let fails = |what: &str| Err(format!("{what} of '{seen}'"));
        if before + u32::from(segment.length) > packet.length {
            return fails("length");
        }
        if (segment.flags ^ packet.flags) & compared != 0 {
            return fails("flags");
        }
        if self.script_sequence(segment) != packet.sequence.wrapping_add(before) {
            return fails("sequence number");
        }
        let acknowledgement = self.script_acknowledgement(segment);
        if segment.has(ACK) && acknowledgement != packet.acknowledgement {
            return fails("acknowledgement");
        }
        if packet.window.is_some_and(|window| window != segment.window) {
            return Err(format!("window {} of '{seen}'", segment.window));
        }
        let fits = match packet.mark {
            Mark::Unstated => true,
            Mark::Exactly(expected) => ecn == expected,
            Mark::Capable => matches!(ecn, Ecn::Capable0 | Ecn::Capable1),
        };
        if !fits {
            return Err(format!("ECN field {ecn:?} of '{seen}'"));
        }
        let options = packet.options.as_deref();
        options.map_or(Ok(()), |options| self.compare_options(options, segment, tick))
    }

    fn compare_options(
        &mut self,
        options: &[Opt],
        segment: &Segment,
        tick: Option<(u32, u32)>,
    ) -> Result<(), String> {
        let mut expected = Segment::default();
        expected.flags = segment.flags;
        let mut timestamps = None;
        for option in options {
            match option {
                Opt::Mss(bytes) => expected.set_mss(*bytes),
                Opt::Scale(shift) => expected.set_scale(*shift),
                Opt::SackPermitted => expected.set_sack_permitted(),
                Opt::Timestamps(value, _) => timestamps = Some(*value),
                Opt::Sack(blocks) => {
                    for [left, right] in blocks {
                        let [left, right] =
                            [*left, *right].map(|edge| edge.wrapping_add(self.remote));
                        expected.push_block(left, right);
                    }
                }
                Opt::Foreign(name) => return Err(format!("option {name}")),
            }
        }
        let differs = |what: &str| Err(format!("{what} of '{}'", self.describe(segment)));
        if expected.mss() != segment.mss() && segment.has(SYN) {
            return Err(format!("MSS option {:?}", segment.mss()));
        }
        if expected.scale() != segment.scale() && segment.has(SYN) {
            return Err(format!("window scale option {:?}", segment.scale()));
        }
        if expected.sack_permitted() != segment.sack_permitted() {
            return differs("SACK-permitted option");
        }
        if !expected.blocks().eq(segment.blocks()) {
            return differs("SACK option");
        }
        if timestamps.is_some() != segment.has_timestamps() {
            return differs("timestamp option");
        }
        let Some(value) = timestamps else { return Ok(()) };
        let live = segment.timestamps[0];
        self.values.insert(value, live);
        let (first_script, first_live) = *self.first_value.get_or_insert((value, live));
        let passed = live.wrapping_sub(first_live).wrapping_add(first_script);
        let off = passed.wrapping_sub(value) as i32;
        match tick {
            Some((usecs, tolerance)) if off.unsigned_abs() * usecs > tolerance => {
                Err(format!("timestamp value {passed}"))
            }
            _ => Ok(()),
        }
    }
}
