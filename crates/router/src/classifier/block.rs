//! Blocks of eight rules, field by field, so that one comparison tests all eight.
//!
//! A chain of blocks holds its rules in their order, so the first that matches is the best of the
//! chain. Blocks may be partly filled: an insertion moves at most seven rules or opens one block, and a
//! removal that leaves two neighbours with eight rules or fewer makes one of them.

use alloc::vec::Vec;

use super::kernel::{Block, Classified, LANES};
use super::rule::Rule;
use crate::header::Key;

/// No block.
pub(super) const NONE: u32 = u32::MAX;

impl<A: Classified> Block<A> {
    const EMPTY: Block<A> = Block {
        source: [A::ONE; LANES],
        source_mask: [A::ZERO; LANES],
        destination: [A::ZERO; LANES],
        destination_mask: [A::ZERO; LANES],
        port: [0; 2 * LANES],
        port_span: [0; 2 * LANES],
        octets: [0; LANES],
        octets_mask: [0; LANES],
        ids: [NONE; LANES],
    };

    fn write(&mut self, lane: usize, id: u32, rule: &Rule<A>) {
        self.source[lane] = rule.source.address();
        self.source_mask[lane] = A::ONES.truncated(rule.source.length());
        self.destination[lane] = rule.destination.address();
        self.destination_mask[lane] = A::ONES.truncated(rule.destination.length());
        let (source, destination) = (rule.source_ports, rule.destination_ports);
        self.port[lane] = source.first();
        self.port_span[lane] = source.last() - source.first();
        self.port[LANES + lane] = destination.first();
        self.port_span[LANES + lane] = destination.last() - destination.first();
        let (protocol, flags) = (rule.protocol, rule.flags);
        self.octets[lane] = u16::from_be_bytes([protocol.value(), flags.value()]);
        self.octets_mask[lane] = u16::from_be_bytes([protocol.mask(), flags.mask()]);
        self.ids[lane] = id;
    }

    /// Puts lane `from` of `other` into lane `to`.
    fn copy(&mut self, to: usize, other: &Block<A>, from: usize) {
        self.source[to] = other.source[from];
        self.source_mask[to] = other.source_mask[from];
        self.destination[to] = other.destination[from];
        self.destination_mask[to] = other.destination_mask[from];
        self.port[to] = other.port[from];
        self.port_span[to] = other.port_span[from];
        self.port[LANES + to] = other.port[LANES + from];
        self.port_span[LANES + to] = other.port_span[LANES + from];
        self.octets[to] = other.octets[from];
        self.octets_mask[to] = other.octets_mask[from];
        self.ids[to] = other.ids[from];
    }

    fn clear(&mut self, lane: usize) {
        self.copy(lane, &Block::EMPTY, 0);
    }
}

/// Which block follows, and how many rules are in this one.
#[derive(Clone, Copy, Debug)]
struct Link {
    next: u32,
    rules: u32,
}

/// All blocks of a classifier, in chains, and the order of every rule.
#[derive(Clone, Debug)]
pub(super) struct Blocks<A> {
    blocks: Vec<Block<A>>,
    links: Vec<Link>,
    free: Vec<u32>,
    /// By rule.
    orders: Vec<u64>,
}

impl<A: Classified> Blocks<A> {
    pub fn new() -> Blocks<A> {
        Blocks { blocks: Vec::new(), links: Vec::new(), free: Vec::new(), orders: Vec::new() }
    }

    /// Every block is free again.
    pub fn clear(&mut self) {
        self.blocks.clear();
        self.links.clear();
        self.free.clear();
    }

    /// Bytes of memory in use, free blocks included.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.blocks[..]) + size_of_val(&self.links[..]) + size_of_val(&self.orders[..])
    }

    /// The order of the first rule of the chain that begins at `head`.
    pub fn first_order(&self, head: u32) -> u64 {
        self.orders[self.blocks[head as usize].ids[0] as usize]
    }

    /// The smaller of `best` and the order of the first rule of the chain that matches.
    #[inline(always)]
    pub fn search<const WIDE: bool>(&self, head: u32, key: &Key<A>, best: u64) -> u64 {
        let mut at = head as usize;
        loop {
            let block = &self.blocks[at];
            let matching = A::matching::<WIDE>(block, key);
            if matching != 0 {
                let id = block.ids[matching.trailing_zeros() as usize & (LANES - 1)];
                return best.min(self.orders[id as usize]);
            }
            let next = self.links[at].next;
            if next == NONE || self.first_order(next) >= best {
                return best;
            }
            at = next as usize;
        }
    }

    fn open(&mut self, next: u32) -> u32 {
        let link = Link { next, rules: 0 };
        if let Some(at) = self.free.pop() {
            self.links[at as usize] = link;
            return at;
        }
        self.blocks.push(Block::EMPTY);
        self.links.push(link);
        (self.blocks.len() - 1) as u32
    }

    /// Adds a rule to the chain that begins at `head`, or begins one; the first block never changes.
    pub fn insert(&mut self, head: u32, id: u32, rule: &Rule<A>, order: u64) -> u32 {
        if self.orders.len() <= id as usize {
            self.orders.resize(id as usize + 1, u64::MAX);
        }
        self.orders[id as usize] = order;
        let head = if head == NONE { self.open(NONE) } else { head };
        let mut at = head;
        while self.links[at as usize].next != NONE
            && self.first_order(self.links[at as usize].next) < order
        {
            at = self.links[at as usize].next;
        }
        let mut lane = self.lane(at, order);
        if self.links[at as usize].rules as usize == LANES {
            let next = self.open(self.links[at as usize].next);
            self.links[at as usize].next = next;
            // In rising order blocks are filled to the brim; else a full one is halved.
            if lane == LANES {
                (at, lane) = (next, 0);
            } else {
                self.shift_out(at, next, LANES / 2);
                if lane > LANES / 2 {
                    (at, lane) = (next, lane - LANES / 2);
                }
            }
        }
        let rules = self.links[at as usize].rules as usize;
        let block = &mut self.blocks[at as usize];
        let before = block.clone();
        for lane in lane..rules {
            block.copy(lane + 1, &before, lane);
        }
        block.write(lane, id, rule);
        self.links[at as usize].rules += 1;
        head
    }

    /// How many rules of the block stand before `order`.
    fn lane(&self, at: u32, order: u64) -> usize {
        let ids = &self.blocks[at as usize].ids[..self.links[at as usize].rules as usize];
        ids.iter().take_while(|id| self.orders[**id as usize] < order).count()
    }

    /// Moves the rules from lane `from` on to the end of another block.
    fn shift_out(&mut self, at: u32, to: u32, from: usize) {
        let count = self.links[at as usize].rules as usize;
        let behind = self.links[to as usize].rules as usize;
        let source = self.blocks[at as usize].clone();
        for lane in from..count {
            self.blocks[to as usize].copy(behind + lane - from, &source, lane);
            self.blocks[at as usize].clear(lane);
        }
        self.links[at as usize].rules = from as u32;
        self.links[to as usize].rules += (count - from) as u32;
    }

    /// Takes a rule out of the chain that begins at `head`, and returns where it begins now: [`NONE`]
    /// if nothing is left.
    pub fn remove(&mut self, head: u32, id: u32) -> u32 {
        let order = self.orders[id as usize];
        let (mut before, mut at) = (NONE, head);
        while self.links[at as usize].next != NONE
            && self.first_order(self.links[at as usize].next) <= order
        {
            (before, at) = (at, self.links[at as usize].next);
        }
        let rules = self.links[at as usize].rules as usize;
        let lane = self.lane(at, order);
        let block = &mut self.blocks[at as usize];
        assert_eq!(block.ids[lane], id, "the rule is in its chain");
        let whole = block.clone();
        for lane in lane + 1..rules {
            block.copy(lane - 1, &whole, lane);
        }
        block.clear(rules - 1);
        self.links[at as usize].rules -= 1;
        self.orders[id as usize] = u64::MAX;
        let next = self.links[at as usize].next;
        if rules == 1 {
            self.free.push(at);
            if before == NONE {
                return next;
            }
            self.links[before as usize].next = next;
        } else if next != NONE && rules - 1 + self.links[next as usize].rules as usize <= LANES {
            self.shift_out(next, at, 0);
            self.links[at as usize].next = self.links[next as usize].next;
            self.free.push(next);
        }
        head
    }

    /// How many rules the chain that begins at `head` has, and how many blocks.
    ///
    /// # Panics
    /// When a block is empty or the rules do not rise.
    pub fn count(&self, head: u32) -> (u32, usize) {
        let (mut rules, mut blocks, mut last, mut at) = (0, 0, None, head);
        while at != NONE {
            let link = self.links[at as usize];
            let (used, unused) = self.blocks[at as usize].ids.split_at(link.rules as usize);
            assert!(!used.is_empty() && unused.iter().all(|id| *id == NONE), "lanes in use first");
            for id in used {
                let order = Some(self.orders[*id as usize]);
                assert!(last < order, "rules of a chain rise");
                last = order;
            }
            rules += link.rules;
            blocks += 1;
            at = link.next;
        }
        (rules, blocks)
    }

    /// How many blocks are in chains.
    pub fn in_use(&self) -> usize {
        self.blocks.len() - self.free.len()
    }
}
