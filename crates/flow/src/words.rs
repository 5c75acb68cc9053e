//! Conversations of IPv4, each in one word of 128 bits: both ends, and two marks.
//!
//! An address and a port are 48 bits, two of them 96: a conversation is its own key, and equality is
//! that of numbers. The table is probed from the place that the top bits of a hash name, so that a step
//! further is mostly in the same line of the cache, and doubling it moves words in their order. Whoever has
//! several words to mark asks for all of them first ([`Words::ask_for`]), and waits for memory once.

use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;

use nilometer_wire::fetch::ask_for;

use crate::hash::Hashing;
use crate::record::FlowKey;

/// A word that is taken; an empty one is zero.
const TAKEN: u128 = 1 << 127;
/// The bits of both ends.
const ENDS: u128 = (1 << 96) - 1;
/// A mark: the conversation was opened.
pub(crate) const OPENED: u128 = 1 << 96;
/// A mark: it was ended.
pub(crate) const ENDED: u128 = 1 << 97;

const SLOTS_MIN: usize = 1 << 10;

/// The conversation of a key, whichever way it goes; `None` where an end is not of IPv4.
pub(crate) fn word_of(key: &FlowKey) -> Option<u128> {
    let (IpAddr::V4(source), IpAddr::V4(destination)) = (key.source, key.destination) else {
        return None;
    };
    let source = u64::from(source.to_bits()) << 16 | u64::from(key.source_port);
    let destination = u64::from(destination.to_bits()) << 16 | u64::from(key.destination_port);
    let (low, high) = (source.min(destination), source.max(destination));
    Some(TAKEN | u128::from(low) << 48 | u128::from(high))
}

/// The table.
#[derive(Debug)]
pub(crate) struct Words {
    slots: Vec<u128>,
    taken: usize,
    hashing: Hashing,
}

impl Words {
    /// An empty table.
    pub(crate) fn new() -> Words {
        Words { slots: vec![0; SLOTS_MIN], taken: 0, hashing: Hashing::default() }
    }

    /// Conversations in the table.
    pub(crate) fn len(&self) -> usize {
        self.taken
    }

    /// Asks for the place where `word` belongs.
    pub(crate) fn ask_for(&self, word: u128) {
        ask_for(&raw const self.slots[self.place(word)]);
    }

    /// Adds the marks of `word` to its conversation, which comes with them if it is new and `may_grow`.
    /// The conversation as it was, none of whose bits are set if it was not there.
    pub(crate) fn mark(&mut self, word: u128, may_grow: bool) -> u128 {
        let mut at = self.place(word);
        loop {
            let found = self.slots[at];
            if (found ^ word) & (ENDS | TAKEN) == 0 {
                self.slots[at] |= word;
                return found;
            }
            if found == 0 {
                break;
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
        if may_grow {
            self.slots[at] = word;
            self.taken += 1;
            if self.taken > self.slots.len() / 4 * 3 {
                self.double();
            }
        }
        0
    }

    fn double(&mut self) {
        let slots = vec![0; self.slots.len() * 2];
        for word in core::mem::replace(&mut self.slots, slots).into_iter().filter(|word| *word != 0)
        {
            let mut at = self.place(word);
            while self.slots[at] != 0 {
                at = (at + 1) & (self.slots.len() - 1);
            }
            self.slots[at] = word;
        }
    }

    fn place(&self, word: u128) -> usize {
        (self.hashing.of_word(word & ENDS) >> (64 - self.slots.len().trailing_zeros())) as usize
    }
}
