//! Labelled packets (MPLS; RFC 3031, RFC 3032): labels are pushed and popped as an instance decides, and the packets
//! are sent.
//!
//! ```text
//!   frame of 0x8847 ──► the port's instance ─┬─ last label off ──► parsed like any packet that came by that port
//!                                            └─ swapped, popped ─┬─► next hop ──► does it fit? ──► queue of its output
//!   IP packet ──► filter ──► chain ──► asked all that others are ┘
//! ```
//!
//! Labelled frames are found where the ethertype is looked at anyway, gathered, and handed to the instance once the
//! batch is parsed. Labels are written last: so an ICMP error quotes the packet as it came; an error about a labelled
//! packet concerns the IP packet beneath, and is sent where a route leads to the sender (RFC 3032, 2.3). A next hop
//! is an address, which is looked up and resolved like any other. Labelled packets meet no output filters and take no
//! ECN mark (their bits are not IP's): a queue that would mark one drops it.

use alloc::vec::Vec;
use core::mem;
use core::net::IpAddr;

use nilometer_wire::Time;

use super::Router;
use super::decide::Turn;
use super::lane::{Brief, Lane};
use super::onward::Reached;
use super::slow::SlowPathReason;
use super::version::Version;
use crate::discard::Discard;
use crate::forward::fragment::{Fragments, Refusal};
use crate::forward::hop;
use crate::forward::icmp::Problem;
use crate::header::{ETHERNET_BYTES, Header, Key};
use crate::memory::{Memory, Place};
use crate::plugin::labels::{ENTRY_BYTES, LabelVerdict, StackChange};
use crate::plugin::{ControlError, Handed, PacketFacts};

/// The ethertype of labelled packets (RFC 3032, 5).
pub(super) const ETHERTYPE: u16 = 0x8847;
/// Entries of a stack that are searched for its bottom.
const STACK_MAX: usize = 16;
/// Where in an Ethernet header the ethertype stands.
const KIND_AT: usize = 12;
/// The bottom-of-stack bit, in the third byte of an entry.
const BOTTOM: u8 = 1;

impl Router {
    /// Hands the labelled frames that come to a port to an instance, or to none.
    ///
    /// # Errors
    /// [`ControlError`]; nothing has changed then.
    ///
    /// # Panics
    /// When there is no such port.
    pub fn set_labels(&mut self, port: usize, instance: Option<&str>) -> Result<(), ControlError> {
        let chain = instance.map(|name| self.plugins.bind_labels(name)).transpose()?;
        let before = mem::replace(&mut self.ports[port].labels, chain);
        before.into_iter().for_each(|chain| self.plugins.unbind(chain));
        Ok(())
    }

    /// A labelled frame came.
    pub(super) fn gather_labelled<M: Memory>(
        &mut self,
        input: usize,
        place: Place,
        memory: &mut M,
    ) {
        if self.ports[input].labels.is_none() {
            return self.discard(input, place, Discard::NotSpoken, memory);
        }
        if memory.frame(place)[0] & 1 == 1 {
            return self.discard(input, place, Discard::LinkBroadcast, memory);
        }
        let (ip_bytes, input) = (place.bytes - ETHERNET_BYTES as u16, input as u16);
        self.labelled.push(PacketFacts::new(place, ip_bytes, (input, None)));
    }

    /// Those of a batch go to the instance of their port, and on.
    #[inline(never)]
    pub(super) fn switch_labelled<M: Memory>(&mut self, now: Time, input: usize, memory: &mut M) {
        let Some(chain) = self.ports[input].labels else { return };
        let mut facts = mem::take(&mut self.labelled);
        let handed = Handed { is_labelled: true, ..Handed::new(&facts) };
        let passage = self.plugins.process(now, chain, handed, memory);
        let mut verdicts = self.plugins.take_label_verdicts().into_iter().peekable();
        for (at, &PacketFacts { place, .. }) in facts.iter().enumerate() {
            match verdicts.next_if(|(there, _)| usize::from(*there) == at) {
                Some((_, LabelVerdict::Change(change))) => {
                    self.change_labels(now, (input, place), &change, memory);
                }
                Some((_, LabelVerdict::Discard(why))) => {
                    self.refuse_labels(now, (input, place), why, memory);
                }
                None if passage.cut_off.contains(at) => {
                    self.discard(input, place, Discard::PluginFault, memory);
                }
                None if passage.dropped.contains(at) => {
                    self.discard(input, place, Discard::Plugin, memory);
                }
                None => self.discard(input, place, Discard::NotSpoken, memory),
            }
        }
        facts.clear();
        self.labelled = facts;
    }

    /// Applies an instance's verdict on the labels of an IP packet on its way through a chain; returns whether the
    /// packet has left the lane. A packet for the router itself stays, without labels.
    pub(super) fn label<A: Version, M: Memory>(
        &mut self,
        now: Time,
        input: usize,
        (lane, at): (&Lane<A>, usize),
        verdict: &LabelVerdict,
        memory: &mut M,
    ) -> bool {
        let (brief, key) = (&lane.briefs[at], &lane.keys[at]);
        let change = match verdict {
            LabelVerdict::Change(_) if self.is_own(key.destination) => return false,
            LabelVerdict::Change(change) => change,
            LabelVerdict::Discard(why) => {
                self.refuse_labels(now, (input, brief.place), *why, memory);
                return true;
            }
        };
        match (self.ask_before_labels(input, brief, key, memory), change.next_hop) {
            (Err(turn), _) => self.turn_off(now, input, (brief, key), turn, memory),
            (Ok(()), Some(next)) if change.popped == 0 => {
                let hop_limit = Some(brief.hop_limit - 1);
                let change = StackChange { hop_limit, ..*change };
                self.send_labelled(now, (input, brief.place), (&change, next, true), memory);
            }
            (Ok(()), _) => self.discard(input, brief.place, Discard::LabelStack, memory),
        }
        true
    }

    /// All that can stop a packet before its route is looked up, and its time to live.
    fn ask_before_labels<A: Version, M: Memory>(
        &mut self,
        input: usize,
        brief: &Brief,
        key: &Key<A>,
        memory: &mut M,
    ) -> Result<(), Turn> {
        self.examine(input, brief, key, None, memory)?;
        match hop::expires(brief.hop_limit) {
            true => Err(Turn::Slow(SlowPathReason::Expired)),
            false => Ok(()),
        }
    }

    /// A packet goes no further because of its labels.
    fn refuse_labels<M: Memory>(
        &mut self,
        now: Time,
        (input, place): (usize, Place),
        why: Discard,
        memory: &mut M,
    ) {
        let problem = (why == Discard::Expired).then_some(Problem::HopLimit);
        self.refuse(now, (input, place), problem, why, memory);
    }

    /// Pops labels off a packet, pushes others if so decided, and sends it on.
    fn change_labels<M: Memory>(
        &mut self,
        now: Time,
        (input, place): (usize, Place),
        change: &StackChange,
        memory: &mut M,
    ) {
        let stack = &memory.frame(place)[ETHERNET_BYTES..];
        let Some(is_ip) = is_bottom(stack, change.popped.into()) else {
            return self.discard(input, place, Discard::LabelStack, memory);
        };
        let place = strip(place, change.popped.into(), is_ip, memory);
        if is_ip && Header::read(memory.frame(place)).is_err() {
            // (Its fault is counted like that of any other packet.)
            return self.parse_again(input, place, memory);
        }
        match change.next_hop {
            Some(next) => self.send_labelled(now, (input, place), (change, next, is_ip), memory),
            None if is_ip && change.pushed.entries().is_empty() => {
                limit_hops(&mut memory.frame_mut(place)[ETHERNET_BYTES..], change.hop_limit);
                self.parse_again(input, place, memory);
            }
            None => self.discard(input, place, Discard::LabelStack, memory),
        }
    }

    /// A packet from which all labels came off is one that came without.
    fn parse_again<M: Memory>(&mut self, input: usize, place: Place, memory: &mut M) {
        let mut lane4 = self.lanes.lane4.take();
        self.parse_unusual(input, place, &mut lane4, memory);
        lane4.put_back(&mut self.lanes.lane4);
    }

    /// Sends a packet with more labels to a next hop; without any if it has none and gets none.
    fn send_labelled<M: Memory>(
        &mut self,
        now: Time,
        (input, place): (usize, Place),
        (change, next, is_ip): (&StackChange, IpAddr, bool),
        memory: &mut M,
    ) {
        let sent = match next {
            IpAddr::V4(next) => self.reach_again(now, u32::from(next)),
            IpAddr::V6(next) => self.reach_again(now, u128::from(next)),
        };
        let output = match sent {
            Ok((output, _)) | Err(Turn::Hold(output, _)) => &self.ports[usize::from(output)],
            Err(Turn::Discard(why)) => return self.discard(input, place, why, memory),
            Err(Turn::Slow(SlowPathReason::HostUnreachable)) => {
                let problem = Some(Problem::AddressUnreachable);
                return self.refuse(now, (input, place), problem, Discard::Unresolved, memory);
            }
            Err(Turn::Slow(_)) => return self.discard(input, place, Discard::NoRoute, memory),
        };
        if !output.is_open || !self.ports[input].plan.forwards {
            let why = if output.is_open { Discard::ForwardingOff } else { output.why_shut() };
            return self.discard(input, place, why, memory);
        }
        let mtu_bytes = output.plan.mtu_bytes;
        let header = if is_ip { Header::read(memory.frame(place)).ok() } else { None };
        // Bytes behind an IP packet are padding of the link that it came by.
        let bytes = header.map_or(place.bytes, |header| ETHERNET_BYTES as u16 + header.ip_bytes);
        let place = Place { bytes, ..place };
        let entries = change.pushed.entries();
        let front_bytes = entries.len() * ENTRY_BYTES;
        if usize::from(bytes) - ETHERNET_BYTES + front_bytes > usize::from(mtu_bytes) {
            return self.cut_labelled(
                now,
                (input, place),
                (change, is_ip),
                (sent, mtu_bytes),
                memory,
            );
        }
        if usize::from(place.offset) < front_bytes {
            return self.discard(input, place, Discard::NoBuffer, memory);
        }
        if is_ip {
            limit_hops(&mut memory.frame_mut(place)[ETHERNET_BYTES..], change.hop_limit);
        }
        let place = put_on(place, entries, is_ip, memory);
        self.send_directed(now, input, place, sent, memory);
    }

    /// A packet that does not fit with its labels: fragments of the IP packet beneath get the same labels, or an ICMP
    /// error reports what would fit (RFC 3032, 3.4 and 3.5).
    fn cut_labelled<M: Memory>(
        &mut self,
        now: Time,
        (input, place): (usize, Place),
        (change, is_ip): (&StackChange, bool),
        (sent, mtu_bytes): (Reached, u16),
        memory: &mut M,
    ) {
        let payload = &memory.frame(place)[ETHERNET_BYTES..];
        let found = if is_ip { Some((0, payload)) } else { beneath(payload) };
        let header = found.and_then(|(_, packet)| header_of(packet));
        let (Some((under, packet)), Some(header)) = (found, header) else {
            return self.discard(input, place, Discard::TooBig, memory);
        };
        let mut stack: Vec<u8> = change.pushed.entries().as_flattened().to_vec();
        stack.extend_from_slice(&payload[..under]);
        mark_bottom(&mut stack);
        let room = mtu_bytes.saturating_sub(stack.len() as u16);
        let mut packet = packet[..header.ip_bytes.into()].to_vec();
        let refusal = match packet[0] >> 4 {
            4 => Fragments::of(&packet, room).err(),
            _ => Some(Refusal::DontFragment),
        };
        if let Some(refusal) = refusal {
            let is_answered = refusal == Refusal::DontFragment;
            let problem = is_answered.then_some(Problem::TooBig { mtu_bytes: room.into() });
            return self.refuse(now, (input, place), problem, Discard::TooBig, memory);
        }
        if is_ip {
            limit_hops(&mut packet, change.hop_limit);
        }
        let pieces: Vec<Vec<u8>> =
            Fragments::of(&packet, room).map_or(Vec::new(), Iterator::collect);
        for piece in pieces {
            let bytes = (ETHERNET_BYTES + stack.len() + piece.len()) as u16;
            let Some(part) = self.made(input, bytes, memory) else { continue };
            let frame = memory.frame_mut(part);
            let kind = if stack.is_empty() {
                <u32 as Version>::ETHERTYPE
            } else {
                ETHERTYPE.to_be_bytes()
            };
            frame[..KIND_AT].fill(0);
            frame[KIND_AT..ETHERNET_BYTES].copy_from_slice(&kind);
            let (front, rest) = frame[ETHERNET_BYTES..].split_at_mut(stack.len());
            front.copy_from_slice(&stack);
            rest.copy_from_slice(&piece);
            self.send_directed(now, input, part, sent, memory);
        }
        self.absorb(place, memory);
    }
}

/// The IP packet in a frame, beneath its labels if it has any; nothing of one that is no whole IP packet.
pub(super) fn ip_packet(frame: &[u8]) -> Option<&[u8]> {
    let (ethernet, packet) = frame.split_first_chunk::<ETHERNET_BYTES>()?;
    match u16::from_be_bytes([ethernet[KIND_AT], ethernet[KIND_AT + 1]]) {
        ETHERTYPE => beneath(packet).map(|(_, packet)| packet).filter(|it| header_of(it).is_some()),
        _ => Some(packet),
    }
}

/// The header of an IP packet of either version.
pub(super) fn header_of(packet: &[u8]) -> Option<Header> {
    match packet.first()? >> 4 {
        4 => Header::read_ipv4(packet).ok(),
        6 => Header::read_ipv6(packet).ok(),
        _ => None,
    }
}

/// The packet beneath the labels at the front, and its offset.
fn beneath(stack: &[u8]) -> Option<(usize, &[u8])> {
    let (entries, _) = stack.as_chunks::<ENTRY_BYTES>();
    let bottom = entries.iter().take(STACK_MAX).position(|entry| entry[2] & BOTTOM != 0)?;
    let at = (bottom + 1) * ENTRY_BYTES;
    Some((at, &stack[at..]))
}

/// Whether the `popped`-th entry of a stack is its bottom; nothing where the stack has fewer entries.
fn is_bottom(stack: &[u8], popped: usize) -> Option<bool> {
    let (entries, _) = stack.as_chunks::<ENTRY_BYTES>();
    let (last, others) = entries.get(..popped)?.split_last()?;
    let ends_before = others.iter().any(|entry| entry[2] & BOTTOM != 0);
    (!ends_before).then_some(last[2] & BOTTOM != 0)
}

/// The last entry of a stack is its bottom, and no other is.
fn mark_bottom(stack: &mut [u8]) {
    let (entries, _) = stack.as_chunks_mut::<ENTRY_BYTES>();
    entries.iter_mut().for_each(|entry| entry[2] &= !BOTTOM);
    entries.last_mut().into_iter().for_each(|entry| entry[2] |= BOTTOM);
}

/// Takes entries off the front of a packet; beneath the last one there is an IP packet if `is_ip`.
fn strip<M: Memory>(place: Place, popped: usize, is_ip: bool, memory: &mut M) -> Place {
    let taken = popped * ENTRY_BYTES;
    let frame = memory.frame_mut(place);
    if is_ip {
        let version = frame.get(ETHERNET_BYTES + taken).map_or(0, |first| first >> 4);
        let kind =
            if version == 6 { <u128 as Version>::ETHERTYPE } else { <u32 as Version>::ETHERTYPE };
        frame[KIND_AT..ETHERNET_BYTES].copy_from_slice(&kind);
    }
    frame.copy_within(..ETHERNET_BYTES, taken);
    let taken = taken as u16;
    Place { offset: place.offset + taken, bytes: place.bytes - taken, ..place }
}

/// Puts entries in front of a packet; there must be room for them.
fn put_on<M: Memory>(
    place: Place,
    entries: &[[u8; ENTRY_BYTES]],
    is_ip: bool,
    memory: &mut M,
) -> Place {
    if entries.is_empty() {
        return place;
    }
    let front = entries.len() * ENTRY_BYTES;
    let (offset, bytes) = (place.offset - front as u16, place.bytes + front as u16);
    let place = Place { offset, bytes, ..place };
    let frame = memory.frame_mut(place);
    frame.copy_within(front..front + KIND_AT, 0);
    frame[KIND_AT..ETHERNET_BYTES].copy_from_slice(&ETHERTYPE.to_be_bytes());
    let stack = &mut frame[ETHERNET_BYTES..ETHERNET_BYTES + front];
    stack.copy_from_slice(entries.as_flattened());
    mark_bottom(stack);
    if !is_ip {
        stack[front - 2] &= !BOTTOM;
    }
    place
}

/// A packet's time to live is at most this from now on.
fn limit_hops(packet: &mut [u8], most: Option<u8>) {
    let Some(most) = most else { return };
    hop::limit(packet, most);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bottom_of_a_stack_is_found_where_it_is() {
        let stack = [0, 1, 0, 9, 0, 2, 1, 9, 0x45];
        assert_eq!(beneath(&stack), Some((8, &[0x45][..])));
        assert_eq!(beneath(&stack[..7]), None, "cut");
        assert_eq!(beneath(&[0; 200]), None, "no bottom");
        assert_eq!(
            [0, 1, 2, 3].map(|popped| is_bottom(&stack, popped)),
            [None, Some(false), Some(true), None]
        );
        assert_eq!(is_bottom(&[0, 1, 1, 9, 0, 2, 1, 9], 2), None, "it ends before");
        let mut stack = [0, 1, 1, 9, 0, 2, 0, 9];
        mark_bottom(&mut stack);
        assert_eq!(stack, [0, 1, 0, 9, 0, 2, 1, 9]);
    }
}
