//! A port by TAP: an interface of our own, whose other side is the kernel's network stack.
//!
//! What the port transmits, the kernel receives on the interface, and the other way about. So a
//! router passes to the kernel what it does not forward itself (ARP, ping, the sessions of a
//! routing daemon) on one TAP per port, and the kernel answers there. The interface disappears with
//! the port.
//!
//! Each frame takes a system call of its own. Before each stands a virtio header, by which partial
//! checksums are passed on ([`ChecksumOffload`]); segmentation offload stays off, so no frame is
//! longer than the MTU.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

use anyhow::{Context, Result, ensure};

use super::interface::{self, Interface};
use super::memory::{HEAD_ROOM_BYTES, MemoryUser, Packet, PacketMemory};
use super::netlink::MacAddress;
use super::port_io::{ChecksumOffload, PortError, PortIo, PortStatistics, of_interface};
use super::virtio_header::{self, HEADER_BYTES};

/// `IFF_TUN_EXCL`: an interface of the name must not exist.
const EXCLUSIVELY: libc::c_int = 0x8000;
/// `TUNSETCARRIER`.
const SET_CARRIER: libc::Ioctl = 0x4004_54e2;
/// `TUN_F_CSUM`: we can take packets whose checksum is still to be filled in.
const CHECKSUMS_OPEN: libc::c_ulong = 1;
/// How many frames [`TapPort::room`] suggests to try at once.
const BATCH: usize = 64;

/// The interface to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TapConfig {
    /// Its name, at most 15 bytes; no other interface may have it.
    pub name: String,
    /// The Ethernet address of the kernel's side.
    pub mac: MacAddress,
    /// The greatest IP packet that it carries, in bytes.
    pub mtu_bytes: u32,
    /// What to do with checksums that a kernel left to its card.
    pub checksum: ChecksumOffload,
    /// How many chunks of the memory are reserved for frames that arrive here, at least 1.
    pub reserve: u32,
}

/// A port by TAP.
pub struct TapPort {
    file: File,
    interface: Interface,
    account: MemoryUser,
    /// The chunk for the next frame.
    laid_out: Option<u32>,
    partial_checksums: bool,
    statistics: PortStatistics,
}

impl TapPort {
    /// Makes the interface in the calling thread's namespace and takes it up.
    ///
    /// # Errors
    ///
    /// When the name is taken, when the kernel has no TAP, or when the memory has too few chunks
    /// or too small ones.
    pub fn create(memory: &mut PacketMemory, config: &TapConfig) -> Result<TapPort> {
        let TapConfig { name, mac, mtu_bytes, checksum, reserve } = config;
        let step = || format!("cannot create the TAP interface {name}");
        ensure!(
            mtu_bytes + 14 + 8 <= u32::from(memory.frame_bytes_max()),
            "an MTU of {mtu_bytes} bytes: a chunk takes frames of {}",
            memory.frame_bytes_max()
        );
        ensure!(*reserve >= 1, "a TAP port needs a reserve of at least one chunk");
        let partial_checksums = *checksum == ChecksumOffload::Partial;
        let file = attach(name, partial_checksums).with_context(step)?;
        // It was made just now and has no other owner.
        let mut interface = Interface::open(name, true)?;
        interface.configure(*mac, *mtu_bytes).with_context(step)?;
        Ok(TapPort {
            file,
            interface,
            account: memory.open_account(*reserve).with_context(step)?,
            laid_out: None,
            partial_checksums,
            statistics: PortStatistics::default(),
        })
    }

    /// Sets or clears the carrier on the kernel's side, so that programs there notice the state of the
    /// port's link.
    ///
    /// # Errors
    /// When the kernel cannot (before 5.0), or the interface is gone.
    pub fn set_carrier(&self, is_up: bool) -> Result<(), PortError> {
        let carrier = libc::c_int::from(is_up);
        // SAFETY: the request reads one integer, which lives until it returns.
        let result = unsafe { libc::ioctl(self.file.as_raw_fd(), SET_CARRIER, &carrier) };
        match result {
            0.. => Ok(()),
            _ => Err(self.interface.failure("set the carrier", io::Error::last_os_error())),
        }
    }

    /// Reads one frame; `None` if there is none, or no chunk for it.
    fn read(&mut self, memory: &mut PacketMemory) -> io::Result<Option<Packet>> {
        let Some(chunk) = self.laid_out.take().or_else(|| memory.supply(self.account)) else {
            return Ok(None);
        };
        let before = usize::from(HEAD_ROOM_BYTES - HEADER_BYTES);
        let room = memory.chunk_bytes() as usize - before;
        // SAFETY: the bytes lie within the chunk, which is lent to this port, so that no other code holds
        // a reference into it.
        let read = unsafe {
            let start = memory.chunk_address(chunk).add(before);
            libc::read(self.file.as_raw_fd(), start.cast(), room)
        };
        if read < 0 {
            self.laid_out = Some(chunk);
            let error = io::Error::last_os_error();
            return match error.kind() {
                ErrorKind::WouldBlock => Ok(None),
                _ => Err(error),
            };
        }
        memory.recover(chunk, self.account);
        let bytes = (read as usize).min(room).saturating_sub(HEADER_BYTES.into()) as u16;
        Ok(Some(Packet { buffer: chunk, offset: HEAD_ROOM_BYTES, bytes }))
    }

    fn write(&mut self, memory: &mut PacketMemory, packet: &Packet) -> io::Result<()> {
        let (header, partial) =
            virtio_header::for_frame(memory.frame(packet), self.partial_checksums);
        let head_room = memory.head_room_mut(packet, HEADER_BYTES);
        head_room.copy_from_slice(&header);
        let (start, bytes) = (head_room.as_ptr(), usize::from(HEADER_BYTES + packet.bytes));
        // SAFETY: header and frame lie side by side in a chunk that the program holds.
        let written = unsafe { libc::write(self.file.as_raw_fd(), start.cast(), bytes) };
        if written < 0 {
            return Err(io::Error::last_os_error());
        }
        self.statistics.tx_partial_checksum += u64::from(partial);
        Ok(())
    }
}

impl PortIo for TapPort {
    fn receive(
        &mut self,
        memory: &mut PacketMemory,
        batch: &mut Vec<Packet>,
        max: usize,
    ) -> Result<usize, PortError> {
        self.interface.check_gone()?;
        let before = batch.len();
        for _ in 0..max {
            let packet = match self.read(memory) {
                Ok(Some(packet)) => packet,
                Ok(None) => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                // What was received before is passed on; the error shows again.
                Err(_) if batch.len() > before => break,
                Err(error) => return Err(self.interface.note_failure("receive from", error)),
            };
            let metadata = virtio_header::read(memory.head_room_mut(&packet, HEADER_BYTES));
            let too_long = u32::from(packet.bytes) > self.interface.frame_bytes_max();
            if too_long || metadata.is_unsegmented {
                self.statistics.rx_oversize += 1;
                memory.give(packet);
                continue;
            }
            self.statistics.rx_partial_checksum += u64::from(metadata.needs_checksum);
            self.statistics.rx_packets += 1;
            self.statistics.rx_bytes += u64::from(packet.bytes);
            batch.push(packet);
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
        while let Some(packet) = packets.front().copied() {
            let written = match self.interface.could_send(&packet, HEADER_BYTES) {
                true => self.write(memory, &packet),
                false => Err(io::Error::from_raw_os_error(libc::EINVAL)),
            };
            match written {
                Ok(()) => {
                    self.statistics.tx_packets += 1;
                    self.statistics.tx_bytes += u64::from(packet.bytes);
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => continue,
                    Some(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM) => {
                        self.statistics.tx_full += 1;
                        break;
                    }
                    Some(libc::EINVAL | libc::EMSGSIZE) => self.statistics.tx_invalid += 1,
                    _ => return Err(self.interface.note_failure("send to", error)),
                },
            }
            packets.pop_front();
            memory.give(packet);
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
            each(self.file.as_raw_fd(), events);
        }
    }

    fn statistics(&mut self) -> Result<PortStatistics, PortError> {
        Ok(self.statistics)
    }

    of_interface!();

    fn close(self, memory: &mut PacketMemory) {
        drop(self.file);
        memory.close_account(self.account);
    }
}

/// Makes the interface; it lives as long as the descriptor.
fn attach(name: &str, checksums_open: bool) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open("/dev/net/tun")?;
    let mut request = interface::named(name)?;
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | EXCLUSIVELY;
    request.ifr_ifru.ifru_flags = flags as libc::c_short;
    // SAFETY: the ifreq is live and of the size that the request expects.
    if unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let offloads = if checksums_open { CHECKSUMS_OPEN } else { 0 };
    // SAFETY: the request takes an integer.
    if unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD, offloads) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(file)
}
