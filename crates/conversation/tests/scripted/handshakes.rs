//! What handshakes show of the round trips to both ends.

use super::script::{C, Script};
use super::{MS, follow};

/// A SYN that is repeated while its answer is under way seems to be answered at once (Karn's
/// algorithm).
#[test]
fn a_repeated_handshake_segment_gives_no_round_trip() {
    let handshake = |script: &Script| follow(&script.packets, usize::MAX).remove(0).handshake_ns;
    let mut script = Script::new(1_000);
    script.syn().after(1_000).syn().after(200).syn_ack().after(40).ack(C);
    script.after(10).says(C, 400);
    assert_eq!(handshake(&script), [None, Some(40 * MS)]);
    let mut script = Script::new(1_000);
    script.syn().after(30).syn_ack().after(1_000).syn_ack().after(5).ack(C);
    script.after(10).says(C, 400);
    assert_eq!(handshake(&script), [Some(30 * MS), None]);
}
