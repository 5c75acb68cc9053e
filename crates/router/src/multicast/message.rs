//! The contents of IGMP and MLD messages, for both families and all versions.

use alloc::vec::Vec;

use nilometer_wire::Span;

use crate::neighbour::{Family, Mac};

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// IGMPv1: hosts do not report leaving.
    Oldest,
    /// IGMPv2, MLDv1: groups without sources.
    Older,
    /// IGMPv3, MLDv2.
    Newest,
}

/// Which sources of a group are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterMode {
    /// Those of the list.
    Include,
    /// All but those of the list.
    Exclude,
}

/// What a group record reports (RFC 3376, 4.2.12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordKind {
    /// MODE_IS_INCLUDE.
    IsInclude = 1,
    /// MODE_IS_EXCLUDE.
    IsExclude = 2,
    /// CHANGE_TO_INCLUDE_MODE.
    ToInclude = 3,
    /// CHANGE_TO_EXCLUDE_MODE.
    ToExclude = 4,
    /// ALLOW_NEW_SOURCES.
    Allow = 5,
    /// BLOCK_OLD_SOURCES.
    Block = 6,
}

impl RecordKind {
    pub(super) const ALL: [RecordKind; 6] = [
        RecordKind::IsInclude,
        RecordKind::IsExclude,
        RecordKind::ToInclude,
        RecordKind::ToExclude,
        RecordKind::Allow,
        RecordKind::Block,
    ];
}

/// What one host reports of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<A> {
    /// What is reported.
    pub kind: RecordKind,
    /// The group.
    pub group: A,
    /// Its sources, as many as the packet held.
    pub sources: Vec<A>,
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query<A> {
    /// The group; unspecified in a general query.
    pub group: A,
    /// The sources; none in a query for a group or for all.
    pub sources: Vec<A>,
    /// Within which hosts answer.
    pub response_interval: Span,
    /// S: other routers shall not lower their timers.
    pub is_suppressed: bool,
    /// The querier's robustness; 0 if unspecified.
    pub robustness: u8,
    /// The querier's query interval; 0 if unspecified.
    pub query_interval: Span,
    /// The version it is written in.
    pub version: Version,
}

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<A> {
    /// A router asks.
    Query(Query<A>),
    /// A host reports; in older versions one record, as RFC 3376, 7.3.2 translates it.
    Report(Version, Vec<Record<A>>),
}

/// Why a frame carries no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// No sound packet, a fragment, or another protocol.
    #[error("not a whole packet of IGMP or MLD")]
    Packet,
    /// The TTL or hop limit is not 1.
    #[error("the TTL or hop limit is not 1")]
    HopLimit,
    /// MLD without the router alert (RFC 3810, 5).
    #[error("the router alert is missing")]
    RouterAlert,
    /// The checksum is wrong.
    #[error("the checksum is wrong")]
    Checksum,
    /// Another kind of message.
    #[error("not a query or report of a known version")]
    Kind,
    /// It is shorter than its own fields say.
    #[error("the message is shorter than it claims")]
    Short,
    /// The group is none.
    #[error("the group address is not multicast")]
    Group,
    /// The sender may not send it.
    #[error("the source may not send it")]
    Source,
}

/// A family's protocol of group membership: IGMP for IPv4 (`u32`), MLD for IPv6 (`u128`).
pub trait Protocol: Family {
    /// Whether packets for this group may leave the link they came from: not 224.0.0.0/24 (RFC 5771,
    /// 4), nor groups of interface, link or reserved scope (RFC 4291, 2.7); and it is a group.
    fn may_forward(self) -> bool;

    /// The link-layer address of this group (RFC 1112, 6.4; RFC 2464, 7).
    fn group_mac(self) -> Mac;

    /// Reads a frame: its sender and its contents.
    ///
    /// # Errors
    /// The rule that it breaks.
    fn read(frame: &[u8]) -> Result<(Self, Message<Self>), Malformed>;

    /// Writes a query from a port with these addresses and returns its length, at most 256 bytes.
    ///
    /// # Panics
    /// If the buffer is shorter, or the sources are more than [`super::QUERY_SOURCES_MAX`].
    fn write_query(query: &Query<Self>, from: (Mac, Self), frame: &mut [u8]) -> usize;
}

/// Addresses that follow one another, as many as `count`.
pub(super) fn addresses<A, const BYTES: usize>(
    bytes: &[u8],
    count: usize,
    read: impl Fn([u8; BYTES]) -> A,
) -> Result<Vec<A>, Malformed> {
    let listed = bytes.get(..count * BYTES).ok_or(Malformed::Short)?;
    let chunks = listed.chunks_exact(BYTES);
    Ok(chunks.map(|chunk| read(core::array::from_fn(|i| chunk[i]))).collect())
}

/// The records of a report, which have the same form in both families but for the length of
/// addresses.
pub(super) fn records<A: Protocol, const BYTES: usize>(
    mut bytes: &[u8],
    count: usize,
    read: impl Fn([u8; BYTES]) -> A,
) -> Result<Vec<Record<A>>, Malformed> {
    let mut records = Vec::new();
    for _ in 0..count {
        let &[kind, auxiliary, high, low] = bytes.first_chunk::<4>().ok_or(Malformed::Short)?;
        let sources = usize::from(u16::from_be_bytes([high, low]));
        let mut listed = addresses(&bytes[4..], 1 + sources, &read)?;
        let group = listed.remove(0);
        let length = 4 + (1 + sources) * BYTES + usize::from(auxiliary) * 4;
        bytes = bytes.get(length..).ok_or(Malformed::Short)?;
        // Records of unknown kinds are skipped (RFC 3376, 4.2.12).
        let known = RecordKind::ALL.iter().find(|known| **known as u8 == kind);
        records.extend(known.map(|&kind| Record { kind, group, sources: listed }));
    }
    Ok(records)
}
