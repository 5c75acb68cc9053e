//! Observation of captures, for comparison with others.

use std::path::PathBuf;

use anyhow::{Result, bail};
use nilometer_conversation::{Limits, Side};
use nilometer_likeness::observed::CONNECTIONS_MAX;
use nilometer_likeness::{Observed, Observer};
use nilometer_wire::packet::IpPacket;

pub use super::pipe::{ONCE, can_be_read_again, is_pipe};
use super::records::{Progress, read_packets};
use super::summary::FlowSummary;

/// Observes captures; returns the observation and the summary of reading them.
///
/// # Errors
/// When an input cannot be read, or holds no TCP packet.
pub fn observe(
    inputs: &[PathBuf],
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<(Observed, FlowSummary)> {
    observe_by(Observer::new(Limits::default()), inputs, progress)
}

/// As [`observe`], for the packets of one side.
///
/// # Errors
/// As [`observe`].
pub fn observe_side(
    only: Side,
    inputs: &[PathBuf],
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<(Observed, FlowSummary)> {
    let limits = Limits::default();
    observe_by(Observer::new(limits).of_one_side(limits, only), inputs, progress)
}

fn observe_by(
    mut observer: Observer,
    inputs: &[PathBuf],
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<(Observed, FlowSummary)> {
    let watch = &mut |stamp_ns, packet: &IpPacket| observer.observe(stamp_ns, packet);
    let summary = read_packets(inputs, true, progress, watch)?;
    let observed = observer.finish();
    hold(&observed)?;
    if observed.connections.is_empty() {
        let names: Vec<&str> = summary.inputs.iter().map(|input| input.name.as_str()).collect();
        bail!(
            "{}: holds no TCP packet ({} packets were read); a comparison is made of captures with some",
            names.join(", "),
            summary.packets
        );
    }
    Ok((observed, summary))
}

/// Refuses an observation with more connections than are kept.
///
/// # Errors
/// How many there are, and what to do.
pub fn hold(observed: &Observed) -> Result<()> {
    let all = observed.counts.connections;
    if observed.beyond.packets > 0 {
        bail!(
            "{all} TCP connections are more than are compared ({CONNECTIONS_MAX}); give a shorter part of them"
        );
    }
    Ok(())
}

/// The warning that packets of only one side were seen.
pub fn one_sided(seen: Side) -> String {
    let [seen, unseen] = match seen {
        Side::Client => ["clients", "servers"],
        Side::Server => ["servers", "clients"],
    };
    format!(
        "The packets are those of {seen} alone: what {unseen} sent is inferred from acknowledgements and is not \
         compared; {seen} are compared with {seen}."
    )
}
