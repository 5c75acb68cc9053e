//! Membership against a naive model: the tables of RFC 3376, 6.4, taken literally, with timers that
//! are counted down a tenth of a second at a time.

use std::collections::{BTreeMap, BTreeSet};

use nilometer_router::multicast::{
    GroupTable, Membership, Query, Record, RecordKind, Settings, Version,
};
use nilometer_stat::Rng;
use nilometer_wire::{Span, Time};

use crate::MAC;
use crate::frames::{Hosts, one};

const TENTH: Span = Span::from_nanos(100_000_000);
const GROUPS: u64 = 3;
const SOURCES: u64 = 6;
const KINDS: [RecordKind; 6] = [
    RecordKind::IsInclude,
    RecordKind::IsExclude,
    RecordKind::ToInclude,
    RecordKind::ToExclude,
    RecordKind::Allow,
    RecordKind::Block,
];

/// Times in tenths of a second, short ones so that they run out often.
const INTERVAL: u64 = 50;
const RESPONSE: u64 = 20;
const ROBUSTNESS: u64 = 2;
/// Group membership interval.
const GMI: u64 = ROBUSTNESS * INTERVAL + RESPONSE;
/// Last member query time.
const LMQT: u64 = 20;

fn settings() -> Settings {
    Settings {
        robustness: ROBUSTNESS as u8,
        query_interval: TENTH * INTERVAL,
        response_interval: TENTH * RESPONSE,
        last_member_interval: TENTH * 10,
        last_member_count: 2,
        ..Settings::default()
    }
}

type Set = BTreeSet<u64>;

#[derive(Default)]
struct Twin {
    is_exclude: bool,
    group_timer: u64,
    /// A in mode INCLUDE, X in mode EXCLUDE.
    timers: BTreeMap<u64, u64>,
    y: Set,
    older_timer: u64,
    is_listening: bool,
}

impl Twin {
    fn report(&mut self, kind: RecordKind, b: &Set) {
        let a: Set = self.timers.keys().copied().collect();
        let y = self.y.clone();
        match (self.is_exclude, kind) {
            (false, RecordKind::IsInclude | RecordKind::Allow) => self.set(b, GMI),
            (false, RecordKind::IsExclude | RecordKind::ToExclude) => {
                self.timers.retain(|source, _| b.contains(source));
                self.y = b - &a;
                (self.is_exclude, self.group_timer) = (true, GMI);
                if kind == RecordKind::ToExclude {
                    self.ask(&(&a & b));
                }
            }
            (false, RecordKind::Block) => self.ask(&(&a & b)),
            (false, RecordKind::ToInclude) => {
                self.set(b, GMI);
                self.ask(&(&a - b));
            }
            (true, RecordKind::IsInclude | RecordKind::Allow) => {
                self.set(b, GMI);
                self.y = &y - b;
            }
            (true, RecordKind::IsExclude | RecordKind::ToExclude) => {
                let is_change = kind == RecordKind::ToExclude;
                let fresh = if is_change { self.group_timer } else { GMI };
                self.timers.retain(|source, _| b.contains(source));
                self.set(&(&(b - &a) - &y), fresh);
                self.y = &y & b;
                self.group_timer = GMI;
                if is_change {
                    self.ask(&(b - &y));
                }
            }
            (true, RecordKind::Block) => {
                self.set(&(&(b - &a) - &y), self.group_timer);
                self.ask(&(b - &y));
            }
            (true, RecordKind::ToInclude) => {
                self.set(b, GMI);
                self.y = &y - b;
                self.ask(&(&a - b));
                self.ask_group();
            }
        }
    }

    fn set(&mut self, sources: &Set, ticks: u64) {
        sources.iter().for_each(|source| _ = self.timers.insert(*source, ticks));
    }

    fn lower(&mut self, sources: &Set) {
        for source in sources {
            self.timers.entry(*source).and_modify(|timer| *timer = (*timer).min(LMQT));
        }
    }

    fn ask(&mut self, sources: &Set) {
        if !self.is_listening {
            self.lower(sources);
        }
    }

    fn ask_group(&mut self) {
        if !self.is_listening {
            self.group_timer = self.group_timer.min(LMQT);
        }
    }

    fn tick(&mut self) {
        self.older_timer = self.older_timer.saturating_sub(1);
        let mut zero = Set::new();
        self.timers.retain(|source, timer| {
            *timer -= 1;
            *timer > 0 || !zero.insert(*source)
        });
        if self.is_exclude {
            self.y.extend(zero);
            self.group_timer -= 1;
            if self.group_timer == 0 {
                self.is_exclude = false;
                self.y.clear();
            }
        }
        if !self.is_exclude && self.timers.is_empty() {
            self.older_timer = 0;
        }
    }

    fn wants(&self, source: u64) -> bool {
        if self.is_exclude { !self.y.contains(&source) } else { self.timers.contains_key(&source) }
    }
}

/// One message of a host, for the machine and for its twin.
fn host_message<A: Hosts>(rng: &mut Rng, twins: &mut [Twin]) -> Vec<u8> {
    let number = rng.below(GROUPS);
    let (twin, group) = (&mut twins[number as usize], A::group(number));
    match rng.below(12) {
        0 => {
            twin.older_timer = GMI;
            twin.report(RecordKind::IsExclude, &Set::new());
            A::older(group, false)
        }
        1 => {
            twin.report(RecordKind::ToInclude, &Set::new());
            A::older(group, true)
        }
        _ => {
            let kind = KINDS[rng.below(6) as usize];
            let sources: Set = (0..rng.below(5)).map(|_| rng.below(SOURCES)).collect();
            match kind {
                RecordKind::Block if twin.older_timer > 0 => {}
                RecordKind::ToExclude if twin.older_timer > 0 => twin.report(kind, &Set::new()),
                _ => twin.report(kind, &sources),
            }
            let listed: Vec<A> = sources.iter().map(|number| A::source(*number)).collect();
            one(kind, group, &listed)
        }
    }
}

/// A query of another router with the lowest address.
fn router_query<A: Hosts>(rng: &mut Rng, twins: &mut [Twin]) -> Vec<u8> {
    let number = rng.below(GROUPS + 1);
    let is_general = number == GROUPS;
    let sources: Set = (0..rng.below(3) * u64::from(!is_general)).map(|_| rng.below(6)).collect();
    let is_suppressed = rng.below(3) == 0;
    if let Some(twin) = twins.get_mut(number as usize).filter(|_| !is_suppressed) {
        match sources.is_empty() {
            true => twin.group_timer = twin.group_timer.min(LMQT),
            false => twin.lower(&sources),
        }
    }
    let query = Query {
        group: if is_general { A::NONE } else { A::group(number) },
        sources: sources.iter().map(|number| A::source(*number)).collect(),
        response_interval: TENTH * 10,
        is_suppressed,
        robustness: ROBUSTNESS as u8,
        query_interval: TENTH * INTERVAL,
        version: Version::Newest,
    };
    let mut frame = [0; 256];
    let bytes = A::write_query(&query, (MAC, A::on_link(1)), &mut frame);
    frame[..bytes].to_vec()
}

fn agrees<A: Hosts>(seed: u64, is_listening: bool) {
    let mut rng = Rng::new(seed, u32::from_be_bytes(*b"mtwn"), u64::from(is_listening));
    let mut now = Time::ZERO;
    let mut membership = Membership::new(now, settings(), MAC, A::on_link(100)).expect("settings");
    let mut table = GroupTable::new();
    let mut twins: Vec<Twin> = (0..GROUPS).map(|_| Twin::default()).collect();
    let (mut wanted, mut unwanted) = (0, 0);
    for step in 0..3_000 {
        if is_listening {
            let frame = router_query::<A>(&mut rng, &mut twins);
            membership.receive(now, &frame);
            twins.iter_mut().for_each(|twin| twin.is_listening = true);
        }
        for _ in 0..rng.below(3) {
            membership.receive(now, &host_message::<A>(&mut rng, &mut twins));
        }
        let ticks = rng.below(10) * rng.below(2);
        for _ in 0..ticks {
            twins
                .iter_mut()
                .filter(|twin| twin.is_exclude || !twin.timers.is_empty())
                .for_each(|twin| twin.tick());
        }
        now += TENTH * ticks;
        membership.handle_timeout(now);
        assert!(membership.poll_timeout().is_some_and(|due| due > now), "nothing is left undone");
        while let Some(group) = membership.poll_changed() {
            table.refresh(7, group, &membership);
        }
        while membership.poll_transmit(&mut [0; 256]).is_some() {}
        assert_eq!(membership.is_querier(), !is_listening);
        for (number, twin) in (0..).zip(&twins) {
            for source in 0..=SOURCES {
                let (group, address) = (A::group(number), A::source(source));
                let expected = twin.wants(source);
                let there = format!("seed {seed} step {step} group {number} source {source}");
                assert_eq!(membership.wants(group, address), expected, "{there}");
                assert_eq!(table.ports(group, address).eq([7]), expected, "{there} in the table");
                *(if expected { &mut wanted } else { &mut unwanted }) += 1;
            }
        }
        assert_eq!(table.len(), membership.groups().count());
    }
    assert!(wanted > 2_000 && unwanted > 2_000, "{wanted} wanted, {unwanted} not");
}

#[test]
fn the_querier_agrees_with_the_tables() {
    for seed in 0..8 {
        agrees::<u32>(seed, false);
        agrees::<u128>(seed, false);
    }
}

#[test]
fn the_non_querier_agrees_with_the_tables() {
    for seed in 0..8 {
        agrees::<u32>(seed, true);
        agrees::<u128>(seed, true);
    }
}

/// Sources that do not fit are delivered: with room for two sources, everything is wanted that is
/// wanted with more.
#[test]
fn a_limit_on_sources_never_costs_a_wanted_packet() {
    for seed in 0..8 {
        let mut rng = Rng::new(seed, u32::from_be_bytes(*b"mlim"), 0);
        let mut now = Time::ZERO;
        let [mut whole, mut narrow] = [64, 2].map(|sources_max| {
            let settings = Settings { sources_max, ..settings() };
            Membership::new(now, settings, MAC, u32::on_link(100)).expect("settings")
        });
        let mut more = 0;
        for _ in 0..3_000 {
            let kind = KINDS[rng.below(6) as usize];
            let sources = (0..rng.below(5)).map(|_| u32::source(rng.below(SOURCES))).collect();
            let frame = u32::report(&[Record { kind, group: u32::group(1), sources }]);
            now += TENTH * rng.below(10);
            for membership in [&mut whole, &mut narrow] {
                membership.handle_timeout(now);
                membership.receive(now, &frame);
            }
            for source in (0..=SOURCES).map(u32::source) {
                let [must, may] = [&whole, &narrow].map(|m| m.wants(u32::group(1), source));
                assert!(may || !must, "seed {seed}");
                more += u64::from(may && !must);
            }
            assert!(narrow.filter(u32::group(1)).is_none_or(|(_, listed)| listed.count() <= 2));
        }
        assert!(more > 100 && narrow.ledger().sources_overflowed > 100, "the limit was met");
    }
}
