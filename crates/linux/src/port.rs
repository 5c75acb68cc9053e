//! A port: an interface of any kind, by which a router receives and sends frames.
//!
//! The kinds of port are the variants of [`AnyPort`], so that a loop over unlike ports needs no
//! virtual calls and a loop over like ones can name their type. Their common operations are
//! [`PortIo`].

use std::collections::VecDeque;
use std::os::fd::RawFd;

use super::memory::{Packet, PacketMemory};
use super::memory_port::MemoryPort;
use super::netlink::MacAddress;
use super::packet_port::PacketPort;
pub use super::port_io::{ChecksumOffload, PortError, PortIo, PortStatistics, wait, wait_with};
use super::tap::TapPort;
use super::xdp::XdpPort;

/// A port of any kind.
pub enum AnyPort {
    /// AF_XDP.
    Xdp(XdpPort),
    /// AF_PACKET.
    Packet(PacketPort),
    /// An interface of our own that the kernel sees the other side of.
    Tap(TapPort),
    /// One end of a wire within the process.
    Memory(MemoryPort),
}

impl AnyPort {
    /// The number of the interface that frames leave by, if it is one of the kernel's.
    pub fn interface_index(&self) -> Option<u32> {
        match self {
            AnyPort::Xdp(port) => Some(port.interface_index()),
            AnyPort::Packet(port) => Some(port.interface_index()),
            AnyPort::Tap(_) | AnyPort::Memory(_) => None,
        }
    }
}

/// Calls the same operation on any kind of port.
macro_rules! whichever {
    ($port:expr, $inner:ident => $call:expr) => {
        match $port {
            AnyPort::Xdp($inner) => $call,
            AnyPort::Packet($inner) => $call,
            AnyPort::Tap($inner) => $call,
            AnyPort::Memory($inner) => $call,
        }
    };
}

impl PortIo for AnyPort {
    fn receive(
        &mut self,
        memory: &mut PacketMemory,
        batch: &mut Vec<Packet>,
        max: usize,
    ) -> Result<usize, PortError> {
        whichever!(self, port => port.receive(memory, batch, max))
    }

    fn transmit(
        &mut self,
        memory: &mut PacketMemory,
        packets: &mut VecDeque<Packet>,
    ) -> Result<usize, PortError> {
        whichever!(self, port => port.transmit(memory, packets))
    }

    fn flush(&mut self, memory: &mut PacketMemory) -> Result<(), PortError> {
        whichever!(self, port => port.flush(memory))
    }

    fn room(&mut self, memory: &mut PacketMemory) -> usize {
        whichever!(self, port => port.room(memory))
    }

    fn sending(&self) -> u32 {
        whichever!(self, port => port.sending())
    }

    fn interest(&mut self, blocked: bool, each: &mut impl FnMut(RawFd, i16)) {
        whichever!(self, port => port.interest(blocked, each))
    }

    fn statistics(&mut self) -> Result<PortStatistics, PortError> {
        whichever!(self, port => port.statistics())
    }

    fn name(&self) -> &str {
        whichever!(self, port => port.name())
    }

    fn mac(&self) -> MacAddress {
        whichever!(self, port => port.mac())
    }

    fn mtu_bytes(&self) -> u32 {
        whichever!(self, port => port.mtu_bytes())
    }

    fn link_is_up(&self) -> Result<bool, PortError> {
        whichever!(self, port => port.link_is_up())
    }

    fn close(self, memory: &mut PacketMemory) {
        whichever!(self, port => port.close(memory))
    }
}
