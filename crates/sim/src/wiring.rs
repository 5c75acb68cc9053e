//! Links as a scenario declares them: their transmitters and queues, and the faults before them.

use alloc::format;
use alloc::vec::Vec;

use nilometer_queue::DisciplineKind;
use nilometer_wire::Span;

use crate::fault::{Faults, GilbertElliott};
use crate::link::{Link, Queue};
use crate::queueing::Place;
use crate::refusal::Refusal;
use crate::scenario::{LinkSpec, Scenario};
use crate::topology::Topology;

/// The longest time that a full FIFO or tail drop's buffer may take to empty, since when their packets
/// depart is known on arrival: as long as a run. Time ends after 213 days.
const FIFO_SPAN_MAX: Span = Span::from_nanos(1_000_000_000_000_000);

/// All links, the instances of each declared one in turn, forward and back.
pub(crate) fn links(
    scenario: &Scenario,
    topology: &Topology,
    seed: u64,
) -> Result<Vec<Link>, Refusal> {
    let mut links = Vec::new();
    for (wire, spec) in scenario.link.iter().enumerate() {
        let name = format!("link `{}`", spec.name);
        check_link(&name, spec)?;
        let back = spec.rate_back.unwrap_or(spec.rate);
        for _ in 0..topology.instances(wire) {
            for (rate, queue) in [(spec.rate, &spec.queue), (back, &spec.queue_back)] {
                let index = links.len() as u32;
                let place = Place { name: &name, rate, mtu: spec.mtu, seed, index };
                let (queue, overhead) = match queue {
                    Some(queue) => (Queue::Discipline(queue.discipline(&place)?), Span::ZERO),
                    None => (Queue::Fifo { limit_bytes: spec.fifo_bytes }, spec.overhead),
                };
                let link =
                    Link::new(rate, spec.delay, u16::try_from(spec.mtu).unwrap_or(u16::MAX), queue);
                links.push(link.with_overhead(overhead, seed, u64::from(index)));
            }
        }
    }
    Ok(links)
}

fn check_link(place: &str, spec: &LinkSpec) -> Result<(), Refusal> {
    if !(68..=65_535).contains(&spec.mtu) {
        let what = format!("mtu is {}; it is between 68 and 65535 bytes", spec.mtu);
        return Err(Refusal::value(place, what));
    }
    if spec.fifo_bytes == 0 {
        return Err(Refusal::value(place, "fifo_bytes is 0; it is at least 1"));
    }
    let rates = [(spec.rate, &spec.queue), (spec.rate_back.unwrap_or(spec.rate), &spec.queue_back)];
    for (rate, queue) in rates {
        let (name, bytes, advice) = match queue {
            None => ("FIFO", spec.fifo_bytes, "fewer fifo_bytes"),
            Some(queue)
                if DisciplineKind::from_name(&queue.discipline)
                    == Some(DisciplineKind::TailDrop) =>
            {
                ("tail_drop", queue.bytes_max(spec.mtu), "a smaller buffer")
            }
            Some(_) => continue,
        };
        if rate.span_of(bytes) > FIFO_SPAN_MAX {
            let what = format!(
                "its {name} of {bytes} bytes would take more than {} days to empty at {} b/s; give it \
                 {advice} or a higher rate",
                FIFO_SPAN_MAX.as_secs_f64() as u64 / 86_400,
                rate.bits_per_second(),
            );
            return Err(Refusal::value(place, what));
        }
    }
    if spec.overhead > Span::ZERO && spec.queue.is_some() && spec.queue_back.is_some() {
        let what = "overhead is for plain FIFOs, and it has queues in both directions";
        return Err(Refusal::value(place, what));
    }
    Ok(())
}

/// What stands before a declared link, if it has faults.
pub(crate) fn faults(place: &str, spec: &LinkSpec) -> Result<Option<Faults>, Refusal> {
    let bursts = spec.gilbert_elliott.map(|bursts| GilbertElliott {
        worsens: bursts.worsens,
        recovers: bursts.recovers,
        loss_good: bursts.loss_good,
        loss_bad: bursts.loss_bad,
    });
    let faults = Faults {
        loss: spec.loss,
        loss_period: spec.loss_period,
        bursts,
        corrupt: spec.corrupt,
        duplicate: spec.duplicate,
        reorder: spec.reorder,
        reorder_by: spec.reorder_by,
        ..Faults::default()
    };
    let own = [
        ("loss", spec.loss),
        ("corrupt", spec.corrupt),
        ("duplicate", spec.duplicate),
        ("reorder", spec.reorder),
    ];
    let chain = bursts.map(|b| {
        [
            ("worsens", b.worsens),
            ("recovers", b.recovers),
            ("loss_good", b.loss_good),
            ("loss_bad", b.loss_bad),
        ]
    });
    for (key, probability) in own.into_iter().chain(chain.into_iter().flatten()) {
        if !(0.0..=1.0).contains(&probability) {
            let what = format!("{key} is {probability}; a probability is between 0 and 1");
            return Err(Refusal::value(place, what));
        }
    }
    if spec.reorder > 0.0 && spec.reorder_by == Span::ZERO {
        let what = "reorder holds packets back for no time; say for how long with reorder_by";
        return Err(Refusal::value(place, what));
    }
    Ok((faults != Faults { reorder_by: spec.reorder_by, ..Faults::default() }).then_some(faults))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queueing::QueueSpec;
    use crate::topology::tests::link;
    use alloc::string::{String, ToString};
    use nilometer_wire::Rate;

    /// The refusal of a queue on the way back of a link of `rate` bits per second.
    fn message(rate: u64, queue: QueueSpec) -> Option<String> {
        let rate_back = Rate::new(rate);
        let spec = LinkSpec { rate_back, queue_back: Some(queue), ..link("a", "b", "c") };
        check_link("link `a`", &spec).err().map(|refusal| refusal.to_string())
    }

    /// A transmitter whose departures are known on arrival must not be booked until after the end of
    /// time.
    #[test]
    fn a_buffer_that_would_take_longer_than_a_run_to_empty_is_refused() {
        let queue = |discipline: &str, packets, bytes, cells| QueueSpec {
            discipline: discipline.into(),
            buffer_packets: packets,
            buffer_bytes: bytes,
            buffer_cells: cells,
            ..QueueSpec::default()
        };
        // 10⁶ s at 1 kb/s are 125 MB: packets of 1500 bytes, cells of 48.
        for (most, make) in [
            (83_333, &(|n| queue("tail_drop", Some(n), None, None)) as &dyn Fn(u32) -> QueueSpec),
            (125_000_000, &|n| queue("tail_drop", None, Some(n), None)),
            (2_604_166, &|n| queue("tail_drop", None, None, Some(n))),
        ] {
            assert_eq!(message(1_000, make(most)), None);
            let refused = message(1_000, make(most + 1)).expect("refused");
            assert!(refused.contains("11 days"), "{refused}");
            assert_eq!(message(1_000_000, make(most + 1)), None);
        }
        // These decide at each departure.
        assert_eq!(message(1_000, queue("codel", Some(u32::MAX), None, None)), None);
    }
}
