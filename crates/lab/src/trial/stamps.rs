//! When packets of captures passed: by their own stamps, or evenly spaced where they have no clock.

/// When packets passed, in the order in which they are read.
pub(super) struct Stamps {
    /// From one packet to the next where they have no clock of their own, ns.
    spacing_ns: Option<f64>,
    packets: u64,
    /// Of these, those that are stamped 0.
    zeros: u64,
    before_ns: u64,
}

impl Stamps {
    /// The packets' own stamps, or `rate` packets a second.
    pub(super) fn of(rate: Option<f64>) -> Stamps {
        Stamps { spacing_ns: rate.map(|rate| 1e9 / rate), packets: 0, zeros: 0, before_ns: 0 }
    }

    /// The stamp of the next packet, ns since 1970, where it has this one of its own; of a stray one without, that
    /// of the packet before it.
    pub(super) fn next(&mut self, own_ns: u64) -> u64 {
        self.packets += 1;
        self.zeros += u64::from(own_ns == 0);
        if own_ns != 0 {
            self.before_ns = own_ns;
        }
        self.spacing_ns.map_or(self.before_ns, |spacing| (self.packets as f64 * spacing) as u64)
    }

    /// Have most packets no clock?
    pub(super) fn is_unstamped(&self) -> bool {
        2 * self.zeros > self.packets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stray packet without a stamp takes that of the one before; where most have none there is no clock.
    #[test]
    fn a_stray_packet_without_a_stamp_leaves_the_clock() {
        let all = |stamps: &[u64], rate| {
            let mut read = Stamps::of(rate);
            let at: Vec<u64> = stamps.iter().map(|ns| read.next(*ns)).collect();
            (at, read.is_unstamped())
        };
        assert_eq!(all(&[5, 0, 9], None), (vec![5, 5, 9], false));
        assert_eq!(all(&[0, 0, 9], None), (vec![0, 0, 9], true));
        assert_eq!(all(&[0, 0], Some(1e9)), (vec![1, 2], true));
        assert!(!all(&[], None).1);
    }
}
