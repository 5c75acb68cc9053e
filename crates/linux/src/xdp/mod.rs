//! A port by AF_XDP: frames pass between the driver and the packet memory by descriptors alone.
//!
//! The way in: our program in the driver passes each frame to the socket of its queue, the kernel
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
//!
//! On a veth both ways may go around the sockets, where that is cheaper: in by the traffic control hook
//! (`tcx`), out in batches (`batch`).

mod batch;
mod mode;
mod program;
mod receiving;
mod rings;
mod sending;
mod socket;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, RawFd};

use anyhow::{Context, Result, ensure};

use super::flow_offload::FlowOffload;
use super::interface::Interface;
use super::memory::{MemoryUser, Packet, PacketMemory};
use super::netlink::MacAddress;
use super::port_io::{ChecksumOffload, PortError, PortIo, PortStatistics, of_interface};
use super::ring::pending_error;
use batch::WORTH_WHILE;
use receiving::WayIn;
use socket::{Wishes, XdpSocket};

pub(crate) use batch::BatchSender;
pub use mode::XdpMode;
pub use program::{Attachment, Link};
pub(crate) use program::{PROG_TYPE_XDP, Program};

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
    /// How many chunks of the memory are reserved for frames that arrive here.
    pub reserve: u32,
    /// Polls the driver from our own system calls, for this many microseconds, instead of waiting
    /// for its interrupt. It lowers latency if there is a core to spare, and costs throughput
    /// otherwise.
    pub busy_poll_us: Option<u32>,
    /// Takes an interface outside of a lab's namespaces as well.
    pub allow_foreign: bool,
    /// The flows that may take a shortcut if the way in supports it, and the number of this port in the
    /// router. The receiver then has to take the packets' marks from the memory.
    pub flow_offload: Option<(FlowOffload, u16)>,
    /// Where the sending processor would handle the input (on a veth), lets only one handle it, so that
    /// packets of several processors keep their order.
    pub steers: bool,
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
            flow_offload: None,
            steers: true,
        }
    }
}

/// A port by AF_XDP.
pub struct XdpPort {
    // Dropped in this order: the program first, so that no frame goes to a socket that is going.
    way_in: Option<WayIn>,
    sockets: Vec<XdpSocket>,
    /// Sends many frames in a call, if the driver would copy them one by one.
    batches: Option<BatchSender>,
    interface: Interface,
    account: MemoryUser,
    partial_checksums: bool,
    /// Packets that the kernel has taken and not given back.
    sending: u32,
    /// Something is in the transmit ring that the kernel has not taken.
    unsent: bool,
    /// The kernel would not send because the link is down.
    stalled: bool,
    /// The program slept since the sockets were last checked for errors.
    slept: bool,
    statistics: PortStatistics,
    description: String,
}

impl XdpPort {
    /// Opens a port on an interface of the calling thread's namespace.
    ///
    /// # Errors
    ///
    /// When the interface is not there or may not be taken, when the memory has too few chunks or
    /// too small ones for its MTU, when the driver refuses the program, or when another program
    /// uses a queue or the interface.
    pub fn open(memory: &mut PacketMemory, name: &str, config: &XdpConfig) -> Result<XdpPort> {
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
        memory: &mut PacketMemory,
        interface: Interface,
        account: MemoryUser,
        config: &XdpConfig,
    ) -> Result<XdpPort> {
        let wanted = config.checksum == ChecksumOffload::Partial;
        let wishes = Wishes {
            ring_entries: config.ring_entries,
            zero_copy: config.zero_copy,
            metadata: wanted,
            busy_poll_us: config.busy_poll_us,
        };
        let mut sockets = Vec::new();
        for &queue in &config.queues {
            sockets.push(XdpSocket::open(memory, interface.index(), queue, wishes)?);
        }
        let (way_in, mut description) =
            WayIn::open(&interface, &mut sockets, (memory, account), config)?;
        // A driver that copies nothing has to do the checksum itself, and may not support that; the
        // kernel's own copy always does.
        let partial_checksums = sockets.iter().all(|socket| socket.metadata && !socket.zero_copy);
        description += match (sockets.iter().all(|socket| socket.zero_copy), config.zero_copy) {
            (true, _) => ", zero copy",
            (false, true) => ", one copy (the driver refuses zero copy)",
            (false, false) => ", one copy",
        };
        let is_generic = way_in.attachment() == Some(Attachment::Generic);
        let batches = match sockets[0].zero_copy || is_generic {
            true => None,
            // A kernel without this sends one by one, and the description does not mention it.
            false => BatchSender::new(interface.index()).ok(),
        };
        description += match &batches {
            Some(_) => ", sent in batches",
            None => "",
        };
        description += match (wanted, partial_checksums) {
            (false, _) => ", checksums as they are",
            (true, true) => ", partial checksums passed on",
            (true, false) => ", checksums as they are (no metadata here): switch tx offload off",
        };
        Ok(XdpPort {
            way_in: Some(way_in),
            sockets,
            batches,
            interface,
            account,
            partial_checksums: wanted && partial_checksums,
            sending: 0,
            unsent: false,
            stalled: false,
            slept: true,
            statistics: PortStatistics::default(),
            description,
        })
    }

    /// How the configuration was applied, in words: where the program runs, whether frames are
    /// copied, what happens to checksums.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// The number of its interface.
    pub fn interface_index(&self) -> u32 {
        self.interface.index()
    }

    /// Where the XDP program runs, if frames come in by one.
    pub fn attachment(&self) -> Option<Attachment> {
        self.way_in.as_ref().expect("it is there until the port is closed").attachment()
    }

    /// Whether partial checksums are passed on.
    pub fn passes_partial_checksums(&self) -> bool {
        self.partial_checksums
    }

    /// The error that waits on a socket, if the interface was taken away.
    fn check(&mut self) -> Result<(), PortError> {
        self.slept = false;
        for socket in &self.sockets {
            let code = pending_error(&socket.socket)
                .map_err(|error| self.interface.failure("ask for errors of", error))?;
            if code != 0 {
                let error = io::Error::from_raw_os_error(code);
                return Err(self.interface.note_failure("receive from", error));
            }
        }
        Ok(())
    }

    /// Takes back the chunks of what was sent.
    fn reclaim(&mut self, memory: &mut PacketMemory) {
        let socket = &mut self.sockets[0];
        let mut any = false;
        while let Some(address) = socket.completion.pop() {
            memory.finish((address / u64::from(memory.chunk_bytes())) as u32, self.account);
            self.sending -= 1;
            any = true;
        }
        if any {
            socket.completion.release();
        }
    }
}

impl PortIo for XdpPort {
    fn receive(
        &mut self,
        memory: &mut PacketMemory,
        batch: &mut Vec<Packet>,
        max: usize,
    ) -> Result<usize, PortError> {
        self.interface.check_gone()?;
        let before = batch.len();
        self.take(memory, batch, max);
        let count = batch.len() - before;
        if count == 0 && self.slept {
            self.check()?;
        }
        self.statistics.rx_packets += count as u64;
        Ok(count)
    }

    fn transmit(
        &mut self,
        memory: &mut PacketMemory,
        packets: &mut VecDeque<Packet>,
    ) -> Result<usize, PortError> {
        self.interface.check_gone()?;
        if packets.is_empty() {
            return Ok(0);
        }
        let count = self.room(memory).min(packets.len());
        // Frames queued before go first.
        let mut outcome = Ok(count);
        if !self.unsent && count >= WORTH_WHILE && self.has_batches() {
            outcome = self.transmit_batches(memory, packets, count).map(|()| count);
        } else {
            self.transmit_one_by_one(memory, packets, count);
        }
        self.statistics.tx_full += u64::from(!packets.is_empty());
        outcome
    }

    fn flush(&mut self, memory: &mut PacketMemory) -> Result<(), PortError> {
        self.interface.check_gone()?;
        let mut outcome = Ok(());
        if self.unsent {
            outcome = self.send();
        }
        self.reclaim(memory);
        self.stalled = matches!(outcome, Err(PortError::Down { .. }));
        outcome
    }

    fn room(&mut self, memory: &mut PacketMemory) -> usize {
        self.reclaim(memory);
        self.sockets[0].transmit.room(u32::MAX) as usize
    }

    fn sending(&self) -> u32 {
        self.sending
    }

    fn interest(&mut self, blocked: bool, each: &mut impl FnMut(RawFd, i16)) {
        self.slept = true;
        if self.interface.is_gone() {
            return;
        }
        if let Some(WayIn::Hook(intake)) = &mut self.way_in {
            // A socket that has room to send is ready at once, and so prevents sleeping.
            match intake.fall_asleep() {
                Some(bell) => each(bell, libc::POLLIN),
                None => each(self.sockets[0].socket.as_raw_fd(), libc::POLLOUT),
            }
        }
        for (number, socket) in self.sockets.iter().enumerate() {
            // A link that is down never signals room: the caller tries again.
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
        if let Some(WayIn::Hook(intake)) = &self.way_in {
            let lost = intake.lost();
            sum.rx_ring_full += lost.ring_full;
            sum.rx_fill_empty += lost.no_chunk;
            sum.rx_oversize += lost.oversize;
            sum.rx_invalid += lost.unreadable;
        }
        Ok(sum)
    }

    of_interface!();

    fn close(mut self, memory: &mut PacketMemory) {
        self.way_in = None;
        self.sockets.clear();
        memory.close_account(self.account);
    }
}
