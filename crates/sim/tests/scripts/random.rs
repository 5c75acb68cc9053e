//! Scripts drawn by a seed: turns and both ends at once, bulks and small segments, and every way to end.

use nilometer_conversation::{Act, Opening, Side, Step};
use nilometer_stat::Rng;
use nilometer_traffic::script::Script;

use super::observed::DELAY_NS;

const MS: u64 = 1_000_000;
/// Payload of full segments with time stamps, and without: the last as an Ethernet has it.
const SEGMENT_BYTES: [[u16; 3]; 2] = [[524, 1_100, 1_448], [536, 1_200, 1_460]];

/// A script on its way.
struct Drawn {
    rng: Rng,
    steps: Vec<Step>,
    /// Each side's stream so far, a FIN included.
    sent: [u64; 2],
    /// Of each side, what it has heard at its last step.
    received: [u64; 2],
    /// The last step was one side's alone.
    is_turn: bool,
    segment_bytes: u64,
}

/// Script number `number` of a seed.
pub fn script(seed: u64, number: u64) -> Script {
    let mut rng = Rng::new(seed, 1, number);
    let has_time_stamps = rng.below(3) > 0;
    let segment_bytes = SEGMENT_BYTES[usize::from(!has_time_stamps)][rng.below(3) as usize];
    let opening = match rng.below(20) {
        0 => Opening::Refused,
        1 => Opening::Unanswered,
        2 => Opening::Unseen,
        _ => Opening::Seen,
    };
    let tried_ns = (200 + 100 * rng.below(60)) * MS;
    let mut drawn = Drawn {
        rng,
        steps: Vec::new(),
        sent: [0; 2],
        received: [0; 2],
        is_turn: false,
        segment_bytes: segment_bytes.into(),
    };
    if matches!(opening, Opening::Seen | Opening::Unseen) {
        drawn.turns();
        drawn.ending();
    }
    Script {
        opening,
        steps: drawn.steps,
        tried_ns,
        has_time_stamps,
        segment_bytes,
        acks_each: [drawn.rng.below(2) > 0; 2],
    }
}

impl Drawn {
    /// Turns that begin with either side; in some of them the other one sends as well.
    fn turns(&mut self) {
        let first = self.rng.below(2) as usize;
        for turn in first..=first + self.rng.below(7) as usize {
            let by = Side::BOTH[turn % 2];
            if self.is_turn && self.rng.below(4) == 0 {
                self.both(by);
            } else {
                let pause_ns = self.rng.below(60 * MS);
                let act = self.unit();
                self.add(by, pause_ns, act);
            }
        }
    }

    fn ending(&mut self) {
        let by = Side::BOTH[self.rng.below(2) as usize];
        let pause_ns = self.rng.below(2) * self.rng.below(30 * MS);
        match self.rng.below(6) {
            // It stays open.
            0 => {}
            1 => self.add(by, pause_ns, Act::Reset),
            // Half of it is closed, and the other half continues. (A FIN alone parts no units of
            // the other end's.)
            2 => {
                let by = self.steps.last().map_or(by, |step| step.by);
                self.add(by, pause_ns, Act::Fin);
                let act = self.unit();
                self.add(by.other(), pause_ns, act);
                self.add(by.other(), 0, Act::Fin);
            }
            // Both close before they have heard of it.
            3 if self.is_turn => {
                let by = self.steps.last().map_or(Side::Client, |step| step.by).other();
                self.at_once(by, 20 * MS, [Act::Fin, Act::Fin]);
            }
            _ => {
                self.add(by, pause_ns, Act::Fin);
                self.add(by.other(), self.rng.clone().below(9 * MS), Act::Fin);
            }
        }
    }

    /// What a step sends: one segment, a few with time between them, a window or more at once, or a paced bulk.
    fn unit(&mut self) -> Act {
        let full = self.segment_bytes;
        let (bytes, segments, took_ns) = match self.rng.below(8) {
            0 => (1, 1, 0),
            1 => {
                let segments = 2 + self.rng.below(9);
                (segments * (1 + self.rng.below(full)), segments, 1 + self.rng.below(90 * MS))
            }
            2 => {
                let bytes = full + self.rng.below(60 * full);
                let bytes = self.with_rest(bytes);
                (bytes, bytes.div_ceil(full), 0)
            }
            3 if self.is_turn => {
                let bytes = 20 * full + self.rng.below(100 * full);
                let bytes = self.with_rest(bytes);
                // About 1 to 2 Mb/s.
                (bytes, bytes.div_ceil(full), bytes * (4_000 + self.rng.below(4_000)))
            }
            _ => (1 + self.rng.below(full), 1, 0),
        };
        Act::Send { bytes, segments: segments as u32, took_ns }
    }

    /// `bytes` in full segments and a rest. A rest behind small segments would be a unit of its own: there is none
    /// then.
    fn with_rest(&self, bytes: u64) -> u64 {
        if self.segment_bytes < 1_000 { bytes.next_multiple_of(self.segment_bytes) } else { bytes }
    }

    /// Both sides send a segment before they have received the other's. The side that sent last does so again.
    fn both(&mut self, by: Side) {
        // The quiet after which a unit is another one, and more.
        let quiet_ns = 510 * MS + self.rng.below(150 * MS);
        let full = self.segment_bytes;
        let acts = [0; 2].map(|took_ns| Act::Send {
            bytes: 1 + self.rng.below(full),
            segments: 1,
            took_ns,
        });
        self.at_once(by, quiet_ns, acts);
    }

    /// `by` acts `pause_ns` after it has heard the other end, and the other end at about the same time.
    fn at_once(&mut self, by: Side, pause_ns: u64, [act, others]: [Act; 2]) {
        let received = self.received[by.other() as usize];
        let off_ns = MS + self.rng.below(DELAY_NS / 2 - 2 * MS);
        let is_first = self.rng.below(2) == 0;
        let other_ns = DELAY_NS + if is_first { pause_ns + off_ns } else { pause_ns - off_ns };
        self.add(by, pause_ns, act);
        let place = self.steps.len() - usize::from(!is_first);
        let (awaits, by) = (received, by.other());
        self.steps.insert(place, Step { by, awaits, pause_ns: other_ns, act: others });
        self.sent[by as usize] += length(others);
        self.is_turn = false;
    }

    /// A step that awaits everything that the other side has sent.
    fn add(&mut self, by: Side, pause_ns: u64, act: Act) {
        let awaits = self.sent[by.other() as usize];
        self.steps.push(Step { by, awaits, pause_ns, act });
        self.sent[by as usize] += length(act);
        self.received[by as usize] = awaits;
        self.is_turn = true;
    }
}

fn length(act: Act) -> u64 {
    match act {
        Act::Send { bytes, .. } => bytes,
        Act::Fin => 1,
        Act::Reset => 0,
    }
}
