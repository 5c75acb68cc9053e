//! The neighbour states of RFC 4861, transition by transition, with the section in each name.

use nilometer_router::neighbour::{
    Answer, Given, Handle, Ignored, Lookup, Mac, Own, Reason, Settings, SettingsError, Solicit,
    State, Table,
};
use nilometer_wire::{Span, Time};

const OURS: Mac = [2, 0, 0, 0, 0, 1];
const OLD: Mac = [2, 0, 0, 0, 0, 0xa];
const NEW: Mac = [2, 0, 0, 0, 0, 0xb];
const NEXT: u128 = 0xfd00 << 112 | 0x99;
const SECOND: Span = Span::from_secs(1);

type Neighbours = Table<u128, u32>;

fn with(settings: Settings) -> Neighbours {
    let mut own = Own::new(OURS).expect("a station");
    own.add(0xfd00 << 112 | 1, 64).expect("a host");
    Table::new(settings, own).expect("sound settings")
}

fn answer(mac: Option<Mac>, is_solicited: bool, overrides: bool) -> Answer {
    Answer { mac, is_solicited, overrides, is_router: false }
}

/// A table in which the neighbour is in `state`, and the time when it entered it.
fn in_state(state: State) -> (Neighbours, Time) {
    let mut table = with(Settings::discovery(1));
    let mut now = Time::ZERO;
    match state {
        State::Incomplete | State::Failed => table.hold(now, NEXT, 7).expect("a seat"),
        State::Permanent => table.set(now, NEXT, OLD, Given::Permanent).expect("room"),
        State::Reachable => table.set(now, NEXT, OLD, Given::Reachable).expect("room"),
        _ => table.set(now, NEXT, OLD, Given::Stale).expect("room"),
    }
    if matches!(state, State::Delay | State::Probe) {
        assert!(matches!(table.lookup(now, NEXT), Lookup::Resolved(OLD, _)));
    }
    while table.entry(NEXT).expect("an entry").state != state {
        now = table.poll_timeout().expect("a timer");
        table.handle_timeout(now);
    }
    while table.poll_solicit().is_some() {}
    (table, now)
}

fn state(table: &Neighbours) -> Option<(State, Option<Mac>)> {
    table.entry(NEXT).map(|entry| (entry.state, entry.mac))
}

/// State before, solicited, override, address given; state and address after.
type Row = (State, bool, bool, Option<Mac>, State, Option<Mac>);

#[test]
fn appendix_c_and_7_2_5_advertisements() {
    use State::{Delay, Incomplete, Probe, Reachable, Stale};
    let mut rows: Vec<Row> = vec![
        (Incomplete, true, false, Some(NEW), Reachable, Some(NEW)),
        (Incomplete, true, true, Some(NEW), Reachable, Some(NEW)),
        (Incomplete, false, false, Some(NEW), Stale, Some(NEW)),
        (Incomplete, false, true, Some(NEW), Stale, Some(NEW)),
        (Incomplete, true, true, None, Incomplete, None),
        (Reachable, true, false, Some(NEW), Stale, Some(OLD)),
        (Reachable, false, false, Some(NEW), Stale, Some(OLD)),
    ];
    for known in [Reachable, Stale, Delay, Probe] {
        rows.extend([
            (known, true, false, Some(OLD), Reachable, Some(OLD)),
            (known, true, false, None, Reachable, Some(OLD)),
            (known, true, true, Some(OLD), Reachable, Some(OLD)),
            (known, true, true, None, Reachable, Some(OLD)),
            (known, true, true, Some(NEW), Reachable, Some(NEW)),
            (known, false, true, Some(NEW), Stale, Some(NEW)),
            (known, false, true, Some(OLD), known, Some(OLD)),
            (known, false, false, Some(OLD), known, Some(OLD)),
            (known, false, true, None, known, Some(OLD)),
        ]);
    }
    for known in [Stale, Delay, Probe] {
        rows.push((known, true, false, Some(NEW), known, Some(OLD)));
        rows.push((known, false, false, Some(NEW), known, Some(OLD)));
    }
    for row @ (before, solicited, overrides, mac, after, known) in rows {
        let (mut table, now) = in_state(before);
        let _ = table.answered(now, NEXT, answer(mac, solicited, overrides));
        assert_eq!(state(&table), Some((after, known)), "{row:?}");
    }
}

#[test]
fn section_7_2_5_an_advertisement_makes_no_entry() {
    let mut table = with(Settings::discovery(1));
    let reply = answer(Some(NEW), true, true);
    assert_eq!(table.answered(Time::ZERO, NEXT, reply), Err(Ignored::Unknown));
    assert!(table.is_empty());
    assert_eq!(table.ledger().ignored(Ignored::Unknown), 1);
}

#[test]
fn section_7_2_5_the_router_flag_is_kept() {
    let (mut table, now) = in_state(State::Incomplete);
    let reply = Answer { is_router: true, ..answer(Some(NEW), true, true) };
    table.answered(now, NEXT, reply).expect("an answer");
    assert!(table.entry(NEXT).expect("an entry").is_router);
    table.answered(now, NEXT, answer(None, false, false)).expect("an answer");
    assert!(!table.entry(NEXT).expect("an entry").is_router);
}

#[test]
fn section_7_2_3_solicitations() {
    use State::{Delay, Failed, Incomplete, Permanent, Probe, Reachable, Stale};
    for before in [Incomplete, Reachable, Stale, Delay, Probe, Failed] {
        let (mut table, now) = in_state(before);
        table.note_address(now, NEXT, NEW, true).expect("learnt");
        assert_eq!(state(&table), Some((Stale, Some(NEW))), "{before:?}");
    }
    for before in [Reachable, Stale, Delay, Probe, Permanent] {
        let (mut table, now) = in_state(before);
        table.note_address(now, NEXT, OLD, true).expect("no change");
        assert_eq!(state(&table), Some((before, Some(OLD))), "{before:?}");
    }
    let (mut table, now) = in_state(Permanent);
    assert_eq!(table.note_address(now, NEXT, NEW, true), Err(Ignored::Locked));
    let mut table = with(Settings::discovery(1));
    assert_eq!(table.note_address(now, NEXT, NEW, false), Err(Ignored::Unknown));
    table.note_address(now, NEXT, NEW, true).expect("learnt");
    assert_eq!(state(&table), Some((Stale, Some(NEW))));
}

#[test]
fn section_7_2_2_three_requests_a_second_apart_and_then_unreachable() {
    let mut table = with(Settings::discovery(1));
    table.hold(Time::ZERO, NEXT, 7).expect("a seat");
    for second in 0..3 {
        assert_eq!(table.poll_solicit(), Some(Solicit { address: NEXT, to: None }));
        assert_eq!(table.poll_solicit(), None);
        let due = Time::ZERO + SECOND * (second + 1);
        assert_eq!(table.poll_timeout(), Some(due));
        assert_eq!(table.poll_packet(), None);
        table.handle_timeout(due);
    }
    assert_eq!(table.poll_solicit(), None);
    let outcome = table.poll_packet().expect("the packet");
    assert_eq!((outcome.packet, outcome.fate), (7, Err(Reason::Unreachable)));
    // While it counts as failed, no requests are sent and packets are refused at once.
    let now = Time::ZERO + SECOND * 3;
    assert_eq!(table.lookup(now, NEXT), Lookup::Refused(Reason::Unreachable));
    assert_eq!(table.hold(now, NEXT, 8), Err(Reason::Unreachable));
    assert!(!table.has_requests());
    table.handle_timeout(now + SECOND * 2);
    assert_eq!(state(&table), None);
    assert_eq!(table.lookup(now + SECOND * 2, NEXT), Lookup::Queue);
}

#[test]
fn section_7_2_2_the_queue_is_short_and_keeps_the_newest() {
    let mut table = with(Settings::discovery(1));
    for packet in 0..5 {
        table.hold(Time::ZERO, NEXT, packet).expect("a seat");
    }
    let pushed_out: Vec<u32> = core::iter::from_fn(|| table.poll_packet())
        .inspect(|outcome| assert_eq!(outcome.fate, Err(Reason::Overflow)))
        .map(|outcome| outcome.packet)
        .collect();
    assert_eq!(pushed_out, [0, 1]);
    table.answered(Time::ZERO, NEXT, answer(Some(NEW), true, true)).expect("an answer");
    let released: Vec<u32> = core::iter::from_fn(|| table.poll_packet())
        .inspect(|outcome| assert_eq!(outcome.fate, Ok(NEW)))
        .map(|outcome| outcome.packet)
        .collect();
    assert_eq!(released, [2, 3, 4]);
    assert_eq!((table.ledger().offered, table.ledger().released, table.held()), (5, 3, 0));
}

#[test]
fn section_7_3_3_reachable_stale_delay_probe_and_gone() {
    let (mut table, start) = in_state(State::Reachable);
    let stale_at = table.poll_timeout().expect("a timer");
    let reachable = stale_at.since(start);
    assert!(reachable >= SECOND * 15 && reachable < SECOND * 45, "{reachable}");
    table.handle_timeout(stale_at);
    assert_eq!(state(&table), Some((State::Stale, Some(OLD))));
    // It is used while stale, and packets go at once.
    let used = stale_at + SECOND;
    assert!(matches!(table.lookup(used, NEXT), Lookup::Resolved(OLD, _)));
    assert_eq!(state(&table), Some((State::Delay, Some(OLD))));
    assert_eq!(table.poll_solicit(), None);
    assert_eq!(table.poll_timeout(), Some(used + SECOND * 5));
    for probe in 0..3 {
        let due = used + SECOND * (5 + probe);
        table.handle_timeout(due);
        assert_eq!(state(&table), Some((State::Probe, Some(OLD))));
        assert_eq!(table.poll_solicit(), Some(Solicit { address: NEXT, to: Some(OLD) }));
        assert!(matches!(table.lookup(due, NEXT), Lookup::Resolved(OLD, _)));
    }
    table.handle_timeout(used + SECOND * 8);
    assert_eq!(state(&table), None);
}

#[test]
fn section_7_3_1_confirmation_from_above() {
    for before in [State::Reachable, State::Stale, State::Delay, State::Probe] {
        let (mut table, now) = in_state(before);
        table.confirm(now, NEXT);
        assert_eq!(state(&table), Some((State::Reachable, Some(OLD))), "{before:?}");
    }
    for before in [State::Incomplete, State::Failed, State::Permanent] {
        let (mut table, now) = in_state(before);
        table.confirm(now, NEXT);
        assert_eq!(state(&table).expect("an entry").0, before);
    }
}

#[test]
fn section_6_3_4_the_reachable_time_is_drawn_anew() {
    let mut drawn = Vec::new();
    for hours in 0..200 {
        let mut table = with(Settings::discovery(5));
        let now = Time::ZERO + SECOND * (7_200 * hours);
        table.set(now, NEXT, OLD, Given::Reachable).expect("room");
        drawn.push(table.poll_timeout().expect("a timer").since(now).as_secs_f64());
    }
    assert!(drawn.iter().all(|span| (15.0..45.0).contains(span)));
    let (least, most) = drawn.iter().fold((45.0f64, 0.0f64), |(a, b), &x| (a.min(x), b.max(x)));
    assert!(least < 17.0 && most > 43.0, "{least} {most}");
}

/// A handle answers while there is nothing to do on use, and never for another entry.
#[test]
fn handles_become_invalid_on_change() {
    let (mut table, mut now) = in_state(State::Reachable);
    let Lookup::Resolved(OLD, handle) = table.lookup(now, NEXT) else { panic!("resolved") };
    assert_eq!(table.ready(handle), Some(OLD));
    table.answered(now, NEXT, answer(Some(NEW), true, true)).expect("an answer");
    assert_eq!(table.ready(handle), Some(NEW), "the entry is the same");
    now = table.poll_timeout().expect("a timer");
    table.handle_timeout(now);
    assert_eq!(table.ready(handle), None, "stale");
    assert_eq!(table.lookup(now, NEXT), Lookup::Resolved(NEW, handle));
    assert_eq!(table.ready(handle), Some(NEW), "delay");
    table.remove(NEXT);
    assert_eq!(table.ready(handle), None);
    table.set(now, NEXT + 1, OLD, Given::Permanent).expect("room");
    assert_eq!(table.ready(handle), None, "another entry in the same place");
    assert_eq!(table.ready(Handle::VOID), None);
}

#[test]
fn addresses_that_cannot_be_neighbours_are_refused() {
    let mut table = with(Settings::discovery(1));
    for (address, reason) in [
        (0xfd00 << 112 | 1, Reason::Own),
        (0xfd01 << 112 | 1, Reason::OffLink),
        (0xff02 << 112 | 1, Reason::NotHost),
        (0, Reason::NotHost),
    ] {
        assert_eq!(table.lookup(Time::ZERO, address), Lookup::Refused(reason));
        assert_eq!(table.hold(Time::ZERO, address, 1), Err(reason));
        assert_eq!(table.set(Time::ZERO, address, NEW, Given::Stale), Err(reason));
    }
    assert_eq!(table.lookup(Time::ZERO, 0xfe80 << 112 | 5), Lookup::Queue);
    let claims = [
        (0xfd00 << 112 | 1, NEW, Ignored::Conflict),
        (NEXT, OURS, Ignored::Conflict),
        (NEXT, [1, 0, 0x5e, 0, 0, 1], Ignored::NotHost),
        (NEXT, [0xff; 6], Ignored::NotHost),
        (NEXT, [0; 6], Ignored::NotHost),
        (0xfd01 << 112 | 1, NEW, Ignored::OffLink),
    ];
    for (address, mac, why) in claims {
        assert_eq!(table.note_address(Time::ZERO, address, mac, true), Err(why));
    }
    assert!(table.is_empty());
    assert_eq!(table.ledger().ignored(Ignored::Conflict), 2);
}

/// Failed entries go first, then the longest stale; for traffic also the longest unconfirmed.
#[test]
fn eviction_order_when_the_table_is_full() {
    let settings = Settings { entries_max: 3, unresolved_max: 3, ..Settings::discovery(1) };
    let mut table = with(settings);
    let now = Time::ZERO;
    let at = |host: u128| NEXT + host;
    table.set(now, at(0), OLD, Given::Permanent).expect("room");
    table.set(now, at(1), OLD, Given::Reachable).expect("room");
    table.set(now, at(2), OLD, Given::Stale).expect("room");
    table.note_address(now, at(3), OLD, true).expect("the stale one gives way");
    assert!(table.entry(at(2)).is_none() && table.entry(at(1)).is_some());
    assert!(matches!(table.lookup(now, at(3)), Lookup::Resolved(..)));
    assert_eq!(table.note_address(now, at(4), OLD, true), Err(Ignored::TableFull));
    table.hold(now, at(4), 1).expect("the reachable one gives way to traffic");
    assert!(table.entry(at(1)).is_none());
    assert_eq!(table.hold(now, at(5), 2), Err(Reason::TableFull));
    assert_eq!((table.len(), table.ledger().evicted), (3, 2));
}

#[test]
fn settings_out_of_range_are_refused() {
    let sound = Settings::arp(1);
    assert_eq!(sound.check(), Ok(()));
    let checks = [
        (Settings { entries_max: 0, ..sound }, SettingsError::Entries),
        (Settings { entries_max: (1 << 20) + 1, ..sound }, SettingsError::Entries),
        (Settings { unresolved_max: 0, ..sound }, SettingsError::Unresolved),
        (Settings { unresolved_max: sound.entries_max + 1, ..sound }, SettingsError::Unresolved),
        (Settings { waiting_max: 0, ..sound }, SettingsError::Packets),
        (Settings { waiting_max: 9, packets_max: 8, ..sound }, SettingsError::Packets),
        (Settings { unicast_requests: 0, ..sound }, SettingsError::Requests),
        (Settings { multicast_requests: 0, ..sound }, SettingsError::Requests),
        (Settings { failed: Span::from_nanos(3_000_000_001), ..sound }, SettingsError::Timer),
        (Settings { failed: Span::from_nanos(999_999_999), ..sound }, SettingsError::Timer),
        (Settings { retransmit: Span::ZERO, ..sound }, SettingsError::Timer),
        (Settings { retransmit: Span::from_nanos(999_999), ..sound }, SettingsError::Timer),
        (Settings { reachable: Span::from_nanos(999_999), ..sound }, SettingsError::Timer),
        (Settings { delay: Span::from_nanos(999_999), ..sound }, SettingsError::Timer),
        (Settings { stale: Span::from_nanos(999_999), ..sound }, SettingsError::Timer),
    ];
    for (settings, error) in checks {
        assert_eq!(settings.check(), Err(error), "{settings:?}");
    }
    let millisecond = Span::from_nanos(1_000_000);
    let bounds = [
        Settings { entries_max: 1 << 20, ..sound },
        Settings { unresolved_max: sound.entries_max, ..sound },
        Settings { unresolved_max: 1, ..sound },
        Settings { waiting_max: 8, packets_max: 8, ..sound },
        Settings { failed: Span::from_secs(3), ..sound },
        Settings { failed: Span::from_secs(1), ..sound },
        Settings { retransmit: millisecond, reachable: millisecond, ..sound },
        Settings { delay: millisecond, stale: millisecond, ..sound },
    ];
    for settings in bounds {
        assert_eq!(settings.check(), Ok(()), "{settings:?}");
    }
}

#[test]
fn addresses_being_resolved_are_counted() {
    let mut table = with(Settings::discovery(1));
    let now = Time::ZERO;
    for host in 0..3 {
        table.hold(now, NEXT + host, 1).expect("room");
        table.hold(now, NEXT + host, 2).expect("room");
    }
    table.set(now, NEXT + 9, OLD, Given::Stale).expect("room");
    assert_eq!((table.unresolved(), table.held(), table.len()), (3, 6, 4));
    table.answered(now, NEXT, answer(Some(NEW), true, true)).expect("it was requested");
    assert_eq!((table.unresolved(), table.len()), (2, 4));
    assert!(table.remove(NEXT + 1));
    assert_eq!((table.unresolved(), table.len()), (1, 3));
    let end = table.poll_timeout().expect("a timer") + Span::from_secs(30);
    table.handle_timeout(end);
    table.flush();
    assert_eq!(table.unresolved(), 0);
}

/// A handle is of one entry and of no other that has its place later.
#[test]
fn a_place_that_goes_from_hand_to_hand_answers_no_old_handle() {
    let mut table = with(Settings { entries_max: 1, unresolved_max: 1, ..Settings::discovery(1) });
    let mut old: Vec<Handle> = Vec::new();
    for owner in 0..20 {
        let address = NEXT + owner;
        table.set(Time::ZERO, address, OLD, Given::Permanent).expect("room");
        let Lookup::Resolved(OLD, handle) = table.lookup(Time::ZERO, address) else {
            panic!("{owner} is known")
        };
        assert_eq!(table.ready(handle), Some(OLD));
        assert!(old.iter().all(|old| table.ready(*old).is_none()), "owner {owner}");
        assert!(table.remove(address));
        assert_eq!(table.ready(handle), None);
        old.push(handle);
    }
}
