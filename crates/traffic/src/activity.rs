//! Which slots are on in each interval: as many as its connections need, or as it has active sessions.
//!
//! Slots are numbered; interval i switches on the first `full` of them, and the next one from the moment
//! `from` on, so that the interval holds exactly the intended connections (the paper's mean number of active
//! sessions is not a whole number either). Nothing is cut at the interval's end (Harpoon, sections 4.1 and
//! 4.2): a slot that is waiting then continues to wait and makes its connection in the interval where the
//! wait ends, and that connection counts there. It takes the place of one new session, because it is one of
//! the connections intended for that interval.
//!
//! Where sessions drive, the interval holds the intended amount of session time, and the connections that
//! these sessions make. A session that still waits from an earlier interval is active until its connection,
//! and counts towards the target (section 4.1).
//!
//! A connection of a slot's arrivals is therefore made if the slot was on at some moment of the wait before it. Its
//! gap is a draw of P(InterConnection) that was followed from its beginning only when the slot was on at that
//! beginning; only then may it be counted as one.

use alloc::vec;
use alloc::vec::Vec;

use nilometer_wire::{Span, Time};

use crate::arrivals::{Arrivals, Window};

/// Which slots an interval switches on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Active {
    /// Slots `0..full` are on during the whole interval.
    pub full: usize,
    /// Slot `full` is on from this moment to the interval's end, if at all.
    pub from: Option<Time>,
}

impl Active {
    fn holds(&self, slot: usize, window: &Window) -> Option<Time> {
        match slot {
            _ if slot < self.full => Some(window.start),
            _ if slot == self.full => self.from,
            _ => None,
        }
    }

    /// The mean number of slots on during `window`.
    pub fn mean(&self, window: &Window) -> f64 {
        // A window beyond the range of [`Time`] has no length and is empty.
        let part = |from| window.end.since(from).as_secs_f64() / window.length_s().max(1e-12);
        self.full as f64 + self.from.map_or(0.0, part)
    }
}

/// A connection that is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Made {
    /// When it starts.
    pub at: Time,
    /// The slot.
    pub slot: u32,
    /// The interval in which it starts.
    pub interval: u32,
    /// The interval whose session makes it: an earlier one when the session waited across the end.
    pub session_interval: u32,
    /// The gap before it was followed from its beginning by the slot's preceding connection.
    pub follows: bool,
}

/// The state of a slot between intervals.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// Index of the next arrival.
    next: usize,
    /// The interval whose session waits for that arrival, if one does.
    waiting: Option<u32>,
    /// The wait began at a made connection while the slot was on.
    follows: bool,
}

impl Slot {
    /// How long it waits from `start` on, until its connection or until `end`, s.
    fn waits_s(&self, own: &Arrivals, (start, end): (Time, Time)) -> f64 {
        let until = own.times.get(self.next).map_or(end, |&time| time.min(end));
        self.waiting.map_or(0.0, |_| until.since(start).as_secs_f64())
    }
}

/// The connections made and the slots on, interval by interval.
#[derive(Clone, Debug, Default)]
pub struct Activity {
    /// All connections, by interval and slot.
    pub made: Vec<Made>,
    /// The slots on, one entry an interval.
    pub active: Vec<Active>,
    /// The total time for which sessions of earlier intervals waited besides them, s, one entry an interval.
    pub waited_s: Vec<f64>,
    /// Slots whose last connection is followed by a wait that the run's end cuts.
    pub censored: Vec<u32>,
}

/// There are too few slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoreSlots {
    /// The number of slots that probably suffices.
    pub wanted: usize,
}

/// Chooses the slots of each interval so that it holds its connections.
///
/// # Errors
/// [`MoreSlots`] when the arrivals of all slots are too few.
pub fn choose(windows: &[Window], arrivals: &[Arrivals]) -> Result<Activity, MoreSlots> {
    let mut slots = vec![Slot::default(); arrivals.len()];
    let mut activity = Activity::default();
    for (index, window) in windows.iter().enumerate() {
        let active = match window.sessions {
            None => of_connections(window, arrivals, &slots)?,
            Some(sessions) => of_sessions(sessions, window, arrivals, &slots)?,
        };
        activity.waited_s.push(0.0);
        let mut step = Step { index: index as u32, window, active, activity: &mut activity };
        for (number, (slot, own)) in slots.iter_mut().zip(arrivals).enumerate() {
            step.perform(number, slot, own);
        }
        activity.active.push(active);
    }
    let cut = slots.iter().enumerate().filter(|(_, slot)| slot.follows && slot.waiting.is_some());
    activity.censored = cut.map(|(number, _)| number as u32).collect();
    Ok(activity)
}

/// How many arrivals of the slot, from its next one on, fall in the window.
fn inside(slot: &Slot, own: &Arrivals, window: &Window) -> usize {
    own.times[slot.next..].partition_point(|&time| time < window.end)
}

/// The slots that make the window's connections.
fn of_connections(
    window: &Window,
    arrivals: &[Arrivals],
    slots: &[Slot],
) -> Result<Active, MoreSlots> {
    let due = |slot: &Slot, own: &Arrivals| {
        usize::from(slot.waiting.is_some()).min(inside(slot, own, window)) as u64
    };
    let mut held: u64 = slots.iter().zip(arrivals).map(|(slot, own)| due(slot, own)).sum();
    for (full, (slot, own)) in slots.iter().zip(arrivals).enumerate() {
        if held >= window.connections {
            return Ok(Active { full, from: None });
        }
        let gained = inside(slot, own, window) as u64 - due(slot, own);
        if held + gained > window.connections {
            let wanted = (window.connections - held) as usize;
            let times = &own.times[slot.next..slot.next + inside(slot, own, window)];
            return Ok(Active { full, from: Some(times[times.len() - wanted]) });
        }
        held += gained;
    }
    if held == window.connections {
        return Ok(Active { full: arrivals.len(), from: None });
    }
    let share = window.connections as f64 / held.max(1) as f64;
    Err(MoreSlots { wanted: (arrivals.len() as f64 * share.min(64.0) * 1.2) as usize + 16 })
}

/// The slots that are on for `sessions` times the window's length, including those that still wait from
/// before.
fn of_sessions(
    sessions: f64,
    window: &Window,
    arrivals: &[Arrivals],
    slots: &[Slot],
) -> Result<Active, MoreSlots> {
    let length_s = window.length_s();
    let waits_s = |slot: &Slot, own: &Arrivals| slot.waits_s(own, (window.start, window.end));
    let wanted_s = sessions * length_s;
    let mut held_s: f64 = slots.iter().zip(arrivals).map(|(slot, own)| waits_s(slot, own)).sum();
    let is_enough = |held_s: f64| held_s >= wanted_s - 1e-9 * length_s;
    for (full, (slot, own)) in slots.iter().zip(arrivals).enumerate() {
        let (lacking_s, gained_s) = (wanted_s - held_s, length_s - waits_s(slot, own));
        if is_enough(held_s) {
            return Ok(Active { full, from: None });
        }
        if lacking_s < gained_s {
            let lacking = Span::from_secs_f64(lacking_s);
            return Ok(Active { full, from: Some(Time(window.end.0 - lacking.0)) });
        }
        held_s += gained_s;
    }
    match is_enough(held_s) {
        true => Ok(Active { full: arrivals.len(), from: None }),
        false => Err(MoreSlots { wanted: libm::ceil(sessions) as usize + 1 }),
    }
}

/// One interval being performed.
struct Step<'a> {
    index: u32,
    window: &'a Window,
    active: Active,
    activity: &'a mut Activity,
}

impl Step<'_> {
    fn perform(&mut self, number: usize, slot: &mut Slot, own: &Arrivals) {
        let on_from = self.active.holds(number, self.window);
        let off_until = on_from.unwrap_or(self.window.end);
        let waited_s = slot.waits_s(own, (self.window.start, off_until));
        self.activity.waited_s[self.index as usize] += waited_s;
        if on_from == Some(self.window.start) && slot.waiting.is_none() {
            slot.waiting = Some(self.index);
        }
        for _ in 0..inside(slot, own, self.window) {
            let at = own.times[slot.next];
            let on = on_from.is_some_and(|from| at >= from);
            slot.next += 1;
            if let Some(session) = slot.waiting.or(on.then_some(self.index)) {
                self.activity.made.push(Made {
                    at,
                    slot: number as u32,
                    interval: self.index,
                    session_interval: session,
                    follows: slot.follows,
                });
            }
            slot.waiting = on.then_some(self.index);
            slot.follows = on;
        }
        if on_from.is_some() && slot.waiting.is_none() {
            slot.waiting = Some(self.index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> Time {
        Time::ZERO + Span::from_secs(second)
    }

    fn window(start: u64, end: u64, connections: u64) -> Window {
        Window { start: at(start), end: at(end), connections, sessions: None }
    }

    fn times(times: &[u64]) -> Arrivals {
        Arrivals { times: times.iter().map(|&second| at(second)).collect() }
    }

    #[test]
    fn a_wait_across_the_end_is_finished_in_the_next_interval() {
        let arrivals = [times(&[1, 4, 12, 13])];
        let activity = choose(&[window(0, 10, 2), window(10, 20, 0)], &arrivals).expect("slots");
        let made: Vec<_> = activity.made.iter().map(|m| (m.at, m.interval)).collect();
        assert_eq!(made, [(at(1), 0), (at(4), 0), (at(12), 1)]);
        assert_eq!(activity.made[2].session_interval, 0);
        assert!(activity.made[2].follows);
        assert_eq!(activity.active[1], Active { full: 0, from: None });
    }

    #[test]
    fn a_waiting_session_replaces_a_new_one() {
        let arrivals = [times(&[1, 12]), times(&[2, 13]), times(&[15])];
        let activity = choose(&[window(0, 10, 2), window(10, 20, 2)], &arrivals).expect("slots");
        assert_eq!(activity.made.len(), 4);
        assert_eq!(activity.active[1].full, 0);
    }

    #[test]
    fn the_last_slot_starts_late_so_that_the_count_is_exact() {
        let arrivals = [times(&[1, 2, 3]), times(&[2, 4, 6, 8])];
        let activity = choose(&[window(0, 10, 5)], &arrivals).expect("slots");
        assert_eq!(activity.active[0], Active { full: 1, from: Some(at(6)) });
        assert_eq!(activity.made.len(), 5);
        let late: Vec<_> = activity.made.iter().filter(|m| m.slot == 1).collect();
        assert!(!late[0].follows && late[1].follows);
        assert_eq!(activity.censored, [0, 1]);
    }

    fn of_sessions(start: u64, end: u64, sessions: f64) -> Window {
        Window { sessions: Some(sessions), ..window(start, end, 0) }
    }

    /// Two and a half sessions make exactly the connections of their slots.
    #[test]
    fn sessions_that_drive_make_their_connections() {
        let arrivals = [times(&[1, 9]), times(&[2]), times(&[3, 6, 8]), times(&[4])];
        let activity = choose(&[of_sessions(0, 10, 2.5)], &arrivals).expect("slots");
        assert_eq!(activity.active, [Active { full: 2, from: Some(at(5)) }]);
        let made: Vec<_> = activity.made.iter().map(|made| (made.slot, made.at)).collect();
        assert_eq!(made, [(0, at(1)), (0, at(9)), (1, at(2)), (2, at(6)), (2, at(8))]);
        let none = choose(&[of_sessions(0, 10, 0.0)], &arrivals).expect("slots");
        assert!(none.made.is_empty() && none.active == [Active { full: 0, from: None }]);
        let all = choose(&[of_sessions(0, 10, 4.0)], &arrivals).expect("slots");
        assert_eq!(all.active, [Active { full: 4, from: None }]);
        let more = choose(&[of_sessions(0, 10, 4.1)], &arrivals).expect_err("four slots");
        assert_eq!(more.wanted, 6);
    }

    /// Two sessions wait for four and for six more seconds: ten seconds of one session.
    #[test]
    fn waiting_sessions_count_against_the_next_interval() {
        let arrivals = [times(&[1, 30]), times(&[2, 14]), times(&[3, 16, 18])];
        let windows = [of_sessions(0, 10, 3.0), of_sessions(10, 20, 1.5)];
        let activity = choose(&windows, &arrivals).expect("slots");
        // Slot 0 waits for all of the interval and is on: the other two bring it to two already.
        assert_eq!(activity.active[1], Active { full: 0, from: None });
        assert_eq!(activity.waited_s, [0.0, 20.0]);
        let windows = [of_sessions(0, 10, 3.0), of_sessions(10, 20, 2.2)];
        let activity = choose(&windows, &arrivals).expect("slots");
        assert_eq!(activity.active[1], Active { full: 1, from: Some(at(18)) });
        // Slot 0 is on, slot 1 for two seconds after its wait, and slot 2 makes the connection that it waited for.
        assert_eq!(activity.waited_s, [0.0, 10.0]);
        let late =
            |slot| activity.made.iter().filter(move |made| made.slot == slot && made.at > at(10));
        assert_eq!(late(1).count(), 1);
        assert_eq!(late(2).map(|made| made.at).collect::<Vec<_>>(), [at(16)]);
        assert!((activity.active[1].mean(&windows[1]) + 1.0 - 2.2).abs() < 1e-9);
    }

    #[test]
    fn too_few_slots_are_reported() {
        let error = choose(&[window(0, 10, 50)], &[times(&[1, 2])]).expect_err("too few");
        assert!(error.wanted > 25, "{error:?}");
    }

    /// Slots in proportion to the shortfall, at most 64 times as many; plus a fifth, plus 16.
    #[test]
    fn more_slots_are_requested_in_proportion_to_the_shortfall() {
        let ten = vec![times(&[1]); 10];
        let wanted = |connections: u64, arrivals: &[Arrivals]| {
            choose(&[window(0, 10, connections)], arrivals).map_err(|more| more.wanted).err()
        };
        assert_eq!(wanted(10, &ten), None);
        assert_eq!(wanted(15, &ten), Some(34));
        assert_eq!(wanted(35, &ten), Some(58));
        assert_eq!(wanted(640, &ten), Some(784));
        assert_eq!(wanted(1_000_000, &ten), Some(784));
        assert_eq!(wanted(5, &[]), Some(16));
        // No slot has an arrival in the window.
        assert_eq!(wanted(2, &vec![times(&[10]); 5]), Some(28));
    }

    #[test]
    fn the_mean_counts_the_last_slot_by_its_time() {
        let window = window(10, 20, 0);
        let mean =
            |full: usize, from: Option<u64>| Active { full, from: from.map(at) }.mean(&window);
        assert_eq!(mean(3, None), 3.0);
        assert_eq!(mean(3, Some(10)), 4.0);
        assert_eq!(mean(3, Some(15)), 3.5);
        assert_eq!(mean(0, Some(18)), 0.2);
    }
}
