//! The ground truth of a fault box: its decision on each packet, and when.

use std::collections::BTreeMap;
use std::io::{BufWriter, Write};

use anyhow::{Context, Result};
use nilometer_files::document::results::ResultFile;
use nilometer_sim::fault::{Event, What};
use nilometer_wire::Time;
use serde::{Deserialize, Serialize};

/// Packets whose fates are kept; later ones are counted.
pub const PACKETS_MAX: usize = 1 << 21;

/// What became of one packet; times are nanoseconds since the traffic began, negative before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketTruth {
    /// To the servers (0) or to the clients (1).
    pub direction: u8,
    /// Its number among the packets of its direction, from 0.
    pub number: u64,
    /// The number of its path: 0 the usual one, then pairs in their order.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub path: u32,
    /// The bytes that its frame took on a link: with preamble, check sequence and gap.
    pub link_bytes: u64,
    /// When it came.
    pub came_ns: i64,
    /// When it left; none where it did not.
    pub left_ns: Option<i64>,
    /// How many of its direction had left before it, copies included.
    pub left_as: Option<u64>,
    /// When its copy left, if there was one.
    pub copy_left_ns: Option<i64>,
    /// It was lost by chance.
    pub lost: bool,
    /// The link's queue had no room for it, or for its copy.
    pub discarded: bool,
    /// A bit of it was flipped.
    pub corrupted: bool,
    /// It was held back, so that others overtook it.
    pub held_back: bool,
}

fn is_usual(path: &u32) -> bool {
    *path == 0
}

/// The fates of packets, assembled from the box's log.
#[derive(Debug, Default)]
pub struct Truth {
    packets: Vec<PacketTruth>,
    /// The place in `packets` of each packet that was not lost: it, or a copy of it, may still leave.
    places: BTreeMap<(u8, u64), usize>,
    /// Packets and copies that have left, by direction.
    left: BTreeMap<u8, u64>,
    /// Packets beyond [`PACKETS_MAX`].
    pub beyond: u64,
}

impl Truth {
    /// Notes what happened; times are since the traffic began, which was at `origin` of the box's clock.
    pub fn note(&mut self, events: &[Event], origin: Time) {
        for event in events {
            let direction = event.port.0 as u8;
            let at_ns = event.at.as_nanos() as i64 - origin.as_nanos() as i64;
            let name = (direction, event.number);
            if event.what == What::Came {
                if self.packets.len() >= PACKETS_MAX {
                    self.beyond += 1;
                    continue;
                }
                self.places.insert(name, self.packets.len());
                self.packets.push(PacketTruth {
                    direction,
                    number: event.number,
                    path: event.path,
                    link_bytes: event.link_bytes,
                    came_ns: at_ns,
                    left_ns: None,
                    left_as: None,
                    copy_left_ns: None,
                    lost: false,
                    discarded: false,
                    corrupted: false,
                    held_back: false,
                });
                continue;
            }
            let left = self.left.entry(direction).or_insert(0);
            let left_as = *left;
            *left += u64::from(matches!(event.what, What::Left | What::CopyLeft));
            let Some(&place) = self.places.get(&name) else { continue };
            let packet = &mut self.packets[place];
            match event.what {
                What::Came => {}
                What::Lost => packet.lost = true,
                What::Discarded => packet.discarded = true,
                What::Corrupted => packet.corrupted = true,
                What::HeldBack => packet.held_back = true,
                What::Left => {
                    (packet.left_ns, packet.left_as) = (Some(at_ns), Some(left_as));
                }
                What::CopyLeft => packet.copy_left_ns = Some(at_ns),
            }
            // (A copy may still come; but nothing follows a loss.)
            if event.what == What::Lost {
                self.places.remove(&name);
            }
        }
    }

    /// Everything, by direction and number.
    pub fn packets(mut self) -> Vec<PacketTruth> {
        self.packets.sort_unstable_by_key(|packet| (packet.direction, packet.number));
        self.packets
    }
}

/// Writes the fates of packets, a line of JSON each.
///
/// # Errors
/// When the file cannot be written.
pub fn write(to: &ResultFile, packets: &[PacketTruth]) -> Result<()> {
    let mut draft = to.draft()?;
    let mut write = || -> std::io::Result<()> {
        let mut file = BufWriter::new(&mut draft);
        for packet in packets {
            serde_json::to_writer(&mut file, packet)?;
            file.write_all(b"\n")?;
        }
        file.flush()
    };
    write().with_context(|| format!("cannot write {}", to.path().display()))?;
    draft.publish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_wire::Port;

    #[test]
    fn fates_are_put_together_by_packet() {
        let event = |at: u64, port: u32, number: u64, what: What| Event {
            at: Time::from_nanos(at),
            port: Port(port),
            number,
            path: 0,
            link_bytes: 98,
            what,
        };
        let mut truth = Truth::default();
        let first = [
            event(5, 0, 0, What::Came),
            event(5, 0, 0, What::HeldBack),
            event(6, 1, 0, What::Came),
            event(6, 1, 0, What::Lost),
        ];
        truth.note(&first, Time::from_nanos(10));
        let later = [
            event(30, 0, 0, What::Left),
            event(31, 0, 0, What::CopyLeft),
            event(40, 0, 7, What::Left),
            event(41, 0, 1, What::Came),
            event(42, 0, 1, What::Left),
        ];
        truth.note(&later, Time::from_nanos(10));
        let packets = truth.packets();
        assert_eq!(packets.len(), 3, "the arrival of the seventh was not recorded");
        let [held, last, lost] = packets[..] else { panic!("{packets:?}") };
        assert_eq!((held.came_ns, held.left_ns, held.copy_left_ns), (-5, Some(20), Some(21)));
        assert_eq!([held.left_as, last.left_as, lost.left_as], [Some(0), Some(3), None]);
        assert!(held.held_back && !held.lost && lost.lost && lost.left_ns.is_none());
    }
}
