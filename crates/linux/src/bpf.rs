//! Programs and maps of the kernel's BPF machine: tables of instructions, loaded without a library.
//!
//! A program is an array of instructions of eight bytes (RFC 9669). One that names a map carries the
//! map's descriptor in an instruction of two words. A map of one value can be shared with programs like
//! memory ([`SharedMap`]).

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

use anyhow::{Result, anyhow, ensure};

use crate::mapping::{Mapping, READ_WRITE};

pub(super) const MAP_CREATE: libc::c_long = 0;
pub(super) const MAP_UPDATE_ELEM: libc::c_long = 2;
const PROG_LOAD: libc::c_long = 5;
const PROG_TEST_RUN: libc::c_long = 10;
const LINK_CREATE: libc::c_long = 28;
pub(super) const LINK_DETACH: libc::c_long = 34;

/// The attributes of a map that is to be created.
#[repr(C)]
pub(super) struct MapShape {
    pub(super) map_type: u32,
    pub(super) key_bytes: u32,
    pub(super) value_bytes: u32,
    pub(super) entries_max: u32,
    pub(super) flags: u32,
}

/// Programs of traffic control.
pub(super) const PROG_TYPE_SCHED_CLS: u32 = 3;

const MAP_TYPE_ARRAY: u32 = 2;
/// `BPF_F_MMAPABLE`.
const MAPPABLE: u32 = 1 << 10;

pub(super) const LOAD_BYTE: u8 = 0x71;
pub(super) const LOAD_HALF: u8 = 0x69;
pub(super) const LOAD_WORD: u8 = 0x61;
pub(super) const LOAD_DOUBLE: u8 = 0x79;
pub(super) const STORE_BYTE: u8 = 0x73;
pub(super) const STORE_HALF: u8 = 0x6b;
pub(super) const STORE_WORD: u8 = 0x63;
pub(super) const STORE_DOUBLE: u8 = 0x7b;
/// An atomic operation on 64 bits; the instruction's value selects it.
pub(super) const ATOMIC: u8 = 0xdb;
pub(super) const ATOMIC_ADD: i32 = 0x00;
pub(super) const ATOMIC_EXCHANGE: i32 = 0xe1;
/// Puts the named register where there is what register 0 has; register 0 gets what was there.
pub(super) const ATOMIC_COMPARE_EXCHANGE: i32 = 0xf1;
pub(super) const LOAD_64: u8 = 0x18;
pub(super) const ADD: u8 = 0x07;
pub(super) const ADD_REGISTER: u8 = 0x0f;
pub(super) const SUBTRACT_REGISTER: u8 = 0x1f;
pub(super) const MULTIPLY: u8 = 0x27;
pub(super) const MULTIPLY_REGISTER: u8 = 0x2f;
pub(super) const DIVIDE_REGISTER: u8 = 0x3f;
pub(super) const EXCLUSIVE_OR: u8 = 0xa7;
pub(super) const EXCLUSIVE_OR_REGISTER: u8 = 0xaf;
pub(super) const AND: u8 = 0x57;
pub(super) const OR_REGISTER: u8 = 0x4f;
pub(super) const SHIFT_LEFT: u8 = 0x67;
pub(super) const SHIFT_RIGHT: u8 = 0x77;
pub(super) const MOVE: u8 = 0xb7;
pub(super) const MOVE_REGISTER: u8 = 0xbf;
/// Of 32 bits; the upper ones become zero.
pub(super) const MOVE_SHORT: u8 = 0xb4;
pub(super) const MOVE_SHORT_REGISTER: u8 = 0xbc;
/// Converts as many bits as the value gives from network byte order to the machine's.
pub(super) const FROM_NETWORK: u8 = 0xdc;
pub(super) const IF_EQUAL: u8 = 0x15;
pub(super) const IF_EQUAL_REGISTER: u8 = 0x1d;
pub(super) const IF_NOT_EQUAL: u8 = 0x55;
pub(super) const IF_NOT_EQUAL_REGISTER: u8 = 0x5d;
pub(super) const IF_GREATER: u8 = 0x25;
pub(super) const IF_GREATER_REGISTER: u8 = 0x2d;
pub(super) const IF_AT_LEAST_REGISTER: u8 = 0x3d;
pub(super) const IF_GREATER_SIGNED: u8 = 0x65;
pub(super) const JUMP: u8 = 0x05;
pub(super) const CALL: u8 = 0x85;
pub(super) const EXIT: u8 = 0x95;

/// Helpers that are called.
pub(super) const KTIME_GET_NS: i32 = 5;
pub(super) const SKB_LOAD_BYTES: i32 = 26;

/// In the source register of a load of 64 bits: the value is the descriptor of a map.
pub(super) const MAP_DESCRIPTOR: u8 = 1;
/// In the same place: the address of the map's only value.
pub(super) const MAP_VALUE: u8 = 2;

/// One instruction as little-endian machines have it in memory.
pub(super) const fn instruction(code: u8, to: u8, from: u8, offset: i16, value: i32) -> u64 {
    code as u64
        | ((to | from << 4) as u64) << 8
        | (offset as u16 as u64) << 16
        | (value as u32 as u64) << 32
}

/// A program that is being written, with names for the places that it jumps to.
#[derive(Default)]
pub(super) struct Assembly {
    words: Vec<u64>,
    labels: BTreeMap<(&'static str, &'static str), usize>,
    jumps: Vec<(usize, (&'static str, &'static str))>,
    part: &'static str,
}

impl Assembly {
    /// Appends an instruction.
    pub(super) fn put(&mut self, code: u8, to: u8, from: u8, offset: i16, value: i32) {
        self.words.push(instruction(code, to, from, offset, value));
    }

    /// Begins a part, to which names that begin with a full stop belong. Others belong to all parts.
    pub(super) fn part(&mut self, name: &'static str) {
        self.part = name;
    }

    fn place(&self, label: &'static str) -> (&'static str, &'static str) {
        (if label.starts_with('.') { self.part } else { "" }, label)
    }

    /// Appends a jump, which compares a register with another or with a value.
    pub(super) fn jump(&mut self, code: u8, to: u8, from: u8, value: i32, label: &'static str) {
        self.jumps.push((self.words.len(), self.place(label)));
        self.put(code, to, from, 0, value);
    }

    /// Appends what loads a number of 64 bits into a register.
    pub(super) fn number(&mut self, register: u8, value: u64) {
        self.put(LOAD_64, register, 0, 0, value as u32 as i32);
        self.words.push(value >> 32 << 32);
    }

    /// Appends what loads the address of a map's value into a register.
    pub(super) fn address(&mut self, register: u8, map: &SharedMap) {
        self.put(LOAD_64, register, MAP_VALUE, 0, map.map.as_raw_fd());
        self.words.push(0);
    }

    /// Appends what loads a map into a register, to be passed to a helper.
    pub(super) fn map(&mut self, register: u8, map: &OwnedFd) {
        self.put(LOAD_64, register, MAP_DESCRIPTOR, 0, map.as_raw_fd());
        self.words.push(0);
    }

    /// Names the place of the next instruction.
    pub(super) fn label(&mut self, name: &'static str) {
        self.labels.insert(self.place(name), self.words.len());
    }

    /// The program. Panics where a place that is jumped to has no name.
    pub(super) fn finish(mut self) -> Vec<u64> {
        for (at, label) in self.jumps {
            let offset = self.labels[&label] as i64 - at as i64 - 1;
            self.words[at] |= (offset as i16 as u16 as u64) << 16;
        }
        self.words
    }
}

/// Loads a program of a type; the error carries the verifier's log.
pub(super) fn load(program_type: u32, instructions: &[u64]) -> Result<OwnedFd> {
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
    ensure!(cfg!(target_endian = "little"), "BPF programs are written for little-endian only");
    // A log too small for the verifier's output makes a sound program fail, so the log is requested
    // only when there is something to explain.
    let mut log = vec![0u8; 1 << 16];
    let mut attributes = Load {
        program_type,
        instructions: instructions.len() as u32,
        first: instructions.as_ptr() as u64,
        licence: c"Dual MIT/GPL".as_ptr() as u64,
        log_level: 0,
        log_bytes: 0,
        log: 0,
    };
    let error = match bpf_descriptor(PROG_LOAD, &attributes) {
        Ok(program) => return Ok(program),
        Err(error) => error,
    };
    if error.raw_os_error() == Some(libc::EPERM) {
        return Err(anyhow!(
            "cannot load a BPF program: {error}; it takes CAP_BPF and CAP_NET_ADMIN outside of any \
             user namespace: use AF_PACKET ports without"
        ));
    }
    attributes.log_level = 1;
    attributes.log_bytes = log.len() as u32;
    attributes.log = log.as_mut_ptr() as u64;
    let _ = bpf(PROG_LOAD, &attributes);
    let end = log.iter().position(|&byte| byte == 0).unwrap_or(log.len());
    let log = String::from_utf8_lossy(&log[..end]);
    let lines: Vec<&str> = log.lines().filter(|line| !line.is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(8)..];
    Err(anyhow!("cannot load a BPF program: {error}; verifier: {}", last.join(" | ")))
}

/// Attaches a program to an interface until the link's descriptor is closed.
pub(super) fn attach(
    program: &OwnedFd,
    interface: u32,
    attach_type: u32,
    flags: u32,
) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Create {
        program: u32,
        target: u32,
        attach_type: u32,
        flags: u32,
    }
    let program = program.as_raw_fd() as u32;
    bpf_descriptor(LINK_CREATE, &Create { program, target: interface, attach_type, flags })
}

/// Runs a program on `packet`, `repeat` times. With a `live_batch` each run has a frame of its own, as if a driver
/// had received it, and the kernel passes on what the program redirects, so many frames together.
pub(super) fn run_program(
    program: &OwnedFd,
    packet: &[u8],
    repeat: u32,
    live_batch: Option<u32>,
) -> io::Result<()> {
    /// `BPF_F_TEST_XDP_LIVE_FRAMES` (Linux 5.18).
    const LIVE_FRAMES: u32 = 1 << 1;
    #[repr(C)]
    #[derive(Default)]
    struct TestRun {
        program: u32,
        result: u32,
        bytes_in: u32,
        bytes_out: u32,
        data_in: u64,
        data_out: u64,
        repeat: u32,
        duration: u32,
        context_in_bytes: u32,
        context_out_bytes: u32,
        context_in: u64,
        context_out: u64,
        flags: u32,
        processor: u32,
        batch: u32,
        padding: u32,
    }
    let run = TestRun {
        program: program.as_raw_fd() as u32,
        bytes_in: packet.len() as u32,
        data_in: packet.as_ptr() as u64,
        repeat,
        flags: live_batch.map_or(0, |_| LIVE_FRAMES),
        batch: live_batch.unwrap_or(0),
        ..TestRun::default()
    };
    bpf(PROG_TEST_RUN, &run).map(drop)
}

/// The bpf system call with one command's attributes; what it returns.
pub(super) fn bpf<T>(command: libc::c_long, attributes: &T) -> io::Result<libc::c_long> {
    let attributes: *const T = attributes;
    // SAFETY: the attributes are a live structure of the shape that the command expects, as the
    // callers see to, and whatever addresses they hold are those of live values; the kernel takes
    // what is beyond its end for zero.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

pub(super) fn bpf_descriptor<T>(command: libc::c_long, attributes: &T) -> io::Result<OwnedFd> {
    let descriptor = bpf(command, attributes)?;
    // SAFETY: the callers' commands return a descriptor that is new and ours alone.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as i32) })
}

/// One value that programs find at an address, and we at another.
pub(super) struct SharedMap {
    map: OwnedFd,
    value: Mapping,
}

// SAFETY: a shared reference gives only the mapping's address; a caller that accesses the memory there is
// responsible for its own accesses.
unsafe impl Sync for SharedMap {}

impl SharedMap {
    /// A map of one value of `bytes` bytes, all of them zero.
    pub(super) fn new(bytes: usize) -> io::Result<SharedMap> {
        let shape = MapShape {
            map_type: MAP_TYPE_ARRAY,
            key_bytes: 4,
            value_bytes: bytes as u32,
            entries_max: 1,
            flags: MAPPABLE,
        };
        let map = bpf_descriptor(MAP_CREATE, &shape)?;
        let value = Mapping::shared(&map, 0, bytes, READ_WRITE)?;
        Ok(SharedMap { map, value })
    }

    /// Where the value begins, for callers that share it with programs that may run at any time.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.value.start
    }

    /// The eight bytes at a multiple of eight, for callers and programs that change them only as a whole.
    pub(super) fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at.is_multiple_of(8) && at + 8 <= self.value.bytes);
        // SAFETY: the eight bytes lie within the mapping, aligned, and both sides change them only as a
        // whole; the mapping lives as long as the borrow.
        unsafe { self.start().add(at).cast::<AtomicU64>().as_ref() }
    }

    /// The value; the caller ensures that no program runs.
    pub(super) fn value(&mut self) -> &mut [u8] {
        // SAFETY: the mapping has so many bytes and lives as long as the borrow; programs that write
        // to it run only inside of a system call of ours, which this borrow does not outlast.
        unsafe { std::slice::from_raw_parts_mut(self.value.start.as_ptr(), self.value.bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_lead_to_their_places() {
        let mut all = Assembly::default();
        all.label("again");
        all.put(MOVE, 0, 0, 0, 0);
        all.jump(IF_EQUAL, 0, 0, 0, "end");
        all.jump(JUMP, 0, 0, 0, "again");
        all.label("end");
        all.put(EXIT, 0, 0, 0, 0);
        let offsets = all.finish().iter().map(|word| (word >> 16) as i16).collect::<Vec<_>>();
        assert_eq!(offsets, [0, 1, -3, 0]);
    }

    #[test]
    fn instructions_are_those_of_the_standard() {
        // RFC 9669: opcode, registers, offset and immediate, in this order of bytes.
        assert_eq!(
            instruction(LOAD_WORD, 2, 1, 16, 0).to_le_bytes(),
            [0x61, 0x12, 16, 0, 0, 0, 0, 0]
        );
        assert_eq!(
            instruction(LOAD_64, 1, MAP_DESCRIPTOR, 0, 0).to_le_bytes(),
            [0x18, 0x11, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(instruction(CALL, 0, 0, 0, 51).to_le_bytes(), [0x85, 0, 0, 0, 51, 0, 0, 0]);
        assert_eq!(
            instruction(MOVE, 0, 0, -1, -2).to_le_bytes()[2..],
            [255, 255, 254, 255, 255, 255]
        );
    }
}
