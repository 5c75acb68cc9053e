//! The neighbour table against a list of entries that is searched from end to end.

use nilometer_router::neighbour::{
    Answer, Given, Ignored, Lookup, Mac, Own, Reason, Settings, State, Table,
};
use nilometer_stat::Rng;
use nilometer_wire::{Span, Time};

const OURS: Mac = [2, 0, 0, 0, 0, 0xff];
const BASE: u32 = 0xc612_0000;

struct Record {
    address: u32,
    mac: Option<Mac>,
    state: State,
    requests: u8,
    deadline: Option<Time>,
    changed: Time,
    waiting: Vec<u64>,
    /// When the state began, in steps.
    since: u64,
}

/// The same rules, written as plainly as possible.
struct Twin {
    settings: Settings,
    records: Vec<Record>,
    steps: u64,
    outcomes: Vec<(u64, Result<Mac, Reason>)>,
    asks: Vec<(u32, Option<Mac>)>,
    ready_packets: usize,
}

impl Twin {
    fn check(address: u32) -> Result<(), Reason> {
        match address.wrapping_sub(BASE) {
            0 | 255 => Err(Reason::NotHost),
            1 => Err(Reason::Own),
            2..255 => Ok(()),
            _ => Err(Reason::OffLink),
        }
    }

    fn claim(address: u32, mac: Mac) -> Result<(), Ignored> {
        match Twin::check(address) {
            Err(Reason::Own) => Err(Ignored::Conflict),
            _ if mac == OURS => Err(Ignored::Conflict),
            _ if mac[0] & 1 == 1 => Err(Ignored::NotHost),
            Err(Reason::OffLink) => Err(Ignored::OffLink),
            Err(_) => Err(Ignored::NotHost),
            Ok(()) => Ok(()),
        }
    }

    fn find(&self, address: u32) -> Option<usize> {
        self.records.iter().position(|record| record.address == address)
    }

    fn enter(&mut self, now: Time, at: usize, state: State) {
        self.steps += 1;
        let hours = now.0 / 7_200_000_000_000_000;
        let factor = 0.5 + Rng::new(self.settings.seed, 0x6e75, hours).unit();
        let reachable = Span::from_secs_f64(self.settings.reachable.as_secs_f64() * factor);
        let record = &mut self.records[at];
        (record.state, record.since, record.requests) = (state, self.steps, 0);
        record.deadline = match state {
            State::Reachable => Some(now + reachable),
            State::Stale => Some(now + self.settings.stale),
            State::Delay => Some(now + self.settings.delay),
            State::Failed => Some(now + self.settings.failed),
            _ => None,
        };
        if matches!(state, State::Probe | State::Incomplete) {
            return self.ask(now, at);
        }
        let record = &mut self.records[at];
        let fate = match state {
            State::Failed => Err(Reason::Unreachable),
            _ => Ok(record.mac.expect("known")),
        };
        self.outcomes.extend(record.waiting.drain(..).map(|packet| (packet, fate)));
    }

    fn ask(&mut self, now: Time, at: usize) {
        let record = &mut self.records[at];
        record.requests += 1;
        record.deadline = Some(now + self.settings.retransmit);
        let to = record.mac.filter(|_| record.state == State::Probe);
        self.asks.push((record.address, to));
    }

    fn remove(&mut self, at: usize) {
        let record = self.records.remove(at);
        let lost = record.waiting.into_iter().map(|packet| (packet, Err(Reason::Removed)));
        self.outcomes.extend(lost);
    }

    fn room(&mut self, for_traffic: bool) -> bool {
        if self.records.len() < self.settings.entries_max {
            return true;
        }
        let oldest = |state| {
            let those = self.records.iter().enumerate().filter(|(_, r)| r.state == state);
            those.min_by_key(|(_, r)| r.since).map(|(at, _)| at)
        };
        let reachable = || oldest(State::Reachable).filter(|_| for_traffic);
        let Some(victim) =
            oldest(State::Failed).or_else(|| oldest(State::Stale)).or_else(reachable)
        else {
            return false;
        };
        self.remove(victim);
        true
    }

    fn add(&mut self, now: Time, address: u32) -> usize {
        let (state, mac, deadline, waiting) = (State::Incomplete, None, None, Vec::new());
        let record =
            Record { address, mac, state, requests: 0, deadline, changed: now, waiting, since: 0 };
        self.records.push(record);
        self.records.len() - 1
    }

    fn learn(&mut self, now: Time, at: usize, mac: Mac, state: State) {
        (self.records[at].mac, self.records[at].changed) = (Some(mac), now);
        self.enter(now, at, state);
    }

    fn lookup(&mut self, now: Time, address: u32) -> Result<Option<Mac>, Reason> {
        let Some(at) = self.find(address) else { return Twin::check(address).map(|()| None) };
        match self.records[at].state {
            State::Incomplete => return Ok(None),
            State::Failed => return Err(Reason::Unreachable),
            State::Stale => self.enter(now, at, State::Delay),
            _ => {}
        }
        Ok(self.records[at].mac)
    }

    fn hold(&mut self, now: Time, address: u32, packet: u64) -> Result<(), Reason> {
        let waiting: usize = self.records.iter().map(|record| record.waiting.len()).sum();
        if waiting + self.ready_packets >= self.settings.packets_max {
            return Err(Reason::PacketsFull);
        }
        if let Some(mac) = self.lookup(now, address)? {
            self.outcomes.push((packet, Ok(mac)));
            return Ok(());
        }
        let at = match self.find(address) {
            Some(at) => at,
            None => {
                let resolving = self.records.iter().filter(|r| r.state == State::Incomplete);
                if resolving.count() == self.settings.unresolved_max {
                    return Err(Reason::UnresolvedFull);
                }
                if !self.room(true) {
                    return Err(Reason::TableFull);
                }
                let at = self.add(now, address);
                self.enter(now, at, State::Incomplete);
                at
            }
        };
        let waiting = &mut self.records[at].waiting;
        if waiting.len() == self.settings.waiting_max {
            self.outcomes.push((waiting.remove(0), Err(Reason::Overflow)));
        }
        self.records[at].waiting.push(packet);
        Ok(())
    }

    fn answered(&mut self, now: Time, address: u32, answer: Answer) -> Result<(), Ignored> {
        let mac = answer.mac.expect("always said here");
        Twin::claim(address, mac)?;
        let at = self.find(address).ok_or(Ignored::Unknown)?;
        let is_other = self.records[at].mac != Some(mac);
        let is_locked = now < self.records[at].changed + self.settings.lock;
        let result = if answer.is_solicited { State::Reachable } else { State::Stale };
        match self.records[at].state {
            State::Permanent if is_other => return Err(Ignored::Locked),
            State::Permanent => {}
            State::Incomplete | State::Failed => self.learn(now, at, mac, result),
            State::Reachable if is_other && !answer.overrides => {
                self.enter(now, at, State::Stale);
            }
            _ if is_other && !answer.overrides => {}
            _ if is_other && is_locked => return Err(Ignored::Locked),
            _ if is_other => self.learn(now, at, mac, result),
            _ if answer.is_solicited => self.enter(now, at, result),
            _ => {}
        }
        Ok(())
    }

    fn note_address(
        &mut self,
        now: Time,
        address: u32,
        mac: Mac,
        to_us: bool,
    ) -> Result<(), Ignored> {
        Twin::claim(address, mac)?;
        let Some(at) = self.find(address) else {
            if !to_us {
                return Err(Ignored::Unknown);
            }
            if !self.room(false) {
                return Err(Ignored::TableFull);
            }
            let at = self.add(now, address);
            self.learn(now, at, mac, State::Stale);
            return Ok(());
        };
        let is_other = self.records[at].mac != Some(mac);
        let is_locked = now < self.records[at].changed + self.settings.lock;
        match self.records[at].state {
            State::Permanent if is_other => Err(Ignored::Locked),
            State::Permanent => Ok(()),
            State::Incomplete | State::Failed => {
                self.learn(now, at, mac, State::Stale);
                Ok(())
            }
            _ if !is_other => Ok(()),
            _ if is_locked => Err(Ignored::Locked),
            _ => {
                self.learn(now, at, mac, State::Stale);
                Ok(())
            }
        }
    }

    fn set(&mut self, now: Time, address: u32, mac: Mac, given: Given) -> Result<(), Reason> {
        Twin::check(address)?;
        let at = match self.find(address) {
            Some(at) => at,
            None if !self.room(true) => return Err(Reason::TableFull),
            None => self.add(now, address),
        };
        let state = match given {
            Given::Permanent => State::Permanent,
            Given::Reachable => State::Reachable,
            Given::Stale => State::Stale,
        };
        self.learn(now, at, mac, state);
        Ok(())
    }

    fn confirm(&mut self, now: Time, address: u32) {
        use State::{Delay, Probe, Reachable, Stale};
        if let Some(at) = self.find(address)
            && matches!(self.records[at].state, Reachable | Stale | Delay | Probe)
        {
            self.enter(now, at, Reachable);
        }
    }

    fn next_timeout(&self) -> Option<Time> {
        self.records.iter().filter_map(|record| record.deadline).min()
    }

    fn handle_timeout(&mut self, now: Time) {
        while let Some(at) = self.records.iter().position(|r| r.deadline.is_some_and(|d| d <= now))
        {
            let Record { state, requests, .. } = self.records[at];
            match state {
                State::Incomplete if requests < self.settings.multicast_requests => {
                    self.ask(now, at);
                }
                State::Probe if requests < self.settings.unicast_requests => self.ask(now, at),
                State::Incomplete => self.enter(now, at, State::Failed),
                State::Reachable => self.enter(now, at, State::Stale),
                State::Delay => self.enter(now, at, State::Probe),
                _ => self.remove(at),
            }
        }
    }
}

/// Both, kept in step.
struct Pair {
    ours: Table<u32, u64>,
    twin: Twin,
}

impl Pair {
    fn step(&mut self, now: Time, packet: u64, rng: &mut Rng) {
        let Pair { ours, twin } = self;
        let width = if rng.below(3) == 0 { 258 } else { 24 };
        let address = BASE + rng.below(width) as u32;
        let mac = match rng.below(40) {
            0 => OURS,
            1 => [1, 0, 0x5e, 0, 0, 1],
            other => [2, 0, 0, 0, 0, (other % 3) as u8],
        };
        match rng.below(400) {
            0..150 => {
                let found = twin.lookup(now, address);
                let result = match ours.lookup(now, address) {
                    Lookup::Resolved(mac, handle) => {
                        assert_eq!(ours.ready(handle), Some(mac));
                        Ok(Some(mac))
                    }
                    Lookup::Queue => Ok(None),
                    Lookup::Refused(reason) => Err(reason),
                };
                assert_eq!(result, found);
            }
            150..250 => {
                assert_eq!(ours.hold(now, address, packet), twin.hold(now, address, packet));
            }
            250..310 => {
                let (is_solicited, overrides) = (rng.below(2) == 0, rng.below(2) == 0);
                let answer = Answer { mac: Some(mac), is_solicited, overrides, is_router: false };
                let result = ours.answered(now, address, answer);
                assert_eq!(result, twin.answered(now, address, answer));
            }
            310..360 => {
                let to_us = rng.below(2) == 0;
                let result = ours.note_address(now, address, mac, to_us);
                assert_eq!(result, twin.note_address(now, address, mac, to_us));
            }
            360..375 => {
                ours.confirm(now, address);
                twin.confirm(now, address);
            }
            375..397 => {
                let at = twin.find(address);
                assert_eq!(ours.remove(address), at.is_some());
                at.into_iter().for_each(|at| twin.remove(at));
            }
            _ => {
                let mac = [2, 0, 0, 0, 1, 1];
                let kind = rng.below(3) as usize;
                let given = [Given::Permanent, Given::Reachable, Given::Stale][kind];
                let result = ours.set(now, address, mac, given);
                assert_eq!(result, twin.set(now, address, mac, given));
            }
        }
    }

    fn compare(&mut self, is_polled: bool) {
        let Pair { ours, twin } = self;
        let record = |record: &Record| {
            let is_known = !matches!(record.state, State::Incomplete | State::Failed);
            (record.address, record.mac.filter(|_| is_known), record.state)
        };
        assert_eq!(ours.len(), twin.records.len());
        assert_eq!(ours.poll_timeout(), twin.next_timeout());
        for found in twin.records.iter().take(3).map(record) {
            let entry = ours.entry(found.0).expect("an entry");
            assert_eq!((entry.address, entry.mac, entry.state), found);
        }
        let mut asks = Vec::new();
        while let Some(solicit) = ours.poll_solicit() {
            asks.push((solicit.address, solicit.to));
        }
        // No request is sent for an entry that was removed before it.
        twin.asks.retain(|(address, _)| twin.records.iter().any(|r| r.address == *address));
        assert_eq!(asks, core::mem::take(&mut twin.asks));
        if is_polled {
            let result: Vec<_> = core::iter::from_fn(|| ours.poll_packet())
                .map(|outcome| (outcome.packet, outcome.fate))
                .collect();
            assert_eq!(result, core::mem::take(&mut twin.outcomes));
        }
        twin.ready_packets = twin.outcomes.len();
        let (ledger, held) = (ours.ledger(), ours.held() as u64);
        assert_eq!(ledger.offered, ledger.released + ledger.dropped_total() + held);
    }
}

#[test]
fn a_million_operations_agree_with_the_twin() {
    let mut dropped = [0; Reason::ALL.len()];
    for seed in 0..10 {
        let mut settings = Settings::arp(seed);
        (settings.entries_max, settings.unresolved_max, settings.waiting_max) = (16, 4, 2);
        (settings.packets_max, settings.stale) = (5 + seed as usize, Span::from_secs(40));
        let mut own = Own::new(OURS).expect("a station");
        own.add(BASE + 1, 24).expect("a host");
        let mut pair = Pair {
            ours: Table::new(settings, own).expect("sound settings"),
            twin: Twin {
                settings,
                records: Vec::new(),
                steps: 0,
                outcomes: Vec::new(),
                asks: Vec::new(),
                ready_packets: 0,
            },
        };
        let mut rng = Rng::new(seed, 1, 0);
        let mut now = Time::ZERO;
        for packet in 0..100_000 {
            now += Span(1 + rng.below(300_000_000_000));
            while let Some(due) = pair.ours.poll_timeout().filter(|&due| due <= now) {
                pair.ours.handle_timeout(due);
                pair.twin.handle_timeout(due);
                pair.compare(true);
            }
            pair.step(now, packet, &mut rng);
            pair.compare(rng.below(2) != 0);
        }
        assert!(pair.ours.ledger().evicted > 500, "seed {seed}");
        for reason in Reason::ALL {
            dropped[reason as usize] += pair.ours.ledger().dropped(reason);
        }
    }
    assert!(dropped.iter().all(|&count| count > 100), "every reason came about: {dropped:?}");
}
