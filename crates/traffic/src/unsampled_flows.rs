//! The number of flows behind sampled records without TCP flags, including flows without any sampled packet.
//!
//! Where flags are recorded, flows are counted by their SYNs. Without flags, only the number of sampled packets of
//! each seen flow is known. If other exporters with the same sampling interval record flags, the ratio of flows to
//! seen flows is assumed to be theirs. Otherwise the number is *not identified*: there may be arbitrarily many short
//! unseen flows. It has a lower bound, Chao's estimator of unseen species (*Scandinavian Journal of Statistics* 11,
//! 1984): if f1 flows were seen by one packet and f2 by two, at least f1²/(2 f2) were not seen, whatever the law of
//! their lengths. It has an upper bound too, because a connection has at least two packets each way. The lower bound
//! is used as the number, and both bounds as its interval.
//!
//! The inversion needs records with SYNs. So SYNs are assigned to records in the expected numbers: to one in N of those
//! with two packets or more, and the missing ones to the others.

use alloc::collections::BTreeMap;

use nilometer_stat::ConfidenceInterval;
use nilometer_stat::inversion::{Inversion, InversionError, PacketRoles, SampledFlows};

/// The fewest packets of a flow.
const PACKETS_MIN: f64 = 2.0;
/// Deviations of a normal law between which 95 % lie.
const DEVIATIONS_95: f64 = 1.96;

/// Records by their packets.
pub(crate) type Counts = BTreeMap<u64, u64>;

/// Chao's lower bound of the number of flows, in its bias-corrected form.
fn chao1(counts: &Counts) -> f64 {
    let of = |packets: u64| counts.get(&packets).copied().unwrap_or(0) as f64;
    let seen = counts.values().sum::<u64>() as f64;
    seen + of(1) * (of(1) - 1.0).max(0.0) / (2.0 * (of(2) + 1.0))
}

/// The inversion of records without flags. `flows_of_seen` is the number of flows per record, where it is known.
///
/// # Errors
/// Where the interval is below 2.
pub(crate) fn invert(
    interval: u32,
    roles: PacketRoles,
    counts: &Counts,
    flows_of_seen: Option<f64>,
) -> Result<Inversion, InversionError> {
    let n = f64::from(interval);
    let seen = counts.values().sum::<u64>() as f64;
    let packets: f64 = counts.iter().map(|(packets, records)| (packets * records) as f64).sum();
    let most = (packets * n / PACKETS_MIN).max(seen);
    let flows = flows_of_seen.map_or_else(|| chao1(counts), |of| seen * of).min(most);
    let mut missing = libm::round(flows / n).max(1.0) as u64;
    let mut sampled = SampledFlows::new(interval)?.with_roles(roles);
    // From the longest on: what one in N lacks is taken from the shortest.
    for (&packets, &records) in counts.iter().rev() {
        let is_shortest = counts.keys().next() == Some(&packets);
        let share = libm::round(records as f64 / n) as u64;
        let with = if is_shortest { missing } else { share.min(missing) }.min(records);
        missing -= with;
        sampled.add_alike(packets, 1, with);
        sampled.add_alike(packets, 0, records - with);
    }
    let mut found = sampled.invert()?;
    if flows_of_seen.is_none() {
        found.flows.interval = ConfidenceInterval { low: seen, high: most };
        found.flows.deviation = (most - seen) / (2.0 * DEVIATIONS_95);
        let mean = found.mean_length.value;
        found.mean_length.interval = [PACKETS_MIN.min(mean), (packets * n / seen).max(mean)].into();
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_stat::Rng;

    #[test]
    fn chao1_bounds_the_number_of_flows() {
        let counts = |of: &[(u64, u64)]| of.iter().copied().collect::<Counts>();
        assert_eq!(chao1(&counts(&[(1, 100), (2, 49)])), 149.0 + 99.0);
        assert_eq!(chao1(&counts(&[(2, 7)])), 7.0);
        // Flows of 20 packets each, one in ten of which is sampled: nearly all flows are counted.
        let (mut rng, mut seen) = (Rng::new(1, 0x756e, 0), Counts::new());
        for _ in 0..10_000 {
            let packets = (0..20).filter(|_| rng.below(10) == 0).count() as u64;
            *seen.entry(packets).or_default() += 1;
        }
        seen.remove(&0);
        assert!((chao1(&seen) / 10_000.0 - 1.0).abs() < 0.06, "{}", chao1(&seen));
        let found = invert(10, PacketRoles::default(), &seen, None).expect("an inversion");
        let [low, high] = found.flows.interval.ends();
        assert!(low < 10_000.0 && high > 10_000.0, "{low} to {high}");
        assert!((found.flows.value / chao1(&seen) - 1.0).abs() < 0.02, "{}", found.flows.value);
        let like_others =
            invert(10, PacketRoles::default(), &seen, Some(1.2)).expect("an inversion");
        let records = seen.values().sum::<u64>() as f64;
        assert!((like_others.flows.value / (1.2 * records) - 1.0).abs() < 0.01);
        assert_eq!(
            invert(1, PacketRoles::default(), &seen, None).err(),
            Some(InversionError::Interval(1))
        );
    }

    #[test]
    fn a_single_record_has_an_inversion() {
        let found = invert(1_000, PacketRoles::default(), &Counts::from([(1, 1)]), None)
            .expect("an inversion");
        assert_eq!(found.flows.interval.ends(), [1.0, 500.0]);
    }
}
