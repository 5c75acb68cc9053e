//! Packets of one side alone.

use super::*;

/// Following one side of a full capture gives the same result as a capture of that side.
#[test]
fn one_side_of_a_capture_agrees_with_a_capture_of_one_direction() {
    let whole = usual();
    for side in [C, S] {
        let mut script = usual();
        let other = script.of(if side == C { S } else { C });
        script.packets.retain(|packet| !other.contains(packet));
        let only = if side == C { Side::Client } else { Side::Server };
        let looked = Follower::of_one_side(Limits::default(), only);
        let found = follow_by(looked, &whole.packets, usize::MAX);
        assert_eq!(found, follow(&script.packets, usize::MAX));
        assert_eq!(found[0].of(only).packets, script.packets.len() as u64);
    }
}
