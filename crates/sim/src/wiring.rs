//! Links as a scenario declares them: their transmitters and queues, and the faults before them.

use alloc::format;
use alloc::vec::Vec;

use nilometer_wire::Span;

use crate::fault::{Faults, GilbertElliott};
use crate::link::{Link, Queue};
use crate::queueing::Place;
use crate::refusal::Refusal;
use crate::scenario::{LinkSpec, Scenario};
use crate::topology::Topology;

/// The longest time that a full FIFO may take to empty: as long as a run. Time ends after 213 days.
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
    for (rate, _) in rates.iter().filter(|(_, queue)| queue.is_none()) {
        if rate.span_of(spec.fifo_bytes) > FIFO_SPAN_MAX {
            let what = format!(
                "its FIFO of {} bytes would take more than {} days to empty at {} b/s; give it fewer \
                 fifo_bytes or a higher rate",
                spec.fifo_bytes,
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
