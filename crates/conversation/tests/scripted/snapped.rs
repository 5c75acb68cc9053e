//! Options that a snap length cut.

use super::*;

const TIME_STAMPS: [u8; 12] = [1, 1, 8, 10, 0, 0, 0, 7, 0, 0, 0, 9];
/// With time stamps, and without: segment size, SACK permitted, (time stamps,) window scale.
const OF_SYN: [&[u8]; 2] = [
    &[2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 7, 0, 0, 0, 9, 1, 3, 3, 7],
    &[2, 4, 5, 180, 1, 3, 3, 8, 1, 1, 4, 2],
];
const BLOCK: [u8; 8] = [0, 0, 0, 1, 0, 0, 0, 2];

/// An IPv4 packet whose segment has these options.
fn with_options(bytes: &[u8], options: &[u8]) -> Vec<u8> {
    let mut longer = [&bytes[..40], options, &bytes[40..]].concat();
    let length = longer.len() as u16;
    longer[2..4].copy_from_slice(&length.to_be_bytes());
    longer[32] = (5 + options.len() as u8 / 4) << 4;
    longer
}

/// This many SACK blocks, padded.
fn sack(blocks: u8) -> Vec<u8> {
    [&[1, 1, 5, 2 + 8 * blocks][..], &BLOCK.repeat(blocks.into())].concat()
}

/// A connection whose acknowledgements without data report what was lost, all others with or without stamps.
fn packets(has_time_stamps: bool, blocks: u8) -> Vec<Packet> {
    let mut script = usual();
    for (_, bytes) in &mut script.packets {
        let (flags, is_empty) = (bytes[33], bytes.len() == 40);
        let stamps = if has_time_stamps { &TIME_STAMPS[..] } else { &[] };
        let options = match flags & 0x07 {
            0x02 => OF_SYN[usize::from(!has_time_stamps)].to_vec(),
            0 if is_empty => [stamps, &sack(blocks)].concat(),
            _ => stamps.to_vec(),
        };
        *bytes = with_options(bytes, &options);
    }
    script.packets
}

/// However much of the options is left, the vector is that of the whole packets.
#[test]
fn a_cut_option_is_not_an_absent_one() {
    for has_time_stamps in [true, false] {
        for blocks in 1..=if has_time_stamps { 3 } else { 4 } {
            let packets = packets(has_time_stamps, blocks);
            let whole = follow(&packets, usize::MAX);
            assert_eq!(whole[0].has_time_stamps, has_time_stamps);
            assert_eq!(described(&whole[0]), USUAL.trim().replace("\n        ", "\n"));
            for snap_bytes in 40..80 {
                let cut = follow(&packets, snap_bytes);
                assert_eq!(cut, whole, "{snap_bytes} bytes of each, {blocks} blocks");
            }
        }
    }
}

/// A SYN carries other options, and is judged by their usual length.
#[test]
fn an_unanswered_syn_shows_time_stamps_by_its_length() {
    for (has_time_stamps, options) in [true, false].into_iter().zip(OF_SYN) {
        let mut script = Script::new(1_000);
        script.syn();
        let packets = [(0, with_options(&script.packets[0].1, options))];
        for snap_bytes in [40, 45, 80] {
            let found = follow(&packets, snap_bytes);
            assert_eq!(found[0].has_time_stamps, has_time_stamps, "{snap_bytes}");
        }
    }
}
