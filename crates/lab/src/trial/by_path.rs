//! Delays by forwarding path: packets that the kernel forwarded (flow offload), and those that passed our router's
//! pipeline.
//!
//! Nothing in a packet says which path it took. The router logs when each flow was offloaded, and the meter knows
//! when each packet was in the device: one that entered and left while its flow was offloaded took the kernel's path,
//! one that met no offload of its flow passed the pipeline. The path of a packet that was in the device when its
//! flow's offload began or ended is undetermined, as the meter's clock and the router's agree only to a millisecond.
//! A flow whose packets follow each other in the ring within 30 µs stays in the ring as long as they do, although it
//! is offloaded, so that they keep their order: under such load packets of the pipeline are counted as offloaded, and
//! `paths.shortcut` of the router's tally, which the kernel's program counts itself, is below their number.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::Instant;

use nilometer_profile::{DelayConfig, Delays, Fate, Fingerprint, PacketOutcome};
use nilometer_router::Key;
use nilometer_routerd::driver::{OffloadEvent, OffloadLog};
use nilometer_wire::Time;

/// How far the router's clock and the meter's may be apart, ns.
const CLOCK_OFFSET_MAX_NS: u64 = 1_000_000;

/// What the meter knows of a router's flow offload.
#[derive(Clone, Debug)]
pub struct OffloadObservation {
    /// The router's log; none if it offloads no flows.
    pub log: Option<OffloadLog>,
    /// When the traffic begins.
    pub origin: Instant,
}

nilometer_wire::named! {
    /// How a packet came through our router.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ForwardingPath {
        /// In the kernel, past the pipeline.
        Offloaded = "offloaded",
        /// Through the pipeline, its slow path included.
        Pipeline = "pipeline",
        /// It could be either: its flow's offload began or ended while it was in the device, or the log was full.
        Undetermined = "undetermined",
    }
}

/// When a flow was offloaded, by the meter's time; the last interval may still be open.
type OffloadIntervals = Vec<[u64; 2]>;

/// Delays by forwarding path.
#[derive(Debug)]
pub struct DelaysByPath {
    observation: OffloadObservation,
    /// The meter's time when the traffic begins.
    begins_ns: u64,
    offloads: HashMap<u32, OffloadIntervals>,
    delays: [Delays; ForwardingPath::ALL.len()],
}

impl DelaysByPath {
    /// Nothing measured yet; the traffic begins at `begins_ns` of the meter's time.
    pub fn new(observation: OffloadObservation, begins_ns: u64) -> DelaysByPath {
        let delays = ForwardingPath::ALL.map(|_| Delays::new(DelayConfig::default()));
        DelaysByPath { observation, begins_ns, offloads: HashMap::new(), delays }
    }

    /// Takes the router's log entries since the last call.
    pub fn drain_log(&mut self) {
        let Some(log) = self.observation.log.clone() else { return };
        for entry in log.take() {
            self.apply(&entry);
        }
    }

    fn apply(&mut self, entry: &OffloadEvent) {
        let since = entry.at.saturating_duration_since(self.observation.origin).as_nanos() as u64;
        let before = self.observation.origin.saturating_duration_since(entry.at).as_nanos() as u64;
        let at_ns = (self.begins_ns + since).saturating_sub(before);
        let offloads = self.offloads.entry(flow_of(&entry.key)).or_default();
        match (entry.is_installed, offloads.last_mut()) {
            (true, _) => offloads.push([at_ns, u64::MAX]),
            (false, Some(last)) => last[1] = at_ns,
            (false, None) => {}
        }
    }

    /// Books a packet that was forwarded.
    pub fn record(&mut self, outcome: &PacketOutcome) {
        if outcome.fate != Fate::Forwarded {
            return;
        }
        let (Some(entered), Some(left)) = (outcome.entered_at, outcome.left_at) else { return };
        self.delays[self.classify(outcome.flow, entered, left) as usize].record(outcome);
    }

    fn classify(&self, flow: u32, entered: Time, left: Time) -> ForwardingPath {
        let log_overflowed = self.observation.log.as_ref().is_some_and(OffloadLog::is_full);
        let (from_ns, to_ns) = (entered.as_nanos(), left.as_nanos());
        let Some(offloads) = self.offloads.get(&flow) else {
            return if log_overflowed {
                ForwardingPath::Undetermined
            } else {
                ForwardingPath::Pipeline
            };
        };
        let is_within = |&[began, ended]: &[u64; 2]| {
            began + CLOCK_OFFSET_MAX_NS <= from_ns
                && to_ns.saturating_add(CLOCK_OFFSET_MAX_NS) <= ended
        };
        let meets = |&[began, ended]: &[u64; 2]| {
            began <= to_ns + CLOCK_OFFSET_MAX_NS
                && from_ns <= ended.saturating_add(CLOCK_OFFSET_MAX_NS)
        };
        match () {
            () if log_overflowed => ForwardingPath::Undetermined,
            () if offloads.iter().any(is_within) => ForwardingPath::Offloaded,
            () if offloads.iter().any(meets) => ForwardingPath::Undetermined,
            () => ForwardingPath::Pipeline,
        }
    }

    /// The delays of each path, in the order of [`ForwardingPath::ALL`].
    pub fn finish(self) -> [Delays; ForwardingPath::ALL.len()] {
        self.delays
    }
}

/// The meter's number of an IPv4 flow (others are not offloaded).
fn flow_of(key: &Key<u32>) -> u32 {
    let mut header = [0; 24];
    (header[0], header[3], header[9]) = (0x45, 24, key.protocol);
    header[12..16].copy_from_slice(&Ipv4Addr::from(key.source).octets());
    header[16..20].copy_from_slice(&Ipv4Addr::from(key.destination).octets());
    header[20..22].copy_from_slice(&key.source_port.to_be_bytes());
    header[22..24].copy_from_slice(&key.destination_port.to_be_bytes());
    Fingerprint::of(&header).flow
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_profile::Direction;
    use nilometer_wire::build;
    use std::time::Duration;

    const MS: u64 = 1_000_000;

    fn key() -> Key<u32> {
        Key {
            source: u32::from(Ipv4Addr::new(198, 18, 0, 3)),
            destination: u32::from(Ipv4Addr::new(198, 19, 0, 5)),
            source_port: 4_000,
            destination_port: 80,
            protocol: 17,
            flags: 0,
        }
    }

    #[test]
    fn a_key_and_a_packet_of_its_flow_have_the_same_name() {
        let ends = ["198.18.0.3:4000", "198.19.0.5:80"].map(|end| end.parse().expect("an end"));
        let packet = build::udp(ends[0], ends[1], b"some bytes");
        assert_eq!(flow_of(&key()), Fingerprint::of(&packet).flow);
        assert_ne!(flow_of(&Key { source_port: 4_001, ..key() }), flow_of(&key()));
    }

    #[test]
    fn a_packet_took_the_path_that_its_flow_had_all_the_while() {
        let origin = Instant::now() + Duration::from_secs(10);
        let mut by_path = DelaysByPath::new(OffloadObservation { log: None, origin }, 100 * MS);
        let event = |ms: u64, is_installed| OffloadEvent {
            at: origin + Duration::from_millis(ms),
            key: key(),
            is_installed,
        };
        for entry in [event(50, true), event(80, false), event(200, true)] {
            by_path.apply(&entry);
        }
        let flow = flow_of(&key());
        let path = |from: u64, to: u64| {
            by_path.classify(flow, Time::from_nanos(from * MS), Time::from_nanos(to * MS))
        };
        // (The traffic begins at 100 ms of the meter's time.)
        assert_eq!(path(100, 110), ForwardingPath::Pipeline);
        assert_eq!(path(140, 155), ForwardingPath::Undetermined);
        assert_eq!(path(152, 153), ForwardingPath::Offloaded);
        assert_eq!(path(179, 182), ForwardingPath::Undetermined);
        assert_eq!(path(190, 290), ForwardingPath::Pipeline);
        assert_eq!(path(302, 900), ForwardingPath::Offloaded);
        let other = Time::from_nanos(302 * MS);
        assert_eq!(by_path.classify(flow ^ 1, other, other), ForwardingPath::Pipeline);
    }

    #[test]
    fn only_forwarded_packets_have_a_delay() {
        let observation = OffloadObservation { log: None, origin: Instant::now() };
        let mut by_path = DelaysByPath::new(observation, 0);
        for fate in [Fate::Forwarded, Fate::Lost, Fate::Corrupted] {
            by_path.record(&PacketOutcome {
                direction: Direction::ClientToServer,
                fate,
                entered_at: Some(Time::from_nanos(5)),
                left_at: Some(Time::from_nanos(30)),
                bytes: 100,
                flow: 7,
                reordered: false,
            });
        }
        let [offloaded, pipeline, either] = by_path.finish();
        let count = |delays: &Delays| delays.histogram(None).count();
        assert_eq!([count(&offloaded), count(&pipeline), count(&either)], [0, 1, 0]);
    }
}
