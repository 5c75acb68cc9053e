//! A port on a wire within the process: two ends that pass descriptors through bounded rings.
//!
//! It is the port for tests and for measuring a router without a kernel around it. Both ends share
//! one packet memory, nothing is copied, and a full ring leaves the rest with its sender, like any
//! other device. A sleeping end is woken through a descriptor, and one that does not sleep costs no system
//! call.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, ensure};

use super::memory::{Packet, PacketMemory};
use super::netlink::MacAddress;
use super::port_io::{PortError, PortIo, PortStatistics};

/// One direction of the wire.
struct Lane {
    packets: Mutex<VecDeque<Packet>>,
    ring_entries: usize,
    /// Becomes readable when its reader sleeps and something has arrived.
    wakes_reader: OwnedFd,
    reader_sleeps: AtomicBool,
    /// Becomes readable when its writer waits for room and some was made.
    wakes_writer: OwnedFd,
    writer_sleeps: AtomicBool,
}

impl Lane {
    fn new(ring_entries: usize) -> io::Result<Lane> {
        Ok(Lane {
            packets: Mutex::new(VecDeque::with_capacity(ring_entries)),
            ring_entries,
            wakes_reader: event_descriptor()?,
            reader_sleeps: AtomicBool::new(false),
            wakes_writer: event_descriptor()?,
            writer_sleeps: AtomicBool::new(false),
        })
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Packet>> {
        // A panic elsewhere leaves a list of descriptors that is still a list of descriptors.
        self.packets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One end of a wire.
pub struct MemoryPort {
    name: String,
    mac: MacAddress,
    mtu_bytes: u32,
    memory: u64,
    incoming: Arc<Lane>,
    outgoing: Arc<Lane>,
    is_up: Arc<AtomicBool>,
    statistics: PortStatistics,
}

impl MemoryPort {
    /// A wire with room for `ring_entries` packets, 1 to 65,536, in each direction. Its ends are
    /// called `name-0` and `name-1` and have Ethernet addresses that end in 0 and 1.
    ///
    /// # Errors
    ///
    /// When the ring's size is out of its range, or when the process has no descriptors left.
    pub fn pair(memory: &PacketMemory, name: &str, ring_entries: usize) -> Result<[MemoryPort; 2]> {
        ensure!(
            (1..=65_536).contains(&ring_entries),
            "a wire with room for {ring_entries} packets: choose 1 to 65536"
        );
        let lane = || Lane::new(ring_entries).context("cannot make a wire in memory").map(Arc::new);
        let (there, back) = (lane()?, lane()?);
        let is_up = Arc::new(AtomicBool::new(true));
        let end = |number: u8, incoming: &Arc<Lane>, outgoing: &Arc<Lane>| MemoryPort {
            name: format!("{name}-{number}"),
            mac: [2, 0, 0, 0, 0, number],
            mtu_bytes: u32::from(memory.frame_bytes_max()) - 14 - 8,
            memory: memory.identity(),
            incoming: Arc::clone(incoming),
            outgoing: Arc::clone(outgoing),
            is_up: Arc::clone(&is_up),
            statistics: PortStatistics::default(),
        };
        Ok([end(0, &back, &there), end(1, &there, &back)])
    }

    /// Takes the wire down or up again; what is on it stays there.
    pub fn set_link(&self, up: bool) {
        self.is_up.store(up, Ordering::Release);
    }

    fn check(&self, memory: &PacketMemory) -> Result<(), PortError> {
        assert_eq!(memory.identity(), self.memory, "{} belongs to another memory", self.name);
        match self.is_up.load(Ordering::Acquire) {
            true => Ok(()),
            false => Err(PortError::Down { name: self.name.clone() }),
        }
    }
}

impl PortIo for MemoryPort {
    fn receive(
        &mut self,
        memory: &mut PacketMemory,
        batch: &mut Vec<Packet>,
        max: usize,
    ) -> Result<usize, PortError> {
        self.check(memory)?;
        if self.incoming.reader_sleeps.swap(false, Ordering::AcqRel) {
            reset(&self.incoming.wakes_reader);
        }
        let mut waiting = self.incoming.lock();
        let count = waiting.len().min(max);
        for packet in waiting.drain(..count) {
            self.statistics.rx_bytes += u64::from(packet.bytes);
            batch.push(packet);
        }
        drop(waiting);
        if count > 0 && self.incoming.writer_sleeps.swap(false, Ordering::AcqRel) {
            signal(&self.incoming.wakes_writer);
        }
        self.statistics.rx_packets += count as u64;
        Ok(count)
    }

    fn transmit(
        &mut self,
        memory: &mut PacketMemory,
        packets: &mut VecDeque<Packet>,
    ) -> Result<usize, PortError> {
        self.check(memory)?;
        let mut waiting = self.outgoing.lock();
        let count = (self.outgoing.ring_entries - waiting.len()).min(packets.len());
        for packet in packets.drain(..count) {
            self.statistics.tx_bytes += u64::from(packet.bytes);
            waiting.push_back(packet);
        }
        self.statistics.tx_packets += count as u64;
        self.statistics.tx_full += u64::from(!packets.is_empty());
        Ok(count)
    }

    fn flush(&mut self, memory: &mut PacketMemory) -> Result<(), PortError> {
        self.check(memory)?;
        if self.outgoing.reader_sleeps.load(Ordering::Acquire) && !self.outgoing.lock().is_empty() {
            signal(&self.outgoing.wakes_reader);
        }
        Ok(())
    }

    fn room(&mut self, _memory: &mut PacketMemory) -> usize {
        self.outgoing.ring_entries - self.outgoing.lock().len()
    }

    fn interest(&mut self, blocked: bool, each: &mut impl FnMut(RawFd, i16)) {
        self.incoming.reader_sleeps.store(true, Ordering::Release);
        if !self.incoming.lock().is_empty() {
            signal(&self.incoming.wakes_reader);
        }
        each(self.incoming.wakes_reader.as_raw_fd(), libc::POLLIN);
        if blocked {
            reset(&self.outgoing.wakes_writer);
            self.outgoing.writer_sleeps.store(true, Ordering::Release);
            if self.outgoing.lock().len() < self.outgoing.ring_entries {
                signal(&self.outgoing.wakes_writer);
            }
            each(self.outgoing.wakes_writer.as_raw_fd(), libc::POLLIN);
        }
    }

    fn statistics(&mut self) -> Result<PortStatistics, PortError> {
        Ok(self.statistics)
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn mac(&self) -> MacAddress {
        self.mac
    }

    fn mtu_bytes(&self) -> u32 {
        self.mtu_bytes
    }

    fn link_is_up(&self) -> Result<bool, PortError> {
        Ok(self.is_up.load(Ordering::Acquire))
    }

    /// Takes the wire down, and gives back what was still to be received at this end.
    fn close(self, memory: &mut PacketMemory) {
        self.set_link(false);
        for packet in self.incoming.lock().drain(..) {
            memory.give(packet);
        }
    }
}

fn event_descriptor() -> io::Result<OwnedFd> {
    // SAFETY: eventfd takes integers; a descriptor it returns is new and ours alone.
    unsafe {
        let raw = libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC);
        if raw < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(raw)) }
    }
}

fn signal(event: &OwnedFd) {
    let one = 1u64.to_ne_bytes();
    // SAFETY: eight live bytes are passed. It fails only when 2^64 - 2 signals wait already.
    unsafe { libc::write(event.as_raw_fd(), one.as_ptr().cast(), one.len()) };
}

fn reset(event: &OwnedFd) {
    let mut count = [0u8; 8];
    // SAFETY: eight live bytes are passed. It fails only when there is nothing to reset.
    unsafe { libc::read(event.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
}
