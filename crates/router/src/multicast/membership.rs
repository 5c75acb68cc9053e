//! The groups of one port, and the router that queries them (RFC 3376, 6; RFC 3810, 7).
//!
//! Of several routers on a link the one with the lowest address is the querier (6.6.2); the others
//! listen, keep the same state, and take over when it falls silent. Only the querier shortens
//! timers on a leave.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use nilometer_wire::{Span, Time};

use super::QUERY_SOURCES_MAX;
use super::group::{Group, Terms};
use super::message::{FilterMode, Message, Protocol, Query, Record, RecordKind, Version};
use super::settings::{Settings, SettingsError};
use crate::neighbour::Mac;

/// Most queries that wait to be sent.
const QUERIES_MAX: usize = 1_024;

/// Counts since the port came up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Messages beyond [`Settings::messages_per_second`]: not read.
    pub hurried: u64,
    /// Frames that broke a rule.
    pub malformed: u64,
    /// Reports in a newer version than the port's: ignored.
    pub newer: u64,
    /// Group records taken.
    pub records: u64,
    /// Records for groups that never leave their link, which need no state.
    pub local: u64,
    /// Records of groups beyond the limit: ignored.
    pub groups_refused: u64,
    /// Sources beyond the limit: delivered unasked.
    pub sources_overflowed: u64,
    /// Queries of other routers.
    pub queries_heard: u64,
    /// Queries that found no room to wait to be sent.
    pub queries_dropped: u64,
}

/// The group memberships of one port in one family.
#[derive(Debug)]
pub struct Membership<A> {
    settings: Settings,
    /// The settings, with the values that the querier advertises (RFC 3376, 4.1.6 and 4.1.7).
    in_force: Settings,
    mac: Mac,
    address: A,
    groups: BTreeMap<A, Group<A>>,
    timers: BTreeSet<(Time, A)>,
    changed: BTreeSet<A>,
    queries: VecDeque<Query<A>>,
    startup_left: u8,
    next_general: Time,
    /// The querier, if it is another router, and until when it counts as present.
    other: Option<(A, Time)>,
    /// When as many messages may come at once again as in a second.
    rested: Time,
    ledger: Ledger,
}

impl<A: Protocol> Membership<A> {
    /// A port with these addresses, link-local for IPv6, that begins to query now.
    ///
    /// # Errors
    /// What is wrong with the settings.
    pub fn new(
        now: Time,
        settings: Settings,
        mac: Mac,
        address: A,
    ) -> Result<Membership<A>, SettingsError> {
        settings.check()?;
        Ok(Membership {
            settings,
            in_force: settings,
            mac,
            address,
            groups: BTreeMap::new(),
            timers: BTreeSet::new(),
            changed: BTreeSet::new(),
            queries: VecDeque::new(),
            startup_left: settings.robustness,
            next_general: now,
            other: None,
            rested: now,
            ledger: Ledger::default(),
        })
    }

    /// Whether this router is the querier, and not another.
    pub fn is_querier(&self) -> bool {
        self.other.is_none()
    }

    /// Whether packets of `source` for `group` are wanted on the port.
    pub fn wants(&self, group: A, source: A) -> bool {
        self.groups.get(&group).is_some_and(|state| state.wants(source))
    }

    /// A group's filter and its list: the sources that are wanted, or those that are not.
    pub fn filter(&self, group: A) -> Option<(FilterMode, impl Iterator<Item = A> + '_)> {
        let state = self.groups.get(&group)?;
        let is_include = state.filter == FilterMode::Include;
        let listed =
            state.sources.iter().filter(move |source| source.until.is_some() == is_include);
        Some((state.filter, listed.map(|source| source.address)))
    }

    /// The groups that some host on the port wants, lowest first.
    pub fn groups(&self) -> impl Iterator<Item = A> + '_ {
        self.groups.keys().copied()
    }

    /// The counts.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The next group that changed; to be passed to [`super::GroupTable::refresh`].
    pub fn poll_changed(&mut self) -> Option<A> {
        self.changed.pop_first()
    }

    /// A frame with a message of IGMP or MLD has arrived.
    pub fn receive(&mut self, now: Time, frame: &[u8]) {
        if self.is_hurried(now) {
            self.ledger.hurried += 1;
            return;
        }
        match A::read(frame) {
            Ok((source, Message::Query(query))) => self.receive_query(now, source, &query),
            Ok((_, Message::Report(version, _))) if version > self.settings.version => {
                self.ledger.newer += 1;
            }
            Ok((_, Message::Report(version, records))) => {
                records.iter().for_each(|record| self.receive_record(now, version, record));
            }
            Err(_) => self.ledger.malformed += 1,
        }
    }

    /// Whether the message that comes now is one too many (a token bucket as one moment, see
    /// [`crate::forward::limit`]).
    fn is_hurried(&mut self, now: Time) -> bool {
        let second = Span::from_secs(1);
        let rested = self.rested.max(now) + second / u64::from(self.settings.messages_per_second);
        if rested.since(now) > second {
            return true;
        }
        self.rested = rested;
        false
    }

    fn receive_query(&mut self, now: Time, source: A, query: &Query<A>) {
        self.ledger.queries_heard += 1;
        // Without a source it comes from a switch that only listens (RFC 4541, 2.1.1); the oldest
        // version knows no election.
        let is_candidate = source != A::NONE && source != self.address;
        let incumbent = self.other.map_or(self.address, |(address, _)| address);
        if !is_candidate || query.version == Version::Oldest || source > incumbent {
            return;
        }
        if self.is_querier() {
            self.queries.clear();
            self.groups.values_mut().for_each(Group::stop_asking);
        }
        if query.version == Version::Newest {
            if query.robustness > 0 {
                self.in_force.robustness = query.robustness;
            }
            if query.query_interval > self.in_force.response_interval {
                self.in_force.query_interval = query.query_interval;
            }
        }
        self.other = Some((source, now + self.in_force.other_querier_interval()));
        if query.group != A::NONE && !query.is_suppressed {
            let queried = query.response_interval * u64::from(self.in_force.last_member_count);
            let soon = now + queried.max(self.in_force.last_member_time());
            self.change(now, query.group, |state, _| state.lower(soon, &query.sources));
        }
    }

    fn receive_record(&mut self, now: Time, version: Version, record: &Record<A>) {
        if !record.group.may_forward() {
            self.ledger.local += 1;
            return;
        }
        if !self.groups.contains_key(&record.group) {
            if self.groups.len() == self.settings.groups_max {
                self.ledger.groups_refused += 1;
                return;
            }
            self.groups.insert(record.group, Group::new());
        }
        self.ledger.records += 1;
        let older = now + self.in_force.membership_interval();
        self.change(now, record.group, |state, terms| {
            // A leave carries no information about the hosts that stay.
            match (version, record.kind) {
                (Version::Oldest, _) => state.oldest_until = older,
                (Version::Older, RecordKind::IsExclude) => state.older_until = older,
                _ => {}
            }
            let (has_oldest, has_older) = (now < state.oldest_until, now < state.older_until);
            let listed = record.sources.as_slice();
            match record.kind {
                RecordKind::Block if has_older || has_oldest => {}
                RecordKind::ToInclude if has_oldest => {}
                RecordKind::ToExclude if has_older || has_oldest => {
                    state.report(terms, record.kind, &[]);
                }
                kind => state.report(terms, kind, listed),
            }
        });
    }

    /// Changes a group after its due timers have run, and handles the consequences of both.
    fn change(&mut self, now: Time, group: A, act: impl FnOnce(&mut Group<A>, &Terms)) {
        let terms = self.terms(now);
        let Some(state) = self.groups.get_mut(&group) else { return };
        let shape = |state: &Group<A>| -> (FilterMode, Vec<(A, bool)>) {
            let sources = state.sources.iter();
            (state.filter, sources.map(|s| (s.address, s.until.is_some())).collect())
        };
        let before = (state.due(), shape(state));
        state.expire(now);
        act(state, &terms);
        state.expire(now);
        self.ledger.sources_overflowed += core::mem::take(&mut state.overflowed);
        let after = (state.due(), shape(state));
        if before.0 != after.0 {
            before.0.into_iter().for_each(|due| _ = self.timers.remove(&(due, group)));
            after.0.into_iter().for_each(|due| _ = self.timers.insert((due, group)));
        }
        if before.1 != after.1 {
            self.changed.insert(group);
        }
        if state.is_void() {
            after.0.into_iter().for_each(|due| _ = self.timers.remove(&(due, group)));
            self.groups.remove(&group);
        }
    }

    fn terms(&self, now: Time) -> Terms {
        let count = self.in_force.last_member_count;
        Terms {
            now,
            membership: self.in_force.membership_interval(),
            last_member: self.in_force.last_member_time(),
            asks: if self.is_querier() { count } else { 0 },
            sources_max: self.settings.sources_max,
        }
    }

    /// The moment of [`Membership::poll_timeout`] has come.
    pub fn handle_timeout(&mut self, now: Time) {
        if self.other.is_some_and(|(_, until)| until <= now) {
            self.other = None;
            self.in_force = self.settings;
            self.next_general = now;
        }
        if self.is_querier() && self.next_general <= now {
            self.ask(A::NONE, Vec::new(), self.settings.response_interval, false);
            self.startup_left = self.startup_left.saturating_sub(1);
            let parts = if self.startup_left > 0 { 4 } else { 1 };
            self.next_general = now + self.settings.query_interval / parts;
        }
        while let Some(&(due, group)) = self.timers.first() {
            if due > now {
                break;
            }
            let mut queried = Vec::new();
            let interval = self.settings.last_member_interval;
            self.change(now, group, |state, terms| {
                if state.next_ask.is_some_and(|moment| moment <= now) {
                    queried = state.take_asks(terms);
                    state.next_ask = Some(now + interval);
                }
            });
            for (sources, is_suppressed) in queried {
                self.ask(group, sources, interval, is_suppressed);
            }
        }
    }

    /// Queues a query; the sources of one that is too long go into several.
    fn ask(&mut self, group: A, sources: Vec<A>, response_interval: Span, is_suppressed: bool) {
        let parts: Vec<Vec<A>> = match sources.is_empty() {
            true => Vec::from([sources]),
            false => sources.chunks(QUERY_SOURCES_MAX).map(<[A]>::to_vec).collect(),
        };
        for sources in parts {
            if self.queries.len() == QUERIES_MAX {
                self.ledger.queries_dropped += 1;
                continue;
            }
            self.queries.push_back(Query {
                group,
                sources,
                response_interval,
                is_suppressed,
                robustness: self.settings.robustness,
                query_interval: self.settings.query_interval,
                version: self.settings.version,
            });
        }
    }

    /// When [`Membership::handle_timeout`] is to be called next.
    pub fn poll_timeout(&self) -> Option<Time> {
        let general = self.other.map_or(self.next_general, |(_, until)| until);
        let group = self.timers.first().map(|&(due, _)| due);
        Some(group.map_or(general, |due| due.min(general)))
    }

    /// Writes the next query to be sent and returns its length; to be called after every other call
    /// until there is none.
    ///
    /// # Panics
    /// If the buffer is shorter than [`crate::neighbour::FRAME_BYTES_MAX`].
    pub fn poll_transmit(&mut self, frame: &mut [u8]) -> Option<usize> {
        let query = self.queries.pop_front()?;
        Some(A::write_query(&query, (self.mac, self.address), frame))
    }
}
