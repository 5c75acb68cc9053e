//! The worked example of the DER paper, Figures 23 and 24.
//!
//! The figures themselves are lost. The text gives the root's internal prefix bitmap whole, hence the
//! prefixes *, 10*, 01* and 110*, the first six bits of its extending paths, and the address. The longer
//! prefixes here are some that have those paths.

use nilometer_router::{Fib, NextHop, Prefix, TreeBitmap};

/// A prefix as the paper writes it, in binary.
fn prefix(bits: &str) -> Prefix<u32> {
    let address = bits.bytes().fold(0u64, |sum, bit| sum << 1 | u64::from(bit == b'1'));
    let address = (address << (32 - bits.len())) as u32;
    Prefix::new(address, bits.len() as u32).expect("at most 32 bits")
}

const PREFIXES: [(&str, u16); 12] = [
    ("", 35),
    ("10", 7),
    ("01", 21),
    ("110", 9),
    ("1011", 1),
    ("0001", 68),
    ("01011", 51),
    ("00110", 3),
    ("10001", 6),
    ("100001", 33),
    ("10000000", 54),
    ("1000000000", 12),
];

fn table() -> TreeBitmap<u32, 4, 0> {
    let mut table = TreeBitmap::new(100).expect("room for a root");
    for (bits, next) in PREFIXES {
        assert_eq!(table.insert(prefix(bits), NextHop(next)), Ok(None));
    }
    table
}

/// "1 00 0110 00000010", and "010101" in the first six bits of the extending paths.
#[test]
fn the_root_has_the_bitmaps_of_figure_24() {
    let (internal, external) = table().bitmaps(0);
    assert_eq!(internal, "100011000000010");
    assert_eq!(external, "0101010010010000");
    assert!(external.starts_with("010101"));
}

#[test]
fn the_lookup_of_figure_23_ends_at_the_prefix_of_eight_bits() {
    let table = table();
    let address = u32::from_be_bytes([128, 252, 153, 160]);
    assert_eq!(table.lookup(address), Some(NextHop(54)));
    let at = |a, b| table.lookup(u32::from_be_bytes([a, b, 0, 0])).map(|next| next.0);
    assert_eq!(at(128, 0), Some(12));
    assert_eq!(at(0b1000_0100, 0), Some(33));
    assert_eq!(at(0b1001_0000, 0), Some(7));
    assert_eq!(at(0b1111_0000, 0), Some(35));
}
