//! One hash table: the rules that fix at least as many bits as its tuple, by those bits.
//!
//! A slot knows its bucket by a 32-bit digest of the bits and by nothing else. Two combinations of one
//! digest share a bucket, which is harmless: rules are compared whole. The digest is also where the
//! search for the slot begins, so the table grows and closes gaps without seeing the rules.

use alloc::vec;
use alloc::vec::Vec;

use super::block::NONE;
use super::kernel::Classified;
use super::rule::Rule;
use crate::header::Key;

/// Which bits of a header choose the bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Tuple {
    /// The first bits of the source address.
    pub source: u8,
    /// The first bits of the destination address.
    pub destination: u8,
    /// Whether the source port.
    pub source_port: bool,
    /// Whether the destination port.
    pub destination_port: bool,
}

impl Tuple {
    /// Whether the rule fixes all of these bits.
    pub fn takes<A: Classified>(&self, rule: &Rule<A>) -> bool {
        u32::from(self.source) <= rule.source.length()
            && u32::from(self.destination) <= rule.destination.length()
            && (!self.source_port || rule.source_ports.is_exact())
            && (!self.destination_port || rule.destination_ports.is_exact())
    }

    /// How many bits.
    pub fn bits(&self) -> u32 {
        let ports = u32::from(self.source_port) + u32::from(self.destination_port);
        u32::from(self.source) + u32::from(self.destination) + 16 * ports
    }
}

/// The bits of a tuple, ready to be applied.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mask<A> {
    source: A,
    destination: A,
    ports: u32,
}

impl<A: Classified> Mask<A> {
    pub fn new(tuple: &Tuple) -> Mask<A> {
        let part = |is_in: bool, bits: u32| if is_in { bits } else { 0 };
        let ports = part(tuple.source_port, 0xffff_0000) | part(tuple.destination_port, 0xffff);
        Mask {
            source: A::ONES.truncated(u32::from(tuple.source)),
            destination: A::ONES.truncated(u32::from(tuple.destination)),
            ports,
        }
    }

    /// The digest of a header's bits; each bit of it depends on all of them.
    #[inline(always)]
    pub fn digest(&self, key: &Key<A>) -> u32 {
        let ports = u32::from(key.source_port) << 16 | u32::from(key.destination_port);
        let source = key.source.and(self.source).folded();
        let destination = key.destination.and(self.destination).folded();
        let mixed = source.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ destination.wrapping_mul(0xc2b2_ae3d_27d4_eb4f).rotate_left(32)
            ^ u64::from(ports & self.ports).wrapping_mul(0x1656_67b1_9e37_79f9);
        ((mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32) as u32
    }

    /// The digest of every header that a rule which the tuple takes can match.
    pub fn digest_of_rule(&self, rule: &Rule<A>) -> u32 {
        self.digest(&Key {
            source: rule.source.address(),
            destination: rule.destination.address(),
            source_port: rule.source_ports.first(),
            destination_port: rule.destination_ports.first(),
            protocol: 0,
            flags: 0,
        })
    }
}

/// A bucket, or none if `head` is [`NONE`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub digest: u32,
    /// Where the chain of its rules begins.
    pub head: u32,
    /// The smallest priority in it.
    pub priority: u32,
    pub rules: u32,
}

const NO_BUCKET: Slot = Slot { digest: 0, head: NONE, priority: u32::MAX, rules: 0 };

#[derive(Clone, Debug)]
pub(super) struct Table<A> {
    pub tuple: Tuple,
    pub mask: Mask<A>,
    /// No rule has a smaller priority.
    pub priority: u32,
    pub rules: u32,
    buckets: usize,
    /// A power of two of them, at least twice as many as there are buckets.
    slots: Vec<Slot>,
}

impl<A: Classified> Table<A> {
    pub fn new(tuple: Tuple) -> Table<A> {
        Table {
            tuple,
            mask: Mask::new(&tuple),
            priority: u32::MAX,
            rules: 0,
            buckets: 0,
            slots: vec![NO_BUCKET; 2],
        }
    }

    pub fn bytes(&self) -> usize {
        size_of_val(&self.slots[..])
    }

    /// The bucket of a header, or a slot without one.
    #[inline(always)]
    pub fn bucket(&self, digest: u32) -> Slot {
        self.slots[self.find(digest)]
    }

    #[inline(always)]
    fn find(&self, digest: u32) -> usize {
        let last = self.slots.len() - 1;
        let mut at = digest as usize & last;
        while self.slots[at].digest != digest && self.slots[at].head != NONE {
            at = (at + 1) & last;
        }
        at
    }

    /// Writes a changed bucket; one without rules is freed.
    pub fn set(&mut self, bucket: Slot) {
        let at = self.find(bucket.digest);
        let was = self.slots[at];
        self.rules = self.rules - was.rules + bucket.rules;
        self.priority = if self.rules == 0 { u32::MAX } else { self.priority.min(bucket.priority) };
        if bucket.rules == 0 {
            self.buckets -= 1;
            self.close(at);
            return;
        }
        self.slots[at] = bucket;
        if was.head == NONE {
            self.buckets += 1;
            if self.buckets * 2 > self.slots.len() {
                self.grow();
            }
        }
    }

    fn grow(&mut self) {
        let twice = vec![NO_BUCKET; self.slots.len() * 2];
        for slot in core::mem::replace(&mut self.slots, twice) {
            if slot.head != NONE {
                let at = self.find(slot.digest);
                self.slots[at] = slot;
            }
        }
    }

    /// Empties a slot and moves those behind it that would not be found beyond a gap (Knuth, 6.4,
    /// algorithm R).
    fn close(&mut self, at: usize) {
        let last = self.slots.len() - 1;
        let (mut gap, mut at) = (at, at);
        loop {
            self.slots[gap] = NO_BUCKET;
            loop {
                at = (at + 1) & last;
                if self.slots[at].head == NONE {
                    return;
                }
                let home = self.slots[at].digest as usize & last;
                if at.wrapping_sub(home) & last >= at.wrapping_sub(gap) & last {
                    break;
                }
            }
            self.slots[gap] = self.slots[at];
            gap = at;
        }
    }

    /// Every bucket.
    pub fn buckets(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().filter(|slot| slot.head != NONE)
    }
}
