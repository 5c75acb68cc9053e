//! Stamps by packet sockets, where BPF programs may not be loaded: both rings over `crate::ring`.
//!
//! Their clock is CLOCK_REALTIME, brought to CLOCK_MONOTONIC by the difference of both when the ring was opened. Frames are not
//! dropped: the host's kernel gets them as well.

use anyhow::Result;
use rustix::time::ClockId;

use super::{Arrival, FRAME_BYTES_MIN, PLACE_AT, RUN_AT, Watched, monotonic_ns, nanoseconds};
use crate::ring::{Ring, RingConfig};

/// What a frame takes in a ring, beside its bytes.
const FRAME_OVERHEAD_BYTES: usize = 128;
/// A block is given out after a millisecond, full or not, so that `n` blocks last `n` milliseconds.
const RETIRE_MS: u32 = 1;
const BLOCKS: usize = 1_024;
const BLOCK_BYTES: usize = 1 << 16;

/// From CLOCK_REALTIME to CLOCK_MONOTONIC, ns, wrapping.
fn clock_difference() -> u64 {
    monotonic_ns().wrapping_sub(nanoseconds(ClockId::Realtime))
}

fn open(interface: &str, slots: usize, kept_bytes: usize) -> Result<Ring> {
    let bytes = slots * (kept_bytes + FRAME_OVERHEAD_BYTES);
    let config = RingConfig {
        block_bytes: BLOCK_BYTES as u32,
        blocks: bytes.div_ceil(BLOCK_BYTES).clamp(BLOCKS, 4 * BLOCKS) as u32,
        retire_ms: RETIRE_MS,
        snap_bytes: Some(kept_bytes as u32),
    };
    Ring::open(interface, config)
}

fn run_of(frame: &[u8]) -> Option<u32> {
    frame.get(RUN_AT..RUN_AT + 4)?.try_into().ok().map(u32::from_be_bytes)
}

/// Departures by a packet socket.
pub struct SocketDepartures {
    ring: Ring,
    run: u32,
    difference: u64,
}

impl SocketDepartures {
    pub(super) fn open(interface: &str, run: u32, slots: usize) -> Result<SocketDepartures> {
        let ring = open(interface, slots, FRAME_BYTES_MIN)?;
        Ok(SocketDepartures { ring, run, difference: clock_difference() })
    }

    pub(super) fn drain(&mut self, mut each: impl FnMut(u64, u64)) -> Result<usize> {
        self.ring.poll(0)?;
        let mut count = 0;
        let (run, difference) = (self.run, self.difference);
        self.ring.drain(|seen| {
            let place = seen.frame.get(PLACE_AT..PLACE_AT + 8);
            if let Some(place) = place
                && seen.outgoing
                && run_of(seen.frame) == Some(run)
            {
                let place = u64::from_be_bytes(place.try_into().expect("eight bytes"));
                each(place << 8 >> 8, seen.stamp_ns.wrapping_add(difference));
                count += 1;
            }
        });
        Ok(count)
    }

    pub(super) fn lost(&mut self) -> Result<u64> {
        Ok(self.ring.statistics()?.dropped)
    }
}

/// Arrivals by a packet socket.
pub struct SocketArrivals {
    ring: Ring,
    watched: Watched,
    difference: u64,
}

impl SocketArrivals {
    pub(super) fn open(
        interface: &str,
        watched: Watched,
        slots: usize,
        frame_bytes_max: usize,
    ) -> Result<SocketArrivals> {
        let ring = open(interface, slots, frame_bytes_max)?;
        Ok(SocketArrivals { ring, watched, difference: clock_difference() })
    }

    pub(super) fn drain(&mut self, mut each: impl FnMut(Arrival<'_>)) -> Result<usize> {
        self.ring.poll(0)?;
        let mut count = 0;
        let (watched, difference) = (self.watched, self.difference);
        self.ring.drain(|seen| {
            if !seen.outgoing && is_test_frame(seen.frame, watched) {
                let stamp_ns = seen.stamp_ns.wrapping_add(difference);
                each(Arrival { stamp_ns, bytes: seen.original_bytes, frame: seen.frame });
                count += 1;
            }
        });
        Ok(count)
    }

    pub(super) fn lost(&mut self) -> Result<u64> {
        Ok(self.ring.statistics()?.dropped)
    }
}

/// As the program decides it.
fn is_test_frame(frame: &[u8], watched: Watched) -> bool {
    if frame.len() < FRAME_BYTES_MIN {
        return false;
    }
    let (network, length) = watched.source;
    let mask = u32::MAX << (32 - u32::from(length.clamp(1, 32)));
    let source = u32::from_be_bytes([frame[26], frame[27], frame[28], frame[29]]);
    let is_from_source =
        frame[12..14] == [8, 0] && frame[23] == 17 && source & mask == u32::from(network) & mask;
    run_of(frame) == Some(watched.run) || is_from_source
}
