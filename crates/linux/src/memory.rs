//! The packet memory of a router: one mapping cut into chunks, shared by all of its ports.
//!
//! A frame is written once, by the port that receives it, and read once, by the port that sends it.
//! Between the two only its descriptor moves ([`Packet`], eight bytes). AF_XDP requires memory of
//! this shape (a UMEM), and the other kinds of port can use it, so all of them share it.
//!
//! # The owner of a chunk
//!
//! Each chunk is *free*, *held* by the program, or *lent* to a port, whose device may write to it
//! at any time. The memory keeps account: a frame can be accessed only while its chunk is held, a
//! chunk given back twice is caught at once, and at any moment free + held + lent is the number of
//! chunks ([`PacketMemory::census`]). What a port had lent comes back when it is closed.
//!
//! # How much a port may use
//!
//! A port lives by its fill ring: chunks that the device may receive into. If chunks went to the
//! first taker, one busy port with a long queue would take all of them, and a quiet one would lose
//! its next packet for lack of a chunk. So each port has an *account*. A chunk is booked on the
//! account of the port that received into it until it is given back, wherever the packet goes
//! meanwhile. An account may always use its reserve; beyond that it draws on what is not reserved,
//! as long as there is some. With the reserves of all accounts no more than the chunks, a chunk
//! within the reserve is always there: every account that uses more than its reserve has taken the
//! difference from the common part. This is the shared buffer of a switch chip, and costs two
//! additions per chunk.
//!
//! # Head-room
//!
//! A received frame begins at least [`HEAD_ROOM_BYTES`] behind its chunk's beginning. Headers of a
//! tunnel can be put in front of it, and what some devices need to know about a frame that is
//! sent (24 bytes of AF_XDP metadata, 10 bytes of virtio header) fits there as well.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};

use super::flow_offload::Mark;
use super::mapping::Mapping;

/// The least space before a received frame, in bytes (`XDP_PACKET_HEADROOM`).
pub const HEAD_ROOM_BYTES: u16 = 256;

/// How much memory a router's packets have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryConfig {
    /// The size of a chunk: 2048, for frames of up to 1792 bytes, or 4096, for 3840.
    pub chunk_bytes: u32,
    /// How many chunks, 64 to 1,048,576.
    pub chunks: u32,
    /// How many chunks only [`PacketMemory::take`] may use.
    pub reserve: u32,
}

impl Default for MemoryConfig {
    /// 64 MiB: 16,384 chunks of 4096 bytes, 64 of them for the program's own packets.
    fn default() -> MemoryConfig {
        MemoryConfig { chunk_bytes: 4096, chunks: 16_384, reserve: 64 }
    }
}

/// A frame in the memory: a descriptor that moves while the frame stays.
pub use nilometer_router::memory::Place as Packet;

/// A chunk that its holder has to [give](PacketMemory::give) back.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a chunk that is not given back is lost"]
pub struct Buffer(u32);

impl Buffer {
    /// A frame of `bytes` in this chunk, behind the usual head-room.
    pub fn packet(self, bytes: u16) -> Packet {
        Packet { buffer: self.0, offset: HEAD_ROOM_BYTES, bytes }
    }
}

impl From<Packet> for Buffer {
    fn from(packet: Packet) -> Buffer {
        Buffer(packet.buffer)
    }
}

/// Where all chunks are at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Census {
    /// Chunks that are free.
    pub free: u32,
    /// Chunks that the program holds: received packets that were neither sent nor given back.
    pub held: u32,
    /// Chunks lent to the devices: to receive into, or being sent.
    pub lent: u32,
}

/// A user of the memory, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MemoryUser(u8);

impl MemoryUser {
    /// The program itself.
    const PROGRAM: MemoryUser = MemoryUser(0);
}

#[derive(Debug, Clone, Copy, Default)]
struct Ledger {
    open: bool,
    reserve: u32,
    used: u32,
}

impl Ledger {
    fn beyond_reserve(&self) -> u32 {
        self.used.saturating_sub(self.reserve)
    }
}

/// The state of a chunk; from [`LENT`] on, the account of the port that has it follows.
const FREE: u8 = 0;
const HELD: u8 = 1;
const LENT: u8 = 2;

/// The packet memory of one router, for one thread at a time.
pub struct PacketMemory {
    mapping: Mapping,
    identity: u64,
    chunk_bytes: u32,
    free: Vec<u32>,
    /// For each chunk whether it is free, held or lent, and to which port.
    owner: Vec<u8>,
    /// For each chunk that is not free, the account on which it is booked.
    booked_on: Vec<u8>,
    /// Of each chunk the mark of the packet in it, or zero.
    marks: Vec<Mark>,
    /// Marks of packets whose chunks were given back.
    unmarked: Vec<Mark>,
    ledgers: Vec<Ledger>,
    /// Chunks that no account has reserved and none uses.
    common_free: u32,
    lent: u32,
}

impl PacketMemory {
    /// Maps the memory and touches all of it, so that no page is missing later.
    pub fn new(config: MemoryConfig) -> Result<PacketMemory> {
        let MemoryConfig { chunk_bytes, chunks, reserve } = config;
        ensure!(
            matches!(chunk_bytes, 2048 | 4096),
            "chunks of {chunk_bytes} bytes: choose 2048 or 4096"
        );
        ensure!((64..=1 << 20).contains(&chunks), "{chunks} chunks: choose 64 to 1048576");
        ensure!(reserve <= chunks, "a reserve of {reserve} chunks out of {chunks}: choose less");
        let bytes = chunk_bytes as usize * chunks as usize;
        let mapping = Mapping::new(bytes)
            .with_context(|| format!("cannot map {bytes} bytes of packet memory"))?;
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Ok(PacketMemory {
            mapping,
            identity: NEXT.fetch_add(1, Ordering::Relaxed),
            chunk_bytes,
            // The last one in is the first one out: it is the likeliest to be in the cache.
            free: (0..chunks).rev().collect(),
            owner: vec![FREE; chunks as usize],
            booked_on: vec![0; chunks as usize],
            marks: vec![0; chunks as usize],
            unmarked: Vec::new(),
            ledgers: vec![Ledger { open: true, reserve, used: 0 }],
            common_free: chunks - reserve,
            lent: 0,
        })
    }

    /// A chunk for a packet of the program's own; `None` when its reserve and the common part are
    /// used up.
    pub fn take(&mut self) -> Option<Buffer> {
        self.book(MemoryUser::PROGRAM, HELD).map(Buffer)
    }

    /// Takes a chunk back, or the chunk of a packet.
    ///
    /// # Panics
    ///
    /// When the chunk is not held: it was given back already, or a port has it.
    pub fn give(&mut self, buffer: impl Into<Buffer>) {
        self.release(buffer.into().0, HELD);
    }

    /// The bytes of a frame.
    ///
    /// # Panics
    ///
    /// When its chunk is not held, or when it would leave the chunk.
    pub fn frame(&self, packet: &Packet) -> &[u8] {
        let start = self.locate(packet, 0);
        // SAFETY: `locate` found the bytes within the mapping, in a chunk that the program holds,
        // so no device writes to it; any writer would need exclusive access to the memory.
        unsafe { std::slice::from_raw_parts(start, usize::from(packet.bytes)) }
    }

    /// The bytes of a frame, to change.
    ///
    /// # Panics
    ///
    /// As [`PacketMemory::frame`].
    pub fn frame_mut(&mut self, packet: &Packet) -> &mut [u8] {
        let start = self.locate(packet, 0);
        // SAFETY: as in `frame`; the exclusive borrow of the memory is one of every chunk.
        unsafe { std::slice::from_raw_parts_mut(start, usize::from(packet.bytes)) }
    }

    /// Where a frame would lie, held or not: for a prefetch, not to be read.
    pub fn whereabouts(&self, packet: &Packet) -> *const u8 {
        let chunk = packet.buffer as usize * self.chunk_bytes as usize;
        self.mapping.start.as_ptr().wrapping_add(chunk + usize::from(packet.offset))
    }

    /// The greatest frame that a chunk takes behind the usual head-room, in bytes.
    pub fn frame_bytes_max(&self) -> u16 {
        self.chunk_bytes as u16 - HEAD_ROOM_BYTES
    }

    /// The size of a chunk, in bytes.
    pub fn chunk_bytes(&self) -> u32 {
        self.chunk_bytes
    }

    /// Where all chunks are.
    pub fn census(&self) -> Census {
        let free = self.free.len() as u32;
        Census { free, held: self.owner.len() as u32 - free - self.lent, lent: self.lent }
    }

    /// A new account with a reserve, which must still be there.
    pub(super) fn open_account(&mut self, reserve: u32) -> Result<MemoryUser> {
        ensure!(
            reserve <= self.common_free,
            "a port needs {reserve} chunks of its own and {} are left: give the memory more \
             chunks, or the port a smaller reserve",
            self.common_free
        );
        let unused = self.ledgers.iter().position(|ledger| !ledger.open && ledger.used == 0);
        let number = unused.unwrap_or(self.ledgers.len());
        ensure!(number < usize::from(u8::MAX - LENT), "a memory serves at most 252 ports");
        self.ledgers.resize(self.ledgers.len().max(number + 1), Ledger::default());
        self.ledgers[number] = Ledger { open: true, reserve, used: 0 };
        self.common_free -= reserve;
        Ok(MemoryUser(number as u8))
    }

    /// Takes back what a port was lent, whose device uses none of it any more, and its reserve.
    pub(super) fn close_account(&mut self, account: MemoryUser) {
        let lent = LENT + account.0;
        for chunk in 0..self.owner.len() {
            if self.owner[chunk] == lent {
                self.release(chunk as u32, lent);
            }
        }
        let ledger = &mut self.ledgers[usize::from(account.0)];
        self.common_free += ledger.reserve - ledger.used.min(ledger.reserve);
        (ledger.open, ledger.reserve) = (false, 0);
    }

    /// Lends a free chunk to a port, to receive into.
    pub(super) fn supply(&mut self, account: MemoryUser) -> Option<u32> {
        let chunk = self.book(account, LENT + account.0)?;
        self.lent += 1;
        Some(chunk)
    }

    /// Lends a packet that the program holds to a port, to send.
    pub(super) fn lend(&mut self, packet: &Packet, account: MemoryUser) {
        self.locate(packet, 0);
        self.owner[packet.buffer as usize] = LENT + account.0;
        self.lent += 1;
    }

    /// Takes a chunk from a port whose device has received into it; the program holds it now.
    pub(super) fn recover(&mut self, chunk: u32, account: MemoryUser) {
        let owner = &mut self.owner[chunk as usize];
        assert_eq!(*owner, LENT + account.0, "chunk {chunk} was not lent to this port");
        *owner = HELD;
        self.lent -= 1;
    }

    /// Takes a chunk from a port whose device has sent it; it is free now.
    pub(super) fn finish(&mut self, chunk: u32, account: MemoryUser) {
        self.release(chunk, LENT + account.0);
    }

    /// The `bytes` in front of a frame that the program holds.
    pub(super) fn head_room_mut(&mut self, packet: &Packet, bytes: u16) -> &mut [u8] {
        let start = self.locate(packet, bytes);
        // SAFETY: as in `frame_mut`; the bytes begin where `locate` says.
        unsafe { std::slice::from_raw_parts_mut(start, usize::from(bytes)) }
    }

    /// Where a chunk begins, for the kernel to write to; the port that passes it on has been lent it.
    pub(super) fn chunk_address(&self, chunk: u32) -> *mut u8 {
        assert!((chunk as usize) < self.owner.len(), "chunk {chunk} does not exist");
        // SAFETY: the chunk exists, so its beginning lies within the mapping.
        unsafe { self.mapping.start.as_ptr().add(chunk as usize * self.chunk_bytes as usize) }
    }

    /// The whole memory, to be registered with the kernel: its address and its bytes.
    pub(super) fn region(&self) -> (*mut u8, usize) {
        (self.mapping.start.as_ptr(), self.mapping.bytes)
    }

    /// A number that no other memory of this process has.
    pub(super) fn identity(&self) -> u64 {
        self.identity
    }

    /// Marks a packet until its chunk is given back, by any holder.
    pub(super) fn mark(&mut self, packet: &Packet, mark: Mark) {
        self.marks[packet.buffer as usize] = mark;
    }

    /// The mark of a packet, or zero.
    pub fn mark_of(&self, packet: &Packet) -> Mark {
        self.marks[packet.buffer as usize]
    }

    /// A packet with this mark, unless it is zero, has no chunk any more, or never had.
    pub(super) fn unmarked(&mut self, mark: Mark) {
        if mark != 0 {
            self.unmarked.push(mark);
        }
    }

    /// Marks of packets whose chunks were given back since the last call.
    pub fn take_unmarked(&mut self) -> std::vec::Drain<'_, Mark> {
        self.unmarked.drain(..)
    }

    /// Finds the bytes of a held frame, with `before` bytes in front of it.
    fn locate(&self, packet: &Packet, before: u16) -> *mut u8 {
        let Packet { buffer, offset, bytes } = *packet;
        assert_eq!(self.owner.get(buffer as usize), Some(&HELD), "{packet:?} is not held");
        let end = u32::from(offset) + u32::from(bytes);
        assert!(before <= offset && end <= self.chunk_bytes, "{packet:?} leaves its chunk");
        // SAFETY: chunk and offset were checked, so the sum lies within the mapping.
        unsafe { self.chunk_address(buffer).add(usize::from(offset - before)) }
    }

    fn book(&mut self, account: MemoryUser, owner: u8) -> Option<u32> {
        let ledger = &mut self.ledgers[usize::from(account.0)];
        if ledger.used >= ledger.reserve {
            self.common_free = self.common_free.checked_sub(1)?;
        }
        ledger.used += 1;
        let chunk = self.free.pop().expect("what is reserved or common is free");
        self.owner[chunk as usize] = owner;
        self.booked_on[chunk as usize] = account.0;
        Some(chunk)
    }

    fn release(&mut self, chunk: u32, owner: u8) {
        let found = self.owner.get(chunk as usize).copied();
        assert_eq!(found, Some(owner), "chunk {chunk} is not its giver's to give");
        self.lent -= u32::from(owner >= LENT);
        self.owner[chunk as usize] = FREE;
        let mark = std::mem::take(&mut self.marks[chunk as usize]);
        self.unmarked(mark);
        let ledger = &mut self.ledgers[usize::from(self.booked_on[chunk as usize])];
        self.common_free += u32::from(ledger.beyond_reserve() > 0);
        ledger.used -= 1;
        self.free.push(chunk);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_stat::Rng;

    fn memory(chunks: u32, reserve: u32) -> PacketMemory {
        PacketMemory::new(MemoryConfig { chunk_bytes: 2048, chunks, reserve })
            .expect("a small memory")
    }

    /// What each account uses and reserved, kept by scanning.
    fn common_free_by_scanning(memory: &PacketMemory) -> u32 {
        let mut used = vec![0; memory.ledgers.len()];
        for (chunk, &owner) in memory.owner.iter().enumerate() {
            if owner != FREE {
                used[usize::from(memory.booked_on[chunk])] += 1u32;
            }
        }
        let bound: u32 = memory.ledgers.iter().zip(&used).map(|(l, &u)| l.reserve.max(u)).sum();
        memory.owner.len() as u32 - bound
    }

    #[test]
    fn a_reserve_is_available_under_any_load_of_others() {
        let mut memory = memory(100, 10);
        let (greedy, quiet) = (memory.open_account(20).unwrap(), memory.open_account(30).unwrap());
        assert_eq!(std::iter::from_fn(|| memory.supply(greedy)).count(), 20 + 40);
        assert_eq!(std::iter::from_fn(|| memory.take()).count(), 10);
        assert_eq!(std::iter::from_fn(|| memory.supply(quiet)).count(), 30);
        assert_eq!(memory.census(), Census { free: 0, held: 10, lent: 90 });
        assert!(memory.open_account(1).is_err());
        memory.close_account(greedy);
        memory.close_account(quiet);
        assert_eq!(memory.census(), Census { free: 90, held: 10, lent: 0 });
    }

    #[test]
    fn the_books_agree_with_a_scan_after_every_step() {
        let mut rng = Rng::new(7, 1, 0);
        let mut memory = memory(64, 4);
        let accounts = [memory.open_account(8).unwrap(), memory.open_account(16).unwrap()];
        let (mut held, mut lent): (Vec<Packet>, Vec<(u32, MemoryUser)>) = (Vec::new(), Vec::new());
        for _ in 0..20_000 {
            let account = accounts[(rng.next_u64() % 2) as usize];
            let at = rng.next_u64() as usize;
            match rng.next_u64() % 6 {
                0 => held.extend(memory.take().map(|buffer| buffer.packet(60))),
                1 => lent.extend(memory.supply(account).map(|chunk| (chunk, account))),
                2 if !held.is_empty() => memory.give(held.swap_remove(at % held.len())),
                3 if !held.is_empty() => {
                    let packet = held.swap_remove(at % held.len());
                    memory.lend(&packet, account);
                    lent.push((packet.buffer, account));
                }
                4 if !lent.is_empty() => {
                    let (chunk, account) = lent.swap_remove(at % lent.len());
                    memory.recover(chunk, account);
                    held.push(Buffer(chunk).packet(60));
                }
                5 if !lent.is_empty() => {
                    let (chunk, account) = lent.swap_remove(at % lent.len());
                    memory.finish(chunk, account);
                }
                _ => {}
            }
            let census = memory.census();
            assert_eq!((census.held, census.lent), (held.len() as u32, lent.len() as u32));
            assert_eq!(census.free + census.held + census.lent, 64);
            assert_eq!(memory.common_free, common_free_by_scanning(&memory));
        }
        for account in accounts {
            memory.close_account(account);
            assert_eq!(memory.common_free, common_free_by_scanning(&memory));
        }
    }

    #[test]
    fn frames_keep_to_their_chunks() {
        let mut memory = memory(64, 64);
        let packets: Vec<Packet> =
            std::iter::from_fn(|| memory.take()).map(|buffer| buffer.packet(1792)).collect();
        assert_eq!((packets.len(), memory.frame_bytes_max()), (64, 1792));
        for packet in &packets {
            memory.frame_mut(packet).fill(packet.buffer as u8);
            memory.head_room_mut(packet, 24).fill(!packet.buffer as u8);
        }
        for packet in &packets {
            assert!(memory.frame(packet).iter().all(|&byte| byte == packet.buffer as u8));
        }
    }

    #[test]
    #[should_panic(expected = "not its giver's")]
    fn a_chunk_given_twice_is_caught() {
        let mut memory = memory(64, 64);
        let packet = memory.take().unwrap().packet(60);
        memory.give(packet);
        memory.give(packet);
    }

    #[test]
    #[should_panic(expected = "not held")]
    fn a_frame_that_a_device_may_write_to_cannot_be_read() {
        let mut memory = memory(64, 0);
        let account = memory.open_account(8).unwrap();
        let chunk = memory.supply(account).unwrap();
        memory.frame(&Buffer(chunk).packet(60));
    }

    #[test]
    #[should_panic(expected = "leaves its chunk")]
    fn a_frame_cannot_leave_its_chunk() {
        let mut memory = memory(64, 64);
        let packet = memory.take().unwrap().packet(1793);
        memory.frame_mut(&packet);
    }
}
