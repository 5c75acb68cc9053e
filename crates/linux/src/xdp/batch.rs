//! Many frames in one piece: how a batch leaves without the kernel stopping after each frame.
//!
//! Where a driver copies (a veth), AF_XDP sends a frame as follows: a kernel packet is made, soft
//! interrupts are disabled, the driver takes it, soft interrupts are enabled again. The last step
//! runs all that the frame made pending, on a veth the whole receive path of the other end: a poll of
//! the receiver for one packet, once for each frame. A kernel that forwards has no such stops,
//! because it forwards within a soft interrupt.
//!
//! Nor does a BPF program while it runs. The kernel lets one be run on demand, on a packet of its own
//! (`BPF_PROG_TEST_RUN`, made for tests), and a program for the traffic control hook may send copies of
//! its packet (`bpf_clone_redirect`). Ours does nothing else:
//!
//! ```text
//!   for each frame that lies in the shared map, 64 at most
//!       make the packet as long as the frame      bpf_skb_change_tail, where the last was not
//!       write the frame over it                   bpf_skb_store_bytes
//!       say whether its checksum was looked at    bpf_csum_level, where that of the last differs
//!       send a copy of it                         bpf_clone_redirect
//! ```
//!
//! Then soft interrupts are enabled again, and the receiver is polled once for all of them. A call
//! costs more than one of AF_XDP's, and each frame in it less. It is used from [`WORTH_WHILE`] frames
//! on, since on the other way the second frame waits until the receiver's whole stack has processed
//! the first. Both ways are finished when their calls return, so frames keep their order on either.
//!
//! # Checksums
//!
//! A copy cannot be marked as having its checksum still to be filled in. So the checksum is computed
//! here, and the copy is marked as not needing another check (`CHECKSUM_UNNECESSARY`), which is true.
//!
//! # Namespaces
//!
//! An interface number refers to the namespace of the thread that makes the call. So every thread's
//! namespace is checked once, and a thread in another one sends by AF_XDP.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::thread::{self, ThreadId};

use anyhow::{Context, Result};

use crate::bpf::{
    ADD, ADD_REGISTER, AND, Assembly, CALL, EXIT, IF_AT_LEAST_REGISTER, IF_EQUAL,
    IF_EQUAL_REGISTER, IF_GREATER, IF_NOT_EQUAL, JUMP, LOAD_WORD, MOVE, MOVE_REGISTER, MULTIPLY,
    PROG_TYPE_SCHED_CLS, SHIFT_LEFT, SHIFT_RIGHT, STORE_WORD, SharedMap, load, run_program,
};
use crate::partial_checksum::PartialChecksum;

/// Frames in a call: as many as a driver takes in one poll of the kernel's.
pub(super) const FRAMES_MAX: usize = 64;
/// From this many frames on they leave by one call.
pub(super) const WORTH_WHILE: usize = 2;

const SKB_STORE_BYTES: i32 = 9;
const CLONE_REDIRECT: i32 = 13;
const SKB_CHANGE_TAIL: i32 = 38;
const CSUM_LEVEL: i32 = 135;
const CSUM_LEVEL_INC: i32 = 1;
const CSUM_LEVEL_RESET: i32 = 3;

/// The fields of the shared value: how many frames there are, how many were processed, how many were
/// refused and by which error last; for each frame its length and in the highest bit whether it was
/// summed; the frames. These begin 65 cache lines apart: at a power of two their beginnings would
/// share a cache's sets.
const COUNT: i16 = 0;
const DONE: i16 = 4;
const REFUSED: i16 = 8;
const ERROR: i16 = 12;
const LENGTHS: usize = 16;
const FRAMES: usize = 512;
const FRAME_STRIDE: usize = 4_160;
const SUMMED: u32 = 1 << 31;
/// The longest frame: that of the largest chunk.
const FRAME_BYTES_MAX: usize = 3_840;
const SHARED_BYTES: usize = FRAMES + FRAMES_MAX * FRAME_STRIDE;

/// Where `struct __sk_buff` has the packet's length.
const PACKET_LENGTH: i16 = 0;
/// Where the stack has the mark of the frame before.
const MARK_BEFORE: i16 = -4;

/// The bits of a frame's word that are its length.
const LENGTH: i32 = 0xffff;

/// The program. Registers: 6 the packet, 7 the shared value, 8 the number of the frame, 9 its word.
fn program(shared: &SharedMap, interface: u32) -> Vec<u64> {
    let mut all = Assembly::default();
    all.put(MOVE_REGISTER, 6, 1, 0, 0);
    all.address(7, shared);
    all.put(MOVE, 8, 0, 0, 0);
    all.put(STORE_WORD, 10, 8, MARK_BEFORE, 0);

    all.label("frame");
    all.put(LOAD_WORD, 1, 7, COUNT, 0);
    all.jump(IF_AT_LEAST_REGISTER, 8, 1, 0, "end");
    all.jump(IF_GREATER, 8, 0, FRAMES_MAX as i32 - 1, "end");
    all.put(MOVE_REGISTER, 2, 8, 0, 0);
    all.put(SHIFT_LEFT, 2, 0, 0, 2);
    all.put(ADD_REGISTER, 2, 7, 0, 0);
    all.put(LOAD_WORD, 9, 2, LENGTHS as i16, 0);
    write(&mut all);
    mark(&mut all);
    send(&mut all, interface);
    all.label("next");
    all.put(ADD, 8, 0, 0, 1);
    all.jump(JUMP, 0, 0, 0, "frame");

    all.label("refused");
    all.put(STORE_WORD, 7, 0, ERROR, 0);
    all.put(LOAD_WORD, 1, 7, REFUSED, 0);
    all.put(ADD, 1, 0, 0, 1);
    all.put(STORE_WORD, 7, 1, REFUSED, 0);
    all.jump(JUMP, 0, 0, 0, "next");

    all.label("end");
    all.put(STORE_WORD, 7, 8, DONE, 0);
    all.put(MOVE, 0, 0, 0, 0);
    all.put(EXIT, 0, 0, 0, 0);
    all.finish()
}

/// Makes the packet as long as the frame and writes the frame over it.
fn write(all: &mut Assembly) {
    all.put(MOVE_REGISTER, 2, 9, 0, 0);
    all.put(AND, 2, 0, 0, LENGTH);
    all.put(LOAD_WORD, 1, 6, PACKET_LENGTH, 0);
    all.jump(IF_EQUAL_REGISTER, 1, 2, 0, "bytes");
    all.put(MOVE_REGISTER, 1, 6, 0, 0);
    all.put(MOVE, 3, 0, 0, 0);
    all.put(CALL, 0, 0, 0, SKB_CHANGE_TAIL);
    all.jump(IF_NOT_EQUAL, 0, 0, 0, "refused");

    all.label("bytes");
    all.put(MOVE_REGISTER, 4, 9, 0, 0);
    all.put(AND, 4, 0, 0, LENGTH);
    all.jump(IF_EQUAL, 4, 0, 0, "end");
    all.jump(IF_GREATER, 4, 0, FRAME_BYTES_MAX as i32, "end");
    all.put(MOVE_REGISTER, 3, 8, 0, 0);
    all.put(MULTIPLY, 3, 0, 0, FRAME_STRIDE as i32);
    all.put(ADD_REGISTER, 3, 7, 0, 0);
    all.put(ADD, 3, 0, 0, FRAMES as i32);
    all.put(MOVE_REGISTER, 1, 6, 0, 0);
    all.put(MOVE, 2, 0, 0, 0);
    all.put(MOVE, 5, 0, 0, 0);
    all.put(CALL, 0, 0, 0, SKB_STORE_BYTES);
    all.jump(IF_NOT_EQUAL, 0, 0, 0, "refused");
}

/// Sets whether the frame's checksum was computed, if that differs from the last frame's.
fn mark(all: &mut Assembly) {
    all.put(SHIFT_RIGHT, 9, 0, 0, 31);
    all.put(LOAD_WORD, 1, 10, MARK_BEFORE, 0);
    all.jump(IF_EQUAL_REGISTER, 1, 9, 0, "send");
    all.put(STORE_WORD, 10, 9, MARK_BEFORE, 0);
    all.put(MOVE, 2, 0, 0, CSUM_LEVEL_INC);
    all.jump(IF_NOT_EQUAL, 9, 0, 0, "level");
    all.put(MOVE, 2, 0, 0, CSUM_LEVEL_RESET);
    all.label("level");
    all.put(MOVE_REGISTER, 1, 6, 0, 0);
    all.put(CALL, 0, 0, 0, CSUM_LEVEL);
}

/// Sends a copy of the packet.
fn send(all: &mut Assembly, interface: u32) {
    all.label("send");
    all.put(MOVE_REGISTER, 1, 6, 0, 0);
    all.put(MOVE, 2, 0, 0, interface as i32);
    all.put(MOVE, 3, 0, 0, 0);
    all.put(CALL, 0, 0, 0, CLONE_REDIRECT);
    all.jump(IF_NOT_EQUAL, 0, 0, 0, "refused");
}

/// What became of a batch.
#[derive(Debug)]
pub(crate) struct Sent {
    /// Frames that the kernel refused to send.
    pub(crate) refused: u32,
    /// Its error for the last of them; `None` if it dropped silently.
    pub(crate) error: Option<io::Error>,
}

/// The kernel would not run the program.
#[derive(Debug)]
pub(crate) struct NotSent {
    /// How many frames are lost.
    pub(crate) frames: u32,
    /// Why.
    pub(crate) error: io::Error,
}

/// Sends frames by one interface, many in a call.
pub(crate) struct BatchSender {
    program: OwnedFd,
    shared: SharedMap,
    /// Frames that lie in the shared map.
    count: usize,
    /// The namespace of the interface.
    home: (u64, u64),
    /// The thread that was checked last, and whether it is in the interface's namespace.
    checked: (ThreadId, bool),
}

impl BatchSender {
    /// A sender for an interface of the calling thread's namespace.
    ///
    /// # Errors
    /// When the kernel refuses the program, lacks the helpers, or does not run it on demand.
    pub(crate) fn new(interface: u32) -> Result<BatchSender> {
        let shared = SharedMap::new(SHARED_BYTES).context("cannot make a map for frames")?;
        let program = load(PROG_TYPE_SCHED_CLS, &program(&shared, interface))?;
        let home = namespace().context("cannot tell the namespace of this thread")?;
        let checked = (thread::current().id(), true);
        let mut sender = BatchSender { program, shared, count: 0, home, checked };
        // A kernel may take the program and not let it run like this.
        sender.send().map_err(|refused| refused.error).context("cannot run a BPF program")?;
        Ok(sender)
    }

    /// Whether frames that the calling thread sends go by this interface.
    pub(crate) fn is_at_home(&mut self) -> bool {
        let thread = thread::current().id();
        if self.checked.0 != thread {
            self.checked = (thread, namespace().is_ok_and(|here| here == self.home));
        }
        self.checked.1
    }

    /// Puts a frame into the next call. `partial`: where its checksum is still to be written.
    ///
    /// # Panics
    /// When there is no room, or the frame is longer than any chunk.
    pub(crate) fn push(&mut self, frame: &[u8], partial: Option<PartialChecksum>) {
        assert!(self.count < FRAMES_MAX && frame.len() <= FRAME_BYTES_MAX);
        let (number, shared) = (self.count, self.shared.value());
        self.count += 1;
        let start = FRAMES + number * FRAME_STRIDE;
        let copy = &mut shared[start..start + frame.len()];
        copy.copy_from_slice(frame);
        let mut length = frame.len() as u32;
        if let Some(partial) = partial {
            partial.complete(copy);
            length |= SUMMED;
        }
        put(shared, LENGTHS + 4 * number, length);
    }

    /// Sends what was pushed.
    ///
    /// # Errors
    /// When the kernel does not run the program; then nothing was sent.
    pub(crate) fn send(&mut self) -> Result<Sent, NotSent> {
        let pushed = std::mem::take(&mut self.count);
        let shared = self.shared.value();
        for (at, value) in [(COUNT, pushed as u32), (REFUSED, 0), (ERROR, 0), (DONE, 0)] {
            put(shared, at as usize, value);
        }
        // The packet that is copied from: an Ethernet header, so that the kernel accepts it as a frame.
        run_program(&self.program, &[0; 14], 1, None)
            .map_err(|error| NotSent { frames: pushed as u32, error })?;
        let shared = self.shared.value();
        let left = pushed as u32 - get(shared, DONE as usize);
        let refused = get(shared, REFUSED as usize) + left;
        // A value above zero is not an error number but the fate of the packet.
        let last = get(shared, ERROR as usize) as i32;
        let error = (last < 0).then(|| io::Error::from_raw_os_error(last.saturating_neg()));
        Ok(Sent { refused, error })
    }
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
}

fn get(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// What identifies the calling thread's network namespace.
fn namespace() -> io::Result<(u64, u64)> {
    let file = fs::metadata("/proc/thread-self/ns/net")?;
    Ok((file.dev(), file.ino()))
}
