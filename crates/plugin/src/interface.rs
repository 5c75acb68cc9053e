//! The WebAssembly interface between a router and a plugin, version 1: names, and the layout of a batch.
//!
//! A batch is one call: `nilometer_process(area, packets, now_ns)`. `area` is an address in the plugin's linear
//! memory where it has room; the host writes a descriptor of 16 bytes for each packet there, and the bytes that the
//! plugin sees behind the descriptors. All numbers are little-endian.
//!
//! ```text
//!  area ──► descriptor 0 │ descriptor 1 │ … │ packet 0 │ packet 1 │ …
//!
//!           0   4 address of the packet's first byte in linear memory; zero where nothing is seen
//!           4   2 bytes of it that are there
//!           6   2 bytes of the whole IP packet
//!           8   2 input port, or 65535
//!          10   2 output port, or 65535
//!          12   1 decision, written by the plugin: 0 forward (as it comes), 1 drop
//!          13   1 flags, written by the plugin: bit 0, its bytes were changed and are to be copied back
//!          14   2 reserved, zero
//! ```
//!
//! [`Descriptor`] is that layout for both sides. `docs/plugins.md` has the exports and imports.

/// The version of the interface that this crate implements.
pub const VERSION: u32 = 1;
/// The module of a plugin's imports.
pub const IMPORTS: &str = "nilometer";
/// No port.
pub const NO_PORT: u16 = u16::MAX;
/// A timer that is not set.
pub const NO_TIMER: u64 = u64::MAX;
/// Bytes of a descriptor.
pub const DESCRIPTOR_BYTES: usize = 16;
/// Packets begin at multiples of this many bytes.
pub const PACKET_ALIGNMENT: usize = 8;
/// Most packets of one batch.
pub const BATCH_MAX: usize = 256;
/// Most counters of a plugin.
pub const COUNTERS_MAX: usize = 64;
/// The longest description, configuration, message or answer, bytes.
pub const TEXT_BYTES_MAX: usize = 65_536;
/// A function did what it should.
pub const DONE: i32 = 0;
/// A function refuses its arguments, and has given the reason with `reply`.
pub const REFUSED: i32 = 1;

/// The flag of a packet whose bytes were changed.
pub const CHANGED: u8 = 1;

/// A packet of a batch, as it lies in linear memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Descriptor {
    /// Where its bytes begin.
    pub address: u32,
    /// Bytes of it that are there.
    pub seen_bytes: u16,
    /// Bytes of the whole IP packet.
    pub ip_bytes: u16,
    /// The port by which it arrived, or [`NO_PORT`].
    pub input: u16,
    /// The port that it leaves by, or [`NO_PORT`].
    pub output: u16,
    /// The plugin's decision.
    pub decision: u8,
    /// [`CHANGED`], or zero.
    pub flags: u8,
    /// Zero.
    pub reserved: u16,
}

impl Descriptor {
    /// The bytes of a descriptor without a decision. From the lowest bits on, `lengths_and_ports` has the bytes of
    /// the IP packet, its input and its output, in 16 bits each; then zeros.
    #[inline(always)]
    pub fn undecided(
        address: u32,
        seen_bytes: u16,
        lengths_and_ports: u64,
    ) -> [u8; DESCRIPTOR_BYTES] {
        let first = u64::from(address) | u64::from(seen_bytes) << 32 | lengths_and_ports << 48;
        let mut bytes = [0; DESCRIPTOR_BYTES];
        bytes[..8].copy_from_slice(&first.to_le_bytes());
        bytes[8..].copy_from_slice(&(lengths_and_ports >> 16).to_le_bytes());
        bytes
    }

    /// The decision and the flags of one that a plugin has written to.
    #[inline]
    pub fn written(bytes: &[u8; DESCRIPTOR_BYTES]) -> (u8, u8) {
        let [decision, flags] = Descriptor::written_to_any([bytes]).to_le_bytes();
        (decision, flags)
    }

    /// The decisions of these, and above them the flags, each the bits that any of them has.
    #[inline]
    pub fn written_to_any<'a>(
        descriptors: impl IntoIterator<Item = &'a [u8; DESCRIPTOR_BYTES]>,
    ) -> u16 {
        // (A word of each rather than its two bytes: a load and an OR.)
        let words = descriptors.into_iter().map(|bytes| {
            let [.., word] = bytes.as_chunks::<8>().0 else { return 0 };
            u64::from_le_bytes(*word)
        });
        (words.fold(0, |all, word| all | word) >> 32) as u16
    }
}

/// A plugin's description of itself, in lines of a word and a value.
pub mod description {
    /// Its name.
    pub const NAME: &str = "name";
    /// Its version.
    pub const VERSION: &str = "version";
    /// Bytes of a packet that it sees.
    pub const SEEN_BYTES: &str = "seen-bytes";
    /// The name of a counter; as many lines as there are counters, in their order.
    pub const COUNTER: &str = "counter";
}

/// The functions that a plugin exports; it also exports `memory`.
pub mod exports {
    /// `() -> i32`: the version of the interface.
    pub const INTERFACE: &str = "nilometer_interface";
    /// `() -> i64`: the description's address, and its length in bytes in the upper half.
    pub const DESCRIBE: &str = "nilometer_describe";
    /// `(bytes: i32) -> i32`: the address of `bytes` bytes, a multiple of 8, for the host to write to; zero when
    /// there is no room. It stays until the next call.
    pub const AREA: &str = "nilometer_area";
    /// `(address: i32, bytes: i32, seed: i64) -> i32`: an instance with the configuration at an address.
    pub const NEW: &str = "nilometer_new";
    /// `(area: i32, packets: i32, now_ns: i64) -> i32`: decides on a batch.
    pub const PROCESS: &str = "nilometer_process";
    /// `(address: i32, bytes: i32, now_ns: i64) -> i32`: answers a message.
    pub const MESSAGE: &str = "nilometer_message";
    /// `(now_ns: i64) -> i32`: the timer is due.
    pub const TIMEOUT: &str = "nilometer_timeout";
    /// `() -> i32`: the address of the counters, 8 bytes each; called once, after `nilometer_new`.
    pub const COUNTERS: &str = "nilometer_counters";
}

/// The functions that a plugin may import, from the module [`IMPORTS`].
pub mod imports {
    /// `(address: i32, bytes: i32) -> i32`: sends an IP packet; 1 when it will be sent.
    pub const EMIT: &str = "emit";
    /// `(address: i32, bytes: i32)`: a line for the operator.
    pub const LOG: &str = "log";
    /// `(address: i32, bytes: i32)`: the answer to a message, or what is wrong with it or with the configuration.
    pub const REPLY: &str = "reply";
    /// `(at_ns: i64)`: sets the timer, or cancels it with -1.
    pub const SET_TIMER: &str = "set_timer";
    /// `() -> i64`: bits per second that the scheduler of the output gives the flow of the batch now, or -1 where that
    /// is not known.
    pub const SHARE: &str = "share";
    /// `(address: i32, bytes: i32)`: why the plugin is about to trap.
    pub const FAULT: &str = "fault";
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::offset_of;

    #[test]
    fn a_descriptor_lies_as_it_is_documented() {
        let mut bytes = Descriptor::undecided(0x0403_0201, 0x0605, 0x0c0b_0a09_0807);
        assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 0, 0, 0]);
        bytes[12..14].copy_from_slice(&[13, 14]);
        assert_eq!(Descriptor::written(&bytes), (13, 14));
        let fields = [
            offset_of!(Descriptor, address),
            offset_of!(Descriptor, seen_bytes),
            offset_of!(Descriptor, ip_bytes),
            offset_of!(Descriptor, input),
            offset_of!(Descriptor, output),
            offset_of!(Descriptor, decision),
            offset_of!(Descriptor, flags),
        ];
        assert_eq!(fields, [0, 4, 6, 8, 10, 12, 13]);
        assert_eq!(size_of::<Descriptor>(), DESCRIPTOR_BYTES);
    }
}
