//! An AF_XDP socket on one receive queue: the memory registered, four rings mapped, bound.
//!
//! Every socket registers the whole packet memory for itself and has rings of its own. The kernel
//! also has sockets that share one registration (`XDP_SHARED_UMEM`), but they depend on the first
//! of them: when its interface is removed, the others' memory goes, too. Registered twice, the same
//! pages are pinned twice and counted, not copied; a frame received through one socket is sent
//! through another by its address all the same, and each port may come and go, and have the
//! kernel's metadata or not, independently.
//!
//! Zero copy is tried first: the card reads and writes the chunks itself. Where the driver cannot,
//! the kernel copies each frame once.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::super::memory::PacketMemory;
use super::super::ring::set_option;
use super::program::{BUSY_FOR_AT_MOST, BUSY_PAUSE};
use super::rings::{Consumer, Producer};

/// What can be given to a socket about a frame that it sends, in front of the frame
/// (`struct xsk_tx_metadata`): flags, then where the checksum starts and stands, then times.
pub(super) const METADATA_BYTES: u16 = 24;
/// How many frames one system call sends at most, if the kernel lets us choose (Linux 6.17); it is
/// 32 otherwise.
const FRAMES_PER_CALL: i32 = 256;
/// `XDP_MAX_TX_SKB_BUDGET`.
const OPTION_FRAMES_PER_CALL: libc::c_int = 9;

/// What a socket should have; [`XdpSocket`] holds what it got.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wishes {
    pub(super) ring_entries: u32,
    pub(super) zero_copy: bool,
    pub(super) metadata: bool,
    pub(super) busy_poll_us: Option<u32>,
}

/// A bound socket.
pub(super) struct XdpSocket {
    pub(super) fill: Producer<u64>,
    pub(super) completion: Consumer<u64>,
    pub(super) receive: Consumer<libc::xdp_desc>,
    pub(super) transmit: Producer<libc::xdp_desc>,
    pub(super) socket: OwnedFd,
    /// Whether the device reads and writes the memory itself.
    pub(super) zero_copy: bool,
    /// Whether the kernel reads metadata in front of frames.
    pub(super) metadata: bool,
}

impl XdpSocket {
    /// Opens a socket on a queue of an interface of the calling thread's namespace.
    pub(super) fn open(
        memory: &PacketMemory,
        index: u32,
        queue: u32,
        wishes: Wishes,
    ) -> Result<XdpSocket> {
        // SAFETY: socket takes integers; a descriptor it returns is new and ours alone.
        let socket = unsafe {
            let raw = libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
            if raw < 0 {
                return Err(io::Error::last_os_error()).context("cannot open an AF_XDP socket");
            }
            OwnedFd::from_raw_fd(raw)
        };
        let metadata = register(&socket, memory, wishes.metadata)
            .context("cannot register the packet memory")?;
        let count = wishes.ring_entries;
        let rings = [
            libc::XDP_UMEM_FILL_RING,
            libc::XDP_UMEM_COMPLETION_RING,
            libc::XDP_RX_RING,
            libc::XDP_TX_RING,
        ];
        for ring in rings {
            set_option(&socket, libc::SOL_XDP, ring, &count)
                .with_context(|| format!("cannot make a ring of {count} entries"))?;
        }
        let parts = offsets(&socket).context("cannot find the rings")?;
        let (fill, completion) =
            (libc::XDP_UMEM_PGOFF_FILL_RING, libc::XDP_UMEM_PGOFF_COMPLETION_RING);
        let step = "cannot map a ring";
        let mut opened = XdpSocket {
            fill: Producer::map(&socket, fill as _, &parts.fr, count).context(step)?,
            completion: Consumer::map(&socket, completion as _, &parts.cr, count).context(step)?,
            receive: Consumer::map(&socket, libc::XDP_PGOFF_RX_RING, &parts.rx, count)
                .context(step)?,
            transmit: Producer::map(&socket, libc::XDP_PGOFF_TX_RING, &parts.tx, count)
                .context(step)?,
            socket,
            zero_copy: false,
            metadata,
        };
        // Kernels before 6.17 do not have this option and send 32 frames in a call.
        let _ = set_option(
            &opened.socket,
            libc::SOL_XDP,
            OPTION_FRAMES_PER_CALL,
            &FRAMES_PER_CALL.min(count as i32),
        );
        if let Some(microseconds) = wishes.busy_poll_us {
            opened.busy_poll(microseconds).context("cannot switch busy polling on")?;
        }
        opened.bind(index, queue, wishes.zero_copy)?;
        Ok(opened)
    }

    /// Tries with zero copy and then without; waits for a socket that was on the queue before.
    fn bind(&mut self, index: u32, queue: u32, zero_copy: bool) -> Result<()> {
        let began = Instant::now();
        let mut ways: &[u16] = match zero_copy {
            true => &[libc::XDP_ZEROCOPY, libc::XDP_COPY],
            false => &[libc::XDP_COPY],
        };
        while let [way, rest @ ..] = ways {
            let address = libc::sockaddr_xdp {
                sxdp_family: libc::AF_XDP as u16,
                sxdp_flags: way | libc::XDP_USE_NEED_WAKEUP,
                sxdp_ifindex: index,
                sxdp_queue_id: queue,
                sxdp_shared_umem_fd: 0,
            };
            let length = size_of_val(&address) as libc::socklen_t;
            let socket = self.socket.as_raw_fd();
            // SAFETY: the pointer and the length are those of a live address of AF_XDP.
            if unsafe { libc::bind(socket, (&raw const address).cast(), length) } == 0 {
                self.zero_copy = *way == libc::XDP_ZEROCOPY;
                return Ok(());
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EBUSY) if began.elapsed() < BUSY_FOR_AT_MOST => {
                    thread::sleep(BUSY_PAUSE);
                }
                Some(libc::EBUSY) => bail!("another AF_XDP socket has queue {queue}"),
                Some(libc::EINVAL) if rest.is_empty() => {
                    bail!("the interface has no queue {queue} for AF_XDP")
                }
                _ if rest.is_empty() => {
                    return Err(error).with_context(|| format!("cannot bind to queue {queue}"));
                }
                _ => ways = rest,
            }
        }
        unreachable!("the last way returns")
    }

    fn busy_poll(&self, microseconds: u32) -> io::Result<()> {
        let set = |option, value: i32| set_option(&self.socket, libc::SOL_SOCKET, option, &value);
        set(libc::SO_PREFER_BUSY_POLL, 1)?;
        set(libc::SO_BUSY_POLL, microseconds.min(1_000_000) as i32)?;
        set(libc::SO_BUSY_POLL_BUDGET, 64)
    }

    /// Lets the kernel look at the transmit ring; the error `EAGAIN` means that it has not processed all of it.
    pub(super) fn wake_transmit(&self) -> io::Result<()> {
        let (socket, null) = (self.socket.as_raw_fd(), std::ptr::null());
        // SAFETY: no bytes and no address are passed.
        let result =
            unsafe { libc::sendto(socket, null, 0, libc::MSG_DONTWAIT, std::ptr::null(), 0) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Lets the driver look at the fill ring, if it requested that.
    pub(super) fn wake_receive(&self) {
        if self.fill.needs_wakeup() {
            let (socket, null) = (self.socket.as_raw_fd(), std::ptr::null_mut());
            let (from, length) = (std::ptr::null_mut(), std::ptr::null_mut());
            // SAFETY: no buffer and no address are passed. An error shows at the next wait.
            unsafe { libc::recvfrom(socket, null, 0, libc::MSG_DONTWAIT, from, length) };
        }
    }

    /// What the kernel counted for this socket.
    pub(super) fn statistics(&self) -> io::Result<libc::xdp_statistics> {
        // SAFETY: six integers, for which zero is a valid value.
        let mut counted: libc::xdp_statistics = unsafe { std::mem::zeroed() };
        get_option(&self.socket, libc::XDP_STATISTICS, &mut counted)?;
        Ok(counted)
    }
}

/// Registers the memory; whether the kernel takes metadata in front of frames.
fn register(socket: &OwnedFd, memory: &PacketMemory, metadata: bool) -> io::Result<bool> {
    let (start, bytes) = memory.region();
    let mut request = libc::xdp_umem_reg {
        addr: start as u64,
        len: bytes as u64,
        chunk_size: memory.chunk_bytes(),
        // The kernel itself leaves 256 bytes before each frame.
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    if metadata {
        request.flags = libc::XDP_UMEM_TX_METADATA_LEN;
        request.tx_metadata_len = METADATA_BYTES.into();
        match set_option(socket, libc::SOL_XDP, libc::XDP_UMEM_REG, &request) {
            Ok(()) => return Ok(true),
            // A kernel before 6.11 does not have this flag.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
            Err(error) => return Err(error),
        }
        (request.flags, request.tx_metadata_len) = (0, 0);
    }
    set_option(socket, libc::SOL_XDP, libc::XDP_UMEM_REG, &request)?;
    Ok(false)
}

fn offsets(socket: &OwnedFd) -> io::Result<libc::xdp_mmap_offsets> {
    // SAFETY: integers, for which zero is a valid value.
    let mut offsets: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
    get_option(socket, libc::XDP_MMAP_OFFSETS, &mut offsets)?;
    Ok(offsets)
}

/// Reads an option of an AF_XDP socket into the structure of integers that belongs to it.
fn get_option<T: Copy>(socket: &OwnedFd, option: libc::c_int, value: &mut T) -> io::Result<()> {
    let mut length = size_of::<T>() as libc::socklen_t;
    let value: *mut T = value;
    // SAFETY: the pointer and the length are those of a live value of integers, of which the
    // kernel fills as much as it knows.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_XDP, option, value.cast(), &mut length)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
