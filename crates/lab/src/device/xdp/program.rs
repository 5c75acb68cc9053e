//! The XDP programs of a port: tables of instructions, loaded and attached without a library.
//!
//! An XDP program runs in the driver for each frame that comes in. Ours has five instructions (in
//! six words): look up the socket of the frame's receive queue, and hand the frame to it; where
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
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};

const MAP_CREATE: libc::c_long = 0;
const MAP_UPDATE_ELEM: libc::c_long = 2;
const PROG_LOAD: libc::c_long = 5;
const LINK_CREATE: libc::c_long = 28;
const LINK_DETACH: libc::c_long = 34;

const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
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
/// In the source register of a load of 64 bits: the value is the descriptor of a map.
const MAP_DESCRIPTOR: u8 = 1;

const LOAD_WORD: u8 = 0x61;
const LOAD_64: u8 = 0x18;
const MOVE: u8 = 0xb7;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

/// One instruction as little-endian machines have it in memory.
const fn instruction(code: u8, to: u8, from: u8, offset: i16, value: i32) -> u64 {
    code as u64
        | ((to | from << 4) as u64) << 8
        | (offset as u16 as u64) << 16
        | (value as u32 as u64) << 32
}

/// Hands each frame to the socket of its queue; the map's descriptor goes into the second word.
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
        #[repr(C)]
        struct Create {
            map_type: u32,
            key_bytes: u32,
            value_bytes: u32,
            entries_max: u32,
        }
        let create =
            Create { map_type: MAP_TYPE_XSKMAP, key_bytes: 4, value_bytes: 4, entries_max: queues };
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
pub(super) struct Program(OwnedFd);

impl Program {
    /// The program that hands frames to the sockets of a map.
    pub(super) fn redirect(map: &SocketMap) -> Result<Program> {
        let mut instructions = REDIRECT;
        instructions[1] = instruction(LOAD_64, 1, MAP_DESCRIPTOR, 0, map.0.as_raw_fd());
        Program::load(&instructions)
    }

    /// Loads a program; the error carries what the verifier said.
    fn load(instructions: &[u64]) -> Result<Program> {
        #[repr(C)]
        struct Load {
            program_type: u32,
            instructions: u32,
            first: u64,
            licence: u64,
            log_level: u32,
            log_bytes: u32,
            log: u64,
        }
        ensure!(cfg!(target_endian = "little"), "XDP programs are written for little-endian only");
        let mut log = vec![0u8; 1 << 14];
        let load = Load {
            program_type: PROG_TYPE_XDP,
            instructions: instructions.len() as u32,
            first: instructions.as_ptr() as u64,
            licence: c"Dual MIT/GPL".as_ptr() as u64,
            log_level: 1,
            log_bytes: log.len() as u32,
            log: log.as_mut_ptr() as u64,
        };
        bpf_descriptor(PROG_LOAD, &load).map(Program).map_err(|error| {
            let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
            let log = String::from_utf8_lossy(&log[..end]);
            let said: Vec<&str> = log.lines().filter(|line| !line.is_empty()).collect();
            match error.raw_os_error() {
                Some(libc::EPERM) => anyhow!(
                    "cannot load an XDP program: {error}; it takes CAP_BPF and CAP_NET_ADMIN \
                     outside of any user namespace: use AF_PACKET ports without"
                ),
                _ => anyhow!("cannot load an XDP program: {error}; verifier: {}", said.join(" | ")),
            }
        })
    }

    /// Attaches the program to an interface of the calling thread's namespace. Where another one
    /// is on its way out, waits for it.
    pub(super) fn attach(&self, index: u32, how: Attachment) -> io::Result<Link> {
        #[repr(C)]
        struct Create {
            program: u32,
            target: u32,
            attach_type: u32,
            flags: u32,
        }
        let flags = match how {
            Attachment::Native => FLAG_NATIVE,
            Attachment::Generic => FLAG_GENERIC,
        };
        let program = self.0.as_raw_fd() as u32;
        let create = Create { program, target: index, attach_type: ATTACH_XDP, flags };
        let began = Instant::now();
        loop {
            match bpf_descriptor(LINK_CREATE, &create) {
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
        Program::load(&PASS)?
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
        // To close the descriptor detaches as well, but some time later. An interface that is no
        // more has nothing to detach from, so an error says nothing.
        let _ = bpf(LINK_DETACH, &Detach { link: self.link.as_raw_fd() as u32 });
    }
}

/// The bpf system call with one command's attributes; what it returns.
fn bpf<T>(command: libc::c_long, attributes: &T) -> io::Result<libc::c_long> {
    let attributes: *const T = attributes;
    // SAFETY: the attributes are a live structure of the shape that the command expects, as the
    // callers see to, and whatever addresses they hold are those of live values; the kernel takes
    // what is beyond its end for zero.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn bpf_descriptor<T>(command: libc::c_long, attributes: &T) -> io::Result<OwnedFd> {
    let descriptor = bpf(command, attributes)?;
    // SAFETY: the callers' commands return a descriptor that is new and ours alone.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as i32) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_those_of_the_standard() {
        // RFC 9669: opcode, registers, offset and immediate, in this order of bytes.
        assert_eq!(REDIRECT[0].to_le_bytes(), [0x61, 0x12, 16, 0, 0, 0, 0, 0]);
        assert_eq!(REDIRECT[1].to_le_bytes(), [0x18, 0x11, 0, 0, 0, 0, 0, 0]);
        assert_eq!(REDIRECT[4].to_le_bytes(), [0x85, 0, 0, 0, 51, 0, 0, 0]);
        assert_eq!(PASS[0].to_le_bytes(), [0xb7, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(
            instruction(MOVE, 0, 0, -1, -2).to_le_bytes()[2..],
            [255, 255, 254, 255, 255, 255]
        );
    }
}
