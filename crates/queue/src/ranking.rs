//! The ranking of queues by length, maintained only while it is in use.
//!
//! Push-out needs the longest queue, and only when the buffer is full; keeping [`Lengths`] up to date
//! costs every packet about as much as its queue does. So the ranking is dropped when it has not been used
//! during [`PATIENCE`] changes per queue, and rebuilt from the queues at its next use. They know their
//! lengths and when they last changed, which is all that it depends on: of equally long queues the one
//! that changed last is the longest, so ranking them in the order of (length, last change) gives the
//! ranking that would have been maintained. That takes a sort of the active queues, but never more often
//! than once in [`PATIENCE`] changes per queue.

use alloc::vec::Vec;

use crate::capacity::Capacity;
use crate::discipline::Packet;
use crate::lengths::Lengths;
use crate::round_robin::RoundRobin;

/// Changes per queue for which the ranking is maintained without being used.
const PATIENCE: u32 = 4;

/// A [`Lengths`] that is built when it is needed.
#[derive(Clone, Debug)]
pub(crate) struct Ranking {
    lengths: Lengths,
    is_kept: bool,
    /// Changes since the last use.
    unasked: u32,
    patience: u32,
    /// Length, moment of the last change, number: scratch space for rebuilding it.
    order: Vec<(u64, u64, u32)>,
}

impl Ranking {
    /// Of `queues` empty queues; the rest is as for [`Lengths::new`].
    pub(crate) fn new(queues: u32, capacity: Capacity, with_smallest: bool) -> Ranking {
        Ranking {
            lengths: Lengths::new(queues, capacity, with_smallest),
            is_kept: false,
            unasked: 0,
            patience: queues.saturating_mul(PATIENCE),
            order: Vec::new(),
        }
    }

    /// Whether changes have to be reported to it.
    #[inline]
    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// The length of `queue` is now `to`; of a queue counted in packets it was one less or more.
    #[inline]
    pub(crate) fn change(&mut self, queue: u32, to: u64) {
        if self.is_kept {
            self.change_kept(queue, to);
        }
    }

    /// (A function of its own, so that callers without a ranking to maintain pay for a test only.)
    fn change_kept(&mut self, queue: u32, to: u64) {
        self.lengths.change(queue, to);
        self.unasked += 1;
        self.is_kept = self.unasked <= self.patience;
    }

    /// The ranking of the queues of `core`, all of whose changes must have been reported.
    #[inline]
    pub(crate) fn ask<P: Packet>(&mut self, core: &RoundRobin<P>) -> &Lengths {
        self.unasked = 0;
        if !self.is_kept {
            self.make(core);
        }
        &self.lengths
    }

    #[cold]
    fn make<P: Packet>(&mut self, core: &RoundRobin<P>) {
        self.order.clear();
        self.order.extend(core.active());
        self.order.sort_unstable();
        self.lengths.clear();
        for &(length, _, queue) in &self.order {
            self.lengths.rank(queue, length);
        }
        self.is_kept = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::End;
    use crate::discipline::Reason;
    use crate::hashing::Hashing;
    use crate::round_robin::Layout;
    use nilometer_stat::Rng;
    use nilometer_wire::Ecn;

    struct Piece(u32, u32);

    impl Packet for Piece {
        fn bytes(&self) -> u32 {
            self.1
        }
        fn flow(&self) -> u32 {
            self.0
        }
        fn ecn(&self) -> Ecn {
            Ecn::NotCapable
        }
        fn mark(&mut self) {}
    }

    /// Used now and then, it equals a ranking that is always maintained.
    fn hold(capacity: Capacity) {
        for seed in 0..100 {
            let mut rng = Rng::new(seed, 7, 0);
            let queues = 1 + rng.below(20) as u32;
            let hashing = Hashing::Direct;
            let layout = Layout { capacity, queues, hashing, hash_seed: 0, mtu_bytes: 1_500 };
            let mut core = RoundRobin::<Piece>::new(&layout).expect("sound");
            let mut ranking = Ranking::new(queues, capacity, true);
            let mut kept = Lengths::new(queues, capacity, true);
            let mut made = 0;
            for moment in 0..4_000 {
                let moved = match rng.below(2) {
                    0 => {
                        let flow = rng.below(queues.into()) as u32;
                        let number = core.queue_of(flow);
                        core.push(number, Piece(flow, rng.below(1_500) as u32))
                    }
                    _ => match core.send() {
                        Some(sent) => {
                            core.take(sent);
                            sent
                        }
                        None => continue,
                    },
                };
                ranking.change(moved.queue, moved.units);
                kept.change(moved.queue, moved.units);
                // Often for a while, then hardly ever.
                if rng.below(if moment / 500 % 2 == 0 { 3 } else { 200 }) > 0 {
                    continue;
                }
                made += u32::from(!ranking.is_kept);
                let longest = ranking.ask(&core).longest();
                assert_eq!(longest, kept.longest(), "seed {seed}, {moment}");
                for queue in (0..queues).filter(|queue| core.units(*queue) > 0) {
                    for strictly in [false, true] {
                        let answer = ranking.ask(&core).is_smallest(queue, strictly);
                        assert_eq!(answer, kept.is_smallest(queue, strictly), "seed {seed}");
                    }
                }
                if let Some(victim) = longest.filter(|_| core.is_over()) {
                    let drops = &mut Vec::<(Reason, Piece)>::new();
                    let dropped = core.push_out(victim, End::Front, moved, drops);
                    let dropped = dropped.expect("it is not empty");
                    ranking.change(victim, dropped.units);
                    kept.change(victim, dropped.units);
                }
            }
            assert!(made > 1 || queues > 10, "seed {seed}: made {made} times");
        }
    }

    #[test]
    fn a_rebuilt_ranking_equals_a_maintained_one() {
        hold(Capacity::Packets(100));
        hold(Capacity::Bytes(60_000));
    }

    /// What a ranking is made from is the same however packets left: lengths, order of changes, the round.
    #[test]
    fn batch_departures_leave_the_queues_as_single_ones() {
        for seed in 0..100 {
            let mut rng = Rng::new(seed, 8, 0);
            let (capacity, hashing) = (Capacity::Packets(100), Hashing::Direct);
            let queues = 1 + rng.below(8) as u32;
            let layout = Layout { capacity, queues, hashing, hash_seed: 0, mtu_bytes: 1_500 };
            let [mut all, mut one] = [(); 2].map(|()| RoundRobin::new(&layout).expect("sound"));
            for _ in 0..2_000 {
                for _ in 0..rng.below(6) {
                    let (flow, bytes) = (rng.below(queues.into()) as u32, rng.below(1_501) as u32);
                    all.push(flow, Piece(flow, bytes));
                    one.push(flow, Piece(flow, bytes));
                }
                let most = 1 + rng.below(5);
                let (mut left_all, mut left_one) = (0, 0);
                all.send_while(|_| {
                    left_all += 1;
                    left_all < most
                });
                while left_one < most
                    && let Some(sent) = one.send()
                {
                    one.take(sent);
                    left_one += 1;
                }
                assert_eq!(left_all, left_one, "seed {seed}");
                let order = |core: &RoundRobin<Piece>| core.active().collect::<Vec<_>>();
                assert_eq!(order(&all), order(&one), "seed {seed}");
                assert_eq!(all.backlog(), one.backlog());
            }
        }
    }
}
