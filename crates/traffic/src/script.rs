//! A connection vector as it is played: what each end does, and when.
//!
//! Both ends have the same list of steps, each performs its own, and neither knows more about the other than
//! the data that it has received. A step is due when its end has received what the step awaits and its pause
//! has passed since then, or since the end's own previous step, whichever was later. So a device that delays
//! an answer delays everything that the client does after it, as it would have in the original: a closed loop
//! with the application's timers.
//!
//! The data of one step is sent in the original's segments: small ones one by one, spread evenly over the
//! time that they took; a bulk of full ones at once, with TCP pacing at the rate that was seen.
//!
//! An end whose reset awaits less than the other one sends is *gone* by then: later segments reach no socket, and each
//! is answered by a reset. The other end had sent all of them before the first reset reached it. On paths shorter than
//! the original's a reset would arrive sooner; so that end is *deaf* to resets until its last segment is sent.

use alloc::vec::Vec;

use nilometer_conversation::{Act, Opening, Side, Step};
use sha2::{Digest, Sha256};

mod freed;

pub(crate) use freed::fastest_answers;
pub use freed::{RoundTrip, WAY_MIN_NS};

/// Segments of one step from which on TCP paces them.
const BULK_SEGMENTS: u32 = 16;
/// The mean payload of a segment from which on they are full ones.
const BULK_SEGMENT_BYTES: u64 = 1_000;

/// What both ends of a connection do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// How the connection opens, and whether the server answers.
    pub opening: Opening,
    /// The steps of both ends.
    pub steps: Vec<Step>,
    /// How long an unanswered SYN is repeated, ns.
    pub tried_ns: u64,
    /// Its segments carry TCP's time stamps, twelve bytes each.
    pub has_time_stamps: bool,
    /// Payload of a full segment; 0 where none was full.
    pub segment_bytes: u16,
    /// Whether the client, and the server, acknowledge each segment by itself.
    pub acks_each: [bool; 2],
}

impl Script {
    /// What is sent, and when, as in the original: bytes, and the beginning and end of their transmission after the
    /// connection begins, ns. Steps of both ends follow each other.
    pub fn course(&self) -> impl Iterator<Item = (u64, [u64; 2])> {
        self.steps.iter().scan(0u64, |now_ns, step| {
            *now_ns = now_ns.saturating_add(step.pause_ns);
            let begins_ns = *now_ns;
            let (bytes, took_ns) = match step.act {
                Act::Send { bytes, took_ns, .. } => (bytes, took_ns),
                Act::Fin | Act::Reset => (0, 0),
            };
            *now_ns = now_ns.saturating_add(took_ns);
            Some((bytes, [begins_ns, *now_ns]))
        })
    }

    /// How much of the other end's stream this end awaits in all: bytes, and one more for its FIN.
    pub fn awaited(&self, side: Side) -> u64 {
        let all = self.sequence_length(side.other());
        let resets = |step: &&Step| step.by == side && step.act == Act::Reset;
        self.steps.iter().find(resets).map_or(all, |reset| reset.awaits.min(all))
    }

    /// Is this end gone before the other one has sent its last?
    pub fn is_gone(&self, side: Side) -> bool {
        self.awaited(side) < self.sequence_length(side.other())
    }

    /// The length of an end's sequence space: its bytes, and one for its FIN.
    fn sequence_length(&self, side: Side) -> u64 {
        let steps = self.steps.iter().filter(|step| step.by == side);
        let of = |act: Act| match act {
            Act::Send { bytes, .. } => bytes,
            Act::Fin => 1,
            Act::Reset => 0,
        };
        steps.map(|step| of(step.act)).sum()
    }

    /// Adds the script to a digest: how it opens, whether it has time stamps (u8 each), its segment size (u16),
    /// which ends acknowledge each segment (u8 each), for how long it is tried; for each step which end acts (u8),
    /// awaited bytes, pause, and either bytes, segments and time of the data sent, or 0 and the kind of end (u64
    /// each, big-endian).
    pub(crate) fn digest(&self, hash: &mut Sha256) {
        hash.update([self.opening as u8, self.has_time_stamps.into()]);
        hash.update(self.segment_bytes.to_be_bytes());
        hash.update(self.acks_each.map(u8::from));
        hash.update(self.tried_ns.to_be_bytes());
        for step in &self.steps {
            let [one, two, three] = match step.act {
                Act::Send { bytes, segments, took_ns } => [bytes, segments.into(), took_ns],
                Act::Fin => [0, 1, 0],
                Act::Reset => [0, 2, 0],
            };
            hash.update([step.by as u8]);
            for number in [step.awaits, step.pause_ns, one, two, three] {
                hash.update(number.to_be_bytes());
            }
        }
    }
}

/// What an end must do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing until more arrives.
    Listen,
    /// Nothing until this moment of the caller's clock, ns.
    Wait(u64),
    /// Pass bytes to TCP.
    Write {
        /// How many bytes.
        bytes: u64,
        /// Whether they are one segment, to be sent without waiting for more.
        is_segment: bool,
        /// TCP's pacing rate from now on, bytes a second; `None` for no pacing.
        pace: Option<u64>,
    },
    /// Close this direction.
    Close,
    /// Reset the connection.
    Reset,
    /// Close the other direction as well, so that no socket receives later segments.
    Leave,
    /// Nothing more, whatever arrives.
    Done,
}

/// One end in its script.
#[derive(Clone, Copy, Debug)]
pub struct Speaker {
    side: Side,
    /// The current or next step: an index into the script.
    at: usize,
    /// Bytes of it that were passed to TCP.
    written: u64,
    /// When it began, if it has.
    began_ns: Option<u64>,
    /// When this end's last step was done, or would have been done if it had begun when it was due.
    done_ns: u64,
    /// Amount received: bytes, and one more for the end of file.
    received: u64,
    /// When data was received last, or when this end began.
    received_ns: u64,
    /// When the connection was established: nothing can be sent before, whatever is due.
    stands_ns: u64,
    /// When the awaited data had been received, if it has.
    heard_ns: Option<u64>,
    /// By how much this step began later than due.
    step_late_ns: u64,
    /// The greatest such delay of all steps.
    late_ns: u64,
}

impl Speaker {
    /// This side of a script, in a connection that begins now: when the client connects, when the server
    /// accepts.
    pub fn new(script: &Script, side: Side, now_ns: u64) -> Speaker {
        let mut speaker = Speaker {
            side,
            at: 0,
            written: 0,
            began_ns: None,
            done_ns: now_ns,
            received: 0,
            received_ns: now_ns,
            stands_ns: now_ns,
            heard_ns: None,
            step_late_ns: 0,
            late_ns: 0,
        };
        speaker.seek(script);
        speaker
    }

    /// Notes that the connection is established now: steps that were due before could not be sent sooner, and
    /// are not late.
    pub fn stands(&mut self, now_ns: u64) {
        self.stands_ns = now_ns;
    }

    /// The greatest delay of a step after its due time, ns.
    pub fn late_ns(&self) -> u64 {
        self.late_ns
    }

    /// Amount received so far: bytes, and one more for the end of file.
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Notes that more has arrived: bytes, or the end of file, which counts as one.
    pub fn hear(&mut self, script: &Script, more: u64, now_ns: u64) {
        self.received += more;
        self.received_ns = now_ns;
        self.look(script);
    }

    /// What is to be done now.
    pub fn next(&mut self, script: &Script, now_ns: u64) -> Next {
        let Some(step) = script.steps.get(self.at) else { return Next::Done };
        let Some(heard_ns) = self.heard_ns else { return Next::Listen };
        let due_ns = heard_ns.max(self.done_ns).saturating_add(step.pause_ns);
        if due_ns > now_ns {
            return Next::Wait(due_ns);
        }
        match step.act {
            Act::Fin => Next::Close,
            Act::Reset if self.leaves(script) => Next::Leave,
            Act::Reset => Next::Reset,
            Act::Send { bytes, segments, took_ns } => {
                if self.began_ns.is_none() {
                    self.step_late_ns = now_ns.saturating_sub(due_ns.max(self.stands_ns));
                    self.late_ns = self.late_ns.max(now_ns - due_ns);
                }
                let began_ns = *self.began_ns.get_or_insert(now_ns);
                let unit = Unit { bytes, segments, took_ns, full: script.segment_bytes };
                self.write(&unit, now_ns - began_ns, began_ns)
            }
        }
    }

    /// Notes that `bytes` bytes were passed to TCP.
    pub fn wrote(&mut self, script: &Script, bytes: u64, now_ns: u64) {
        self.written += bytes;
        if let Some(Step { act: Act::Send { bytes, .. }, .. }) = script.steps.get(self.at)
            && self.written >= *bytes
        {
            self.ends_step(script, now_ns);
        }
    }

    /// Notes that the direction was closed, or the connection reset, as requested.
    pub fn closed(&mut self, script: &Script, now_ns: u64) {
        self.ends_step(script, now_ns);
    }

    /// Does this end ignore resets now? It does if it has more to send that the other end must not receive.
    pub fn is_deaf(&self, script: &Script) -> bool {
        let sends = |step: &Step| step.by == self.side && step.act != Act::Reset;
        let has_more = script.steps.get(self.at..).is_some_and(|left| left.iter().any(sends));
        has_more && script.is_gone(self.side.other())
    }

    /// Is its direction closed, while the other end will send more than this end awaits, and has not yet done
    /// so?
    fn leaves(&self, script: &Script) -> bool {
        let step = &script.steps[self.at];
        let closes = |step: &Step| step.by == self.side && step.act == Act::Fin;
        self.received <= step.awaits
            && script.is_gone(self.side)
            && script.steps[..self.at].iter().any(closes)
    }

    fn write(&self, unit: &Unit, since_ns: u64, began_ns: u64) -> Next {
        let &Unit { bytes, segments, took_ns, .. } = unit;
        let left = bytes - self.written;
        let is_bulk = is_bulk(bytes, segments);
        if is_bulk || segments <= 1 || took_ns == 0 && left <= BULK_SEGMENT_BYTES {
            let rate = |took_ns: u64| u128::from(bytes) * 1_000_000_000 / u128::from(took_ns);
            let is_paced = is_bulk && took_ns > 0;
            let pace = is_paced.then(|| rate(took_ns).clamp(1, u64::MAX.into()) as u64);
            return Next::Write { bytes: left, is_segment: false, pace };
        }
        // Segment by segment: the first incomplete one is next.
        let number = unit.segment_at(self.written);
        let due_ns = u128::from(took_ns) * u128::from(number) / u128::from(segments - 1);
        if due_ns as u64 > since_ns {
            return Next::Wait(began_ns.saturating_add(due_ns as u64));
        }
        let bytes = unit.upto(number + 1) - self.written;
        Next::Write { bytes, is_segment: true, pace: None }
    }

    /// Ends the current step. A step that began late does not delay later ones: an application keeps its own
    /// time.
    fn ends_step(&mut self, script: &Script, now_ns: u64) {
        self.done_ns = now_ns.saturating_sub(core::mem::take(&mut self.step_late_ns));
        self.at += 1;
        self.seek(script);
    }

    /// Moves to this side's next step.
    fn seek(&mut self, script: &Script) {
        while script.steps.get(self.at).is_some_and(|step| step.by != self.side) {
            self.at += 1;
        }
        (self.written, self.began_ns, self.heard_ns) = (0, None, None);
        self.look(script);
    }

    /// Notes the time if the data that the next step awaits has been received, which is when data was
    /// received last.
    fn look(&mut self, script: &Script) {
        if let Some(step) = script.steps.get(self.at)
            && self.heard_ns.is_none()
            && self.received >= step.awaits
        {
            self.heard_ns = Some(self.received_ns);
        }
    }
}

/// Is it a bulk of full segments, which TCP paces?
fn is_bulk(bytes: u64, segments: u32) -> bool {
    segments >= BULK_SEGMENTS && bytes / u64::from(segments) >= BULK_SEGMENT_BYTES
}

/// The data of one step.
#[derive(Clone, Copy, Debug)]
struct Unit {
    bytes: u64,
    segments: u32,
    took_ns: u64,
    /// Payload of a full segment; 0 where none was.
    full: u16,
}

impl Unit {
    /// Bytes of a full segment, if the unit consists of full segments and a last one; small segments of a unit have
    /// one size.
    fn full_bytes(&self) -> Option<u64> {
        let full = u64::from(self.full);
        (full >= BULK_SEGMENT_BYTES && self.bytes.div_ceil(full) == u64::from(self.segments))
            .then_some(full)
    }

    /// The end of its first `segments` segments; segments that are not full have one size.
    fn upto(&self, segments: u32) -> u64 {
        let part = |all: u128| u128::from(self.bytes) * u128::from(segments) / all;
        match self.full_bytes() {
            Some(full) => (u64::from(segments) * full).min(self.bytes),
            None => part(self.segments.into()) as u64,
        }
    }

    /// The segment of the byte that follows the first `written` bytes.
    fn segment_at(&self, written: u64) -> u32 {
        if let Some(full) = self.full_bytes() {
            return (written / full) as u32;
        }
        let share = u128::from(written) * u128::from(self.segments) / u128::from(self.bytes.max(1));
        let mut number = share as u32;
        while self.upto(number + 1) <= written {
            number += 1;
        }
        number
    }
}

#[cfg(test)]
mod tests;
