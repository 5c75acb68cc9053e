//! The tag of a test frame: run, stream and sequence number in sixteen bytes that survive a single-bit error.
//!
//! ```text
//!   0        4      5                  12       16
//!   run      stream sequence number    CRC-32
//! ```
//!
//! All in network byte order, directly behind the UDP header. The check (CRC-32 of IEEE 802.3, over the twelve
//! bytes before it) is linear: what an error adds to it depends on the error alone. So each of the 128
//! single-bit errors has a syndrome of its own, by which it is found and repaired, and a frame that a device has
//! damaged in its tag is still identified.

/// Bytes of a tag.
pub const TAG_BYTES: usize = 16;
/// The highest sequence number that a tag can carry.
pub const SEQUENCE_MAX: u64 = (1 << 56) - 1;

const CHECKED_BYTES: usize = 12;
const POLYNOMIAL: u32 = 0xedb8_8320;
const TABLE: [u32; 256] = table();
/// What the check and the bytes before it differ by where one bit is wrong, by the number of the bit.
const SYNDROMES: [u32; 8 * TAG_BYTES] = syndromes();

/// The content of a test frame's tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The run, which distinguishes frames of other runs.
    pub run: u32,
    /// The stream within the run.
    pub stream: u8,
    /// The number of the frame within its stream, from 0; [`SEQUENCE_MAX`] at the most.
    pub sequence: u64,
}

/// A tag as it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundTag {
    /// Its content, or its content before one of its bits was flipped.
    pub tag: Tag,
    /// One of its bits was flipped.
    pub is_repaired: bool,
}

impl Tag {
    /// The bytes of the tag.
    pub fn bytes(&self) -> [u8; TAG_BYTES] {
        let mut bytes = [0; TAG_BYTES];
        bytes[..4].copy_from_slice(&self.run.to_be_bytes());
        let place = u64::from(self.stream) << 56 | self.sequence & SEQUENCE_MAX;
        bytes[4..12].copy_from_slice(&place.to_be_bytes());
        let check = crc(&bytes[..CHECKED_BYTES]);
        bytes[12..].copy_from_slice(&check.to_be_bytes());
        bytes
    }

    /// Reads a tag in which at most one bit is wrong; `None` if more are, or if there is no tag.
    pub fn find(bytes: &[u8; TAG_BYTES]) -> Option<FoundTag> {
        let syndrome = syndrome(bytes);
        if syndrome == 0 {
            return Some(FoundTag { tag: read(bytes), is_repaired: false });
        }
        let bit = SYNDROMES.iter().position(|&one| one == syndrome)?;
        let mut repaired = *bytes;
        repaired[bit / 8] ^= 1 << (bit % 8);
        Some(FoundTag { tag: read(&repaired), is_repaired: true })
    }
}

fn read(bytes: &[u8; TAG_BYTES]) -> Tag {
    let [a, b, c, d, stream, e @ ..] = *bytes;
    let [e, f, g, h, i, j, k, ..] = e;
    Tag {
        run: u32::from_be_bytes([a, b, c, d]),
        stream,
        sequence: u64::from_be_bytes([0, e, f, g, h, i, j, k]),
    }
}

fn syndrome(bytes: &[u8; TAG_BYTES]) -> u32 {
    let stored = u32::from_be_bytes([bytes[12], bytes[13], bytes[14], bytes[15]]);
    crc(&bytes[..CHECKED_BYTES]) ^ stored
}

const fn step(register: u32, byte: u8) -> u32 {
    TABLE[((register ^ byte as u32) & 0xff) as usize] ^ (register >> 8)
}

fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |register, &byte| step(register, byte))
}

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let mut register = at as u32;
        let mut bit = 0;
        while bit < 8 {
            register = if register & 1 == 1 { POLYNOMIAL ^ (register >> 1) } else { register >> 1 };
            bit += 1;
        }
        table[at] = register;
        at += 1;
    }
    table
}

const fn syndromes() -> [u32; 8 * TAG_BYTES] {
    let mut all = [0; 8 * TAG_BYTES];
    let mut bit = 0;
    while bit < 8 * TAG_BYTES {
        let mut error = [0u8; TAG_BYTES];
        error[bit / 8] = 1 << (bit % 8);
        // For an error alone the register begins with zeros: its initial value is the same in both checks.
        let mut register = 0;
        let mut at = 0;
        while at < CHECKED_BYTES {
            register = step(register, error[at]);
            at += 1;
        }
        let stored = u32::from_be_bytes([error[12], error[13], error[14], error[15]]);
        all[bit] = register ^ stored;
        bit += 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_stat::Rng;

    fn any(rng: &mut Rng) -> Tag {
        let word = rng.next_u64();
        Tag { run: word as u32, stream: (word >> 32) as u8, sequence: rng.next_u64() >> 8 }
    }

    #[test]
    fn the_check_is_that_of_ethernet() {
        assert_eq!(crc(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn a_tag_with_any_single_bit_error_is_read() {
        let mut rng = Rng::new(28, 1, 0);
        for _ in 0..200 {
            let tag = any(&mut rng);
            let bytes = tag.bytes();
            assert_eq!(Tag::find(&bytes), Some(FoundTag { tag, is_repaired: false }));
            for bit in 0..8 * TAG_BYTES {
                let mut wrong = bytes;
                wrong[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Tag::find(&wrong), Some(FoundTag { tag, is_repaired: true }), "{bit}");
            }
        }
    }

    #[test]
    fn two_wrong_bits_are_never_taken_for_another_tag() {
        let mut rng = Rng::new(28, 1, 1);
        let bytes = any(&mut rng).bytes();
        for one in 0..8 * TAG_BYTES {
            for other in 0..one {
                let mut wrong = bytes;
                wrong[one / 8] ^= 1 << (one % 8);
                wrong[other / 8] ^= 1 << (other % 8);
                assert_eq!(Tag::find(&wrong), None, "{one} {other}");
            }
        }
    }
}
