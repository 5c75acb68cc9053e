//! The table that replication reads: from a packet's group and source to the ports that want it.
//!
//! For each group it keeps each port's state, in the order of the ports: a filter mode, and a sorted
//! list of sources. A packet costs one search for its group, and one search for its source for each
//! port with state; apart from ports that exclude this source, that is no more steps than copies to be
//! made. Sources that no host named are not stored, so traffic cannot fill the table: its entries were
//! requested by hosts (within [`Settings`](super::Settings)) or by the operator (within
//! [`STATIC_MAX`]).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::membership::Membership;
use super::message::{FilterMode, Protocol};

/// Most static entries of one family.
pub const STATIC_MAX: usize = 65_536;

/// Why a static group cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StaticError {
    /// It is no group, or one that never leaves its link.
    #[error("no group, or one that never leaves its link")]
    Group,
    /// The source is not one host's address.
    #[error("the source is not one host's address")]
    Source,
    /// There are [`STATIC_MAX`] already.
    #[error("there are {STATIC_MAX} static groups at most")]
    Full,
}

/// What one port wants of one group.
#[derive(Clone, Debug)]
struct Stance<A> {
    port: u16,
    /// What its hosts reported, the sources in order.
    filter: FilterMode,
    sources: Vec<A>,
    /// The static sources in order, and whether all sources are static.
    fixed: Vec<A>,
    is_fixed: bool,
}

impl<A: Protocol> Stance<A> {
    fn new(port: u16) -> Stance<A> {
        let (sources, fixed) = (Vec::new(), Vec::new());
        Stance { port, filter: FilterMode::Include, sources, fixed, is_fixed: false }
    }

    fn wants(&self, source: A) -> bool {
        let is_listed = self.sources.binary_search(&source).is_ok();
        is_listed == (self.filter == FilterMode::Include)
            || self.is_fixed
            || self.fixed.binary_search(&source).is_ok()
    }

    fn is_void(&self) -> bool {
        let is_requested = self.filter == FilterMode::Exclude || !self.sources.is_empty();
        !is_requested && !self.is_fixed && self.fixed.is_empty()
    }
}

/// Groups of one family over all ports.
#[derive(Debug, Default)]
pub struct GroupTable<A> {
    /// The stances of each group, in the order of their ports.
    groups: BTreeMap<A, Vec<Stance<A>>>,
    statics: usize,
}

impl<A: Protocol> GroupTable<A> {
    /// No groups.
    pub fn new() -> GroupTable<A> {
        GroupTable { groups: BTreeMap::new(), statics: 0 }
    }

    /// The ports that want packets of `source` for `group`, lowest first; the port that the packet came
    /// by may be among them.
    #[inline]
    pub fn ports(&self, group: A, source: A) -> impl Iterator<Item = u16> + '_ {
        let stances = self.groups.get(&group).map_or(&[][..], Vec::as_slice);
        stances.iter().filter(move |stance| stance.wants(source)).map(|stance| stance.port)
    }

    /// How many groups there are.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Takes over what the hosts of `port` want of `group`, after [`Membership::poll_changed`] has
    /// reported a change.
    pub fn refresh(&mut self, port: u16, group: A, membership: &Membership<A>) {
        match membership.filter(group) {
            None => self.forget(port, group),
            Some((filter, sources)) => {
                let mut sources: Vec<A> = sources.collect();
                sources.sort_unstable();
                let stance = self.stance(port, group);
                (stance.filter, stance.sources) = (filter, sources);
            }
        }
    }

    /// Forgets what the hosts of `port` want of `group`; static entries stay.
    pub fn forget(&mut self, port: u16, group: A) {
        self.change(port, group, |stance| {
            (stance.filter, stance.sources) = (FilterMode::Include, Vec::new());
        });
    }

    /// Forwards a group by `port` whatever its hosts report: from one source, or from all.
    ///
    /// # Errors
    /// [`StaticError`], and nothing has changed.
    pub fn add_static(
        &mut self,
        port: u16,
        group: A,
        source: Option<A>,
    ) -> Result<(), StaticError> {
        if !group.may_forward() {
            return Err(StaticError::Group);
        }
        if source.is_some_and(|source| !source.is_host()) {
            return Err(StaticError::Source);
        }
        if self.statics == STATIC_MAX {
            return Err(StaticError::Full);
        }
        let stance = self.stance(port, group);
        let is_new = match source {
            None => !core::mem::replace(&mut stance.is_fixed, true),
            Some(source) => match stance.fixed.binary_search(&source) {
                Ok(_) => false,
                Err(at) => {
                    stance.fixed.insert(at, source);
                    true
                }
            },
        };
        self.statics += usize::from(is_new);
        Ok(())
    }

    /// Ends what [`GroupTable::add_static`] began; whether there was anything to end.
    pub fn remove_static(&mut self, port: u16, group: A, source: Option<A>) -> bool {
        let was_there = self.change(port, group, |stance| match source {
            None => core::mem::replace(&mut stance.is_fixed, false),
            Some(source) => {
                let at = stance.fixed.binary_search(&source);
                at.is_ok_and(|at| stance.fixed.remove(at) == source)
            }
        });
        self.statics -= usize::from(was_there == Some(true));
        was_there == Some(true)
    }

    /// Forgets all that concerns `port`, static entries too.
    pub fn remove_port(&mut self, port: u16) {
        let statics = &mut self.statics;
        self.groups.retain(|_, stances| {
            for gone in stances.iter().filter(|stance| stance.port == port) {
                *statics -= gone.fixed.len() + usize::from(gone.is_fixed);
            }
            stances.retain(|stance| stance.port != port);
            !stances.is_empty()
        });
    }

    fn stance(&mut self, port: u16, group: A) -> &mut Stance<A> {
        let stances = self.groups.entry(group).or_default();
        let at = stances.binary_search_by_key(&port, |stance| stance.port).unwrap_or_else(|at| {
            stances.insert(at, Stance::new(port));
            at
        });
        &mut stances[at]
    }

    /// Changes a stance if there is one, and drops it if nothing is left of it.
    fn change<R>(
        &mut self,
        port: u16,
        group: A,
        act: impl FnOnce(&mut Stance<A>) -> R,
    ) -> Option<R> {
        let stances = self.groups.get_mut(&group)?;
        let at = stances.binary_search_by_key(&port, |stance| stance.port).ok()?;
        let result = act(&mut stances[at]);
        if stances[at].is_void() {
            stances.remove(at);
        }
        if stances.is_empty() {
            self.groups.remove(&group);
        }
        Some(result)
    }
}
