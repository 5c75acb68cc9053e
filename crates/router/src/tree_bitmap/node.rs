//! A node of the trie (DER, 9.1) in one word, so that one store changes it.

/// Bits of the internal bitmap; at a stride of 4 all are used.
const INTERNAL_BITS: u32 = 15;
const EXTERNAL_BITS: u32 = 16;

/// Internal prefix bitmap (15 bits), extending paths bitmap (16), a bit that is never set, and the
/// number of the block's first word (32). No bits at all: no node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Node(pub u64);

impl Node {
    pub fn new(internal: u32, external: u32, block: u32) -> Node {
        let bitmaps = u64::from(internal) | u64::from(external) << INTERNAL_BITS;
        Node(bitmaps | u64::from(block) << 32)
    }

    /// Which prefixes end in the node: the empty one first, then those of one bit, of two…
    #[inline(always)]
    pub fn internal(self) -> u32 {
        self.0 as u32 & ((1 << INTERNAL_BITS) - 1)
    }

    /// Which children the node has.
    #[inline(always)]
    pub fn external(self) -> u32 {
        self.0 as u32 >> INTERNAL_BITS & ((1 << EXTERNAL_BITS) - 1)
    }

    /// Where its children and, behind them, its next hops stand.
    #[inline(always)]
    pub fn block(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline(always)]
    pub fn children(self) -> u32 {
        self.external().count_ones()
    }

    /// How many prefixes end in it.
    pub fn prefixes(self) -> u32 {
        self.internal().count_ones()
    }

    /// Words of its block: a word for each child, a quarter for each next hop.
    pub fn words(self) -> u32 {
        self.children() + self.prefixes().div_ceil(4)
    }

    /// The word of child `branch`, which it has.
    #[inline(always)]
    pub fn child(self, branch: u32) -> u32 {
        self.block() + (self.external() & ((1 << branch) - 1)).count_ones()
    }

    /// The next hop of the prefix at `position` of the internal bitmap, which it has: its number if
    /// every word held four.
    #[inline(always)]
    pub fn next_hop(self, position: u32) -> u64 {
        let before = (self.internal() & ((1 << position) - 1)).count_ones();
        u64::from(self.block() + self.children()) * 4 + u64::from(before)
    }
}

/// The place in the internal bitmap of the prefix of `length` bits `bits`.
pub(super) const fn position(length: u32, bits: u32) -> u32 {
    (1 << length) - 1 + bits
}

/// By the next `stride` bits of an address, which places of the internal bitmap match it.
pub(super) const fn matches(stride: u32) -> [u32; 16] {
    let mut masks = [0; 16];
    let mut bits = 0;
    while bits < 1 << stride {
        let mut length = 0;
        while length < stride {
            masks[bits as usize] |= 1 << position(length, bits >> (stride - length));
            length += 1;
        }
        bits += 1;
    }
    masks
}
