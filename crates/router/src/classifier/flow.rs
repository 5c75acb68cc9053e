//! Flow filters: the longest of many prefixes of a header's bits (DER, 3.3).
//!
//! The bits stand in the order destination, source, protocol, destination port, source port: 104 of an
//! IPv4 header, 296 of an IPv6 header. The order is ours, the paper gives none. The destination comes
//! first, so that the first 32 bits are what a route matches and a longer filter refines a route. The
//! source follows and makes it a pair of hosts; the protocol, without which ports mean nothing; the port
//! that names the service; and last the port that is any client's guess. All bits are one flow.
//!
//! A prefix of these bits is a rule: whole fields, one field cut short (of a protocol that is a mask, of
//! a port an aligned range), open fields. The longer prefix goes first, so with the missing bits as
//! priority the classifier finds the longest match, as fast as it finds any rule.

use super::kernel::Classified;
use super::rule::{Action, Classifier, Octet, Ports, Refused, Rule, RuleId};
use super::tuples::ClassifierTuples;
use crate::header::Key;
use crate::prefix::Prefix;

/// Bits of a protocol and of two ports.
const BITS_BEHIND_ADDRESSES: u32 = 40;

/// The first bits of a header's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowPrefix<A> {
    key: Key<A>,
    length: u32,
}

impl<A: Classified> FlowPrefix<A> {
    /// The longest: one flow.
    pub const LENGTH_MAX: u32 = 2 * A::BITS + BITS_BEHIND_ADDRESSES;

    /// The first `length` bits of `key`; nothing if it has fewer. Flags are not among them.
    pub fn new(key: &Key<A>, length: u32) -> Option<FlowPrefix<A>> {
        (length <= Self::LENGTH_MAX).then_some(FlowPrefix { key: *key, length })
    }

    /// How many bits.
    pub fn length(&self) -> u32 {
        self.length
    }

    /// The rule that matches what the prefix matches, before those of all shorter prefixes.
    ///
    /// # Panics
    /// Never: no field is asked for more bits than it has.
    pub fn rule(&self, action: Action) -> Rule<A> {
        let mut left = self.length;
        let mut next = |bits: u32| {
            let taken = left.min(bits);
            left -= taken;
            taken
        };
        let prefix = |address: A, length: u32| Prefix::new(address, length).expect("short enough");
        let destination = prefix(self.key.destination, next(A::BITS));
        let source = prefix(self.key.source, next(A::BITS));
        let open = 0xff_u8.checked_shr(next(8)).unwrap_or(0);
        let destination_ports = ports(self.key.destination_port, next(16));
        let source_ports = ports(self.key.source_port, next(16));
        Rule {
            source,
            destination,
            source_ports,
            destination_ports,
            protocol: Octet::new(self.key.protocol, !open),
            ..Rule::any(Self::LENGTH_MAX - self.length, action)
        }
    }
}

/// The ports whose first bits are those of `port`.
fn ports(port: u16, length: u32) -> Ports {
    let open = u16::MAX.checked_shr(length).unwrap_or(0);
    Ports::new(port & !open, port | open).expect("bits were only added")
}

/// Flow filters of which the longest that matches counts; of equal ones, that of the smaller number.
#[derive(Clone, Debug)]
pub struct FlowFilters<A>(ClassifierTuples<A>);

impl<A: Classified> FlowFilters<A> {
    /// No filters yet; their numbers will be below `filters_max`.
    pub fn new(filters_max: u32) -> FlowFilters<A> {
        FlowFilters(ClassifierTuples::new(filters_max))
    }

    /// Adds a filter; the next search knows it.
    ///
    /// # Errors
    /// [`Refused`]; nothing has changed then.
    pub fn insert(
        &mut self,
        id: RuleId,
        prefix: &FlowPrefix<A>,
        action: Action,
    ) -> Result<(), Refused> {
        self.0.insert(id, prefix.rule(action))
    }

    /// Takes a filter out; whether there was one of this number.
    pub fn remove(&mut self, id: RuleId) -> bool {
        self.0.remove(id).is_some()
    }

    /// The filters as rules, of which the first is the longest: to search, to read, to plan anew.
    pub fn rules(&self) -> &ClassifierTuples<A> {
        &self.0
    }

    /// Plans the tables anew ([`ClassifierTuples::replan`]).
    pub fn replan(&mut self) {
        self.0.replan();
    }
}
