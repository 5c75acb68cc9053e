//! The verdict: the metered copy compared with the original's part, both observed by the same code.

use nilometer_conversation::Carried;
use nilometer_conversation::drawn::Amount;
use nilometer_likeness::{Judgement, Likeness, Observed, Settings, judge};
use nilometer_traffic::Plan;
use nilometer_traffic::connections::ConnectionVolume;
use nilometer_traffic::fidelity::Fidelity;

use super::account::RunRecord;
use super::outcome::CoverageOutcome;

/// The judgement; none where the original was not observed, or a signal ended the copy.
pub fn of(account: &RunRecord<'_>) -> Option<Judgement> {
    let (original, copy) = (account.original?, account.made.sighted.observed.as_ref()?);
    if account.made.interrupted_ns.is_some() {
        return None;
    }
    let bound_s = account.estimate.model.generation.inter_connection_bound_s;
    let settings = Settings {
        bound_ns: (bound_s * 1e9) as u64,
        seed: account.config.seed,
        speed: account.config.speed,
    };
    Some(judge(&original.observed, copy, &settings))
}

/// What of the original's part the copy performed.
pub fn coverage(account: &RunRecord<'_>) -> Option<CoverageOutcome> {
    let (original, copy) = (account.original?, account.made.sighted.observed.as_ref()?);
    let ratio = |copy: u64, original: u64| match (copy, original) {
        (0, 0) => 1.0,
        _ => copy as f64 / original.max(1) as f64,
    };
    // All of the part, also where no more than a draw of it was observed and played.
    let whole = original.whole.unwrap_or(Amount {
        connections: original.observed.connections.len() as u64,
        packets: original.observed.tcp.packets,
        octets: original.observed.tcp.octets,
        payload_bytes: original.observed.payload_bytes(),
        ..Amount::default()
    });
    let volume_ratio = ratio(copy.payload_bytes(), whole.payload_bytes);
    Some(CoverageOutcome {
        bytes: volume_ratio.min(1.0),
        flows: ratio(copy.connections.len() as u64, whole.connections).min(1.0),
        packets: ratio(copy.tcp.packets, whole.packets).min(1.0),
        volume_ratio,
        octets_ratio: ratio(copy.tcp.octets, whole.octets),
        udp_share: original.observed.share(original.observed.udp),
        others_share: original.observed.share(original.observed.others),
        whole_bytes: ratio(copy.tcp.octets, original.input_octets).min(1.0),
    })
}

/// The volume of the connections of each interval, booked where their first packet passed.
pub fn volumes(observed: &Observed, origin_ns: u64, plan: &Plan) -> Vec<ConnectionVolume> {
    let mut volumes = vec![ConnectionVolume::default(); plan.intervals.len()];
    for one in &observed.connections {
        let since_ns = one.start_ns.saturating_sub(origin_ns);
        let at = plan.intervals.partition_point(|interval| interval.end.as_nanos() <= since_ns);
        let sum = |of: fn(&Carried) -> u64| one.carried.iter().map(of).sum();
        if let Some(volume) = volumes.get_mut(at) {
            volume.add(&ConnectionVolume {
                connections: 1,
                bytes: sum(|side| side.payload_bytes),
                packets: sum(|side| side.packets),
                octets: sum(|side| side.octets),
            });
        }
    }
    volumes
}

/// The four figures that scripts know from before, as the original has them.
pub fn fidelity(likeness: &[Likeness]) -> Vec<Fidelity> {
    let names = [
        ("file_size", "size_answered"),
        ("inter_connection", "gap"),
        ("source_rank", "sources"),
        ("destination_rank", "destinations"),
    ];
    let figure = |(name, law): (&str, &str)| {
        let law = likeness.iter().find(|one| one.name == law)?;
        Some(Fidelity {
            name: name.to_owned(),
            // As elsewhere, an unmeasured law has the greatest distance and a meaningless floor.
            distance: law.distance.unwrap_or(1.0),
            floor: law.floor.unwrap_or(1.0),
            floor_p5: law.floor_p5.unwrap_or(1.0),
            floor_p95: law.floor_p95.unwrap_or(1.0),
            ratio: law.ratio,
            count: law.samples_copy,
        })
    };
    names.into_iter().filter_map(figure).collect()
}
