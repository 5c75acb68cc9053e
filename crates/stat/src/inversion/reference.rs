//! Laws that lengths of flows are known to follow, each with few parameters.
//!
//! * *mice and elephants*: short flows with a geometric law, long ones with a Pareto law;
//! * *lognormal*;
//! * *lognormal with a tail*: most flows lognormal, the others with a Pareto law (the files of the Web:
//!   Barford and Crovella, SIGMETRICS 1998);
//! * *two lognormals*: short answers and long downloads;
//! * *Pareto*, from its least size on, where it begins at once;
//! * *Weibull*.
//!
//! They are laws of the packets, at least one, beyond the *control* packets of every flow (its SYN, and its FIN where
//! that has no payload). For short flows this is most of what can be known: without it, flows that carry files were
//! estimated to have lengths of one packet where there were none, a tenth of all flows at 1:100 and a fifth at 1:1000.
//! Flows of control packets alone are a thousandth ([`BARE`]) unless the records show more.

use core::f64::consts::SQRT_2;

use alloc::vec::Vec;

use super::grid::{Bin, SHARE_MIN};

/// The share of flows that have control packets and no others.
const BARE: f64 = 1e-3;
/// Points, relative to its least size, at which parts of a smoothly beginning Pareto law begin.
const BEGINNINGS: [f64; 4] = [0.75, 0.9, 1.1, 1.33];

/// Logarithms of lengths between which medians are searched, and the steps that find one to within 1e-9.
const LN_LENGTH_MIN: f64 = -12.0;
const LN_LENGTH_MAX: f64 = 24.0;
const BISECTIONS: u32 = 35;

/// A law of the lengths of flows, in packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reference {
    /// Short flows of a geometric law, long ones of a Pareto law.
    MiceAndElephants {
        /// The elephants' share of the flows.
        elephants: f64,
        /// The mean length of the mice.
        mice_mean: f64,
        /// The least length of an elephant.
        least: f64,
        /// Their tail index.
        index: f64,
    },
    /// A lognormal law, rounded up to whole packets.
    Lognormal {
        /// The mean of the length's logarithm.
        mu: f64,
        /// The deviation of the length's logarithm.
        sigma: f64,
    },
    /// A lognormal law, rounded up, and a Pareto law of the longest.
    LognormalAndTail {
        /// The mean of the length's logarithm.
        mu: f64,
        /// The deviation of the length's logarithm.
        sigma: f64,
        /// The share of the flows that follow the Pareto law.
        tail: f64,
        /// The least length of those.
        least: f64,
        /// Their tail index.
        index: f64,
    },
    /// Two lognormal laws, rounded up.
    TwoLognormals {
        /// The share of the flows that follow the second law, of longer ones.
        second: f64,
        /// The means of the length's logarithm.
        mu: [f64; 2],
        /// The deviations of the length's logarithm.
        sigma: [f64; 2],
    },
    /// A Pareto law alone, rounded up.
    Pareto {
        /// The least length.
        least: f64,
        /// The tail index.
        index: f64,
    },
    /// A Weibull law, rounded up.
    Weibull {
        /// Its scale, packets.
        scale: f64,
        /// Its shape: 1 is exponential, less has a longer tail.
        shape: f64,
    },
}

/// How lengths of flows follow from a law.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Layout {
    /// Packets of each flow besides those that the law counts.
    pub control: f64,
    /// The law is of files, whose segments are rounded up to packets; otherwise a Pareto law is rounded down.
    pub is_rounded_up: bool,
}

/// P(X > `x`) of a lognormal law.
fn lognormal(x: f64, mu: f64, sigma: f64) -> f64 {
    if x <= 0.0 { 1.0 } else { 0.5 * libm::erfc((libm::log(x) - mu) / (sigma * SQRT_2)) }
}

/// P(X > `x`) of a Pareto law.
fn pareto(x: f64, least: f64, index: f64) -> f64 {
    if x <= least { 1.0 } else { libm::pow(least / x, index) }
}

/// The median, by the decreasing share that exceeds each length: bisection of the length's logarithm.
pub(super) fn median(beyond: impl Fn(f64) -> f64) -> f64 {
    let (mut low, mut high) = (LN_LENGTH_MIN, LN_LENGTH_MAX);
    for _ in 0..BISECTIONS {
        let middle = (low + high) / 2.0;
        *if beyond(libm::exp(middle)) > 0.5 { &mut low } else { &mut high } = middle;
    }
    libm::exp((low + high) / 2.0)
}

impl Reference {
    /// P(X > `x`), where X has fractions.
    pub(super) fn beyond(&self, x: f64) -> f64 {
        self.beyond_each(x, |least, index| pareto(x, least, index))
    }

    /// The median length, with fractions, packets.
    pub(super) fn median(&self) -> f64 {
        median(|x| self.beyond(x))
    }

    /// [`Self::beyond`], where a Pareto law in a mixture begins gradually, within a third of its least size.
    pub(super) fn beyond_smoothly(&self, x: f64) -> f64 {
        if matches!(self, Reference::Pareto { .. }) {
            return self.beyond(x);
        }
        self.beyond_each(x, |least, index| {
            let each = BEGINNINGS.iter().map(|begin| pareto(x, begin * least, index));
            each.sum::<f64>() / BEGINNINGS.len() as f64
        })
    }

    /// P(X > `x`), where `pareto` gives the share of a Pareto law beyond `x`, by its least size and index.
    fn beyond_each(&self, x: f64, pareto: impl Fn(f64, f64) -> f64) -> f64 {
        match *self {
            _ if x <= 0.0 => 1.0,
            Reference::MiceAndElephants { elephants, mice_mean, least, index } => {
                let mouse = libm::pow(1.0 - 1.0 / mice_mean, x);
                elephants * pareto(least, index) + (1.0 - elephants) * mouse
            }
            Reference::Lognormal { mu, sigma } => lognormal(x, mu, sigma),
            Reference::LognormalAndTail { mu, sigma, tail, least, index } => {
                tail * pareto(least, index) + (1.0 - tail) * lognormal(x, mu, sigma)
            }
            Reference::TwoLognormals { second, mu, sigma } => {
                let [one, other] = [0, 1].map(|at| lognormal(x, mu[at], sigma[at]));
                second * other + (1.0 - second) * one
            }
            Reference::Pareto { least, index } => pareto(least, index),
            Reference::Weibull { scale, shape } => libm::exp(-libm::pow(x / scale, shape)),
        }
    }

    /// P(L ≥ `length`), of whole packets.
    fn survival(&self, length: f64, is_rounded_up: bool) -> f64 {
        let at = if is_rounded_up { length - 1.0 } else { length };
        self.beyond_each(length - 1.0, |least, index| pareto(at, least, index))
    }

    /// The shares of the bins.
    pub(super) fn shares(&self, bins: &[Bin], layout: Layout) -> Vec<f64> {
        let Layout { control, is_rounded_up } = layout;
        let survival = |length: f64| self.survival(length - control, is_rounded_up);
        let share = |bin: &Bin| match bin.to <= control {
            true => BARE / control,
            false => survival(bin.from) - survival(bin.to + 1.0),
        };
        let mut shares: Vec<f64> = bins.iter().map(|bin| share(bin).max(SHARE_MIN)).collect();
        let total: f64 = shares.iter().sum();
        shares.iter_mut().for_each(|share| *share /= total);
        shares
    }
}

#[cfg(test)]
mod tests {
    use super::super::grid::Grid;
    use super::*;
    use alloc::collections::BTreeMap;

    const PLAIN: Layout = Layout { control: 0.0, is_rounded_up: false };
    const ALL: [Reference; 6] = [
        Reference::Lognormal { mu: 2.0, sigma: 1.5 },
        Reference::MiceAndElephants { elephants: 0.4, mice_mean: 3.0, least: 2.5, index: 1.2 },
        Reference::LognormalAndTail { mu: 1.0, sigma: 1.1, tail: 0.1, least: 9.0, index: 1.2 },
        Reference::TwoLognormals { second: 0.4, mu: [0.5, 3.0], sigma: [0.7, 0.9] },
        Reference::Weibull { scale: 14.0, shape: 0.5 },
        Reference::Pareto { least: 0.8, index: 1.2 },
    ];

    #[test]
    fn shares_are_those_of_the_law() {
        let grid = Grid::new(&BTreeMap::from([((4_000, 1), 1)]), 10.0, 1);
        for (law, is_rounded_up) in ALL.iter().flat_map(|law| [(law, false), (law, true)]) {
            let shares = law.shares(&grid.bins, Layout { is_rounded_up, ..PLAIN });
            assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            let first = 1.0 - law.survival(2.0, is_rounded_up);
            assert!((shares[0] / first - 1.0).abs() < 1e-3, "{law:?}: {} {first}", shares[0]);
            assert_eq!(law.survival(1.0, is_rounded_up), 1.0);
        }
    }

    /// Each flow has two control packets: lengths are those of the law plus two, and hardly any is shorter.
    #[test]
    fn control_packets_lie_before_the_law() {
        let grid = Grid::new(&BTreeMap::from([((4_000, 1), 1)]), 10.0, 1);
        for law in ALL {
            let plain = law.shares(&grid.bins, PLAIN);
            let moved = law.shares(&grid.bins, Layout { control: 2.0, ..PLAIN });
            assert!((moved[..2].iter().sum::<f64>() / BARE - 1.0).abs() < 0.01, "{moved:?}");
            for at in 0..10 {
                assert!((moved[at + 2] / plain[at] - 1.0).abs() < 2.0 * BARE, "{at}");
            }
        }
    }

    /// By hand, for whole powers.
    #[test]
    fn survival_of_a_length_is_that_of_the_law() {
        let law = |elephants: f64| Reference::MiceAndElephants {
            elephants,
            mice_mean: 4.0,
            least: 2.0,
            index: 2.0,
        };
        let near = |found: f64, expected: f64| {
            assert!((found / expected - 1.0).abs() < 1e-12, "{found} for {expected}");
        };
        near(law(0.0).survival(2.0, false), 0.75);
        near(law(0.0).survival(3.0, false), 0.5625);
        near(law(1.0).survival(1.5, false), 1.0);
        near(law(1.0).survival(2.0, false), 1.0);
        near(law(1.0).survival(4.0, false), 0.25);
        near(law(1.0).survival(5.0, true), 0.25);
        near(law(1.0).survival(10.0, false), 0.04);
        near(law(0.25).survival(3.0, false), 0.25 * (4.0 / 9.0) + 0.75 * 0.5625);
        near(law(0.75).survival(2.0, false), 0.75 + 0.25 * 0.75);
        near(Reference::Weibull { scale: 4.0, shape: 0.5 }.beyond(16.0), libm::exp(-2.0));
        // Half of a lognormal law lies beyond its median, and lengths are rounded up.
        let law = Reference::Lognormal { mu: 0.0, sigma: 0.5 };
        near(law.survival(2.0, false), 0.5);
        near(law.survival(1.0 + libm::exp(0.5), false), 0.158_655_253_931_457_05);
        near(law.survival(1.0 + libm::exp(-1.0), true), 0.977_249_868_051_820_8);
        assert_eq!((law.survival(1.0, false), law.survival(0.5, false)), (1.0, 1.0));
        let law = Reference::TwoLognormals { second: 0.25, mu: [0.0, 2.0], sigma: [0.5, 1.0] };
        near(law.beyond(1.0), 0.75 * 0.5 + 0.25 * 0.977_249_868_051_820_8);
    }

    #[test]
    fn half_of_the_flows_are_longer_than_the_median() {
        let off = |law: Reference, median: f64| libm::fabs(law.median() / median - 1.0);
        assert!(off(Reference::Lognormal { mu: 2.0, sigma: 1.5 }, libm::exp(2.0)) < 1e-8);
        let log_2 = core::f64::consts::LN_2;
        assert!(off(Reference::Weibull { scale: 14.0, shape: 0.5 }, 14.0 * log_2 * log_2) < 1e-8);
        let pareto = Reference::Pareto { least: 2.0, index: 1.25 };
        assert!(off(pareto, 2.0 * libm::pow(2.0, 0.8)) < 1e-8);
        assert_eq!([1.9, 4.0].map(|x| pareto.beyond_smoothly(x)), [1.0, libm::pow(0.5, 1.25)]);
        for law in ALL {
            assert!((law.beyond(law.median()) - 0.5).abs() < 1e-8, "{law:?}");
        }
    }
}
