//! What a neighbour table counts: packets by their fate, messages by why they were ignored.

nilometer_wire::named! {
    /// Why a packet was not released.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    #[repr(u8)]
    pub enum Reason {
        /// The address does not answer: ICMP host unreachable (RFC 1812, 5.2.7.1), ICMPv6 address
        /// unreachable (RFC 4443, 3.1, code 3).
        Unreachable = "the next hop does not answer",
        /// A later packet for the same neighbour took its place.
        Overflow = "a later packet took its place",
        /// Too many addresses are being resolved.
        UnresolvedFull = "too many addresses are being resolved",
        /// The table is full of entries in use.
        TableFull = "the neighbour table is full",
        /// Too many packets wait.
        PacketsFull = "too many packets wait for neighbours",
        /// The next hop is on no prefix of the port.
        OffLink = "the next hop is on no prefix of the port",
        /// The next hop is the port's own address.
        Own = "the next hop is the port's own address",
        /// The next hop is not one host's: a group, a broadcast, a loopback.
        NotHost = "the next hop is not the address of one host",
        /// The entry was removed from outside.
        Removed = "the entry was removed",
    }
}

/// Why a message, or its claim about an address, was ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Ignored {
    /// It breaks a rule of its RFC: lengths, fields, hop limit, checksum.
    Malformed,
    /// Another claims an address of the port, or sends from its link-layer address (RFC 5227, 2.4).
    Conflict,
    /// The address is on no prefix of the port.
    OffLink,
    /// The address is not one host's, or the link-layer address not one station's.
    NotHost,
    /// It is unsolicited, and about an address that is not in the table.
    Unknown,
    /// It would change an entry set by hand, or one that has just changed.
    Locked,
    /// The table is full of entries in use.
    TableFull,
    /// Too many answers wait to be sent.
    AnswersFull,
    /// It is for none of the port's addresses, or of no concern to a router.
    NotOurs,
}

const IGNORED: usize = Ignored::NotOurs as usize + 1;

/// Counts since the table was made. `offered` is `released` and all drops and what is still held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Packets handed in.
    pub offered: u64,
    /// Packets that came back with a link-layer address.
    pub released: u64,
    /// Entries pushed out to make room for others.
    pub evicted: u64,
    /// Requests sent or ready to be sent.
    pub requests: u64,
    /// Answers sent or ready to be sent.
    pub answers: u64,
    dropped: [u64; Reason::ALL.len()],
    ignored: [u64; IGNORED],
}

impl Ledger {
    /// Packets that came back, or were refused at the door, for this reason.
    pub fn dropped(&self, reason: Reason) -> u64 {
        self.dropped[reason as usize]
    }

    /// Packets dropped for any reason.
    pub fn dropped_total(&self) -> u64 {
        self.dropped.iter().sum()
    }

    /// Messages, or claims about an address in them, that were ignored for this reason.
    pub fn ignored(&self, why: Ignored) -> u64 {
        self.ignored[why as usize]
    }

    pub(super) fn drop_one(&mut self, reason: Reason) {
        self.dropped[reason as usize] += 1;
    }

    pub(super) fn ignore(&mut self, why: Ignored) {
        self.ignored[why as usize] += 1;
    }
}
