//! The ways into an AF_XDP port: by a program in the driver and the sockets of its queues, or by the
//! traffic control hook.

use anyhow::{Context, Result, ensure};

use super::super::interface::Interface;
use super::super::memory::{MemoryUser, Packet, PacketMemory};
use super::super::offload::{driver, receive_queues};
use super::super::tcx::Intake;
use super::mode::{XdpMode, attach};
use super::program::{Attachment, Link, Program, SocketMap};
use super::socket::XdpSocket;
use super::{XdpConfig, XdpPort};

/// How frames come in.
pub(super) enum WayIn {
    /// By the sockets.
    Driver {
        /// The program's attachment.
        link: Link,
        /// Which socket has which queue.
        _map: SocketMap,
        /// The socket from which to take frames first next time.
        next_socket: usize,
    },
    /// By the hook.
    Hook(Box<Intake>),
}

impl WayIn {
    /// Opens the way in that the configuration's mode selects, and returns its description. Frames
    /// that arrive by sockets find chunks from the first on.
    pub(super) fn open(
        interface: &Interface,
        sockets: &mut [XdpSocket],
        (memory, account): (&mut PacketMemory, MemoryUser),
        config: &XdpConfig,
    ) -> Result<(WayIn, String)> {
        let mut why_driver = String::new();
        if config.mode == XdpMode::Fitting && driver(interface.name())? == "veth" {
            let flow_offload = config.flow_offload.as_ref();
            match Intake::open(interface, config.ring_entries, flow_offload, config.steers) {
                Ok(intake) => {
                    return Ok((WayIn::Hook(Box::new(intake)), "traffic control hook".to_owned()));
                }
                Err(why) => why_driver = format!(" ({why:#})"),
            }
        }
        let (name, there) = (interface.name(), receive_queues(interface.name())?);
        ensure!(
            (0..there).all(|queue| config.queues.contains(&queue)),
            "{name} receives by {there} queues, and what comes by others than {:?} would be left out: \
             ethtool -L {name} combined 1, or rx 1 where none are combined{why_driver}",
            config.queues
        );
        let queues = config.queues.iter().max().expect("at least one queue") + 1;
        let map = SocketMap::new(queues).context("cannot make a map of sockets")?;
        for (&queue, socket) in config.queues.iter().zip(sockets) {
            refill(socket, memory, account);
            map.set(queue, &socket.socket).context("cannot enter a socket into its map")?;
        }
        let (link, why_generic) = attach(&Program::redirect(&map)?, interface, config.mode)
            .with_context(|| format!("cannot attach a program to the driver{why_driver}"))?;
        let description = match link.attachment() {
            Attachment::Native => format!("native XDP{why_driver}"),
            Attachment::Generic => format!("generic XDP{why_generic}"),
        };
        Ok((WayIn::Driver { link, _map: map, next_socket: 0 }, description))
    }

    /// Where the XDP program runs, if there is one.
    pub(super) fn attachment(&self) -> Option<Attachment> {
        match self {
            WayIn::Driver { link, .. } => Some(link.attachment()),
            WayIn::Hook(_) => None,
        }
    }
}

impl XdpPort {
    /// Appends at most `max` frames that have arrived to `batch`.
    pub(super) fn take(&mut self, memory: &mut PacketMemory, batch: &mut Vec<Packet>, max: usize) {
        let count = self.sockets.len();
        let first = match self.way_in.as_mut().expect("it is there until the port is closed") {
            WayIn::Hook(intake) => {
                self.statistics.rx_bytes += intake.receive(memory, self.account, batch, max);
                return;
            }
            WayIn::Driver { next_socket, .. } => {
                let next = (*next_socket + 1) % count;
                std::mem::replace(next_socket, next)
            }
        };
        let mut left = max;
        for number in 0..count {
            left -= self.take_from((first + number) % count, memory, batch, left);
        }
    }

    /// Takes at most `max` frames of a socket; returns how many there were, including refused ones.
    fn take_from(
        &mut self,
        number: usize,
        memory: &mut PacketMemory,
        batch: &mut Vec<Packet>,
        max: usize,
    ) -> usize {
        let chunk_bytes = u64::from(memory.chunk_bytes());
        let bytes_max = self.interface.frame_bytes_max();
        let socket = &mut self.sockets[number];
        let mut count = 0;
        while count < max
            && let Some(descriptor) = socket.receive.pop()
        {
            count += 1;
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
        if count > 0 {
            socket.receive.release();
        }
        refill(socket, memory, self.account);
        count
    }
}

/// Fills the fill ring as far as the account allows.
fn refill(socket: &mut XdpSocket, memory: &mut PacketMemory, account: MemoryUser) {
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
