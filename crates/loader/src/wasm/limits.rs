//! What a module may use: memory, and instructions in a call.

use nilometer_plugin::interface::TEXT_BYTES_MAX;

/// Limits of the instances of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the module.
    pub module_bytes: usize,
    /// Bytes of the linear memory of an instance.
    pub memory_bytes: usize,
    /// Instructions of any call.
    pub call_instructions: u64,
    /// Instructions of a call that has packets, besides, for each of them.
    pub packet_instructions: u64,
    /// Instructions for the initialisation of an instance.
    pub start_instructions: u64,
}

/// An instruction takes some 0.2 ns: a call of 256 packets that never ends is cut off after a millisecond.
impl Default for Limits {
    fn default() -> Limits {
        Limits {
            module_bytes: 4 << 20,
            memory_bytes: 16 << 20,
            call_instructions: 500_000,
            packet_instructions: 20_000,
            start_instructions: 50_000_000,
        }
    }
}

impl Limits {
    /// The most that may be configured for a class: a call of 256 packets ends within some milliseconds.
    pub const MOST: Limits = Limits {
        module_bytes: 16 << 20,
        memory_bytes: 256 << 20,
        call_instructions: 10_000_000,
        packet_instructions: 100_000,
        start_instructions: 500_000_000,
    };

    /// Each no more than in `most`.
    #[must_use]
    pub fn within(&self, most: &Limits) -> Limits {
        Limits {
            module_bytes: self.module_bytes.min(most.module_bytes),
            memory_bytes: self.memory_bytes.min(most.memory_bytes),
            call_instructions: self.call_instructions.min(most.call_instructions),
            packet_instructions: self.packet_instructions.min(most.packet_instructions),
            start_instructions: self.start_instructions.min(most.start_instructions),
        }
    }

    /// Instructions of a call with so many packets.
    pub fn budget(&self, packets: usize) -> u64 {
        self.packet_instructions
            .saturating_mul(packets as u64)
            .saturating_add(self.call_instructions)
    }

    /// Instructions of a call with a text: a few for each of its bytes.
    pub fn text_budget(&self) -> u64 {
        self.call_instructions.saturating_add(16 * TEXT_BYTES_MAX as u64)
    }
}
