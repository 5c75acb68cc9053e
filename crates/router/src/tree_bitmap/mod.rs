//! Tree Bitmap (Eatherton and Dittia; DER, section 9.1): a trie of several bits a step, whose nodes are
//! two bitmaps and a pointer.
//!
//! A node stands for some first bits of an address and sees the next `STRIDE`. Prefixes that end within
//! these bits are marked in the *internal prefix bitmap*, the empty one first, then those of one bit,
//! of two and so on, 2^STRIDE − 1 in all; the children, which see what comes after, in the *extending
//! paths bitmap*. Children stand side by side, and so do next hops, so that one pointer and a count of
//! bits find any of them. A search goes down, remembers the last node in which a prefix matched, and
//! fetches one next hop at its end.
//!
//! At a stride of 4 both bitmaps (15 and 16 bits) and a pointer of 32 bits fit in a word. That decides
//! about updates: a change makes a new block of children and next hops beside the old one and stores
//! *one word* that refers to it. Readers see each change wholly or not at all, and never wait; the
//! old block is used again when every reader has passed (`memory.rs`). If two changes at different
//! depths fall within one search, it may see the later without the earlier: when a route is replaced by
//! a shorter one, a search in between may find neither.
//!
//! The first `INITIAL` bits are looked up in an array of nodes, whose other column holds the next hop of
//! the longest prefix that is shorter. With 13 and a stride of 4 the lengths that tables have, 16, 20
//! and 24 in IPv4, 32 and 48 in IPv6, are the last of a node's, so that up to eight neighbours share one.

mod memory;
mod node;
mod search;

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use crate::fib::{Fib, Full, Lookups, NextHop, ServingFib};
use crate::prefix::{Address, Prefix};
use memory::{Blocks, NodeMemory};
use node::{Node, position};
pub(crate) use search::Instructions;
use search::search;

pub use crate::quiescence::READERS_LIMIT;

/// A new node's parts, before they are a block.
#[derive(Clone, Debug, Default)]
struct Parts {
    internal: u32,
    external: u32,
    children: Vec<u64>,
    next_hops: Vec<u16>,
}

/// The table (Eatherton and Dittia; DER, 9.1) and its one writer.
#[derive(Debug)]
pub struct TreeBitmap<A, const STRIDE: u32 = 4, const INITIAL: u32 = 13> {
    memory: Arc<NodeMemory>,
    blocks: Blocks,
    /// Prefixes that are shorter than `INITIAL`.
    short: BTreeMap<Prefix<A>, NextHop>,
    /// The length of the prefix whose next hop stands at each root, plus one; 0 where there is none.
    short_lengths: Vec<u8>,
    prefixes: usize,
}

/// A reader of a table that is being changed. Once dropped, it no longer counts as a reader.
#[derive(Debug)]
pub struct Reader<A, const STRIDE: u32 = 4, const INITIAL: u32 = 13> {
    memory: Arc<NodeMemory>,
    instructions: Instructions,
    place: usize,
    kind: core::marker::PhantomData<A>,
}

impl<A: Address, const STRIDE: u32, const INITIAL: u32> TreeBitmap<A, STRIDE, INITIAL> {
    const SOUND: () = assert!(STRIDE >= 1 && STRIDE <= 4 && INITIAL <= 24);

    /// An empty table of at most `words` words of eight bytes, those of its 2^INITIAL roots included.
    /// A full table of 900,000 IPv4 routes takes some 700,000, and changes need room beside them.
    ///
    /// # Errors
    /// [`Full`] when there is no room for the roots.
    pub fn new(words: u32) -> Result<Self, Full> {
        let () = Self::SOUND;
        let roots = 1u32 << INITIAL;
        if words < roots {
            return Err(Full);
        }
        Ok(TreeBitmap {
            memory: Arc::new(NodeMemory::new(roots as usize, words)),
            blocks: Blocks::new(roots, words),
            short: BTreeMap::new(),
            short_lengths: vec![0; roots as usize],
            prefixes: 0,
        })
    }

    /// One more reader, unless there are [`READERS_LIMIT`].
    pub fn reader(&self) -> Option<Reader<A, STRIDE, INITIAL>> {
        let place = self.memory.readers.admit()?;
        let memory = Arc::clone(&self.memory);
        Some(Reader {
            memory,
            instructions: Instructions::best(),
            place,
            kind: core::marker::PhantomData,
        })
    }

    /// Bytes that the table takes: nodes, next hops and roots, but no room that is free.
    pub fn bytes(&self) -> usize {
        self.blocks.used() as usize * 8 + (4 << INITIAL)
    }

    /// The root's bitmaps as Figure 24 writes them, from left to right: internal prefixes, extending
    /// paths.
    pub fn bitmaps(&self, root: u32) -> (String, String) {
        let node = Node(self.memory.word(root));
        let text = |bits: u32, count: u32| {
            (0..count).map(|at| if bits >> at & 1 == 1 { '1' } else { '0' }).collect()
        };
        (text(node.internal(), (1 << STRIDE) - 1), text(node.external(), 1 << STRIDE))
    }

    /// Whether every word belongs to the table or is free.
    pub fn balances(&self) -> bool {
        let roots = 0..1u32 << INITIAL;
        let below: u32 = roots.map(|root| self.words_below(Node(self.memory.word(root)))).sum();
        let used = below + (1 << INITIAL);
        used == self.blocks.used() && used + self.blocks.unused() == self.blocks.limit()
    }

    fn words_below(&self, node: Node) -> u32 {
        let children = (0..node.children()).map(|child| self.memory.word(node.block() + child));
        node.words() + children.map(|child| self.words_below(Node(child))).sum::<u32>()
    }

    fn parts(&self, node: Node) -> Parts {
        let word = |index| self.memory.word(node.block() + index);
        let next_hop = |index: u32| (word(node.children() + index / 4) >> (index % 4 * 16)) as u16;
        Parts {
            internal: node.internal(),
            external: node.external(),
            children: (0..node.children()).map(word).collect(),
            next_hops: (0..node.prefixes()).map(next_hop).collect(),
        }
    }

    /// Writes a block that nothing refers to yet.
    fn build(&mut self, parts: &Parts) -> Result<Node, Full> {
        let sketch = Node::new(parts.internal, parts.external, 0);
        let block = self.blocks.take(&self.memory, sketch.words())?;
        let packed = parts.next_hops.chunks(4).map(|four| {
            four.iter().rev().fold(0, |word, &next_hop| word << 16 | u64::from(next_hop))
        });
        for (index, word) in parts.children.iter().copied().chain(packed).enumerate() {
            self.memory.publish(block + index as u32, word);
        }
        Ok(Node::new(parts.internal, parts.external, block))
    }

    /// Replaces the node at `slot`.
    fn replace(&mut self, slot: u32, parts: &Parts) -> Result<(), Full> {
        let old = Node(self.memory.word(slot));
        let new = self.build(parts)?;
        self.memory.publish(slot, new.0);
        self.blocks.retire(&self.memory, old.block(), old.words());
        Ok(())
    }

    /// The slots of the nodes on the way to `prefix`, root first, as far as there are any.
    fn path(&self, prefix: Prefix<A>) -> Vec<u32> {
        let mut slots = vec![prefix.address().bits(0, INITIAL)];
        let mut depth = INITIAL;
        while prefix.length() >= depth + STRIDE {
            let node = Node(self.memory.word(slots[slots.len() - 1]));
            let bits = prefix.address().bits(depth, STRIDE);
            if node.external() >> bits & 1 == 0 {
                break;
            }
            slots.push(node.child(bits));
            depth += STRIDE;
        }
        slots
    }

    /// Where in its node a prefix stands that is `depth` bits or more long.
    fn place(prefix: Prefix<A>, depth: u32) -> u32 {
        let length = prefix.length() - depth;
        position(length, prefix.address().bits(depth, length))
    }

    /// A node at `depth` under which there is `prefix` alone, and the nodes that this takes.
    fn lone(&mut self, prefix: Prefix<A>, depth: u32, next: NextHop) -> Result<Node, Full> {
        if prefix.length() < depth + STRIDE {
            let internal = 1 << Self::place(prefix, depth);
            return self.build(&Parts { internal, next_hops: vec![next.0], ..Parts::default() });
        }
        let below = self.lone(prefix, depth + STRIDE, next)?;
        let external = 1 << prefix.address().bits(depth, STRIDE);
        let parts = Parts { external, children: vec![below.0], ..Parts::default() };
        self.build(&parts).inspect_err(|_| self.discard(below))
    }

    /// Gives back nodes that were never referred to.
    fn discard(&mut self, node: Node) {
        for child in 0..node.children() {
            self.discard(Node(self.memory.word(node.block() + child)));
        }
        self.blocks.untake(node.block(), node.words());
    }

    fn insert_long(&mut self, prefix: Prefix<A>, next: NextHop) -> Result<Option<NextHop>, Full> {
        let path = self.path(prefix);
        let (slot, depth) = (path[path.len() - 1], INITIAL + STRIDE * (path.len() as u32 - 1));
        let node = Node(self.memory.word(slot));
        if prefix.length() >= depth + STRIDE {
            let below = self.lone(prefix, depth + STRIDE, next)?;
            let bits = prefix.address().bits(depth, STRIDE);
            let mut parts = self.parts(node);
            parts.children.insert((node.child(bits) - node.block()) as usize, below.0);
            parts.external |= 1 << bits;
            self.replace(slot, &parts).inspect_err(|_| self.discard(below))?;
            return Ok(None);
        }
        let place = Self::place(prefix, depth);
        let before = (node.internal() & ((1 << place) - 1)).count_ones() as usize;
        if node.internal() >> place & 1 == 1 {
            return Ok(Some(self.exchange(node.next_hop(place), next)));
        }
        let mut parts = self.parts(node);
        parts.next_hops.insert(before, next.0);
        parts.internal |= 1 << place;
        self.replace(slot, &parts)?;
        Ok(None)
    }

    /// Stores a next hop over another, in one word with its neighbours.
    fn exchange(&mut self, at: u64, next: NextHop) -> NextHop {
        let (index, shift) = ((at / 4) as u32, at % 4 * 16);
        let word = self.memory.word(index);
        let others = word & !(0xffff << shift);
        self.memory.publish(index, others | u64::from(next.0) << shift);
        NextHop((word >> shift) as u16)
    }

    fn remove_long(&mut self, prefix: Prefix<A>) -> Result<Option<NextHop>, Full> {
        let path = self.path(prefix);
        let mut depth = INITIAL + STRIDE * (path.len() as u32 - 1);
        if prefix.length() >= depth + STRIDE {
            return Ok(None);
        }
        let mut node = Node(self.memory.word(path[path.len() - 1]));
        let place = Self::place(prefix, depth);
        if node.internal() >> place & 1 == 0 {
            return Ok(None);
        }
        let at = node.next_hop(place);
        let was = NextHop((self.memory.word((at / 4) as u32) >> (at % 4 * 16)) as u16);
        let mut parts = self.parts(node);
        parts.next_hops.remove((node.internal() & ((1 << place) - 1)).count_ones() as usize);
        parts.internal &= !(1 << place);
        // A node without anything goes, and so does one that had nothing but it.
        let mut level = path.len() - 1;
        let mut emptied = Vec::new();
        while parts.internal == 0 && parts.external == 0 && level > 0 {
            emptied.push(node);
            level -= 1;
            depth -= STRIDE;
            node = Node(self.memory.word(path[level]));
            let bits = prefix.address().bits(depth, STRIDE);
            parts = self.parts(node);
            parts.children.remove((node.child(bits) - node.block()) as usize);
            parts.external &= !(1 << bits);
        }
        self.replace(path[level], &parts)?;
        for node in emptied {
            self.blocks.retire(&self.memory, node.block(), node.words());
        }
        Ok(Some(was))
    }

    /// Writes the next hop of the short `prefix` to those roots of its that have none of a longer one.
    fn spread(&mut self, prefix: Prefix<A>, next: NextHop, length: u32) {
        let first = prefix.address().bits(0, INITIAL);
        for root in first..first + (1 << (INITIAL - prefix.length())) {
            let stands = &mut self.short_lengths[root as usize];
            if u32::from(*stands) <= prefix.length() + 1 {
                *stands = length as u8 + 1;
                self.memory.set_short(root, u32::from(next.0) + 1);
            }
        }
    }

    /// Gives the roots of the withdrawn short `prefix` to the longest that contains it.
    fn uncover(&mut self, prefix: Prefix<A>) {
        let shorter = (0..prefix.length()).rev();
        let mut covering = shorter.filter_map(|length| {
            let shorter = Prefix::new(prefix.address(), length)?;
            self.short.get(&shorter).map(|next| (length, *next))
        });
        if let Some((length, next)) = covering.next() {
            return self.spread(prefix, next, length);
        }
        let first = prefix.address().bits(0, INITIAL);
        for root in first..first + (1 << (INITIAL - prefix.length())) {
            if u32::from(self.short_lengths[root as usize]) == prefix.length() + 1 {
                self.short_lengths[root as usize] = 0;
                self.memory.set_short(root, 0);
            }
        }
    }
}

impl<A: Address, const STRIDE: u32, const INITIAL: u32> Fib<A> for TreeBitmap<A, STRIDE, INITIAL> {
    fn insert(&mut self, prefix: Prefix<A>, next: NextHop) -> Result<Option<NextHop>, Full> {
        let was = if prefix.length() < INITIAL {
            let was = self.short.insert(prefix, next);
            self.spread(prefix, next, prefix.length());
            was
        } else {
            self.insert_long(prefix, next)?
        };
        self.prefixes += usize::from(was.is_none());
        Ok(was)
    }

    fn remove(&mut self, prefix: Prefix<A>) -> Result<Option<NextHop>, Full> {
        let was = if prefix.length() < INITIAL {
            let was = self.short.remove(&prefix);
            if was.is_some() {
                self.uncover(prefix);
            }
            was
        } else {
            self.remove_long(prefix)?
        };
        self.prefixes -= usize::from(was.is_some());
        Ok(was)
    }

    #[inline]
    fn lookup(&self, address: A) -> Option<NextHop> {
        search::<A, STRIDE, INITIAL>(&self.memory, address)
    }

    fn len(&self) -> usize {
        self.prefixes
    }
}

impl<A, const STRIDE: u32, const INITIAL: u32> ServingFib<A> for TreeBitmap<A, STRIDE, INITIAL>
where
    A: Address,
{
    fn reader(&self) -> Option<Box<dyn Lookups<A>>> {
        TreeBitmap::reader(self).map(|reader| Box::new(reader) as Box<dyn Lookups<A>>)
    }

    fn bytes(&self) -> usize {
        TreeBitmap::bytes(self)
    }

    fn balances(&self) -> bool {
        TreeBitmap::balances(self)
    }

    fn span(&self) -> Range<usize> {
        self.memory.span()
    }
}

impl<A, const STRIDE: u32, const INITIAL: u32> Lookups<A> for Reader<A, STRIDE, INITIAL>
where
    A: Address,
{
    fn look_up(&mut self, addresses: &[A], next_hops: &mut [Option<NextHop>]) {
        self.lookup(addresses, next_hops);
    }
}

impl<A: Address, const STRIDE: u32, const INITIAL: u32> Reader<A, STRIDE, INITIAL> {
    /// Looks up all of `addresses`; each search sees each change wholly or not at all.
    ///
    /// # Panics
    /// When `addresses` and `next_hops` differ in length.
    #[inline]
    pub fn lookup(&self, addresses: &[A], next_hops: &mut [Option<NextHop>]) {
        assert_eq!(addresses.len(), next_hops.len(), "a next hop for each address");
        self.memory.readers.pass(self.place);
        self.instructions.search_all::<A, STRIDE, INITIAL>(&self.memory, addresses, next_hops);
        self.memory.readers.rest(self.place);
    }
}

impl<A, const STRIDE: u32, const INITIAL: u32> Drop for Reader<A, STRIDE, INITIAL> {
    fn drop(&mut self) {
        self.memory.readers.dismiss(self.place);
    }
}
