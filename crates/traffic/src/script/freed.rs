//! A script without the network's share of its pauses.
//!
//! The meter stood somewhere between the ends, and a pause that it saw includes the network:
//!
//! ```text
//!   client          meter                      server
//!     │── request ────▶│───────── d ────────────▶│
//!     │                │                         │ p   the server's own pause
//!     │◀───────────────│◀──────── d ─────────────│
//!                      └── seen: d + p + d ──────┘
//! ```
//!
//! If hosts are microseconds apart, an end must wait for the whole pause that was seen. If an emulated path adds the
//! round trip 2 d again, the end waits only for p, or the path's time would be played twice. An end's step follows what
//! it received or what it did itself, whichever was later *at the end*: it receives a packet d after it passed the
//! meter, and what it sends passes the meter d after it was sent. The server accepts when the handshake is over, three
//! one-way delays after the SYN passed.
//!
//! The distance of the ends is known from handshakes and from the fastest answer: between what a step awaits and the
//! step, the meter sees at least a round trip. (A handshake alone may have waited for an application: one of 339 ms was
//! followed by an answer within 288.)
//!
//! A bulk is paced at the rate at which it was seen, including its slow start. If the path's round trip makes TCP start
//! slowly again, the bulk would be late by the cost of the start; so the first bulk of each end is paced at the rate
//! after its slow start.
//!
//! A pause is never negative: if a pair's other handshakes took longer, the rest stays in the pause; if this
//! connection's packets were faster than the least handshake, the step comes as soon as possible.

use alloc::vec::Vec;

use nilometer_conversation::{Act, Opening, Side, Step};

use super::{BULK_SEGMENT_BYTES, Script, is_bulk};

/// A shorter one-way delay is left to a lab's own links, ns.
pub const WAY_MIN_NS: u64 = 50_000;
/// Segments that TCP sends before the first acknowledgement (RFC 6928).
const INITIAL_WINDOW: f64 = 10.0;

/// The network on both sides of the meter: from there to an end and back again, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RoundTrip {
    /// To the client and back.
    pub client_ns: u64,
    /// To the server and back.
    pub server_ns: u64,
}

impl RoundTrip {
    /// The round trips to remove from a script that this pair plays and that was seen between another pair with
    /// the round trips `seen`, 0 where unknown. Nothing is removed on a side without an emulated path, whose
    /// delay is too short for one.
    pub fn to_be_freed_of(self, seen: RoundTrip) -> RoundTrip {
        let of = |played: u64, seen: u64| match (played / 2 >= WAY_MIN_NS, seen) {
            (false, _) => 0,
            (true, 0) => played,
            (true, seen) => seen,
        };
        RoundTrip {
            client_ns: of(self.client_ns, seen.client_ns),
            server_ns: of(self.server_ns, seen.server_ns),
        }
    }

    /// Whether both one-way delays are too short for an emulated path.
    pub fn is_short(&self) -> bool {
        self.client_ns.max(self.server_ns) / 2 < WAY_MIN_NS
    }

    /// The one-way delay between the meter and an end, ns.
    pub fn one_way_ns(&self, side: Side) -> u64 {
        match side {
            Side::Client => self.client_ns / 2,
            Side::Server => self.server_ns / 2,
        }
    }
}

/// When the data of an end passed the meter.
#[derive(Debug, Default)]
struct Passed {
    /// The offset behind each step (a FIN counts as one), and from when to when the step passed; ns.
    steps: Vec<(u64, [u64; 2])>,
    /// When its last step ended, ns; `None` before its first.
    done_ns: Option<u64>,
}

impl Passed {
    /// Does a step end at offset `awaits`, so that it is known when these bytes had passed?
    fn is_whole(&self, awaits: u64) -> bool {
        self.steps.binary_search_by_key(&awaits, |step| step.0).is_ok()
    }

    /// When its first `awaits` bytes had passed; a step's bytes pass evenly. `None` if nothing is awaited.
    fn when(&self, awaits: u64) -> Option<u64> {
        if awaits == 0 {
            return None;
        }
        let at = self.steps.partition_point(|step| step.0 < awaits);
        let Some(&(behind, [begins_ns, ends_ns])) = self.steps.get(at) else {
            return self.steps.last().map(|step| step.1[1]);
        };
        let before = at.checked_sub(1).map_or(0, |before| self.steps[before].0);
        let share = u128::from(awaits - before) * u128::from(ends_ns - begins_ns);
        Some(begins_ns + (share / u128::from(behind - before)) as u64)
    }

    fn take(&mut self, act: Act, at_ns: u64) {
        let behind = self.steps.last().map_or(0, |step| step.0);
        let (bytes, took_ns) = match act {
            Act::Send { bytes, took_ns, .. } => (bytes, took_ns),
            Act::Fin => (1, 0),
            Act::Reset => (0, 0),
        };
        let ends_ns = at_ns.saturating_add(took_ns);
        if bytes > 0 {
            self.steps.push((behind.saturating_add(bytes), [at_ns, ends_ns]));
        }
        self.done_ns = Some(ends_ns);
    }
}

/// The least time between awaited data and the answering step of each end, the client's first, as the meter
/// saw it; ns.
pub(crate) fn fastest_answers(steps: &[Step]) -> [Option<u64>; 2] {
    let mut least: [Option<u64>; 2] = [None; 2];
    walk(steps, |step, at_ns, (heard_ns, _), other| {
        // (A reset may await more than its end had received; within a step it is not known when a byte
        // passed.)
        if let Some(heard_ns) =
            heard_ns.filter(|_| step.act != Act::Reset && other.is_whole(step.awaits))
        {
            let of = &mut least[step.by.index()];
            *of = (*of).into_iter().chain([at_ns - heard_ns]).min();
        }
    });
    least
}

/// Visits steps as the meter saw them: each with the times when it began, when its end had received what it
/// awaits and when it had ended its previous step, ns; and with what the other end had sent.
fn walk(steps: &[Step], mut visit: impl FnMut(&Step, u64, (Option<u64>, Option<u64>), &Passed)) {
    let mut passed = [Passed::default(), Passed::default()];
    for step in steps {
        let own = step.by.index();
        let (heard_ns, done_ns) = (passed[1 - own].when(step.awaits), passed[own].done_ns);
        let since_ns = heard_ns.unwrap_or(0).max(done_ns.unwrap_or(0));
        let at_ns = since_ns.saturating_add(step.pause_ns);
        visit(step, at_ns, (heard_ns, done_ns), &passed[1 - own]);
        passed[own].take(step.act, at_ns);
    }
}

impl Script {
    /// The script for emulated paths as long as those of the original: each pause is reduced to the end's own
    /// part.
    pub fn freed(mut self, trip: RoundTrip) -> Script {
        if !matches!(self.opening, Opening::Seen | Opening::Unseen) {
            return self;
        }
        let mut pauses_ns = Vec::with_capacity(self.steps.len());
        walk(&self.steps, |step, at_ns, before, _| {
            pauses_ns.push(own_pause(step, at_ns, before, trip));
        });
        for (step, pause_ns) in self.steps.iter_mut().zip(pauses_ns) {
            step.pause_ns = pause_ns;
        }
        let segment = u64::from(self.segment_bytes).max(BULK_SEGMENT_BYTES);
        for side in Side::BOTH {
            let first =
                self.steps.iter_mut().filter(|step| step.by == side).find_map(
                    |step| match &mut step.act {
                        Act::Send { bytes, segments, took_ns } if is_bulk(*bytes, *segments) => {
                            Some((*bytes, took_ns))
                        }
                        _ => None,
                    },
                );
            if let Some((bytes, took_ns)) = first {
                *took_ns = steady_ns(bytes, *took_ns, trip.client_ns + trip.server_ns, segment);
            }
        }
        self
    }
}

/// How long a bulk that took `took_ns` with its slow start would have taken at its later rate from the beginning,
/// ns. The window doubles each round trip until it carries that rate; the cost of the start is the data not sent
/// meanwhile, at most half of the time.
fn steady_ns(bytes: u64, took_ns: u64, round_trip_ns: u64, segment: u64) -> u64 {
    let (bytes, took, round_trip) = (bytes as f64, took_ns as f64, round_trip_ns as f64);
    let initial = INITIAL_WINDOW * segment as f64;
    let mut steady = took;
    for _ in 0..16 {
        let full = bytes / steady * round_trip;
        let (mut window, mut missing) = (initial, 0.0);
        while window < full {
            missing += full - window;
            window *= 2.0;
        }
        steady = (took - missing * steady / bytes).max(took / 2.0);
    }
    steady as u64
}

/// The end's own part of the pause before a step that passes the meter at `at_ns`, given what it had received and done
/// by the meter's clock.
fn own_pause(
    step: &Step,
    at_ns: u64,
    (heard_ns, done_ns): (Option<u64>, Option<u64>),
    trip: RoundTrip,
) -> u64 {
    let way = i128::from(trip.one_way_ns(step.by));
    let begins = match step.by {
        Side::Client => -way,
        // The delays of the SYN, of the answer to the client and of the acknowledgement back.
        Side::Server => 3 * way + 2 * i128::from(trip.one_way_ns(Side::Client)),
    };
    let done = done_ns.map_or(begins, |done| i128::from(done) - way);
    let received = heard_ns.map_or(begins, |received| i128::from(received) + way);
    let pause = i128::from(at_ns) - way - done.max(received);
    u64::try_from(pause.max(0)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{script, send, step, two_exchanges};
    use super::*;
    use alloc::vec;

    /// When the steps of a script pass the meter, if paths take this long and both ends are as fast as possible: the
    /// naive twin of a speaker.
    fn played(script: &Script, trip: RoundTrip) -> Vec<u64> {
        let way = Side::BOTH.map(|side| trip.one_way_ns(side));
        let accepted = 3 * way[1] + 2 * way[0];
        // By a clock at the meter that begins early enough for all steps.
        let lead = way[0];
        let (mut done, mut passes) = ([0, lead + accepted], Vec::new());
        // For each end, the times at which bytes of the other one arrive.
        let mut arrives: [Vec<(u64, u64)>; 2] = [Vec::new(), Vec::new()];
        let mut sent = [0; 2];
        for step in &script.steps {
            let own = step.by.index();
            let received = arrives[own].iter().find(|(bytes, _)| *bytes >= step.awaits);
            let received = received.filter(|_| step.awaits > 0).map_or(0, |&(_, at)| at);
            let begins = done[own].max(received) + step.pause_ns;
            let (bytes, took) = match step.act {
                Act::Send { bytes, took_ns, .. } => (bytes, took_ns),
                Act::Fin => (1, 0),
                Act::Reset => (0, 0),
            };
            sent[own] += bytes;
            done[own] = begins + took;
            arrives[1 - own].push((sent[own], begins + took + way[0] + way[1]));
            passes.push(begins + way[own] - lead);
        }
        passes
    }

    const TRIP: RoundTrip = RoundTrip { client_ns: 40, server_ns: 200 };

    /// What a meter would have seen of the same ends on these paths.
    fn seen(own: &Script, trip: RoundTrip) -> Script {
        let passes = played(own, trip);
        let mut seen = own.clone();
        let mut passed = [Passed::default(), Passed::default()];
        for (step, at_ns) in seen.steps.iter_mut().zip(passes) {
            let received = passed[1 - step.by.index()].when(step.awaits).unwrap_or(0);
            let since = received.max(passed[step.by.index()].done_ns.unwrap_or(0));
            step.pause_ns = at_ns - since;
            passed[step.by.index()].take(step.act, at_ns);
        }
        seen
    }

    #[test]
    fn pauses_of_the_ends_are_recovered_from_metered_times() {
        let own = two_exchanges();
        // (A client's first pause counts from the connect, and so includes the handshake.)
        let mut own = own;
        own.steps[0].pause_ns += 240;
        let seen = seen(&own, TRIP);
        assert_eq!(seen.steps[1].pause_ns, 30 + 200, "the server's, with its way there and back");
        assert_eq!(seen.steps[2].pause_ns, 100 + 40, "the client's");
        let freed = seen.clone().freed(TRIP);
        assert_eq!(freed, own);
        assert_eq!(played(&freed, TRIP), played(&own, TRIP));
    }

    #[test]
    fn the_fastest_answer_of_each_end_is_found() {
        let seen = seen(&two_exchanges(), TRIP);
        assert_eq!(fastest_answers(&seen.steps), [Some(5 + 40), Some(1 + 200)], "before the FINs");
        let early = script(vec![
            step(Side::Client, 0, 240, send(10, 1, 0)),
            step(Side::Server, 10, 0, Act::Reset),
        ]);
        assert_eq!(fastest_answers(&early.steps), [None, None], "a reset is no answer");
        let within = script(vec![
            step(Side::Client, 0, 240, send(1_000, 10, 900)),
            step(Side::Server, 500, 1, send(10, 1, 0)),
        ]);
        assert_eq!(fastest_answers(&within.steps), [None, None], "who knows when the 500 passed");
    }

    #[test]
    fn a_bulk_is_paced_as_it_was_when_its_window_stood() {
        // 1,000 segments a round trip of 100 ms: the window is 10, 20, ... 640 for seven round trips, which carry
        // 1,270 segments and not 7,000.
        let (segment, round_trip) = (1_000, 100_000_000);
        let rate = 1_000.0 * segment as f64 / round_trip as f64;
        let bytes = 20_000 * segment;
        let took = (bytes as f64 / rate + 5_730.0 * segment as f64 / rate) as u64;
        let steady = steady_ns(bytes, took, round_trip, segment);
        let expected = bytes as f64 / rate;
        assert!((steady as f64 / expected - 1.0).abs() < 1e-3, "{steady} {expected}");
        assert_eq!(steady_ns(bytes, took, 0, segment), took, "no path, no start");
        assert_eq!(steady_ns(20 * segment, 1_000, round_trip, segment), 500, "half at the least");
    }

    #[test]
    fn the_round_trip_removed_is_that_of_the_played_path() {
        let trip = |client_ns, server_ns| RoundTrip { client_ns, server_ns };
        let (far, near) = (trip(40_000_000, 200_000_000), trip(9_000, 99_000));
        assert_eq!(far.to_be_freed_of(trip(1, 2)), trip(1, 2), "what was in the pauses");
        assert_eq!(near.to_be_freed_of(far), RoundTrip::default(), "no path is played");
        assert_eq!(far.to_be_freed_of(RoundTrip::default()), far, "where nothing is known of it");
    }

    #[test]
    fn without_a_path_nothing_is_freed() {
        assert_eq!(two_exchanges().freed(RoundTrip::default()), two_exchanges());
    }

    #[test]
    fn a_server_that_sends_first_has_completed_the_handshake() {
        let own = script(vec![step(Side::Server, 0, 7, send(50, 1, 0))]);
        let seen = seen(&own, TRIP);
        assert_eq!(seen.steps[0].pause_ns, 3 * 100 + 2 * 20 + 7 + 100);
        assert_eq!(seen.freed(TRIP), own);
    }

    #[test]
    fn a_step_after_one_of_its_own_end_keeps_its_pause() {
        let own = script(vec![
            step(Side::Client, 0, 240, send(10, 1, 0)),
            step(Side::Client, 0, 900, send(20, 4, 60)),
            step(Side::Client, 0, 5, Act::Fin),
        ]);
        assert_eq!(seen(&own, TRIP).freed(TRIP), own);
    }

    #[test]
    fn a_pause_shorter_than_the_path_becomes_none() {
        let fast = script(vec![
            step(Side::Client, 0, 240, send(10, 1, 0)),
            step(Side::Server, 10, 150, send(20, 1, 0)),
        ]);
        assert_eq!(fast.freed(TRIP).steps[1].pause_ns, 0);
    }

    #[test]
    fn an_answer_to_part_of_a_send_awaits_only_that_part() {
        let own = script(vec![
            step(Side::Client, 0, 240, send(1_000, 10, 900)),
            step(Side::Server, 500, 30, send(20, 1, 0)),
        ]);
        // Half of it passes 450 after its beginning, and the answer 200 + 30 later.
        let mut seen = own.clone();
        seen.steps[1].pause_ns = 230;
        assert_eq!(seen.freed(TRIP), own);
        // So it did although it had itself sent something meanwhile.
        let own = script(vec![
            step(Side::Client, 0, 240, send(1_000, 10, 900)),
            step(Side::Server, 0, 160, send(7, 1, 0)),
            step(Side::Server, 500, 30, send(20, 1, 0)),
        ]);
        let mut seen = own.clone();
        (seen.steps[1].pause_ns, seen.steps[2].pause_ns) = (160 + 340 + 100, 230);
        assert_eq!(seen.freed(TRIP), own);
    }
}
