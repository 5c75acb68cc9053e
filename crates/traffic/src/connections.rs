//! P(Connection): the bytes of whole connections in both directions, and their packets.
//!
//! The five distributions describe single files. A connection is more: a request and an answer that belong
//! together, cut into packets of some size. With flow records of both directions, this is the joint law of
//! the three: a table of *shapes*, each a connection of the original with the number of connections that it
//! represents. The largest connections are all in the table, because they carry most of the bytes; the others
//! are grouped by size, and one represents each group.
//!
//! Exporters do not export the maximum segment size. Records count packets, and a router's work depends on
//! packets. So a shape's segment size is the one with which a generated connection takes as many packets as
//! the original (`segment_bytes`); a connection of small writes becomes one of small segments. Harpoon, which
//! always uses the link's full segments, sent half the packets of its original (paper, section 5.3).

use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

use nilometer_stat::{BottomK, Empirical, Rng};
use serde::{Deserialize, Serialize};

use crate::files::FILE_MIN_BYTES;
use crate::lengths;
use crate::model_error::ModelError;
use crate::volume::{self, Item, Load};

/// The most shapes of a table.
pub const SHAPES_MAX: usize = 4_096;
/// Shapes that are reserved for the largest connections.
const LARGEST: usize = 1_024;
/// The size of the sample from which the other shapes are taken.
const SAMPLE_MAX: usize = 1 << 18;
/// The shortest request of a generated client: it states how much the client wants.
pub const REQUEST_MIN_BYTES: u64 = 16;
/// The payload of a full segment on a link of 1500 bytes, with IPv4 and time stamps.
pub const SEGMENT_MAX_BYTES: u16 = 1_448;
/// Payload bytes that one direction may carry: 1 TiB, the most that the generator can request.
pub(crate) const BYTES_MAX: u64 = 1 << 40;
/// A shape compensates for at most this part of its packets, plus one.
const DITHER_PART: u64 = 20;
/// The payload of the smallest segment that Linux can be configured to send, with time stamps.
pub const SEGMENT_MIN_BYTES: u16 = 76;

/// The bytes and packets of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    /// Payload bytes of both directions.
    pub bytes: u64,
    /// Payload bytes of the client.
    pub request_bytes: u64,
    /// Packets of both directions.
    pub packets: u64,
    /// The interval in which it started.
    pub interval: u32,
}

/// The connections of an original: the largest, and a sample of all, which holds all of them up to 262,144.
#[derive(Debug)]
pub struct Shapes {
    largest: BottomK<Reverse<Shape>>,
    /// The sampled shapes with their marks.
    sample: BottomK<(u64, Shape)>,
}

impl Default for Shapes {
    fn default() -> Shapes {
        Shapes { largest: BottomK::new(LARGEST), sample: BottomK::new(SAMPLE_MAX) }
    }
}

impl Shapes {
    /// Takes a connection. Connections with the least marks are the sample: a mark does not depend on what
    /// the connection carried.
    pub fn offer(&mut self, mark: u64, shape: Shape) {
        self.largest.offer(Reverse(shape));
        self.sample.offer((mark, shape));
    }

    /// Adds the connections of another part.
    pub fn merge(&mut self, other: Shapes) {
        self.largest.merge(other.largest);
        self.sample.merge(other.sample);
    }

    /// How many connections were offered.
    pub fn offered(&self) -> u64 {
        self.sample.offered()
    }

    /// A sample of all but the largest, the number of connections that it represents, and the largest; both lists
    /// in rising order. If a table has room for all, all are among the largest.
    fn apart(self) -> (Vec<Shape>, u64, Vec<Shape>) {
        let all = self.offered();
        let sample = self.sample.into_sorted();
        let mut sample: Vec<Shape> = sample.into_iter().map(|(_, shape)| shape).collect();
        sample.sort_unstable();
        if sample.len() <= SHAPES_MAX {
            return (Vec::new(), 0, sample);
        }
        let largest = self.largest.into_sorted();
        let largest: Vec<Shape> = largest.into_iter().rev().map(|Reverse(shape)| shape).collect();
        let below = match sample.len() as u64 == all {
            true => sample.len() - largest.len(),
            false => sample.partition_point(|shape| *shape < largest[0]),
        };
        sample.truncate(below);
        (sample, all - largest.len() as u64, largest)
    }
}

/// P(Connection), as a table of shapes, stored by column; all columns have the same length.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ConnectionLaw {
    /// Number of connections of each shape; positive.
    pub connections: Vec<u64>,
    /// Payload bytes sent by the client.
    pub request_bytes: Vec<u64>,
    /// Payload bytes sent by the server.
    pub response_bytes: Vec<u64>,
    /// Payload bytes of a full segment; 0 for the path's maximum.
    pub segment_bytes: Vec<u16>,
    /// The interval in which the connection started, if every connection is in the table; otherwise empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interval: Vec<u32>,
}

/// Volume of the whole connections that start in an interval, in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ConnectionVolume {
    /// Number of connections.
    pub connections: u64,
    /// Payload bytes.
    pub bytes: u64,
    /// Packets, including those without payload.
    pub packets: u64,
    /// IP bytes of these packets.
    pub octets: u64,
}

impl ConnectionVolume {
    /// Adds the volume of other connections.
    pub fn add(&mut self, more: &ConnectionVolume) {
        self.connections += more.connections;
        self.bytes += more.bytes;
        self.packets += more.packets;
        self.octets += more.octets;
    }
}

impl ConnectionLaw {
    /// The table of these connections; `None` if there are none.
    pub fn of(shapes: Shapes) -> Option<ConnectionLaw> {
        let (mut law, mut owed) = (ConnectionLaw::default(), 0);
        let is_whole = shapes.offered() as usize <= SHAPES_MAX;
        let (others, others_count, largest) = shapes.apart();
        let groups = SHAPES_MAX - LARGEST;
        for group in 0..groups.min(others.len()) {
            let bound = |number: usize| number * others.len() / groups;
            let members = &others[bound(group)..bound(group + 1)];
            let count = |number: usize| number as u64 * others_count / groups as u64;
            law.push(&members[members.len() / 2], count(group + 1) - count(group), &mut owed);
        }
        largest.iter().for_each(|shape| law.push(shape, 1, &mut owed));
        if is_whole {
            law.interval = largest.iter().map(|shape| shape.interval).collect();
        }
        (!law.connections.is_empty()).then_some(law)
    }

    /// Adds a shape. It compensates for the packets that earlier shapes have too many or too few, because
    /// segments are whole; `owed` is their number.
    fn push(&mut self, shape: &Shape, connections: u64, owed: &mut i64) {
        let (request, response) = (shape.request_bytes, shape.bytes - shape.request_bytes);
        let most = (shape.packets / DITHER_PART + 1) as i64;
        let wanted = shape.packets.saturating_add_signed((*owed).clamp(-most, most));
        let segment = segment_bytes(request, response, wanted);
        let used = if segment == 0 { SEGMENT_MAX_BYTES } else { segment };
        let made = packets_of(request, response, used.into());
        *owed = (*owed + shape.packets as i64 - made as i64).clamp(-most, most);
        self.connections.push(connections);
        self.request_bytes.push(request);
        self.response_bytes.push(response);
        self.segment_bytes.push(segment);
    }

    /// Checks a law that was read for everything that the planner relies on.
    ///
    /// # Errors
    /// The first thing found wrong.
    pub fn check(&self) -> Result<(), ModelError> {
        let length = self.connections.len();
        let others =
            [self.request_bytes.len(), self.response_bytes.len(), self.segment_bytes.len()];
        if length == 0 || others.iter().any(|&other| other != length) {
            return Err(ModelError::Empty("a column of connection_law"));
        }
        if !self.interval.is_empty() && self.interval.len() != length {
            return Err(ModelError::Empty("a part of the column connection_law.interval"));
        }
        if length > SHAPES_MAX {
            return Err(ModelError::TooMany("connection_law", SHAPES_MAX));
        }
        if self.connections.contains(&0) || (0..length).any(|at| self.bytes(at) == 0) {
            return Err(ModelError::NotPositive("a shape of connection_law", 0.0));
        }
        for &segment in self.segment_bytes.iter().filter(|&&segment| segment != 0) {
            if segment > SEGMENT_MAX_BYTES {
                let most = SEGMENT_MAX_BYTES.into();
                return Err(ModelError::TooLarge("a segment in connection_law", most));
            }
            if segment < SEGMENT_MIN_BYTES {
                let above = f64::from(segment) - f64::from(SEGMENT_MIN_BYTES);
                return Err(ModelError::NotPositive(
                    "a segment in connection_law, beyond 75 bytes,",
                    above + 1.0,
                ));
            }
        }
        let most = self.request_bytes.iter().chain(&self.response_bytes).max();
        match most {
            Some(&bytes) if bytes > BYTES_MAX => {
                Err(ModelError::TooLarge("a size in connection_law", BYTES_MAX))
            }
            _ => Ok(()),
        }
    }

    fn bytes(&self, at: usize) -> u64 {
        self.request_bytes[at].saturating_add(self.response_bytes[at])
    }

    /// P(FileSize) of the connections: the bytes of each direction that is a file.
    pub fn file_size(&self) -> Option<Empirical> {
        let both = [&self.request_bytes, &self.response_bytes];
        let files = both.into_iter().flat_map(|sizes| sizes.iter().zip(&self.connections));
        let files: Vec<(f64, f64)> = files
            .filter(|(bytes, _)| **bytes >= FILE_MIN_BYTES)
            .map(|(&bytes, &count)| (bytes as f64, count as f64))
            .collect();
        let count: f64 = files.iter().map(|(_, count)| count).sum();
        lengths::weighted(files, count as u64)
    }

    /// The bytes of each interval's connections, in random order. If every connection is in the table, an
    /// interval has its own, each once if the number is the same; otherwise the run's connections are
    /// distributed so that each interval has its bytes.
    pub fn deal(&self, loads: &[Load], seed: u64) -> Vec<Vec<Item>> {
        let all: Vec<usize> = (0..self.connections.len()).collect();
        if self.interval.is_empty() {
            return volume::deal_sample(loads, (seed, 0), |count, rng| {
                self.stratified(&all, count, rng)
            });
        }
        let mut own = vec![Vec::new(); loads.len()];
        for &at in &all {
            if let Some(own) = own.get_mut(self.interval[at] as usize) {
                own.push(at);
            }
        }
        let one = |(number, load): (usize, &Load)| {
            let own = if own[number].is_empty() { &all } else { &own[number] };
            volume::deal_sample(core::slice::from_ref(load), (seed, number as u64), |count, rng| {
                self.stratified(own, count, rng)
            })
            .remove(0)
        };
        loads.iter().enumerate().map(one).collect()
    }

    /// One shape from each of `count` equal strata of the law of these shapes, in rising order of bytes.
    fn stratified(&self, of: &[usize], count: usize, rng: &mut Rng) -> Vec<Item> {
        let all: u64 = of.iter().map(|&at| self.connections[at]).sum();
        let (mut number, mut below) = (0, 0);
        let draw = |k: usize| {
            let wanted = (k as f64 + rng.unit()) / count as f64 * all as f64;
            while number + 1 < of.len() && (below + self.connections[of[number]]) as f64 <= wanted {
                below += self.connections[of[number]];
                number += 1;
            }
            Item { bytes: self.bytes(of[number]), kind: of[number] as u32 }
        };
        (0..count).map(draw).collect()
    }

    /// The request bytes and the answer bytes of a connection of a shape with `item.bytes` in total, and the
    /// payload of a full segment.
    pub fn parts(&self, item: Item) -> (u64, u64, u16) {
        let at = item.kind as usize;
        let (request, all) = (self.request_bytes[at], self.bytes(at));
        let request = (u128::from(request) * u128::from(item.bytes) / u128::from(all)) as u64;
        (request, item.bytes - request, self.segment_bytes[at])
    }
}

/// Packets of a generated connection: the opening and the end, the segments, and their acknowledgements.
/// Linux acknowledges each of the first segments, then two of seven while the window opens, and two of five
/// in the long run; measured over 24,000 connections of `lab run`.
fn packets_of(request: u64, response: u64, segment: u64) -> u64 {
    let acknowledgements = |segments: u64| match segments {
        0..=22 => segments,
        more => (22 + (more - 22) * 2 / 7).max(more * 2 / 5),
    };
    let up = request.max(REQUEST_MIN_BYTES).div_ceil(segment);
    let down = response.div_ceil(segment).max(1);
    4 + up + down + acknowledgements(up) + acknowledgements(down)
}

/// The payload of a full segment with which a generated connection takes `wanted` packets, or as close to
/// that as possible; 0 if it takes at least that many with the largest segment.
fn segment_bytes(request: u64, response: u64, wanted: u64) -> u16 {
    let packets = |segment: u16| packets_of(request, response, segment.into());
    if packets(SEGMENT_MAX_BYTES) >= wanted {
        return 0;
    }
    let (mut small, mut large) = (SEGMENT_MIN_BYTES, SEGMENT_MAX_BYTES);
    while large - small > 1 {
        let middle = small.midpoint(large);
        *if packets(middle) >= wanted { &mut small } else { &mut large } = middle;
    }
    let off = |segment: u16| packets(segment).abs_diff(wanted);
    if off(small) <= off(large) { small } else { large }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_stat::parametric;

    fn some(count: u64, seed: u64) -> Vec<Shape> {
        let mut rng = Rng::new(seed, 0, 0);
        let one = |_| {
            let response = parametric::pareto(&mut rng, 1.3, 300.0) as u64;
            let request_bytes = 40 + rng.below(2_000);
            let segment = 200 + rng.below(1_200);
            let packets = packets_of(request_bytes, response, segment);
            let interval = rng.below(4) as u32;
            Shape { bytes: request_bytes + response, request_bytes, packets, interval }
        };
        (0..count).map(one).collect()
    }

    fn law_of(shapes: &[Shape]) -> Option<ConnectionLaw> {
        let mut all = Shapes::default();
        for (number, shape) in (1..).zip(shapes) {
            all.offer(u64::wrapping_mul(number, 0x9e37_79b9_7f4a_7c15), *shape);
        }
        ConnectionLaw::of(all)
    }

    #[test]
    fn a_few_connections_are_all_in_the_table() {
        let shapes = some(500, 1);
        let law = law_of(&shapes).expect("a law");
        law.check().expect("a sound law");
        assert_eq!(law.connections, vec![1; 500]);
        let bytes: u64 = (0..500).map(|at| law.bytes(at)).sum();
        assert_eq!(bytes, shapes.iter().map(|shape| shape.bytes).sum::<u64>());
    }

    #[test]
    fn connections_beyond_the_sample_keep_count_and_bytes_in_any_order() {
        let shapes = some(SAMPLE_MAX as u64 + 90_000, 5);
        let law = law_of(&shapes).expect("a law");
        assert_eq!(law.connections.iter().sum::<u64>(), shapes.len() as u64);
        let bytes: u64 = law.connections.iter().enumerate().map(|(at, n)| n * law.bytes(at)).sum();
        let wanted: u64 = shapes.iter().map(|shape| shape.bytes).sum();
        assert!((bytes as f64 / wanted as f64 - 1.0).abs() < 0.01, "{bytes} for {wanted}");
        let mut parts = Shapes::default();
        let marked: Vec<(u64, &Shape)> = (1..).zip(&shapes).collect();
        for part in marked.chunks(50_000).rev() {
            let mut some = Shapes::default();
            for (number, shape) in part.iter().rev() {
                some.offer(number.wrapping_mul(0x9e37_79b9_7f4a_7c15), **shape);
            }
            parts.merge(some);
        }
        assert_eq!(ConnectionLaw::of(parts), Some(law));
    }

    #[test]
    fn an_interval_has_its_own_connections_each_once() {
        let shapes = some(900, 6);
        let law = law_of(&shapes).expect("a law");
        let own = |interval: u32| shapes.iter().filter(move |shape| shape.interval == interval);
        let load = |number| Load {
            files: own(number).count(),
            bytes: own(number).map(|shape| shape.bytes).sum(),
        };
        let loads: Vec<Load> = (0..4).map(load).collect();
        for (number, hand) in law.deal(&loads, 9).iter().enumerate() {
            let mut dealt: Vec<u64> = hand.iter().map(|item| item.bytes).collect();
            let mut wanted: Vec<u64> = own(number as u32).map(|shape| shape.bytes).collect();
            dealt.sort_unstable();
            wanted.sort_unstable();
            assert_eq!(dealt, wanted);
        }
        // One connection more than there were, and one interval without any.
        let more = [Load { files: loads[0].files + 1, ..loads[0] }, Load { files: 0, bytes: 0 }];
        let hands = law.deal(&more, 9);
        assert_eq!((hands[0].len(), hands[1].len()), (more[0].files, 0));
    }

    #[test]
    fn a_large_table_keeps_bytes_packets_and_directions() {
        let shapes = some(60_000, 2);
        let law = law_of(&shapes).expect("a law");
        assert_eq!(law.connections.len(), SHAPES_MAX);
        assert_eq!(law.connections.iter().sum::<u64>(), 60_000);
        assert!(law.interval.is_empty());
        let load = Load { files: 60_000, bytes: shapes.iter().map(|shape| shape.bytes).sum() };
        let drawn = law.deal(&[load], 3).remove(0);
        let mut sums = [0u64; 3];
        for item in drawn {
            let (request, response, segment) = law.parts(item);
            let segment = if segment == 0 { SEGMENT_MAX_BYTES } else { segment };
            sums[0] += request;
            sums[1] += response;
            sums[2] += packets_of(request, response, segment.into());
        }
        let of = |part: fn(&Shape) -> u64| shapes.iter().map(part).sum::<u64>();
        let wanted = [
            of(|shape| shape.request_bytes),
            of(|shape| shape.bytes - shape.request_bytes),
            of(|shape| shape.packets),
        ];
        for (sum, wanted) in sums.into_iter().zip(wanted) {
            let off = (sum as f64 / wanted as f64 - 1.0).abs();
            assert!(off < 0.02, "{sum} of {wanted}");
        }
    }

    #[test]
    fn the_segment_size_reproduces_the_packet_count() {
        for shape in some(2_000, 4) {
            let (request, response) = (shape.request_bytes, shape.bytes - shape.request_bytes);
            let segment = match segment_bytes(request, response, shape.packets) {
                0 => SEGMENT_MAX_BYTES,
                segment => segment,
            };
            assert_eq!(packets_of(request, response, segment.into()), shape.packets);
        }
        assert_eq!(segment_bytes(100, 99_900, 40), 0);
        assert_eq!(segment_bytes(500, 500, 900), SEGMENT_MIN_BYTES);
    }

    #[test]
    fn rounding_of_packets_carries_over_to_the_next_shape() {
        // No segment size makes 27 packets of 3,000 bytes.
        let shape = Shape { bytes: 3_100, request_bytes: 100, packets: 27, interval: 0 };
        let alone = segment_bytes(100, 3_000, 27);
        let made = packets_of(100, 3_000, alone.into());
        assert_ne!(made, 27);
        let law = law_of(&[shape; 400]).expect("a law");
        let all: u64 = { law.segment_bytes.iter() }
            .map(|&segment| packets_of(100, 3_000, segment.into()))
            .sum();
        assert!(all.abs_diff(400 * 27) <= 2, "{all}");
    }

    #[test]
    fn an_unsound_table_is_refused() {
        let sound = law_of(&some(5, 1)).expect("a law");
        let mut short = sound.clone();
        short.request_bytes.pop();
        let mut empty = sound.clone();
        empty.connections[2] = 0;
        let mut endless = sound;
        endless.response_bytes[1] = u64::MAX;
        let mut tiny = law_of(&some(5, 1)).expect("a law");
        let mut giant = tiny.clone();
        tiny.segment_bytes[0] = SEGMENT_MIN_BYTES - 1;
        giant.segment_bytes[0] = SEGMENT_MAX_BYTES + 1;
        for bad in [short, empty, endless, tiny, giant, ConnectionLaw::default()] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
