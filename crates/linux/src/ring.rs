//! A packet ring: every frame that enters or leaves one interface, stamped by the kernel.
//!
//! The ring is an AF_PACKET socket with a TPACKET_V3 receive ring: memory shared with the kernel,
//! cut into blocks. The kernel fills a block with frames, then releases it to the reader by setting
//! a bit of the block's status word; it does so when the block is full or, so that a trickle of
//! frames is not kept back, when the block has been open for `retire_ms`. The reader loads the
//! status word (acquire), walks the frames, and gives the block back by clearing the word
//! (release). A frame that finds no free block is lost and counted ([`Ring::statistics`]).
//!
//! So a ring has two limits on how long its reader may stay away: `blocks × block_bytes` of
//! frames when traffic is fast, and `blocks × retire_ms` of time when it is slow, because a block
//! that was given out early holds little and is taken all the same.
//!
//! # What the stamps mean
//!
//! Nanoseconds of CLOCK_REALTIME since 1970, taken by software:
//!
//! * of a frame that leaves, where the kernel passes it to the interface's driver
//!   (`dev_queue_xmit_nit`, behind the queueing discipline);
//! * of a frame that comes in, where the driver passes it to the kernel (`netif_rx`). A packet
//!   socket alone would stamp it later, when the backlog's soft interrupt gets to it; a socket with
//!   SO_TIMESTAMPNS makes the kernel stamp all frames on arrival, so the ring sets it.
//!   [`StampedFrame::stamped_on_arrival`] shows for each frame which of the two it was: the option
//!   takes effect a moment after the ring was opened.
//!
//! On a veth, `netif_rx` is called by the sender, so the stamp of a frame's arrival at one end
//! follows its departure from the other by the cost of the driver alone.
//!
//! # What a frame looks like
//!
//! It begins with its link header. A VLAN tag that the kernel took out of the frame is not put
//! back; on a veth tags stay in the frame. Frames not addressed to the host are seen where the
//! interface gets them at all: the ring does not make it promiscuous.

use std::ffi::CString;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, bail, ensure};

use crate::mapping::{Mapping, READ_WRITE};

/// How much a ring holds and how soon it delivers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RingConfig {
    /// The size of a block: a power of two times the page size, 64 KiB to 64 MiB; a frame takes
    /// its own length and some 80 bytes in it.
    pub block_bytes: u32,
    /// How many blocks, 2 to 4096.
    pub blocks: u32,
    /// How long a block that is not full stays open, in milliseconds, 1 to 1000.
    pub retire_ms: u32,
    /// Keep only this many leading bytes of each frame (at least 14), or all.
    pub snap_bytes: Option<u32>,
}

impl Default for RingConfig {
    /// 64 MiB in 256 blocks, given out after 10 ms at the latest (so the reader may stay away for
    /// 2.5 s of slow traffic), whole frames.
    fn default() -> RingConfig {
        RingConfig { block_bytes: 1 << 18, blocks: 256, retire_ms: 10, snap_bytes: None }
    }
}

impl RingConfig {
    /// The default, resized to hold about `ring_bytes`: 512 KiB to 1 GiB.
    pub fn of_bytes(ring_bytes: u64) -> RingConfig {
        let block_bytes = RingConfig::default().block_bytes;
        let blocks = (ring_bytes / u64::from(block_bytes)).clamp(2, 4096) as u32;
        RingConfig { blocks, ..RingConfig::default() }
    }

    fn check(&self) -> Result<()> {
        let RingConfig { block_bytes, blocks, retire_ms, snap_bytes } = *self;
        ensure!(
            block_bytes.is_power_of_two() && (1 << 16..=1 << 26).contains(&block_bytes),
            "a ring's block of {block_bytes} bytes: choose a power of two from 64 KiB to 64 MiB"
        );
        ensure!((2..=4096).contains(&blocks), "a ring of {blocks} blocks: choose 2 to 4096");
        ensure!((1..=1000).contains(&retire_ms), "retire_ms = {retire_ms}: choose 1 to 1000");
        ensure!(snap_bytes.is_none_or(|snap| snap >= 14), "snap_bytes: choose at least 14");
        Ok(())
    }
}

/// One frame as the ring saw it.
#[derive(Debug, Clone, Copy)]
pub struct StampedFrame<'a> {
    /// When, in nanoseconds of CLOCK_REALTIME since 1970.
    pub stamp_ns: u64,
    /// Whether the frame was leaving through the interface rather than coming in.
    pub outgoing: bool,
    /// How long the frame was on the link, from the link header on, without the check sequence.
    pub original_bytes: u32,
    /// The frame from the link header on; shorter than the original where the ring snaps.
    pub frame: &'a [u8],
    /// The transport checksum is still to be filled in by an offload: its bytes mean nothing.
    pub partial_checksum: bool,
    /// The stamp was taken on arrival or departure, not when the packet socket got its turn.
    pub stamped_on_arrival: bool,
}

/// What a ring was offered since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RingStatistics {
    /// Frames that passed the interface, those that were lost included.
    pub packets: u64,
    /// Frames lost because every block was full.
    pub dropped: u64,
    /// How often the ring ran full.
    pub freezes: u64,
}

/// A packet ring on one interface; opened in a namespace, usable on any thread.
pub struct Ring {
    socket: OwnedFd,
    memory: Mapping,
    block_bytes: usize,
    blocks: usize,
    next_block: usize,
    statistics: RingStatistics,
}

impl Ring {
    /// Opens a ring on an interface of the calling thread's namespace, up or still down.
    pub fn open(interface: &str, config: RingConfig) -> Result<Ring> {
        config.check()?;
        let step = |what: &str| format!("cannot {what} the packet ring on {interface}");
        let name = CString::new(interface).with_context(|| step("name"))?;
        // SAFETY: the name ends in a zero byte.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        if index == 0 {
            return Err(io::Error::last_os_error()).with_context(|| step("find"));
        }
        // Protocol 0: nothing is received until the socket is bound to its interface.
        // SAFETY: socket takes integers; a descriptor it returns is new and ours alone.
        let socket = unsafe {
            let raw = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
            if raw < 0 {
                return Err(io::Error::last_os_error()).with_context(|| step("open"));
            }
            OwnedFd::from_raw_fd(raw)
        };
        prepare(&socket, &config).with_context(|| step("size"))?;
        let bytes = config.block_bytes as usize * config.blocks as usize;
        let memory = Mapping::shared(&socket, 0, bytes, READ_WRITE).with_context(|| step("map"))?;
        bind(&socket, index).with_context(|| step("bind"))?;
        Ok(Ring {
            socket,
            memory,
            block_bytes: config.block_bytes as usize,
            blocks: config.blocks as usize,
            next_block: 0,
            statistics: RingStatistics::default(),
        })
    }

    /// Waits until there are frames to drain, at most `timeout_ms`; whether there are.
    pub fn poll(&mut self, timeout_ms: u32) -> Result<bool> {
        if self.ready() {
            return Ok(true);
        }
        let timeout = timeout_ms.min(i32::MAX as u32) as i32;
        let mut poll = libc::pollfd {
            fd: self.socket.as_raw_fd(),
            events: libc::POLLIN | libc::POLLERR,
            revents: 0,
        };
        // SAFETY: one live pollfd is passed with the count 1.
        let count = unsafe { libc::poll(&mut poll, 1, timeout) };
        if count < 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error).context("waiting for a packet ring failed");
            }
        }
        if poll.revents & libc::POLLERR != 0 {
            match pending_error(&self.socket)? {
                // The interface is down, as at first, or went down: it may come up again.
                0 | libc::ENETDOWN => {}
                libc::ENODEV => bail!("the interface of a packet ring is gone"),
                code => {
                    let error = io::Error::from_raw_os_error(code);
                    return Err(error).context("a packet ring failed");
                }
            }
        }
        Ok(self.ready())
    }

    /// The interface's hardware type (`ARPHRD_…`), which determines how its frames begin.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn hardware_type(&self) -> Result<u16> {
        // SAFETY: integers and an array, for which zero is a valid value.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        let mut length = size_of_val(&address) as libc::socklen_t;
        // SAFETY: the pointer and the length describe the live address that is filled.
        let result = unsafe {
            let address = (&raw mut address).cast();
            libc::getsockname(self.socket.as_raw_fd(), address, &mut length)
        };
        if result != 0 {
            return Err(io::Error::last_os_error()).context("cannot tell a ring's interface");
        }
        Ok(address.sll_hatype)
    }

    /// Passes every frame of the blocks that are ready to `each`, in the order in which the kernel
    /// took them; returns how many there were.
    pub fn drain(&mut self, mut each: impl FnMut(StampedFrame<'_>)) -> usize {
        let mut count = 0;
        // One round at most, so that a ring that fills as fast as it is read returns at times.
        for _ in 0..self.blocks {
            if !self.ready() {
                break;
            }
            count += walk(self.block(), &mut each);
            self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
            self.next_block = (self.next_block + 1) % self.blocks;
        }
        count
    }

    /// What the ring was offered and what it lost so far. To compare with what was drained, first
    /// let the traffic end, wait for `retire_ms` and drain.
    pub fn statistics(&mut self) -> Result<RingStatistics> {
        // SAFETY: three integers, for which zero is a valid value.
        let mut fresh: libc::tpacket_stats_v3 = unsafe { std::mem::zeroed() };
        let mut length = size_of_val(&fresh) as libc::socklen_t;
        // SAFETY: the pointer and the length describe the live structure that this option of a
        // TPACKET_V3 socket fills.
        let result = unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut fresh).cast(),
                &mut length,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error()).context("cannot read a ring's statistics");
        }
        // The kernel counts from the last reading on.
        self.statistics.packets += u64::from(fresh.tp_packets);
        self.statistics.dropped += u64::from(fresh.tp_drops);
        self.statistics.freezes += u64::from(fresh.tp_freeze_q_cnt);
        Ok(self.statistics)
    }

    fn ready(&self) -> bool {
        self.status().load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// The status word of the next block.
    fn status(&self) -> &AtomicU32 {
        const STATUS: usize = offset_of!(libc::tpacket_block_desc, hdr)
            + offset_of!(libc::tpacket_hdr_v1, block_status);
        // SAFETY: the block lies within the mapping, the word at a multiple of four bytes; both
        // sides change it only as a whole, and the mapping lives as long as `self`.
        unsafe {
            let block = self.memory.start.as_ptr().add(self.next_block * self.block_bytes);
            AtomicU32::from_ptr(block.add(STATUS).cast())
        }
    }

    /// The next block, which must be ready.
    fn block(&self) -> &[u8] {
        // SAFETY: the block lies within the mapping. Its status word was read with acquire and
        // says that it is ours; the kernel does not write to it until it is released, which
        // `drain` does after the last use of this slice.
        unsafe {
            let block = self.memory.start.as_ptr().add(self.next_block * self.block_bytes);
            std::slice::from_raw_parts(block, self.block_bytes)
        }
    }
}

impl AsFd for Ring {
    /// For waiting with epoll or poll: readable when there are frames to drain.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Walks the frames of one block; returns how many there were.
fn walk(block: &[u8], each: &mut impl FnMut(StampedFrame<'_>)) -> usize {
    const HEADER: usize = offset_of!(libc::tpacket_block_desc, hdr);
    let count = word(block, HEADER + offset_of!(libc::tpacket_hdr_v1, num_pkts));
    let mut at = word(block, HEADER + offset_of!(libc::tpacket_hdr_v1, offset_to_first_pkt));
    for _ in 0..count {
        let packet = &block[at as usize..];
        each(seen(packet));
        at += word(packet, offset_of!(libc::tpacket3_hdr, tp_next_offset));
    }
    count as usize
}

/// The frame whose header stands at the beginning of `packet`.
fn seen(packet: &[u8]) -> StampedFrame<'_> {
    // The address stands behind the header, aligned (TPACKET3_HDRLEN).
    const ADDRESS: usize = size_of::<libc::tpacket3_hdr>().next_multiple_of(16);
    const PACKET_TYPE: usize = ADDRESS + offset_of!(libc::sockaddr_ll, sll_pkttype);
    let field = |offset| word(packet, offset);
    let seconds = u64::from(field(offset_of!(libc::tpacket3_hdr, tp_sec)));
    let nanoseconds = u64::from(field(offset_of!(libc::tpacket3_hdr, tp_nsec)));
    let status = field(offset_of!(libc::tpacket3_hdr, tp_status));
    let kept = field(offset_of!(libc::tpacket3_hdr, tp_snaplen)) as usize;
    let mac = offset_of!(libc::tpacket3_hdr, tp_mac);
    let start = usize::from(u16::from_ne_bytes([packet[mac], packet[mac + 1]]));
    StampedFrame {
        stamp_ns: seconds * 1_000_000_000 + nanoseconds,
        outgoing: packet[PACKET_TYPE] == libc::PACKET_OUTGOING,
        original_bytes: field(offset_of!(libc::tpacket3_hdr, tp_len)),
        frame: &packet[start..start + kept],
        partial_checksum: status & libc::TP_STATUS_CSUMNOTREADY != 0,
        stamped_on_arrival: status & libc::TP_STATUS_TS_SOFTWARE != 0,
    }
}

fn word(bytes: &[u8], offset: usize) -> u32 {
    let word: [u8; 4] = bytes[offset..offset + 4].try_into().expect("four bytes");
    u32::from_ne_bytes(word)
}

/// Sets the socket's options: stamps on arrival, the filter that snaps, version and ring.
fn prepare(socket: &OwnedFd, config: &RingConfig) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1i32)?;
    if let Some(snap_bytes) = config.snap_bytes {
        // A filter of one instruction: accept each packet, keep this many bytes.
        let code = (libc::BPF_RET | libc::BPF_K) as u16;
        let mut accept = libc::sock_filter { code, jt: 0, jf: 0, k: snap_bytes };
        let program = libc::sock_fprog { len: 1, filter: &mut accept };
        set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)?;
    }
    let version = libc::tpacket_versions::TPACKET_V3 as i32;
    set_option(socket, libc::SOL_PACKET, libc::PACKET_VERSION, &version)?;
    // In version 3 frames lie in a block as they come; their size is only checked for sense.
    let frame_bytes = 2048;
    let request = libc::tpacket_req3 {
        tp_block_size: config.block_bytes,
        tp_block_nr: config.blocks,
        tp_frame_size: frame_bytes,
        tp_frame_nr: config.block_bytes / frame_bytes * config.blocks,
        tp_retire_blk_tov: config.retire_ms,
        tp_sizeof_priv: 0,
        tp_feature_req_word: 0,
    };
    set_option(socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request)
}

pub(super) fn bind(socket: &OwnedFd, index: u32) -> io::Result<()> {
    // SAFETY: integers and an array, for which zero is a valid value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as i32;
    let length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the pointer and the length are those of a live address of the socket's family.
    let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // Bound to an interface that is down, the socket has an error waiting; it starts to receive
    // by itself when the interface comes up.
    match pending_error(socket)? {
        0 | libc::ENETDOWN => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

/// Takes the pending error of a socket; 0 if there is none.
pub(super) fn pending_error(socket: &OwnedFd) -> io::Result<i32> {
    let mut code: libc::c_int = 0;
    let mut length = size_of_val(&code) as libc::socklen_t;
    // SAFETY: the pointer and the length describe the live integer that SO_ERROR fills.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ERROR,
            (&raw mut code).cast(),
            &mut length,
        )
    };
    if result == 0 { Ok(code) } else { Err(io::Error::last_os_error()) }
}

pub(super) fn set_option<T>(
    socket: &OwnedFd,
    level: i32,
    option: i32,
    value: &T,
) -> io::Result<()> {
    let length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the pointer and the length are those of a live value; the callers pass the type
    // that the option asks for.
    let result = unsafe {
        let value: *const T = value;
        libc::setsockopt(socket.as_raw_fd(), level, option, value.cast(), length)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
