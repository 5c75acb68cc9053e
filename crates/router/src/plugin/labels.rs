//! What an instance says of a packet's label stack (MPLS; RFC 3031, RFC 3032), and which instance gets labelled frames.
//!
//! An instance never writes labels into a packet: it names them, and [`crate::pipeline`] puts them there.

use alloc::vec::Vec;
use core::mem;
use core::net::IpAddr;

use super::{ChainId, ControlError, ControlUnit};
use crate::discard::Discard;

/// Bytes of an entry of a label stack.
pub const ENTRY_BYTES: usize = 4;
/// The most entries that a packet gets at once.
pub const PUSHED_MAX: usize = 4;

/// Entries that go on a packet, the topmost first, as they are to stand there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LabelStack {
    entries: [[u8; ENTRY_BYTES]; PUSHED_MAX],
    length: usize,
}

impl LabelStack {
    /// One more, beneath the others: whether there is room.
    pub fn push(&mut self, entry: [u8; ENTRY_BYTES]) -> bool {
        let free = self.entries.get_mut(self.length);
        let has_room = free.map(|free| *free = entry).is_some();
        self.length += usize::from(has_room);
        has_room
    }

    /// The entries.
    pub fn entries(&self) -> &[[u8; ENTRY_BYTES]] {
        &self.entries[..self.length]
    }
}

/// What becomes of a label stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackChange {
    /// So many entries come off.
    pub popped: u8,
    /// These go on in their place. Which is the bottom of the stack, the router writes.
    pub pushed: LabelStack,
    /// The IP packet beneath the last label has no greater time to live than this from then on.
    pub hop_limit: Option<u8>,
    /// The next hop; without one, a packet whose last label came off goes on as an IP packet that came without.
    pub next_hop: Option<IpAddr>,
}

/// What an instance says of a packet's labels. The packet leaves its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LabelVerdict {
    /// They change.
    Change(StackChange),
    /// It is discarded for this reason; with [`Discard::Expired`] its sender gets an ICMP error.
    Discard(Discard),
}

impl LabelVerdict {
    /// Whether the packet goes on.
    pub(crate) fn is_change(&self) -> bool {
        matches!(self, LabelVerdict::Change(_))
    }
}

/// Verdicts on packets of a batch, by their places in it, in their order.
pub(crate) type LabelVerdicts = Vec<(u16, LabelVerdict)>;

impl ControlUnit {
    /// A chain of one instance that knows labels, for the labelled frames of a port.
    ///
    /// # Errors
    /// [`ControlError::Missing`], [`ControlError::Chains`], and [`ControlError::Labels`] where its class knows none.
    pub fn bind_labels(&mut self, name: &str) -> Result<ChainId, ControlError> {
        match self.takes_labels(name)? {
            true => self.bind(&[name]),
            false => Err(ControlError::Labels(name.into())),
        }
    }

    /// Takes what was said of labels in the call before.
    pub(crate) fn take_label_verdicts(&mut self) -> LabelVerdicts {
        mem::take(&mut self.label_verdicts)
    }
}
