//! A port by AF_PACKET: a packet socket that reads and writes the packet memory in batches.
//!
//! It works where AF_XDP does not: in an unprivileged user namespace, on interfaces of any kind
//! and MTU that a chunk can hold. The price is a packet of the kernel's own for each frame and one
//! copy each way. `recvmmsg` receives up to 64 frames into chunks laid out beforehand; `sendmmsg`
//! sends as many from theirs.
//!
//! A packet socket gets a copy: the kernel's own stack sees every frame as well. The namespace
//! must therefore have no addresses on the interface and no forwarding, or there are two routers.
//!
//! A virtio header before each frame says whether its checksum or its segmentation is still to be
//! done. Partial checksums are counted and passed on; unsegmented packets are refused and counted
//! ([`PortStatistics::rx_oversize`]), because they are longer than the next link allows: the
//! sender's segmentation offload has to be off. A VLAN tag that the kernel took out of a frame is
//! put back.

use std::collections::VecDeque;
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use anyhow::{Context, Result, ensure};

use super::interface::Interface;
use super::memory::{HEAD_ROOM_BYTES, MemoryUser, Packet, PacketMemory};
use super::netlink::MacAddress;
use super::port_io::{ChecksumOffload, PortError, PortIo, PortStatistics, of_interface};
use super::ring::{bind, set_option};
use super::virtio_header::{self, HEADER_BYTES};

/// Frames for one system call.
const BATCH: usize = 64;
/// What the socket may hold until it is read, by default.
const RECEIVE_BUFFER_BYTES: i32 = 8 << 20;
/// Room for the kernel's control messages about one frame, aligned as required.
type Control = [u64; 8];

/// How to open a port by AF_PACKET.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketPortConfig {
    /// What to do with checksums that a kernel left to its card.
    pub checksum: ChecksumOffload,
    /// How many chunks of the memory are reserved for frames that arrive here, at least 64.
    pub reserve: u32,
    /// Takes an interface outside of a lab's namespaces as well.
    pub allow_foreign: bool,
    /// Sends by the interface's queueing discipline, where other packet sockets see it; otherwise past it.
    pub shows_what_it_sends: bool,
    /// What the socket may hold until it is read, bytes, with what the kernel keeps beside each frame.
    pub receive_buffer_bytes: i32,
}

impl Default for PacketPortConfig {
    /// As many chunks reserved as an AF_XDP port has.
    fn default() -> PacketPortConfig {
        PacketPortConfig {
            checksum: ChecksumOffload::AsIs,
            reserve: 2048,
            allow_foreign: false,
            shows_what_it_sends: false,
            receive_buffer_bytes: RECEIVE_BUFFER_BYTES,
        }
    }
}

/// A port by AF_PACKET.
pub struct PacketPort {
    socket: OwnedFd,
    interface: Interface,
    account: MemoryUser,
    /// Chunks for the next frames.
    laid_out: Vec<u32>,
    partial_checksums: bool,
    statistics: PortStatistics,
}

impl PacketPort {
    /// The number of its interface.
    pub fn interface_index(&self) -> u32 {
        self.interface.index()
    }

    /// Opens a port on an interface of the calling thread's namespace, up or still down.
    ///
    /// # Errors
    ///
    /// When the interface is not there or may not be taken, or when the memory has too few chunks
    /// or too small ones for its MTU.
    pub fn open(
        memory: &mut PacketMemory,
        name: &str,
        config: &PacketPortConfig,
    ) -> Result<PacketPort> {
        let step = || format!("cannot open an AF_PACKET port on {name}");
        let interface = Interface::open(name, config.allow_foreign).with_context(step)?;
        ensure!(
            interface.frame_bytes_max() <= u32::from(memory.frame_bytes_max()),
            "{name} has an MTU of {} bytes, and a chunk takes frames of {}: lower the MTU or take \
             chunks of 4096 bytes",
            interface.mtu_bytes(),
            memory.frame_bytes_max()
        );
        ensure!(config.reserve >= BATCH as u32, "an AF_PACKET port needs a reserve of 64 chunks");
        let socket = open_socket(&interface, config).with_context(step)?;
        Ok(PacketPort {
            socket,
            interface,
            account: memory.open_account(config.reserve).with_context(step)?,
            laid_out: Vec::with_capacity(BATCH),
            partial_checksums: config.checksum == ChecksumOffload::Partial,
            statistics: PortStatistics::default(),
        })
    }

    /// Receives into the chunks that are laid out, at most `max`; how many messages there were.
    fn receive_batch(
        &mut self,
        memory: &mut PacketMemory,
        batch: &mut Vec<Packet>,
        max: usize,
    ) -> io::Result<usize> {
        while self.laid_out.len() < max.min(BATCH) {
            let Some(chunk) = memory.supply(self.account) else { break };
            self.laid_out.push(chunk);
        }
        let count = self.laid_out.len().min(max);
        if count == 0 {
            return Ok(0);
        }
        let before = HEAD_ROOM_BYTES - HEADER_BYTES;
        let room = memory.chunk_bytes() as usize - usize::from(before);
        // SAFETY: pointers and integers, for which zero is a valid value.
        let (mut places, mut messages, mut control) = unsafe {
            (
                zeroed::<[libc::iovec; BATCH]>(),
                zeroed::<[libc::mmsghdr; BATCH]>(),
                [Control::default(); BATCH],
            )
        };
        for number in 0..count {
            let chunk = memory.chunk_address(self.laid_out[number]);
            // SAFETY: the sum lies within the chunk.
            let start = unsafe { chunk.add(usize::from(before)) };
            places[number] = libc::iovec { iov_base: start.cast(), iov_len: room };
            let header = &mut messages[number].msg_hdr;
            header.msg_iov = &mut places[number];
            header.msg_iovlen = 1;
            header.msg_control = control[number].as_mut_ptr().cast();
            header.msg_controllen = size_of::<Control>() as _;
        }
        // SAFETY: `count` messages are live, and so are the places and control buffers that they
        // name; the chunks are lent to this port, so no reference into them exists.
        let received = unsafe {
            let socket = self.socket.as_raw_fd();
            let flags = libc::MSG_DONTWAIT as _;
            libc::recvmmsg(socket, messages.as_mut_ptr(), count as _, flags, std::ptr::null_mut())
        };
        if received < 0 {
            return Err(io::Error::last_os_error());
        }
        let chunks: Vec<u32> = self.laid_out.drain(..received as usize).collect();
        for (&chunk, message) in chunks.iter().zip(&messages) {
            memory.recover(chunk, self.account);
            let truncated = message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
            let bytes = (message.msg_len as usize).min(room).saturating_sub(HEADER_BYTES.into());
            let packet = Packet { buffer: chunk, offset: HEAD_ROOM_BYTES, bytes: bytes as u16 };
            match self.accept(memory, packet, truncated, vlan_tag(&message.msg_hdr)) {
                Some(packet) => batch.push(packet),
                None => memory.give(packet),
            }
        }
        Ok(received as usize)
    }

    /// Evaluates the kernel's data about a frame; `None` if it is refused.
    fn accept(
        &mut self,
        memory: &mut PacketMemory,
        mut packet: Packet,
        truncated: bool,
        tag: Option<[u8; 4]>,
    ) -> Option<Packet> {
        let metadata = virtio_header::read(memory.head_room_mut(&packet, HEADER_BYTES));
        let too_long = u32::from(packet.bytes) > self.interface.frame_bytes_max();
        if truncated || too_long || metadata.is_unsegmented {
            self.statistics.rx_oversize += 1;
            return None;
        }
        if let Some(tag) = tag
            && packet.bytes >= 12
        {
            packet.offset -= 4;
            packet.bytes += 4;
            let frame = memory.frame_mut(&packet);
            frame.copy_within(4..16, 0);
            frame[12..16].copy_from_slice(&tag);
        }
        self.statistics.rx_partial_checksum += u64::from(metadata.needs_checksum);
        self.statistics.rx_packets += 1;
        self.statistics.rx_bytes += u64::from(packet.bytes);
        Some(packet)
    }

    /// Sends from the front of the queue, at most a batch; how many the kernel took.
    fn send_batch(
        &mut self,
        memory: &mut PacketMemory,
        packets: &mut VecDeque<Packet>,
    ) -> io::Result<usize> {
        // SAFETY: pointers and integers, for which zero is a valid value.
        let (mut places, mut messages, mut announced) = unsafe {
            (zeroed::<[libc::iovec; BATCH]>(), zeroed::<[libc::mmsghdr; BATCH]>(), [false; BATCH])
        };
        let count = packets.len().min(BATCH);
        for (number, packet) in packets.iter().take(count).enumerate() {
            let (header, partial) =
                virtio_header::for_frame(memory.frame(packet), self.partial_checksums);
            announced[number] = partial;
            let head_room = memory.head_room_mut(packet, HEADER_BYTES);
            head_room.copy_from_slice(&header);
            places[number] = libc::iovec {
                iov_base: head_room.as_mut_ptr().cast(),
                iov_len: usize::from(HEADER_BYTES + packet.bytes),
            };
            messages[number].msg_hdr.msg_iov = &mut places[number];
            messages[number].msg_hdr.msg_iovlen = 1;
        }
        // SAFETY: `count` messages are live, and so are the places that they name; header and
        // frame lie side by side in chunks that the program holds, and are only read.
        let sent = unsafe {
            let (socket, flags) = (self.socket.as_raw_fd(), libc::MSG_DONTWAIT as _);
            libc::sendmmsg(socket, messages.as_mut_ptr(), count as _, flags)
        };
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        for (packet, partial) in packets.drain(..sent as usize).zip(announced) {
            self.statistics.tx_packets += 1;
            self.statistics.tx_bytes += u64::from(packet.bytes);
            self.statistics.tx_partial_checksum += u64::from(partial);
            // The kernel made its own copy.
            memory.give(packet);
        }
        Ok(sent as usize)
    }
}

impl PortIo for PacketPort {
    fn receive(
        &mut self,
        memory: &mut PacketMemory,
        batch: &mut Vec<Packet>,
        max: usize,
    ) -> Result<usize, PortError> {
        self.interface.check_gone()?;
        let before = batch.len();
        let mut left = max;
        while left > 0 {
            let wanted = left.min(BATCH);
            match self.receive_batch(memory, batch, wanted) {
                Ok(count) if count == wanted => left -= count,
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // What was received before is passed on; the error shows again.
                Err(_) if batch.len() > before => break,
                Err(error) => return Err(self.interface.note_failure("receive from", error)),
            }
        }
        Ok(batch.len() - before)
    }

    fn transmit(
        &mut self,
        memory: &mut PacketMemory,
        packets: &mut VecDeque<Packet>,
    ) -> Result<usize, PortError> {
        self.interface.check_gone()?;
        let at_first = packets.len();
        packets.retain(|packet| {
            let sendable = self.interface.could_send(packet, HEADER_BYTES);
            if !sendable {
                self.statistics.tx_invalid += 1;
                memory.give(*packet);
            }
            sendable
        });
        while !packets.is_empty() {
            match self.send_batch(memory, packets) {
                Ok(_) => {}
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    Some(libc::EAGAIN | libc::ENOBUFS) => {
                        self.statistics.tx_full += 1;
                        break;
                    }
                    Some(libc::EINVAL | libc::EMSGSIZE) => {
                        self.statistics.tx_invalid += 1;
                        memory.give(packets.pop_front().expect("the one that was refused"));
                    }
                    _ => return Err(self.interface.note_failure("send to", error)),
                },
            }
        }
        Ok(at_first - packets.len())
    }

    fn flush(&mut self, _memory: &mut PacketMemory) -> Result<(), PortError> {
        self.interface.check_gone()
    }

    fn room(&mut self, _memory: &mut PacketMemory) -> usize {
        BATCH
    }

    fn interest(&mut self, blocked: bool, each: &mut impl FnMut(RawFd, i16)) {
        if !self.interface.is_gone() {
            let events = if blocked { libc::POLLIN | libc::POLLOUT } else { libc::POLLIN };
            each(self.socket.as_raw_fd(), events);
        }
    }

    fn statistics(&mut self) -> Result<PortStatistics, PortError> {
        let dropped = dropped_since(&self.socket)
            .map_err(|error| self.interface.failure("read the counters of", error))?;
        self.statistics.rx_ring_full += dropped;
        Ok(self.statistics)
    }

    of_interface!();

    fn close(self, memory: &mut PacketMemory) {
        drop(self.socket);
        memory.close_account(self.account);
    }
}

fn open_socket(interface: &Interface, config: &PacketPortConfig) -> Result<OwnedFd> {
    // Protocol 0: nothing is received until the socket is bound to its interface.
    // SAFETY: socket takes integers; a descriptor it returns is new and ours alone.
    let socket = unsafe {
        let raw = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
        if raw < 0 {
            return Err(io::Error::last_os_error()).context("cannot open a packet socket");
        }
        OwnedFd::from_raw_fd(raw)
    };
    let on = |option| set_option(&socket, libc::SOL_PACKET, option, &1i32);
    on(libc::PACKET_IGNORE_OUTGOING).context("cannot ignore what goes out (Linux 4.20)")?;
    on(libc::PACKET_VNET_HDR).context("cannot ask for virtio headers")?;
    on(libc::PACKET_AUXDATA).context("cannot ask for VLAN tags")?;
    if !config.shows_what_it_sends {
        on(libc::PACKET_QDISC_BYPASS).context("cannot pass by the queueing discipline")?;
    }
    let buffer =
        |option| set_option(&socket, libc::SOL_SOCKET, option, &config.receive_buffer_bytes);
    buffer(libc::SO_RCVBUFFORCE)
        .or_else(|_| buffer(libc::SO_RCVBUF))
        .context("cannot size the receive buffer")?;
    bind(&socket, interface.index()).context("cannot bind a packet socket")?;
    Ok(socket)
}

/// The VLAN tag that the kernel took out of a frame.
fn vlan_tag(header: &libc::msghdr) -> Option<[u8; 4]> {
    const DEFAULT_TYPE: u16 = 0x8100;
    // SAFETY: the kernel filled the live control buffer that the header names, and its length;
    // the macros stay within that. What they point to may be unaligned and is read as such.
    let metadata: libc::tpacket_auxdata = unsafe {
        let control = libc::CMSG_FIRSTHDR(header);
        let is_ours = !control.is_null()
            && (*control).cmsg_level == libc::SOL_PACKET
            && (*control).cmsg_type == libc::PACKET_AUXDATA
            && (*control).cmsg_len as usize
                >= libc::CMSG_LEN(size_of::<libc::tpacket_auxdata>() as u32) as usize;
        if !is_ours {
            return None;
        }
        libc::CMSG_DATA(control).cast::<libc::tpacket_auxdata>().read_unaligned()
    };
    if metadata.tp_status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let known = metadata.tp_status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
    let [a, b] = if known { metadata.tp_vlan_tpid } else { DEFAULT_TYPE }.to_be_bytes();
    let [c, d] = metadata.tp_vlan_tci.to_be_bytes();
    Some([a, b, c, d])
}

/// How many frames found the socket's buffer full since the last call.
fn dropped_since(socket: &OwnedFd) -> io::Result<u64> {
    // SAFETY: two integers, for which zero is a valid value.
    let mut counted: libc::tpacket_stats = unsafe { zeroed() };
    let mut length = size_of_val(&counted) as libc::socklen_t;
    // SAFETY: the pointer and the length describe the live structure that this option fills.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut counted).cast(),
            &mut length,
        )
    };
    if result == 0 { Ok(counted.tp_drops.into()) } else { Err(io::Error::last_os_error()) }
}
