//! Delays by the way that packets took through our router: by flow offload in the kernel, or through the pipeline.
//!
//! Nothing in a packet says which way it took. The router writes down from when to when each flow had a shortcut, and
//! the meter knows from when to when each packet was in the device: one that came and left within a grant of its
//! flow was offloaded, one that met no grant went through the pipeline. What was there while the grant of its
//! flow began or ended is counted as either: the meter's clock and the router's agree to a millisecond, no better.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::Instant;

use nilometer_profile::{DelayConfig, Delays, Fate, Fingerprint, PacketOutcome};
use nilometer_router::Key;
use nilometer_routerd::driver::{GrantEntry, GrantLog};
use nilometer_wire::Time;

/// How far the router's clock and the meter's may be apart, ns.
const APART_NS: u64 = 1_000_000;

/// What is known of a router's shortcuts.
#[derive(Clone, Debug)]
pub struct Shortcuts {
    /// Where it writes them down; none where there are none.
    pub log: Option<GrantLog>,
    /// When the traffic begins.
    pub origin: Instant,
}

nilometer_wire::named! {
    /// A way through our router.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Way {
        /// In the kernel, past the pipeline.
        Offloaded = "offloaded",
        /// Through the pipeline, its slow path included.
        Pipeline = "pipeline",
        /// One of both: its flow's shortcut began or ended meanwhile.
        Either = "either",
    }
}

/// When a flow had shortcuts: from when to when, by the meter's time; the last may go on.
type Spans = Vec<[u64; 2]>;

/// Delays by way.
#[derive(Debug)]
pub struct DelaysByWay {
    shortcuts: Shortcuts,
    /// The meter's time when the traffic begins.
    begins_ns: u64,
    spans: HashMap<u32, Spans>,
    delays: [Delays; Way::ALL.len()],
}

impl DelaysByWay {
    /// Nothing measured yet; the traffic begins at `begins_ns` of the meter's time.
    pub fn new(shortcuts: Shortcuts, begins_ns: u64) -> DelaysByWay {
        let delays = Way::ALL.map(|_| Delays::new(DelayConfig::default()));
        DelaysByWay { shortcuts, begins_ns, spans: HashMap::new(), delays }
    }

    /// Takes what the router has written down since.
    pub fn look(&mut self) {
        let Some(log) = self.shortcuts.log.clone() else { return };
        for entry in log.take() {
            self.grant(&entry);
        }
    }

    fn grant(&mut self, entry: &GrantEntry) {
        let since = entry.at.saturating_duration_since(self.shortcuts.origin).as_nanos() as u64;
        let before = self.shortcuts.origin.saturating_duration_since(entry.at).as_nanos() as u64;
        let at_ns = (self.begins_ns + since).saturating_sub(before);
        let spans = self.spans.entry(flow_of(&entry.key)).or_default();
        match (entry.is_granted, spans.last_mut()) {
            (true, _) => spans.push([at_ns, u64::MAX]),
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
        self.delays[self.way(outcome.flow, entered, left) as usize].record(outcome);
    }

    fn way(&self, flow: u32, entered: Time, left: Time) -> Way {
        let is_unknown = self.shortcuts.log.as_ref().is_some_and(GrantLog::is_full);
        let (from_ns, to_ns) = (entered.as_nanos(), left.as_nanos());
        let Some(spans) = self.spans.get(&flow) else {
            return if is_unknown { Way::Either } else { Way::Pipeline };
        };
        let is_within = |&[granted, ended]: &[u64; 2]| {
            granted + APART_NS <= from_ns && to_ns.saturating_add(APART_NS) <= ended
        };
        let meets = |&[granted, ended]: &[u64; 2]| {
            granted <= to_ns + APART_NS && from_ns <= ended.saturating_add(APART_NS)
        };
        match () {
            () if is_unknown => Way::Either,
            () if spans.iter().any(is_within) => Way::Offloaded,
            () if spans.iter().any(meets) => Way::Either,
            () => Way::Pipeline,
        }
    }

    /// The delays of each way.
    pub fn finish(self) -> [Delays; Way::ALL.len()] {
        self.delays
    }
}

/// What the meter calls a flow of IPv4 (others have no shortcuts).
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
    fn a_packet_took_the_way_that_its_flow_had_all_the_while() {
        let origin = Instant::now() + Duration::from_secs(10);
        let mut by_way = DelaysByWay::new(Shortcuts { log: None, origin }, 100 * MS);
        let granted = |ms: u64, is_granted| GrantEntry {
            at: origin + Duration::from_millis(ms),
            key: key(),
            is_granted,
        };
        for entry in [granted(50, true), granted(80, false), granted(200, true)] {
            by_way.grant(&entry);
        }
        let flow = flow_of(&key());
        let way = |from: u64, to: u64| {
            by_way.way(flow, Time::from_nanos(from * MS), Time::from_nanos(to * MS))
        };
        // (The traffic begins at 100 ms of the meter's time.)
        assert_eq!(way(100, 110), Way::Pipeline);
        assert_eq!(way(140, 155), Way::Either);
        assert_eq!(way(152, 153), Way::Offloaded);
        assert_eq!(way(179, 182), Way::Either);
        assert_eq!(way(190, 290), Way::Pipeline);
        assert_eq!(way(302, 900), Way::Offloaded);
        let other = Time::from_nanos(302 * MS);
        assert_eq!(by_way.way(flow ^ 1, other, other), Way::Pipeline);
    }

    #[test]
    fn only_what_was_forwarded_has_a_delay() {
        let shortcuts = Shortcuts { log: None, origin: Instant::now() };
        let mut by_way = DelaysByWay::new(shortcuts, 0);
        for fate in [Fate::Forwarded, Fate::Lost, Fate::Corrupted] {
            by_way.record(&PacketOutcome {
                direction: Direction::ClientToServer,
                fate,
                entered_at: Some(Time::from_nanos(5)),
                left_at: Some(Time::from_nanos(30)),
                bytes: 100,
                flow: 7,
                reordered: false,
            });
        }
        let [offloaded, pipeline, either] = by_way.finish();
        let count = |delays: &Delays| delays.histogram(None).count();
        assert_eq!([count(&offloaded), count(&pipeline), count(&either)], [0, 1, 0]);
    }
}
