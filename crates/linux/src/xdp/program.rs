//! The XDP programs of a port: tables of instructions, loaded and attached without a library.
//!
//! An XDP program runs in the driver for each frame that comes in. Ours has five instructions (in
//! six words): look up the socket of the frame's receive queue, and redirect the frame to it; if
//! there is none, let it pass to the kernel.
//!
//! ```text
//!   r2 = ctx->rx_queue_index
//!   r1 = the map of sockets
//!   r3 = XDP_PASS
//!   r0 = bpf_redirect_map(r1, r2, r3)
//!   return r0
//! ```
//!
//! A program is attached by a link (`BPF_LINK_CREATE`), which is a file descriptor: whatever ends
//! the process detaches the program. The other program lets everything pass. Something has to be
//! attached to the peer of a veth before the kernel redirects XDP frames into it (`XDP_REDIRECT`);
//! sending through AF_XDP needs no such thing.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::bpf::{
    CALL, EXIT, LINK_DETACH, LOAD_64, LOAD_WORD, MAP_CREATE, MAP_DESCRIPTOR, MAP_UPDATE_ELEM, MOVE,
    MapShape, attach, bpf, bpf_descriptor, instruction, load,
};

const MAP_TYPE_XSKMAP: u32 = 17;
pub(crate) const PROG_TYPE_XDP: u32 = 6;
/// `BPF_XDP`, the place that a link attaches to.
const ATTACH_XDP: u32 = 37;
const FLAG_GENERIC: u32 = 1 << 1;
const FLAG_NATIVE: u32 = 1 << 2;

/// What a closed port leaves behind for a moment is waited for, this long.
pub(super) const BUSY_FOR_AT_MOST: Duration = Duration::from_secs(3);
pub(super) const BUSY_PAUSE: Duration = Duration::from_millis(10);

const XDP_PASS: i32 = 2;
const REDIRECT_MAP: i32 = 51;
/// Where `struct xdp_md` has the number of the receive queue.
const RX_QUEUE_INDEX: i16 = 16;

/// Redirects each frame to the socket of its queue; the map's descriptor goes into the second word.
const REDIRECT: [u64; 6] = [
    instruction(LOAD_WORD, 2, 1, RX_QUEUE_INDEX, 0),
    instruction(LOAD_64, 1, MAP_DESCRIPTOR, 0, 0),
    0,
    instruction(MOVE, 3, 0, 0, XDP_PASS),
    instruction(CALL, 0, 0, 0, REDIRECT_MAP),
    instruction(EXIT, 0, 0, 0, 0),
];

/// Lets each frame pass to the kernel.
const PASS: [u64; 2] = [instruction(MOVE, 0, 0, 0, XDP_PASS), instruction(EXIT, 0, 0, 0, 0)];

/// Where in the way of a frame a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attachment {
    /// In the driver, before the kernel makes a packet of it (`XDP_FLAGS_DRV_MODE`).
    Native,
    /// After the driver, on a packet of the kernel's (`XDP_FLAGS_SKB_MODE`): works everywhere and
    /// is slower.
    Generic,
}

/// Which socket gets the frames of which receive queue.
pub(super) struct SocketMap(OwnedFd);

impl SocketMap {
    pub(super) fn new(queues: u32) -> io::Result<SocketMap> {
        let create = MapShape {
            map_type: MAP_TYPE_XSKMAP,
            key_bytes: 4,
            value_bytes: 4,
            entries_max: queues,
            flags: 0,
        };
        bpf_descriptor(MAP_CREATE, &create).map(SocketMap)
    }

    pub(super) fn set(&self, queue: u32, socket: &OwnedFd) -> io::Result<()> {
        #[repr(C)]
        struct Update {
            map: u32,
            padding: u32,
            key: u64,
            value: u64,
            flags: u64,
        }
        let value = socket.as_raw_fd();
        let update = Update {
            map: self.0.as_raw_fd() as u32,
            padding: 0,
            key: &raw const queue as u64,
            value: &raw const value as u64,
            flags: 0,
        };
        bpf(MAP_UPDATE_ELEM, &update).map(drop)
    }
}

/// A program in the kernel.
pub(crate) struct Program(OwnedFd);

impl Program {
    /// A program that was loaded elsewhere.
    pub(crate) fn of(program: OwnedFd) -> Program {
        Program(program)
    }

    /// The program that redirects frames to the sockets of a map.
    pub(super) fn redirect(map: &SocketMap) -> Result<Program> {
        let mut instructions = REDIRECT;
        instructions[1] = instruction(LOAD_64, 1, MAP_DESCRIPTOR, 0, map.0.as_raw_fd());
        load(PROG_TYPE_XDP, &instructions).map(Program)
    }

    /// Attaches the program to an interface of the calling thread's namespace. Where another one
    /// is on its way out, waits for it.
    pub(crate) fn attach(&self, index: u32, how: Attachment) -> io::Result<Link> {
        let flags = match how {
            Attachment::Native => FLAG_NATIVE,
            Attachment::Generic => FLAG_GENERIC,
        };
        let began = Instant::now();
        loop {
            match attach(&self.0, index, ATTACH_XDP, flags) {
                Err(error)
                    if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST))
                        && began.elapsed() < BUSY_FOR_AT_MOST =>
                {
                    thread::sleep(BUSY_PAUSE);
                }
                outcome => return outcome.map(|link| Link { link, how }),
            }
        }
    }
}

/// A program attached to an interface, until this value goes.
pub struct Link {
    link: OwnedFd,
    how: Attachment,
}

impl Link {
    /// Attaches the program that lets everything pass to an interface of the calling thread's
    /// namespace, natively: what the peer of a veth needs before XDP redirects frames to it.
    pub fn pass(index: u32) -> Result<Link> {
        Program(load(PROG_TYPE_XDP, &PASS)?)
            .attach(index, Attachment::Native)
            .with_context(|| format!("cannot attach an XDP program to interface {index}"))
    }

    /// Where the program runs.
    pub fn attachment(&self) -> Attachment {
        self.how
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        #[repr(C)]
        struct Detach {
            link: u32,
        }
        // To close the descriptor detaches as well, but some time later. An interface that no
        // longer exists has nothing to detach from, so an error is ignored.
        let _ = bpf(LINK_DETACH, &Detach { link: self.link.as_raw_fd() as u32 });
    }
}
