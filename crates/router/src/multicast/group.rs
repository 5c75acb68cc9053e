//! One group on one port: which sources its members want, by the tables of RFC 3376, 6.4 (RFC 3810, 7.4).
//!
//! Of the RFC's sets, A and X are the sources whose timers run, Y those whose timers stand at zero. In
//! filter mode INCLUDE a source without a timer is gone.

use alloc::vec::Vec;

use nilometer_wire::{Span, Time};

use super::message::{FilterMode, RecordKind};

/// A source of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Source<A> {
    pub(super) address: A,
    /// When its timer runs out; nothing: excluded.
    pub(super) until: Option<Time>,
    /// How many queries for it are still to be sent.
    pub(super) asks: u8,
}

/// The times and numbers that the tables use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) now: Time,
    /// GMI.
    pub(super) membership: Span,
    /// LMQT.
    pub(super) last_member: Span,
    /// LMQC; 0 if another router is the querier.
    pub(super) asks: u8,
    pub(super) sources_max: usize,
}

/// A group's state.
#[derive(Clone, Debug)]
pub(super) struct Group<A> {
    pub(super) filter: FilterMode,
    /// The group timer, of filter mode EXCLUDE.
    pub(super) until: Time,
    pub(super) sources: Vec<Source<A>>,
    /// How many queries for the whole group are still to be sent, and when the next query of any kind
    /// is due.
    pub(super) asks: u8,
    pub(super) next_ask: Option<Time>,
    /// Until when a host of an older version counts as being there (RFC 3376, 7.3.2), and whether of
    /// the oldest.
    pub(super) older_until: Time,
    pub(super) oldest_until: Time,
    /// How many sources did not fit.
    pub(super) overflowed: u64,
}

impl<A: Copy + Ord> Group<A> {
    /// INCLUDE with no sources: the state of a group before the first report.
    pub(super) fn new() -> Group<A> {
        Group {
            filter: FilterMode::Include,
            until: Time::ZERO,
            sources: Vec::new(),
            asks: 0,
            next_ask: None,
            older_until: Time::ZERO,
            oldest_until: Time::ZERO,
            overflowed: 0,
        }
    }

    /// Whether no host wants any of its packets.
    pub(super) fn is_void(&self) -> bool {
        self.filter == FilterMode::Include && self.sources.is_empty()
    }

    /// A record has come in: the tables of 6.4.1 and 6.4.2.
    pub(super) fn report(&mut self, terms: &Terms, kind: RecordKind, listed: &[A]) {
        let fresh = terms.now + terms.membership;
        match (self.filter, kind) {
            (_, RecordKind::IsInclude | RecordKind::Allow) => self.want(terms, listed, fresh),
            (before, RecordKind::IsExclude | RecordKind::ToExclude) => {
                let is_change = kind == RecordKind::ToExclude;
                let timer = if is_change { self.until } else { fresh };
                self.exclude(terms, listed, (before == FilterMode::Exclude).then_some(timer));
                if is_change {
                    self.ask_sources(terms, |_| true);
                }
            }
            (before, RecordKind::Block) => {
                let new = listed.iter().filter(|_| before == FilterMode::Exclude);
                for &address in new {
                    if self.position(address).is_none() {
                        self.put(terms, address, Some(self.until));
                    }
                }
                self.ask_sources(terms, |source| listed.contains(&source.address));
            }
            (before, RecordKind::ToInclude) => {
                let overflowed = self.overflowed;
                self.want(terms, listed, fresh);
                self.ask_sources(terms, |source| !listed.contains(&source.address));
                // Sources that did not fit are wanted by the group's timer alone, which then stays.
                if before == FilterMode::Exclude && self.overflowed == overflowed {
                    self.ask_all(terms);
                }
            }
        }
    }

    /// The sources of the list are wanted until `fresh`.
    fn want(&mut self, terms: &Terms, listed: &[A], fresh: Time) {
        for &address in listed {
            if let Some(at) = self.position(address) {
                self.sources[at].until = Some(fresh);
                continue;
            }
            let is_put = self.put(terms, address, Some(fresh));
            // Sources that do not fit are delivered: the port wants the whole group.
            if !is_put && (self.filter == FilterMode::Include || self.until < fresh) {
                (self.filter, self.until) = (FilterMode::Exclude, fresh);
            }
        }
    }

    /// The group is wanted but for the list. New sources get the timer `fresh`, or none.
    fn exclude(&mut self, terms: &Terms, listed: &[A], fresh: Option<Time>) {
        self.sources.retain(|source| listed.contains(&source.address));
        for &address in listed {
            if self.position(address).is_none() {
                self.put(terms, address, fresh);
            }
        }
        self.filter = FilterMode::Exclude;
        self.until = terms.now + terms.membership;
    }

    /// Q(G,X): queries the sources that `is_meant` selects and that have more than the last member
    /// query time (LMQT) left; their timers are lowered to it (6.6.3.2).
    fn ask_sources(&mut self, terms: &Terms, is_meant: impl Fn(&Source<A>) -> bool) {
        if terms.asks == 0 {
            return;
        }
        let soon = terms.now + terms.last_member;
        for source in self.sources.iter_mut().filter(|source| is_meant(source)) {
            if source.until.is_some_and(|until| until > soon) {
                source.until = Some(soon);
                source.asks = terms.asks;
                self.next_ask = Some(terms.now);
            }
        }
    }

    /// Q(G): queries the group (6.6.3.1). If its timer is that short already, queries are under way,
    /// and a further leave adds none.
    fn ask_all(&mut self, terms: &Terms) {
        let soon = terms.now + terms.last_member;
        if terms.asks > 0 && self.until > soon {
            self.until = soon;
            self.asks = terms.asks;
            self.next_ask = Some(terms.now);
        }
    }

    /// Another router is the querier from now on.
    pub(super) fn stop_asking(&mut self) {
        self.asks = 0;
        self.sources.iter_mut().for_each(|source| source.asks = 0);
    }

    /// The queries to be sent now (6.6.3): the sources of each, none for the whole group, and whether
    /// other routers shall keep their timers (S), because ours is long again.
    pub(super) fn take_asks(&mut self, terms: &Terms) -> Vec<(Vec<A>, bool)> {
        let soon = terms.now + terms.last_member;
        let mut queried = Vec::new();
        if self.asks > 0 {
            self.asks -= 1;
            queried.push((Vec::new(), self.until > soon));
        }
        let mut split = [Vec::new(), Vec::new()];
        for source in self.sources.iter_mut().filter(|source| source.asks > 0) {
            source.asks -= 1;
            let is_long = source.until.is_some_and(|until| until > soon);
            split[usize::from(is_long)].push(source.address);
        }
        let [short, long] = split;
        let parts = [(short, false), (long, true)];
        queried.extend(parts.into_iter().filter(|(sources, _)| !sources.is_empty()));
        queried
    }

    /// Another router has sent a query (6.6.1): the timers of what it queried are lowered to the last
    /// member query time.
    pub(super) fn lower(&mut self, soon: Time, queried: &[A]) {
        if queried.is_empty() {
            self.until = self.until.min(soon);
        }
        for source in self.sources.iter_mut().filter(|source| queried.contains(&source.address)) {
            source.until = source.until.map(|until| until.min(soon));
        }
    }

    /// Timers that have run out by `now` do what 6.2.2, 6.2.3 and 6.5 say.
    pub(super) fn expire(&mut self, now: Time) {
        let is_over = |until: Option<Time>| until.is_some_and(|until| until <= now);
        if self.filter == FilterMode::Exclude {
            for source in self.sources.iter_mut().filter(|source| is_over(source.until)) {
                (source.until, source.asks) = (None, 0);
            }
            if self.until <= now {
                self.filter = FilterMode::Include;
                self.asks = 0;
                self.sources.retain(|source| source.until.is_some());
            }
        } else {
            self.sources.retain(|source| !is_over(source.until));
        }
        if self.asks == 0 && self.sources.iter().all(|source| source.asks == 0) {
            self.next_ask = None;
        }
    }

    /// The next time at which a timer runs out or a query is due.
    pub(super) fn due(&self) -> Option<Time> {
        let group = (self.filter == FilterMode::Exclude).then_some(self.until);
        let sources = self.sources.iter().filter_map(|source| source.until).min();
        [group, sources, self.next_ask].into_iter().flatten().min()
    }

    /// Whether packets of `source` are wanted (6.3).
    pub(super) fn wants(&self, source: A) -> bool {
        match (self.filter, self.position(source).map(|at| self.sources[at].until)) {
            (FilterMode::Include, found) => found.is_some(),
            (FilterMode::Exclude, found) => found != Some(None),
        }
    }

    fn position(&self, address: A) -> Option<usize> {
        self.sources.iter().position(|source| source.address == address)
    }

    fn put(&mut self, terms: &Terms, address: A, until: Option<Time>) -> bool {
        if self.sources.len() == terms.sources_max {
            self.overflowed += 1;
            return false;
        }
        self.sources.push(Source { address, until, asks: 0 });
        true
    }
}
