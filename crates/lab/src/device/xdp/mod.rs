//! A port by AF_XDP: frames pass between the driver and the packet memory by descriptors alone.
//!
//! The way in: our program in the driver hands each frame to the socket of its queue, the kernel
//! takes a chunk from the *fill ring* and puts the frame's descriptor into the *receive ring*. The
//! way out: a descriptor in the *transmit ring*, one system call for a batch, and the chunk comes
//! back in the *completion ring*.
//!
//! Three things have to be right for no frame to be lost without need:
//!
//! * the fill ring is filled up on every receive, before it can run dry, from the port's own
//!   account of the memory, which no other port can empty;
//! * what the transmit ring has no room for stays with the caller;
//! * frames leave by the first queue only, so that they keep their order.

mod mode;
mod program;
mod rings;
mod socket;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

use anyhow::{Context, Result, ensure};

use super::interface::Interface;
use super::memory::{Account, Memory, Packet};
use super::netlink::MacAddress;
use super::partial_checksum::partial_checksum;
use super::port::{ChecksumOffload, PortError, PortIo, PortStatistics};
use super::ring::pending_error;
use mode::attach;
use program::{Program, SocketMap};
use socket::{METADATA_BYTES, Wishes, XdpSocket};

pub use mode::XdpMode;
pub use program::{Attachment, Link};

/// `XDP_TX_METADATA`: in a descriptor, that metadata stands in front of the frame.
const WITH_METADATA: u32 = 1 << 1;
/// `XDP_TXMD_FLAGS_CHECKSUM`: in the metadata, that a checksum is to be filled in.
const FILL_CHECKSUM: u64 = 1 << 1;
/// How many system calls one flush makes at most.
const CALLS_PER_FLUSH: usize = 64;

/// How to open a port by AF_XDP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XdpConfig {
    /// The receive queues to take, each with a socket of its own; frames leave by the first.
    pub queues: Vec<u32>,
    /// Where the program may run.
    pub mode: XdpMode,
    /// Whether to try zero copy first.
    pub zero_copy: bool,
    /// What to do with checksums that a kernel left to its card.
    pub checksum: ChecksumOffload,
    /// The entries of each ring, a power of two from 64 to 32,768.
    pub ring_entries: u32,
    /// How many chunks of the memory are kept for frames that come in here.
    pub reserve: u32,
    /// Polls the driver from our own system calls, for so many microseconds, instead of waiting
    /// for its interrupt. It lowers latency where a core is to spare, and costs throughput where
    /// none is.
    pub busy_poll_us: Option<u32>,
    /// Takes an interface outside of a lab's namespaces as well.
    pub allow_foreign: bool,
}

impl Default for XdpConfig {
    /// Queue 0, natively, zero copy if possible, rings of 2048, as many chunks reserved, asleep
    /// when idle.
    fn default() -> XdpConfig {
        XdpConfig {
            queues: vec![0],
            mode: XdpMode::Native,
            zero_copy: true,
            checksum: ChecksumOffload::AsIs,
            ring_entries: 2048,
            reserve: 2048,
            busy_poll_us: None,
            allow_foreign: false,
        }
    }
}

/// A port by AF_XDP.
pub struct XdpPort {
    // Dropped in this order: the program first, so that no frame goes to a socket that is going.
    link: Option<Link>,
    _map: SocketMap,
    sockets: Vec<XdpSocket>,
    interface: Interface,
    account: Account,
    /// Whose frames to take first next time.
    next_socket: usize,
    partial_checksums: bool,
    /// Something is in the transmit ring that the kernel has not taken.
    unsent: bool,
    /// The kernel would not send because the link is down.
    stalled: bool,
    /// The program slept since the sockets were last asked for errors.
    slept: bool,
    gone: bool,
    statistics: PortStatistics,
    description: String,
}

impl XdpPort {
    /// Opens a port on an interface of the calling thread's namespace.
    ///
    /// # Errors
    ///
    /// When the interface is not there or may not be taken, when the memory has too few chunks or
    /// too small ones for its MTU, when the driver refuses the program, or when somebody else has
    /// a queue or the interface.
    pub fn open(memory: &mut Memory, name: &str, config: &XdpConfig) -> Result<XdpPort> {
        let step = || format!("cannot open an AF_XDP port on {name}");
        let entries = config.ring_entries;
        ensure!(
            entries.is_power_of_two() && (64..=32_768).contains(&entries),
            "rings of {entries} entries: choose a power of two from 64 to 32768"
        );
        ensure!(!config.queues.is_empty(), "an AF_XDP port without a queue receives nothing");
        let interface = Interface::open(name, config.allow_foreign).with_context(step)?;
        ensure!(
            interface.mtu_bytes() + 14 <= u32::from(memory.frame_bytes_max()),
            "{name} has an MTU of {} bytes, and a chunk takes frames of {}: lower the MTU or take \
             chunks of 4096 bytes",
            interface.mtu_bytes(),
            memory.frame_bytes_max()
        );
        let account = memory.open_account(config.reserve).with_context(step)?;
        match XdpPort::assemble(memory, interface, account, config).with_context(step) {
            Ok(port) => Ok(port),
            Err(error) => {
                memory.close_account(account);
                Err(error)
            }
        }
    }

    fn assemble(
        memory: &mut Memory,
        interface: Interface,
        account: Account,
        config: &XdpConfig,
    ) -> Result<XdpPort> {
        let wanted = config.checksum == ChecksumOffload::Partial;
        let wishes = Wishes {
            ring_entries: config.ring_entries,
            zero_copy: config.zero_copy,
            metadata: wanted,
            busy_poll_us: config.busy_poll_us,
        };
        let queues = config.queues.iter().max().expect("at least one queue") + 1;
        let map = SocketMap::new(queues).context("cannot make a map of sockets")?;
        let mut sockets = Vec::new();
        for &queue in &config.queues {
            let mut socket = XdpSocket::open(memory, interface.index(), queue, wishes)?;
            refill(&mut socket, memory, account);
            map.set(queue, &socket.socket).context("cannot enter a socket into its map")?;
            sockets.push(socket);
        }
        let (link, why_generic) = attach(&Program::redirect(&map)?, &interface, config.mode)?;
        // A driver that copies nothing has to do the checksum itself, and would have to be asked
        // whether it can; the kernel's own copy always can.
        let partial_checksums = sockets.iter().all(|socket| socket.metadata && !socket.zero_copy);
        let mut description = match link.attachment() {
            Attachment::Native => "native XDP".to_owned(),
            Attachment::Generic => format!("generic XDP{why_generic}"),
        };
        description += match (sockets.iter().all(|socket| socket.zero_copy), config.zero_copy) {
            (true, _) => ", zero copy",
            (false, true) => ", one copy (the driver refuses zero copy)",
            (false, false) => ", one copy",
        };
        description += match (wanted, partial_checksums) {
            (false, _) => ", checksums as they are",
            (true, true) => ", partial checksums passed on",
            (true, false) => ", checksums as they are (no metadata here): switch tx offload off",
        };
        Ok(XdpPort {
            link: Some(link),
            _map: map,
            sockets,
            interface,
            account,
            next_socket: 0,
            partial_checksums: wanted && partial_checksums,
            unsent: false,
            stalled: false,
            slept: true,
            gone: false,
            statistics: PortStatistics::default(),
            description,
        })
    }

    /// In words what became of the configuration's wishes: where the program runs, whether frames
    /// are copied, what happens to checksums.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Where the program runs.
    pub fn attachment(&self) -> Attachment {
        self.link.as_ref().expect("it is attached until the port is closed").attachment()
    }

    /// Whether partial checksums are passed on.
    pub fn passes_partial_checksums(&self) -> bool {
        self.partial_checksums
    }

    fn gone(&self) -> PortError {
        PortError::Gone { name: self.interface.name().to_owned() }
    }

    /// The error that waits on a socket, if the interface was taken away.
    fn check(&mut self) -> Result<(), PortError> {
        self.slept = false;
        for socket in &self.sockets {
            let code = pending_error(&socket.socket)
                .map_err(|error| self.interface.failure("ask for errors of", error))?;
            if code != 0 {
                let error = io::Error::from_raw_os_error(code);
                let failure = self.interface.failure("receive from", error);
                self.gone = matches!(failure, PortError::Gone { .. });
                return Err(failure);
            }
        }
        Ok(())
    }

    /// Takes back the chunks of what was sent.
    fn reclaim(&mut self, memory: &mut Memory) {
        let socket = &mut self.sockets[0];
        let mut any = false;
        while let Some(address) = socket.completion.pop() {
            memory.finish((address / u64::from(memory.chunk_bytes())) as u32, self.account);
            any = true;
        }
        if any {
            socket.completion.release();
        }
    }

    /// Whether the device could take such a frame at all.
    fn is_sendable(&self, packet: &Packet) -> bool {
        u32::from(packet.offset) >= METADATA_BYTES
            && packet.bytes >= 14
            && u32::from(packet.bytes) <= self.interface.frame_bytes_max()
    }

    /// The descriptor's options for a packet: whether metadata was written in front of it.
    fn announce(&mut self, memory: &mut Memory, packet: &Packet) -> u32 {
        if !self.partial_checksums {
            return 0;
        }
        let Some(found) = partial_checksum(memory.frame(packet)) else {
            return 0;
        };
        let metadata = memory.head_room_mut(packet, METADATA_BYTES as u16);
        metadata[..8].copy_from_slice(&FILL_CHECKSUM.to_ne_bytes());
        metadata[8..10].copy_from_slice(&found.start.to_ne_bytes());
        metadata[10..12].copy_from_slice(&found.offset.to_ne_bytes());
        metadata[12..].fill(0);
        self.statistics.tx_partial_checksum += 1;
        WITH_METADATA
    }
}

impl PortIo for XdpPort {
    fn receive(
        &mut self,
        memory: &mut Memory,
        batch: &mut Vec<Packet>,
        max: usize,
    ) -> Result<usize, PortError> {
        if self.gone {
            return Err(self.gone());
        }
        let before = batch.len();
        let chunk_bytes = u64::from(memory.chunk_bytes());
        let bytes_max = self.interface.frame_bytes_max();
        let mut left = max;
        for _ in 0..self.sockets.len() {
            let number = self.next_socket;
            self.next_socket = (number + 1) % self.sockets.len();
            let socket = &mut self.sockets[number];
            let at_first = left;
            while left > 0
                && let Some(descriptor) = socket.receive.pop()
            {
                left -= 1;
                let buffer = (descriptor.addr / chunk_bytes) as u32;
                memory.recover(buffer, self.account);
                let offset = (descriptor.addr % chunk_bytes) as u16;
                let packet = Packet { buffer, offset, bytes: descriptor.len as u16 };
                if descriptor.len > bytes_max {
                    self.statistics.rx_oversize += 1;
                    memory.give(packet);
                    continue;
                }
                self.statistics.rx_bytes += u64::from(descriptor.len);
                batch.push(packet);
            }
            if left < at_first {
                socket.receive.release();
            }
            refill(socket, memory, self.account);
        }
        if left == max && self.slept {
            self.check()?;
        }
        let count = batch.len() - before;
        self.statistics.rx_packets += count as u64;
        Ok(count)
    }

    fn transmit(
        &mut self,
        memory: &mut Memory,
        packets: &mut VecDeque<Packet>,
    ) -> Result<usize, PortError> {
        if self.gone {
            return Err(self.gone());
        }
        if packets.is_empty() {
            return Ok(0);
        }
        let room = self.room(memory).min(packets.len());
        for packet in packets.drain(..room) {
            if !self.is_sendable(&packet) {
                self.statistics.tx_invalid += 1;
                memory.give(packet);
                continue;
            }
            let options = self.announce(memory, &packet);
            memory.lend(&packet, self.account);
            let start = u64::from(packet.buffer) * u64::from(memory.chunk_bytes());
            self.sockets[0].transmit.push(libc::xdp_desc {
                addr: start + u64::from(packet.offset),
                len: u32::from(packet.bytes),
                options,
            });
            self.statistics.tx_packets += 1;
            self.statistics.tx_bytes += u64::from(packet.bytes);
        }
        self.sockets[0].transmit.publish();
        self.unsent = true;
        self.statistics.tx_full += u64::from(!packets.is_empty());
        Ok(room)
    }

    fn flush(&mut self, memory: &mut Memory) -> Result<(), PortError> {
        if self.gone {
            return Err(self.gone());
        }
        let mut outcome = Ok(());
        if self.unsent {
            outcome = self.send();
        }
        self.reclaim(memory);
        self.stalled = matches!(outcome, Err(PortError::Down { .. }));
        self.gone = matches!(outcome, Err(PortError::Gone { .. }));
        outcome
    }

    fn room(&mut self, memory: &mut Memory) -> usize {
        self.reclaim(memory);
        self.sockets[0].transmit.room(u32::MAX) as usize
    }

    fn interest(&mut self, blocked: bool, each: &mut impl FnMut(RawFd, i16)) {
        self.slept = true;
        if self.gone {
            return;
        }
        for (number, socket) in self.sockets.iter().enumerate() {
            // A link that is down has no room by and by: whoever waits for it tries again.
            let sends = number == 0 && (blocked || self.unsent) && !self.stalled;
            let events = if sends { libc::POLLIN | libc::POLLOUT } else { libc::POLLIN };
            each(socket.socket.as_raw_fd(), events);
        }
    }

    fn statistics(&mut self) -> Result<PortStatistics, PortError> {
        let mut sum = self.statistics;
        for socket in &self.sockets {
            let counted = socket
                .statistics()
                .map_err(|error| self.interface.failure("read the counters of", error))?;
            sum.rx_dropped += counted.rx_dropped;
            sum.rx_invalid += counted.rx_invalid_descs;
            sum.tx_invalid += counted.tx_invalid_descs;
            sum.rx_ring_full += counted.rx_ring_full;
            sum.rx_fill_empty += counted.rx_fill_ring_empty_descs;
        }
        Ok(sum)
    }

    fn name(&self) -> &str {
        self.interface.name()
    }

    fn mac(&self) -> MacAddress {
        self.interface.mac()
    }

    fn mtu_bytes(&self) -> u32 {
        self.interface.mtu_bytes()
    }

    fn link_is_up(&self) -> Result<bool, PortError> {
        self.interface.is_up()
    }

    fn close(mut self, memory: &mut Memory) {
        self.link = None;
        self.sockets.clear();
        memory.close_account(self.account);
    }
}

impl XdpPort {
    /// Calls the kernel until it has taken everything, or will not.
    fn send(&mut self) -> Result<(), PortError> {
        let socket = &mut self.sockets[0];
        for _ in 0..CALLS_PER_FLUSH {
            if !socket.transmit.needs_wakeup() {
                break;
            }
            match socket.wake_transmit() {
                Ok(()) => break,
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => {}
                    // The device's own queue is full: what is left waits for the next flush.
                    Some(libc::EBUSY | libc::ENOBUFS) => break,
                    _ => return Err(self.interface.failure("send to", error)),
                },
            }
        }
        self.unsent = !socket.transmit.is_drained();
        Ok(())
    }
}

/// Fills the fill ring as far as the account allows.
fn refill(socket: &mut XdpSocket, memory: &mut Memory, account: Account) {
    // Nothing is written for a handful of chunks: the kernel reads the counter's line each time.
    const WORTH_WHILE: u32 = 16;
    let room = socket.fill.room(WORTH_WHILE);
    if room < WORTH_WHILE {
        return;
    }
    for _ in 0..room {
        let Some(chunk) = memory.supply(account) else { break };
        socket.fill.push(u64::from(chunk) * u64::from(memory.chunk_bytes()));
    }
    socket.fill.publish();
    socket.wake_receive();
}
