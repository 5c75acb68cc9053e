//! Captures observed, to be held against others.

use std::path::PathBuf;

use anyhow::{Result, bail};
use nilometer_conversation::Limits;
use nilometer_likeness::observed::CONNECTIONS_MAX;
use nilometer_likeness::{Observed, Observer};
use nilometer_wire::packet::IpPacket;

use super::records::{Progress, read_packets};
use super::summary::FlowSummary;

/// What captures hold, and what reading them came to.
///
/// # Errors
/// When an input cannot be read, or holds no TCP packet.
pub fn observe(
    inputs: &[PathBuf],
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<(Observed, FlowSummary)> {
    let mut observer = Observer::new(Limits::default());
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

/// Refuses what has more connections than are kept.
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
