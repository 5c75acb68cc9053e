//! Which queue a flow waits in.

/// How flows are spread over queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hashing {
    /// Flow modulo the number of queues: with flows numbered from zero, a queue for each as long as
    /// there are enough.
    #[default]
    Direct,
    /// By a seeded hash, as where flows are many and their numbers mean nothing.
    Mixed,
}

/// A hashing, ready for a number of queues.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    hashing: Hashing,
    queues: u32,
    seed: u64,
}

impl Spread {
    /// Over `queues`, which is not zero.
    pub(crate) fn new(hashing: Hashing, queues: u32, seed: u64) -> Spread {
        Spread { hashing, queues: queues.max(1), seed }
    }

    /// The queue of `flow`, below the number of queues.
    #[inline]
    pub(crate) fn queue(&self, flow: u32) -> u32 {
        match self.hashing {
            // Skip the division where it changes nothing.
            Hashing::Direct if flow < self.queues => flow,
            Hashing::Direct => flow % self.queues,
            Hashing::Mixed => self.mixed(flow),
        }
    }

    /// Two rounds of xor-shift and multiply (the finaliser of splitmix64: Steele, Lea, Flood 2014),
    /// then the high bits times the number of queues: no division, and no power of two is needed.
    #[inline]
    fn mixed(&self, flow: u32) -> u32 {
        let mut word = (u64::from(flow) ^ self.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((((word ^ (word >> 31)) >> 32) * u64::from(self.queues)) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn direct_gives_each_flow_its_own_queue_while_there_are_enough() {
        let spread = Spread::new(Hashing::Direct, 10, 3);
        for flow in 0..100 {
            assert_eq!(spread.queue(flow), flow % 10);
        }
    }

    /// The first three numbers of SplitMix64 from state 0, as published; over 2³² − 1 queues nearly
    /// the upper half of each word is the queue.
    #[test]
    fn mixed_is_the_finaliser_of_splitmix64() {
        let published = [0xe220_a839_7b1d_cdaf_u64, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f];
        let spread = Spread::new(Hashing::Mixed, u32::MAX, 0);
        let seeded = Spread::new(Hashing::Mixed, u32::MAX, 7);
        for (flow, word) in (1..).zip(published) {
            assert_eq!(spread.queue(flow), (word >> 32) as u32 - 1);
            assert_eq!(seeded.queue(flow ^ 7), spread.queue(flow));
        }
    }

    /// 100,000 consecutive flow numbers over 64 queues: each queue's share within 5 standard
    /// deviations of the mean; and another seed is another spread.
    #[test]
    fn mixed_spreads_evenly_and_by_its_seed() {
        let [one, other] = [1, 2].map(|seed| Spread::new(Hashing::Mixed, 64, seed));
        let mut counts = vec![0u32; 64];
        let mut same = 0u32;
        for flow in 0..100_000 {
            counts[one.queue(flow) as usize] += 1;
            same += u32::from(one.queue(flow) == other.queue(flow));
        }
        let mean = 100_000.0 / 64.0;
        let far = 5.0 * libm::sqrt(mean);
        assert!(counts.iter().all(|&n| (f64::from(n) - mean).abs() < far), "{counts:?}");
        assert!((f64::from(same) - mean).abs() < far, "{same} flows kept their queue");
    }
}
