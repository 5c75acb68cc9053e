//! Which flows come by the ring repeatedly.
//!
//! The last few flows of each bucket of the table of shortcuts are remembered, the latest first, with
//! the number of packets of each since it was last forgotten. So flows that share a bucket and take
//! turns are all noticed, and a sender that changes its address with every packet never is: each flow is
//! forgotten before it comes again.

use nilometer_linux::flow_offload::Mark;

/// Flows of a bucket that are remembered, a line of the cache: twice as many as have room in the table, so
/// that some are found where not all can be.
const REMEMBERED: usize = 8;
/// The pipeline is queried for a flow at its second packet, and at every 64th after it.
const ASK_EVERY: u8 = 64;

/// A flow, by its distinguishing word, and its packets since it was last forgotten, modulo 256; no flow
/// yet where that is zero.
type Seen = (u32, u8);

/// The flows of all buckets that came last.
pub(super) struct Noticed {
    buckets: Vec<[Seen; REMEMBERED]>,
}

impl Noticed {
    /// `buckets` buckets without flows.
    pub(super) fn new(buckets: usize) -> Noticed {
        Noticed { buckets: vec![[(0, 0); REMEMBERED]; buckets] }
    }

    /// Counts a frame that carries the mark of its bucket; returns whether the pipeline is to be
    /// queried for its flow.
    ///
    /// # Panics
    /// When there is no such bucket.
    pub(super) fn note(&mut self, mark: Mark, frame: &[u8]) -> bool {
        let seen = &mut self.buckets[mark as usize - 1];
        let flow = word(frame);
        let before = seen.iter().position(|&(other, packets)| other == flow && packets > 0);
        let packets = before.map_or(0, |place| seen[place].1);
        // The first of the others make room, up to where it was; or the last is forgotten.
        seen[..=before.unwrap_or(REMEMBERED - 1)].rotate_right(1);
        // (After 255 the count continues with 64, which equals 256 for the test below.)
        seen[0] = (flow, packets.checked_add(1).unwrap_or(ASK_EVERY));
        seen[0].1 % ASK_EVERY == 2
    }
}

/// A word that mostly distinguishes the flows of a bucket: addresses and ports of a packet of IPv4
/// without options.
fn word(frame: &[u8]) -> u32 {
    let four = |at: usize| {
        frame
            .get(at..at + 4)
            .map_or(0, |four| u32::from_ne_bytes(four.try_into().expect("four bytes")))
    };
    (four(26).wrapping_mul(0x9e37_79b1) ^ four(30)).wrapping_mul(0x85eb_ca6b) ^ four(34)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(flow: u8) -> [u8; 60] {
        let mut frame = [0; 60];
        frame[29] = flow;
        frame
    }

    /// The places of the packets at which the pipeline would be queried, given each packet's flow.
    fn looked_up(flows: impl Iterator<Item = u8>) -> Vec<usize> {
        let mut noticed = Noticed::new(8);
        flows
            .enumerate()
            .filter(|&(_, flow)| noticed.note(3, &frame(flow)))
            .map(|it| it.0)
            .collect()
    }

    #[test]
    fn a_flows_second_packet_and_every_64th_behind_it_are_looked_up() {
        let expected: Vec<usize> = (0..1_000).filter(|number| number % 64 == 1).collect();
        assert_eq!(looked_up([7; 1_000].into_iter()), expected);
    }

    #[test]
    fn flows_that_take_turns_in_a_bucket_are_all_noticed() {
        for flows in 1..=REMEMBERED {
            let in_turns = (0..).map(|number| (number % flows) as u8);
            let second: Vec<usize> = (flows..2 * flows).collect();
            assert_eq!(looked_up(in_turns.take(10 * flows)), second, "{flows} flows");
        }
    }

    #[test]
    fn packets_of_ever_different_flows_are_not_looked_up() {
        assert!(looked_up((0..=255).cycle().take(10_000)).is_empty());
        // And does not hide one that comes every third time.
        let mixed =
            (0..1_000u32).map(|number| if number % 3 == 0 { 255 } else { (number % 200) as u8 });
        assert_eq!(looked_up(mixed.take(9)), [3]);
        // Nor one that comes every seventh time, with six others in between.
        let mixed =
            (0..1_000u32).map(|number| if number % 7 == 0 { 255 } else { (number % 200) as u8 });
        assert_eq!(looked_up(mixed.take(14)), [7]);
    }
}
