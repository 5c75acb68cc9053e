//! The way in for drivers that already have kernel packets: a program at the traffic control hook
//! (tcx) that copies frames into a ring of ours.
//!
//! XDP is made for cards, whose driver has a frame but no kernel packet (`sk_buff`) yet. A veth gets
//! such packets. For a program in the driver it copies each into a page, from which AF_XDP copies it
//! into our memory, and the packet was made in vain. At the hook behind the driver the packet is
//! there as it arrived, and one copy is enough:
//!
//! ```text
//!   other end ─► veth ─► the hook ─► slot of the ring ─► chunk of our memory
//!                          program:   shared with us,     by us, when a chunk is
//!                          copies     read in order       to be had
//! ```
//!
//! The ring is a bounded queue for several producers and one consumer (D. Vyukov, 2010): the program
//! runs on any processor, and on several at once. Each slot's *sequence* holds its state: its position
//! means that it is free, one more that it is filled. A producer claims a position by advancing `head`,
//! and commits by the sequence; the reader waits for the next slot, so that frames keep the order in
//! which they were claimed. What finds no free slot is dropped there, at the earliest point, and
//! counted.
//!
//! Before that, the input is steered to one processor (`crate::steer`), unless configured otherwise: a veth
//! that runs no XDP program has a queue for each processor that sends, and packets would overtake each
//! other.
//!
//! # Packets that are not frames of the link
//!
//! A veth that runs no XDP program passes on what its other end's host left for a card to do: packets of
//! up to 64 KiB that are still to be cut, checksums that are still to be summed, VLAN tags that are still
//! to be put in. The program cuts (`segment`), tags are put back here, and open checksums stay open as
//! everywhere (`crate::partial_checksum`). What cannot be cut, and anything else longer than the link's
//! frames, is dropped and counted as oversize.
//!
//! # Flow offload
//!
//! If the router has entered its decision for a flow, the program forwards the flow's packets itself
//! (`flow_offload`), and they do not reach the ring.
//!
//! # Sleep
//!
//! A reader that goes to sleep sets a flag in the ring; the program then rings a bell (`bell`), once.

mod bell;
mod layout;
mod program;
mod ring;
mod segment;

use std::os::fd::{AsRawFd, RawFd};

use anyhow::{Context, Result};

use super::bpf::attach;
use super::flow_offload::FlowOffload;
use super::interface::Interface;
use super::memory::{HEAD_ROOM_BYTES, MemoryUser, Packet, PacketMemory};
use super::steer;
use bell::Bell;
use layout::Layout;
use program::Terms;
use ring::{Arrival, Ring};

/// `BPF_TCX_INGRESS`, the place that a link attaches to.
const ATTACH_TCX_INGRESS: u32 = 46;
/// Bytes of a VLAN tag.
const TAG_BYTES: usize = 4;

/// Packets that came in and were not passed on, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lost {
    /// The ring was full.
    pub(super) ring_full: u64,
    /// There was no chunk for it.
    pub(super) no_chunk: u64,
    /// It was longer than the link's frames, and could not be cut.
    pub(super) oversize: u64,
    /// The kernel could not read it.
    pub(super) unreadable: u64,
}

/// The way in.
pub(super) struct Intake {
    // Dropped in this order: the program first.
    _link: std::os::fd::OwnedFd,
    ring: Ring,
    bell: Bell,
    slept: bool,
    frame_bytes_max: usize,
    lost: Lost,
}

impl Intake {
    /// Attaches to an interface of the calling thread's namespace, with a ring of `slots` slots. Packets may take the
    /// shortcuts of `flow_offload`, which knows the interface as the given port of the router. If it `steers`, one
    /// processor handles the input; otherwise packets from several may be reordered.
    ///
    /// # Errors
    /// When the kernel has no such hook (before Linux 6.6), does not permit its use, or would not
    /// keep the order.
    pub(super) fn open(
        interface: &Interface,
        slots: u32,
        flow_offload: Option<&(FlowOffload, u16)>,
        steers: bool,
    ) -> Result<Intake> {
        let frame_bytes_max = interface.frame_bytes_max() as usize;
        let layout = Layout::new(slots as usize, frame_bytes_max);
        let ring = Ring::new(layout).context("cannot make a ring for frames")?;
        let bell = Bell::new().context("cannot make a bell")?;
        let (shared, bell_descriptor) = (ring.shared(), bell.descriptor());
        let flow_offload = flow_offload.map(|(all, input)| (all, *input, interface.mac()));
        let terms = Terms { layout: &layout, shared, bell: bell_descriptor, flow_offload };
        let program = program::load_program(&terms)?;
        if steers {
            steer::to_one_processor(interface.name(), interface.index() as usize)?;
        }
        let link = attach(&program, interface.index(), ATTACH_TCX_INGRESS, 0)
            .context("cannot attach a program to the traffic control hook")?;
        let lost = Lost::default();
        Ok(Intake { _link: link, ring, bell, slept: false, frame_bytes_max, lost })
    }

    /// Appends at most `max` frames that have arrived to `batch`, each in a chunk of the account;
    /// returns their bytes.
    pub(super) fn receive(
        &mut self,
        memory: &mut PacketMemory,
        account: MemoryUser,
        batch: &mut Vec<Packet>,
        max: usize,
    ) -> u64 {
        if std::mem::take(&mut self.slept) {
            self.ring.wake_up();
            self.bell.silence();
        }
        let mut bytes = 0;
        for _ in 0..max {
            let Some(arrival) = self.ring.front() else { break };
            match store(&arrival, memory, account, self.frame_bytes_max) {
                Ok(packet) => {
                    bytes += u64::from(packet.bytes);
                    memory.mark(&packet, arrival.mark);
                    batch.push(packet);
                }
                Err(why) => {
                    *match why {
                        Refused::NoChunk => &mut self.lost.no_chunk,
                        Refused::Oversize => &mut self.lost.oversize,
                        Refused::Unreadable => &mut self.lost.unreadable,
                    } += 1;
                    memory.unmarked(arrival.mark);
                }
            }
            self.ring.release();
        }
        bytes
    }

    /// The descriptor to sleep on; `None` if something has arrived, and the reader should not sleep.
    pub(super) fn fall_asleep(&mut self) -> Option<RawFd> {
        self.slept = true;
        self.ring.fall_asleep().then(|| self.bell.descriptor().as_raw_fd())
    }

    /// What came in and was not passed on.
    pub(super) fn lost(&self) -> Lost {
        let (ring_full, oversize) = self.ring.lost();
        Lost { ring_full, oversize: self.lost.oversize + oversize, ..self.lost }
    }
}

enum Refused {
    NoChunk,
    Oversize,
    Unreadable,
}

/// Copies what has come into a chunk, with its tag, and finishes it where it is a segment.
fn store(
    arrival: &Arrival<'_>,
    memory: &mut PacketMemory,
    account: MemoryUser,
    frame_bytes_max: usize,
) -> Result<Packet, Refused> {
    let tag_bytes = if arrival.tag.is_some() { TAG_BYTES } else { 0 };
    let bytes = arrival.frame.len() + tag_bytes;
    if arrival.frame.len() < 14 {
        return Err(Refused::Unreadable);
    }
    if bytes > frame_bytes_max {
        return Err(Refused::Oversize);
    }
    let chunk = memory.supply(account).ok_or(Refused::NoChunk)?;
    memory.recover(chunk, account);
    // What is in front of the frame is the chunk's head-room, of which the tag takes four bytes.
    let offset = HEAD_ROOM_BYTES - tag_bytes as u16;
    let packet = Packet { buffer: chunk, offset, bytes: bytes as u16 };
    let frame = memory.frame_mut(&packet);
    frame[tag_bytes..].copy_from_slice(arrival.frame);
    let is_whole = arrival.cut.is_none_or(|cut| segment::finish(&mut frame[tag_bytes..], cut));
    if !is_whole {
        memory.give(packet);
        return Err(Refused::Unreadable);
    }
    if let Some(tag) = arrival.tag {
        frame.copy_within(tag_bytes..tag_bytes + 12, 0);
        frame[12..16].copy_from_slice(&tag);
    }
    Ok(packet)
}
