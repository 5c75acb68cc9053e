//! A rule: which packets it means, before which others, and what becomes of them (DER, 3.3).

use alloc::boxed::Box;

use super::kernel::Classified;
use crate::header::Key;
use crate::plugin::control::ChainId;
use crate::prefix::{Address, Prefix};

/// The number of a rule, chosen by the caller that inserts it; below the classifier's `rules_max`. Of two rules
/// of one priority the smaller number goes first, so that numbers in the order of insertion keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId(pub u32);

/// A range of ports, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ports {
    first: u16,
    last: u16,
}

impl Ports {
    /// Every port.
    pub const ANY: Ports = Ports { first: 0, last: u16::MAX };

    /// From `first` to `last`; nothing if `last` is the smaller.
    pub fn new(first: u16, last: u16) -> Option<Ports> {
        (first <= last).then_some(Ports { first, last })
    }

    /// One port.
    pub fn exact(port: u16) -> Ports {
        Ports { first: port, last: port }
    }

    /// The lowest.
    #[inline]
    pub fn first(self) -> u16 {
        self.first
    }

    /// The highest.
    #[inline]
    pub fn last(self) -> u16 {
        self.last
    }

    /// Whether it is one port.
    #[inline]
    pub fn is_exact(self) -> bool {
        self.first == self.last
    }

    /// Whether `port` is one of them.
    #[inline]
    pub fn contains(self, port: u16) -> bool {
        self.first <= port && port <= self.last
    }
}

/// An octet, some bits of which are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Octet {
    value: u8,
    mask: u8,
}

impl Octet {
    /// Every value.
    pub const ANY: Octet = Octet { value: 0, mask: 0 };

    /// The bits of `value` where `mask` has ones; its others are of no account.
    pub fn new(value: u8, mask: u8) -> Octet {
        Octet { value: value & mask, mask }
    }

    /// One value.
    pub fn exact(value: u8) -> Octet {
        Octet { value, mask: u8::MAX }
    }

    /// The values of the bits that are compared; 0 where the mask is.
    #[inline]
    pub fn value(self) -> u8 {
        self.value
    }

    /// Which bits are compared.
    #[inline]
    pub fn mask(self) -> u8 {
        self.mask
    }

    /// Matches no value: for a filter on bits that the key does not have.
    pub const NEVER: Octet = Octet { value: 1, mask: 0 };

    /// Whether `octet` has them.
    #[inline]
    pub fn contains(self, octet: u8) -> bool {
        octet & self.mask == self.value
    }
}

/// What becomes of a packet (DER, 3.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Action {
    /// It is dropped.
    Deny,
    /// It is forwarded by its route.
    #[default]
    Permit,
    /// Plugins process it; then it is forwarded, unless one of them drops it.
    Active(ChainId),
    /// Its flow has a reservation, and waits in the reserved queue of this number. Filters of reservations are
    /// separate from all others and applied after them ([`crate::pipeline::reserved`]), so that no reservation lets a
    /// packet pass that a filter denies.
    Reserved(u16),
}

/// A general match filter and its action. Fields left open ([`Rule::any`]) match everything.
///
/// Packets without ports, and fragments after the first, have the port 0 in their [`Key`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule<A> {
    /// Source addresses.
    pub source: Prefix<A>,
    /// Destination addresses.
    pub destination: Prefix<A>,
    /// Source ports.
    pub source_ports: Ports,
    /// Destination ports.
    pub destination_ports: Ports,
    /// IANA protocol number.
    pub protocol: Octet,
    /// TCP flags, FIN 0x01 to CWR 0x80; they are zero in other packets.
    pub flags: Octet,
    /// The smallest goes first; of the same, the smallest [`RuleId`].
    pub priority: u32,
    /// What becomes of the packet.
    pub action: Action,
    /// Whether a copy goes to management, whatever the action.
    pub is_copied: bool,
}

impl<A: Classified> Rule<A> {
    /// Every field open.
    ///
    /// # Panics
    /// Never: every address has a first bit.
    pub fn any(priority: u32, action: Action) -> Rule<A> {
        let all = Prefix::new(A::ZERO, 0).expect("no bits are few enough");
        Rule {
            source: all,
            destination: all,
            source_ports: Ports::ANY,
            destination_ports: Ports::ANY,
            protocol: Octet::ANY,
            flags: Octet::ANY,
            priority,
            action,
            is_copied: false,
        }
    }
}

impl<A: Address> Rule<A> {
    /// Whether the rule matches this packet.
    #[inline]
    pub fn matches(&self, key: &Key<A>) -> bool {
        self.destination.contains(key.destination)
            && self.source.contains(key.source)
            && self.protocol.contains(key.protocol)
            && self.destination_ports.contains(key.destination_port)
            && self.source_ports.contains(key.source_port)
            && self.flags.contains(key.flags)
    }

    /// The rule's place among all rules: the smallest is tested first.
    #[inline]
    pub(super) fn order(&self, id: RuleId) -> u64 {
        u64::from(self.priority) << 32 | u64::from(id.0)
    }
}

/// Why a rule was not inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The number is not below the limit given at construction.
    #[error("the classifier holds rules 0 to {} only", .rules_max.saturating_sub(1))]
    BeyondLimit {
        /// The limit.
        rules_max: u32,
    },
    /// There is a rule of this number: remove it first.
    #[error("there is a rule of this number; remove it first")]
    Taken,
}

/// A set of rules: a header's rule is the first match in the order of priority.
pub trait Classifier<A: Address> {
    /// Adds a rule; the next search knows it.
    ///
    /// # Errors
    /// [`Refused`]; nothing has changed then.
    fn insert(&mut self, id: RuleId, rule: Rule<A>) -> Result<(), Refused>;

    /// Takes a rule out and returns it, if there was one of this number.
    fn remove(&mut self, id: RuleId) -> Option<Rule<A>>;

    /// The rule of this number.
    fn rule(&self, id: RuleId) -> Option<&Rule<A>>;

    /// The first rule that matches.
    fn classify(&self, key: &Key<A>) -> Option<RuleId>;

    /// The first rule for each of `keys`, written in their order to `found`.
    ///
    /// # Panics
    /// When the two differ in length.
    fn classify_batch(&self, keys: &[Key<A>], found: &mut [Option<RuleId>]) {
        assert_eq!(keys.len(), found.len(), "a place for each answer");
        for (key, found) in keys.iter().zip(found) {
            *found = self.classify(key);
        }
    }

    /// How many rules there are.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of memory that searches read.
    fn bytes(&self) -> usize;

    /// A number that every change raises: answers of an older one may be stale.
    fn generation(&self) -> u64;

    /// After a load: rearranges the rules if that makes searches faster. Answers stay the same.
    fn settle(&mut self) {}

    /// A classifier of the same kind and with the same limit, without rules.
    fn empty(&self) -> Box<dyn Classifier<A> + Send>;
}
