//! A node's inputs and decisions, recorded under the real clock and repeated without one.
//!
//! A node has neither clock nor device, so its behaviour follows from its inputs: received frames, timeouts and
//! their times. A recording holds these in order, each followed by the node's outputs: every frame sent, and when
//! its next timer expires. [`replay`] feeds the same inputs to an identical node and compares its outputs bit for
//! bit. (A frame for which the memory had no room leaves in the replay, and counts as a difference.)
//!
//! Frames are kept without the zeros at their end, which is all of the payload of simulated hosts.

use nilometer_wire::memory::{HeapMemory, Memory, Place};
use nilometer_wire::{Node, Port, Time};

/// The most that a recording may take, bytes; later events are counted and not kept.
pub const RECORDING_BYTES: usize = 512 << 20;
/// Buffers of a repetition.
const BUFFERS: u32 = 1 << 16;

const RECEIVED: u8 = 0;
const TIMED_OUT: u8 = 1;
const POLLED: u8 = 2;
const SENT: u8 = 3;
const RESTED: u8 = 4;
/// No timer is set.
const NEVER: Time = Time(u64::MAX);

/// A node's inputs and outputs.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    bytes: Vec<u8>,
    limit_bytes: usize,
    /// Inputs that were left out, as the limit was reached.
    left_out: u64,
}

/// A node that is recorded while it is driven.
#[derive(Debug)]
pub struct Recorded<N> {
    /// The node.
    pub node: N,
    /// None where it is only driven.
    recording: Option<Recording>,
    /// It has received an input, and its output has not been polled since.
    has_input: bool,
    /// Its output is being polled.
    is_polled: bool,
}

/// What a repetition came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// Batches of frames and timeouts that were repeated.
    pub inputs: u64,
    /// Frames that left, and were compared.
    pub frames: u64,
    /// Inputs that the recording had no room for.
    pub left_out: u64,
    /// Outputs that differ: frames, and expiry times of timers.
    pub differences: u64,
    /// The first of them, where there is one.
    pub first_difference: Option<String>,
}

impl Recording {
    /// A recording of at most `limit_bytes`.
    pub fn new(limit_bytes: usize) -> Recording {
        Recording { bytes: Vec::new(), limit_bytes, left_out: 0 }
    }

    fn kind(&mut self, kind: u8, at: Time) {
        self.bytes.push(kind);
        self.bytes.extend(at.0.to_le_bytes());
    }

    fn frame(&mut self, port: Port, frame: &[u8]) {
        let kept = frame.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        self.bytes.push(port.0 as u8);
        self.bytes.extend((frame.len() as u16).to_le_bytes());
        self.bytes.extend((kept as u16).to_le_bytes());
        self.bytes.extend(&frame[..kept]);
    }
}

impl<N> Recorded<N> {
    /// A node that is recorded where there is a recording for it.
    pub fn new(node: N, recording: Option<Recording>) -> Recorded<N> {
        Recorded { node, recording, has_input: false, is_polled: false }
    }

    /// The node, and its recording.
    pub fn end(self) -> (N, Option<Recording>) {
        (self.node, self.recording)
    }

    /// The recording, while it has room for one more input.
    fn open_recording(&mut self) -> Option<&mut Recording> {
        let recording = self.recording.as_mut()?;
        if recording.left_out > 0 || recording.bytes.len() >= recording.limit_bytes {
            recording.left_out += 1;
            return None;
        }
        self.has_input = true;
        Some(recording)
    }
}

impl<M: Memory, N: Node<Place, M>> Node<Place, M> for Recorded<N> {
    fn receive(&mut self, now: Time, port: Port, frame: &Place, memory: &mut M) {
        self.receive_batch(now, port, &[*frame], memory);
    }

    fn receive_batch(&mut self, now: Time, port: Port, frames: &[Place], memory: &mut M) {
        if let Some(recording) = self.open_recording() {
            recording.kind(RECEIVED, now);
            recording.bytes.extend((frames.len() as u16).to_le_bytes());
            for &frame in frames {
                recording.frame(port, memory.frame(frame));
            }
        }
        self.node.receive_batch(now, port, frames, memory);
    }

    fn handle_timeout(&mut self, now: Time, memory: &mut M) {
        if let Some(recording) = self.open_recording() {
            recording.kind(TIMED_OUT, now);
        }
        self.node.handle_timeout(now, memory);
    }

    fn poll_transmit(&mut self, now: Time, frame: &mut Place, memory: &mut M) -> Option<Port> {
        if self.has_input {
            (self.has_input, self.is_polled) = (false, true);
            self.recording.iter_mut().for_each(|it| it.kind(POLLED, now));
        }
        let sent = self.node.poll_transmit(now, frame, memory);
        if let Some(recording) = self.recording.as_mut().filter(|_| self.is_polled) {
            match sent {
                Some(port) => {
                    recording.bytes.push(SENT);
                    recording.frame(port, memory.frame(*frame));
                }
                None => {
                    self.is_polled = false;
                    let due = self.node.poll_timeout();
                    recording.kind(RESTED, due.unwrap_or(NEVER));
                }
            }
        }
        sent
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.node.poll_timeout()
    }
}

/// Reads a recording from its beginning.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (taken, rest) = self.0.split_first_chunk().expect("a recording is whole");
        self.0 = rest;
        *taken
    }

    fn byte(&mut self) -> u8 {
        let [byte] = self.take();
        byte
    }

    fn time(&mut self) -> Time {
        Time(u64::from_le_bytes(self.take()))
    }

    fn count(&mut self) -> usize {
        usize::from(u16::from_le_bytes(self.take()))
    }

    /// A frame and its port, the zeros at its end put back.
    fn frame(&mut self, frame: &mut Vec<u8>) -> Port {
        let port = Port(u32::from(self.byte()));
        let (length, kept) = (self.count(), self.count());
        let (bytes, rest) = self.0.split_at(kept);
        self.0 = rest;
        frame.clear();
        frame.extend(bytes);
        frame.resize(length, 0);
        port
    }
}

impl Replayed {
    fn differs(&mut self, now: Time, what: &str) {
        self.differences += 1;
        let number = self.frames;
        self.first_difference.get_or_insert_with(|| {
            format!("{what}, at {:.9} s after frame {number}", now.as_secs_f64())
        });
    }

    /// Both together, `self` first.
    #[must_use]
    pub fn and(self, other: Replayed) -> Replayed {
        Replayed {
            inputs: self.inputs + other.inputs,
            frames: self.frames + other.frames,
            left_out: self.left_out + other.left_out,
            differences: self.differences + other.differences,
            first_difference: self.first_difference.or(other.first_difference),
        }
    }
}

/// Feeds the recorded inputs to `node`, which is in the recorded one's initial state, and compares its outputs.
///
/// # Panics
/// When the memory of a repetition has no room for the frames of one batch.
pub fn replay<N: Node<Place, HeapMemory>>(mut node: N, recording: &Recording) -> Replayed {
    let mut replayed = Replayed { left_out: recording.left_out, ..Replayed::default() };
    let (mut memory, mut reader) = (HeapMemory::new(BUFFERS), Reader(&recording.bytes));
    let (mut now, mut wanted, mut batch) = (Time::ZERO, Vec::new(), Vec::new());
    let mut place = Place::default();
    while !reader.0.is_empty() {
        match reader.byte() {
            RECEIVED => {
                now = reader.time();
                let mut port = Port(0);
                for _ in 0..reader.count() {
                    port = reader.frame(&mut wanted);
                    let frame = memory.take(wanted.len() as u16).expect("room for a batch");
                    memory.frame_mut(frame).copy_from_slice(&wanted);
                    batch.push(frame);
                }
                node.receive_batch(now, port, &batch, &mut memory);
                batch.clear();
                replayed.inputs += 1;
            }
            TIMED_OUT => {
                now = reader.time();
                node.handle_timeout(now, &mut memory);
                replayed.inputs += 1;
            }
            POLLED => now = reader.time(),
            SENT => {
                let port = reader.frame(&mut wanted);
                let sent = node.poll_transmit(now, &mut place, &mut memory);
                if sent.is_none_or(|sent| sent != port || memory.frame(place) != wanted) {
                    replayed.differs(now, "another frame, or none");
                }
                sent.iter().for_each(|_| memory.give(place));
                replayed.frames += 1;
            }
            _ => {
                let due = reader.time();
                while node.poll_transmit(now, &mut place, &mut memory).is_some() {
                    memory.give(place);
                    replayed.differs(now, "one frame more");
                }
                if node.poll_timeout().unwrap_or(NEVER) != due {
                    replayed.differs(now, "another timer");
                }
            }
        }
    }
    replayed
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends each frame back with its number, and its own name.
    struct Echo(u8, Vec<Place>);

    impl<M: Memory> Node<Place, M> for Echo {
        fn receive(&mut self, now: Time, _: Port, frame: &Place, memory: &mut M) {
            self.0 = self.0.wrapping_add(now.as_nanos() as u8);
            memory.frame_mut(*frame)[0] = self.0;
            self.1.push(*frame);
        }

        fn handle_timeout(&mut self, _: Time, _: &mut M) {
            self.0 = self.0.wrapping_add(1);
        }

        fn poll_transmit(&mut self, _: Time, frame: &mut Place, _: &mut M) -> Option<Port> {
            *frame = self.1.pop()?;
            Some(Port(0))
        }

        fn poll_timeout(&self) -> Option<Time> {
            (!self.0.is_multiple_of(8)).then(|| Time(self.0.into()))
        }
    }

    fn recorded(limit_bytes: usize) -> Recording {
        let mut memory = HeapMemory::new(100);
        let mut node = Recorded::new(Echo(3, Vec::new()), Some(Recording::new(limit_bytes)));
        for turn in 0..40u64 {
            let now = Time::from_nanos(turn * 7);
            let frames: Vec<Place> = (0..turn % 4)
                .map(|number| {
                    let frame = memory.take(60 + number as u16).expect("room");
                    memory.frame_mut(frame).fill(0);
                    memory.frame_mut(frame)[40] = number as u8;
                    frame
                })
                .collect();
            node.receive_batch(now, Port(0), &frames, &mut memory);
            node.handle_timeout(now, &mut memory);
            let mut frame = Place::default();
            while node.poll_transmit(now, &mut frame, &mut memory).is_some() {
                memory.give(frame);
            }
        }
        node.end().1.expect("a recording")
    }

    #[test]
    fn a_repetition_does_the_same_and_a_node_that_differs_is_found() {
        let recording = recorded(RECORDING_BYTES);
        let same = replay(Echo(3, Vec::new()), &recording);
        assert_eq!((same.inputs, same.frames, same.left_out), (80, 60, 0));
        assert_eq!((same.differences, same.first_difference), (0, None));
        let other = replay(Echo(4, Vec::new()), &recording);
        assert_eq!(other.differences, 100, "each frame and each timer");
        let first = other.first_difference.expect("a difference");
        assert!(first.starts_with("another timer") && first.contains("frame 0"), "{first}");
    }

    #[test]
    fn inputs_beyond_the_room_of_a_recording_are_counted() {
        let part = replay(Echo(3, Vec::new()), &recorded(1_000));
        assert!(part.left_out > 0 && part.inputs > 10);
        assert_eq!((part.inputs + part.left_out, part.differences), (80, 0));
    }
}
