//! Losses between an exporter and us, by the exporter's sequence numbers.
//!
//! A NetFlow version 5 header carries the count of flows exported before it, one count for each
//! engine of the exporter. A number ahead of the expected one means that flows were lost; one behind
//! it belongs to a datagram that was overtaken on the way, unless the exporter's uptime went back too, in which
//! case the exporter restarted. It also restarted where a number is farther ahead than any plausible loss. A
//! mirrored port, or a capture of all interfaces, has every datagram twice: one with the same number as the
//! last does not reduce the count of losses.

use alloc::collections::BTreeMap;

use crate::netflow5::{Datagram, Header};

/// If an uptime goes back by more than this, the exporter was restarted and the datagram not overtaken.
/// Milliseconds.
const OVERTAKEN_MAX_MS: u32 = 60_000;
/// A gap of more units than this is not a loss: the exporter was restarted.
const LOST_MAX: u32 = 1 << 24;
/// Engines of an exporter whose numbers are followed.
const ENGINES_MAX: usize = 64;

/// The counts by sequence numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SequenceCounts {
    /// Flows whose datagrams never came.
    pub flows_lost: u64,
    /// Datagrams that came after a later one.
    pub datagrams_late: u64,
    /// Datagrams that came a second time.
    pub datagrams_repeated: u64,
    /// How often an engine restarted its count.
    pub restarts: u64,
}

/// Follows the engines of one exporter, the first 64 of them.
#[derive(Clone, Debug, Default)]
pub struct Sequences {
    engines: BTreeMap<(u8, u8), Engine>,
    counts: SequenceCounts,
}

#[derive(Clone, Copy, Debug)]
struct Engine {
    next: u32,
    uptime_ms: u32,
    secs: u32,
}

impl Sequences {
    /// An exporter about which nothing is known.
    pub fn new() -> Sequences {
        Sequences::default()
    }

    /// Takes the next datagram of this exporter.
    pub fn observe(&mut self, datagram: &Datagram) {
        self.observe_header(&datagram.header, datagram.records.len() as u32);
    }

    /// Takes the header of the next datagram of this exporter, which carried `flows` flows.
    pub fn observe_header(&mut self, header: &Header, flows: u32) {
        let following = Engine {
            next: header.flow_sequence.wrapping_add(flows),
            uptime_ms: header.uptime_ms,
            secs: header.unix_secs,
        };
        let id = (header.engine_type, header.engine_id);
        let Some(engine) = self.engines.get_mut(&id) else {
            if self.engines.len() < ENGINES_MAX {
                self.engines.insert(id, following);
            }
            return;
        };
        let ahead = header.flow_sequence.wrapping_sub(engine.next) as i32;
        let uptime_back_ms = engine.uptime_ms.wrapping_sub(header.uptime_ms) as i32;
        let is_same_time = uptime_back_ms == 0 && engine.secs == header.unix_secs;
        if flows > 0 && ahead == -(flows as i32) && is_same_time {
            self.counts.datagrams_repeated += 1;
            return;
        }
        if uptime_back_ms > OVERTAKEN_MAX_MS as i32 || ahead > LOST_MAX as i32 {
            self.counts.restarts += 1;
        } else if ahead < 0 {
            self.counts.datagrams_late += 1;
            self.counts.flows_lost = self.counts.flows_lost.saturating_sub(u64::from(flows));
            return;
        } else {
            self.counts.flows_lost += ahead as u64;
        }
        *engine = following;
    }

    /// The counts so far.
    pub fn counts(&self) -> SequenceCounts {
        self.counts
    }
}

/// Follows one numbering whose numbers say how many units were sent before: datagrams (NetFlow v9,
/// sFlow) or data records (IPFIX).
#[derive(Clone, Copy, Debug, Default)]
pub struct Numbering {
    last: Option<Last>,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    number: u32,
    /// The number that comes next, where it is known.
    next: Option<u32>,
    secs: u32,
}

/// What a number shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbered {
    /// The datagram follows the one before it, or the number before it is not known.
    Follows,
    /// This many units were lost, or have not come yet.
    Lost(u32),
    /// The datagram was overtaken, and was counted as lost before.
    Late,
    /// It repeats the datagram before it.
    Repeated,
    /// The numbering restarted.
    Restarted,
}

impl Numbering {
    /// Takes a number, the units that its datagram holds (`None` where they cannot be counted, so
    /// that the next number is not known), and when it was sent, in seconds of any clock. A number
    /// behind the expected one belongs to an overtaken datagram, unless it was sent later.
    pub fn observe(&mut self, number: u32, units: Option<u32>, secs: u32) -> Numbered {
        let following = Last { number, next: units.map(|units| number.wrapping_add(units)), secs };
        let Some(Last { number: before, next: Some(next), secs: last_secs }) = self.last else {
            self.last = Some(following);
            return Numbered::Follows;
        };
        let ahead = number.wrapping_sub(next) as i32;
        if ahead < 0 && (number, secs) == (before, last_secs) {
            return Numbered::Repeated;
        }
        if ahead < 0 && secs <= last_secs {
            return Numbered::Late;
        }
        self.last = Some(following);
        match ahead {
            0 => Numbered::Follows,
            1.. if ahead as u32 <= LOST_MAX => Numbered::Lost(ahead as u32),
            _ => Numbered::Restarted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EndReason, FlowKey, FlowRecord};
    use alloc::vec;
    use core::net::Ipv4Addr;

    fn datagram(engine_id: u8, flow_sequence: u32, flows: usize, uptime_ms: u32) -> Datagram {
        let host = Ipv4Addr::new(198, 18, 0, 1).into();
        let record = FlowRecord {
            key: FlowKey {
                source: host,
                destination: host,
                source_port: 1,
                destination_port: 2,
                protocol: 6,
            },
            start_ns: 0,
            end_ns: 0,
            packets: 1,
            octets: 40,
            tcp_flags: 0,
            payload_octets: None,
            opened: None,
            end_reason: EndReason::Unknown,
            sampling_interval: 0,
        };
        let header = Header { engine_id, flow_sequence, uptime_ms, ..Header::default() };
        Datagram { header, records: vec![record; flows], times_reversed: 0 }
    }

    #[test]
    fn a_numbering_of_any_units_is_followed() {
        let mut numbering = Numbering::default();
        assert_eq!(numbering.observe(u32::MAX - 4, Some(5), 10), Numbered::Follows);
        assert_eq!(numbering.observe(0, Some(3), 10), Numbered::Follows);
        assert_eq!(numbering.observe(8, Some(2), 11), Numbered::Lost(5));
        assert_eq!(numbering.observe(3, Some(5), 11), Numbered::Late);
        assert_eq!(numbering.observe(8, Some(2), 11), Numbered::Repeated);
        assert_eq!(numbering.observe(10, None, 11), Numbered::Follows, "what came late stays late");
        assert_eq!(numbering.observe(90, Some(1), 11), Numbered::Follows, "nothing was known");
        assert_eq!(numbering.observe(0, Some(1), 12), Numbered::Restarted);
        assert_eq!(numbering.observe(1, Some(1), 12), Numbered::Follows);
        assert_eq!(numbering.observe(3_000_000_000, Some(1), 12), Numbered::Late);
        assert_eq!(numbering.observe(3_000_000_000, Some(1), 13), Numbered::Restarted);
        let restarted = "from so far ahead numbers are not lost but begin anew";
        assert_eq!(numbering.observe(0, Some(1), 13), Numbered::Restarted, "{restarted}");
    }

    #[test]
    fn an_exporter_of_every_engine_is_followed_in_part() {
        let mut sequences = Sequences::new();
        for engine in 0..=255 {
            sequences.observe(&datagram(engine, 0, 1, 1_000));
            sequences.observe(&datagram(engine, 2, 1, 1_000));
        }
        assert_eq!(sequences.counts().flows_lost, ENGINES_MAX as u64);
        let mut sequences = Sequences::new();
        sequences.observe(&datagram(0, 3_000_000_000, 1, 2_000));
        sequences.observe(&datagram(0, 0, 1, 2_001));
        assert_eq!((sequences.counts().flows_lost, sequences.counts().restarts), (0, 1));
    }

    #[test]
    fn loss_reordering_and_restarts_are_distinguished() {
        let mut sequences = Sequences::new();
        sequences.observe(&datagram(0, u32::MAX - 29, 30, 5_000_000));
        sequences.observe(&datagram(0, 0, 30, 5_001_000));
        sequences.observe(&datagram(1, 7_777, 30, 5_001_000));
        assert_eq!(sequences.counts(), SequenceCounts::default(), "wrapping, and another engine");
        sequences.observe(&datagram(0, 60, 30, 5_003_000));
        assert_eq!(sequences.counts().flows_lost, 30);
        sequences.observe(&datagram(0, 30, 30, 5_002_000));
        sequences.observe(&datagram(0, 90, 10, 5_004_000));
        let late = SequenceCounts { datagrams_late: 1, ..SequenceCounts::default() };
        assert_eq!(sequences.counts(), late);
        sequences.observe(&datagram(0, 0, 5, 1_000));
        sequences.observe(&datagram(0, 8, 5, 2_000));
        let restarted = SequenceCounts { flows_lost: 3, restarts: 1, ..late };
        assert_eq!(sequences.counts(), restarted);
        sequences.observe(&datagram(0, 8, 5, 2_000));
        assert_eq!(sequences.counts(), SequenceCounts { datagrams_repeated: 1, ..restarted });
        let mut elsewhere = datagram(0, 8, 5, 2_000);
        elsewhere.header.unix_secs += 86_400;
        sequences.observe(&elsewhere);
        assert_eq!(sequences.counts().datagrams_repeated, 1, "of another day");
    }
}
