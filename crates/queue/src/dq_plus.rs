//! DQ+: the two ideas that the DER paper's figures need and its equations leave out.
//!
//! # Reallocation
//!
//! Equation 3 gives input `i` the rates `S·L·min(hi, wt)`. The weights `wt` add up to one, but
//! where the ceiling `hi` is the smaller of the two, capacity is left over and unused: at the end
//! of the stress test's first stage input 1 holds 35 Mb/s for the queue that is backlogged and 13
//! Mb/s for each of the seven that are not, 126 of its 140 Mb/s. The paper reports "about 15 Mb/s
//! (= (140-35)/7)", which is the result of dealing the rest again under the ceilings.
//!
//! [`reallocate`] deals it in proportion to the *slack*, how far each rate is below its ceiling
//! `S·L·hi`. Two cases, and one round ends both. If there is more slack than is left over, every
//! queue receives less than its slack, and nothing is left. If there is less, every queue reaches
//! its ceiling and no queue may be given more. So the bounds stay: a row adds up to at most `S·L`,
//! because only what was left over is given; a column adds up to at most `S·L`, because every rate
//! stays below its ceiling and the ceilings of a column add up to one.
//!
//! # Deferred urgency
//!
//! `lo` says how much of an output's rate input `i` owes it so that it does not run dry. An output
//! that holds enough for many periods will not run dry soon, so its urgency can wait for those that
//! might. With a deferral of `m` periods, [`deferral`] scales the urgency for an output from one
//! (nothing waits there) down to zero (`m` periods' worth waits there: `B_j >= m·L·D`). An output
//! with nothing waiting keeps its full urgency, which is all that the argument for equation 2
//! needs.

/// Deals what a row of rates leaves of `capacity` to those below their ceilings, in proportion to
/// how far they are below. Rates and `capacity` in bits per second; the ceiling of a queue is
/// `capacity` times its entry in `shares`. Rates above their ceiling are left alone.
pub fn reallocate(capacity: f64, shares: &[f64], rates: &mut [f64]) {
    let left = capacity - rates.iter().sum::<f64>();
    let slack = |share: f64, rate: f64| (capacity * share - rate).max(0.0);
    let slack_sum: f64 = shares.iter().zip(rates.iter()).map(|(&s, &r)| slack(s, r)).sum();
    if left <= 0.0 || slack_sum <= 0.0 {
        return;
    }
    let fraction = (left / slack_sum).min(1.0);
    for (&share, rate) in shares.iter().zip(rates) {
        *rate += slack(share, *rate) * fraction;
    }
}

/// What is left of the urgency for an output at which `output_bytes` wait, when urgency is deferred
/// until less than `enough_bytes` wait: one down to zero.
pub fn deferral(output_bytes: u64, enough_bytes: f64) -> f64 {
    (1.0 - output_bytes as f64 / enough_bytes).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftover_bandwidth_goes_to_slack_up_to_the_ceiling() {
        // Slack 20 and 30 for the 25 that are left: half of each.
        let mut rates = [35.0, 15.0, 25.0];
        reallocate(100.0, &[0.35, 0.35, 0.55], &mut rates);
        assert_eq!(rates, [35.0, 25.0, 40.0]);
        // Less slack than is left: every rate ends at its ceiling, and 5 stay unused.
        let mut rates = [35.0, 15.0, 25.0];
        reallocate(100.0, &[0.35, 0.30, 0.30], &mut rates);
        assert_eq!(rates, [35.0, 30.0, 30.0]);
    }

    #[test]
    fn an_output_with_enough_is_not_urgent() {
        assert_eq!(deferral(0, 1000.0), 1.0);
        assert_eq!(deferral(250, 1000.0), 0.75);
        assert_eq!(deferral(5000, 1000.0), 0.0);
    }
}
