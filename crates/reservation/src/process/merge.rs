//! Merging: the combined reservation of a session at each output port, and towards each previous hop.
//!
//! Both are functions of path and reservation state alone. After each change of state they are computed anew and
//! compared with what was installed and sent before; only the difference is acted upon. No event has rules of its
//! own.

use alloc::vec::Vec;

use nilometer_wire::Time;

use crate::message::{FlowDescriptor, FlowSpec, Style, Tspec};
use crate::process::state::{PathState, Place, Previous, ResvState, SessionState, Wanted};

/// A Resv that one previous hop shall have.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Upstream {
    pub(super) previous: Previous,
    pub(super) style: Style,
    pub(super) flows: Vec<FlowDescriptor>,
}

fn merged<'a>(flowspecs: impl Iterator<Item = &'a FlowSpec>) -> Option<FlowSpec> {
    flowspecs.copied().reduce(|all, one| all.merge(&one))
}

/// The traffic of these senders together.
fn sum_of<'a>(paths: impl Iterator<Item = &'a PathState>) -> Option<Tspec> {
    paths.map(|path| path.tspec).reduce(|all, one| all.sum(&one))
}

/// What the forwarding plane shall have for a session.
pub(super) fn wanted(state: &SessionState) -> Vec<Wanted> {
    let mut wanted = Vec::new();
    let mut ports: Vec<u32> = Vec::new();
    for resv in &state.resvs {
        if let Place::Port(port) = resv.place
            && !ports.contains(&port)
        {
            ports.push(port);
        }
    }
    ports.sort_unstable();
    for port in ports {
        let place = Place::Port(port);
        let here: Vec<&ResvState> = state.resvs.iter().filter(|r| r.place == place).collect();
        let style = here[0].style;
        let paths = state.paths.iter().filter(|path| path.leaves_by(place));
        let paths: Vec<&PathState> =
            paths.filter(|path| here.iter().any(|resv| resv.is_for(&path.sender))).collect();
        match style {
            Style::FixedFilter => {
                wanted
                    .extend(paths.iter().filter_map(|path| at_port(port, style, &here, &[*path])));
            }
            _ => wanted.extend(at_port(port, style, &here, &paths)),
        }
    }
    wanted
}

/// One reservation at a port for the senders of `paths`.
fn at_port(port: u32, style: Style, here: &[&ResvState], paths: &[&PathState]) -> Option<Wanted> {
    let is_for = |resv: &&&ResvState| paths.iter().any(|path| resv.is_for(&path.sender));
    let flowspec = merged(here.iter().filter(is_for).map(|resv| &resv.flowspec))?;
    let output = *paths.first()?.outputs.iter().find(|output| output.port == port)?;
    let mut inputs: Vec<u32> = paths.iter().filter_map(|path| path.previous.port).collect();
    inputs.sort_unstable();
    inputs.dedup();
    let flowspec = flowspec.limited_to(&sum_of(paths.iter().copied())?);
    let senders = paths.iter().map(|path| path.sender).collect();
    let is_explicit = paths.iter().all(|path| path.route.is_some());
    Some(Wanted { style, senders, inputs, output, is_explicit, flowspec })
}

/// What each previous hop of a session shall have.
pub(super) fn upstream(state: &SessionState, now: Time) -> Vec<Upstream> {
    let mut hops: Vec<Previous> = Vec::new();
    for path in &state.paths {
        if !hops.contains(&path.previous) {
            hops.push(path.previous);
        }
    }
    hops.into_iter().filter_map(|previous| towards(state, previous, now)).collect()
}

fn towards(state: &SessionState, previous: Previous, now: Time) -> Option<Upstream> {
    let reserved = |path: &&PathState| {
        let is_here = |resv: &ResvState| resv.is_for(&path.sender) && path.leaves_by(resv.place);
        path.previous == previous && state.resvs.iter().any(is_here)
    };
    let paths: Vec<&PathState> = state.paths.iter().filter(reserved).collect();
    let style = state.resvs.first()?.style;
    let descriptor = |paths: &[&PathState]| {
        let is_for = |resv: &&ResvState| {
            paths.iter().any(|path| resv.is_for(&path.sender) && path.leaves_by(resv.place))
        };
        let flowspecs: Vec<FlowSpec> =
            state.resvs.iter().filter(is_for).map(|resv| resv.flowspec).collect();
        let flowspec = within_blockades(&flowspecs, paths, now)?;
        let flowspec = flowspec.limited_to(&sum_of(paths.iter().copied())?);
        let senders = match style {
            Style::WildcardFilter => Vec::new(),
            _ => paths.iter().map(|path| path.sender).collect(),
        };
        Some(FlowDescriptor { flowspec, senders })
    };
    let flows: Vec<FlowDescriptor> = match style {
        Style::FixedFilter => paths.iter().filter_map(|path| descriptor(&[*path])).collect(),
        _ => descriptor(&paths).into_iter().collect(),
    };
    (!flows.is_empty()).then_some(Upstream { previous, style, flows })
}

/// The merged flowspec without those that a blockade holds back; if it holds back all, the smallest of them, so
/// that one receiver's large request does not deny others their small ones (RFC 2205, 2.5; RFC 2209).
fn within_blockades(flowspecs: &[FlowSpec], paths: &[&PathState], now: Time) -> Option<FlowSpec> {
    let blockades = paths.iter().filter_map(|path| path.blockade);
    let blockades = blockades.filter(|blockade| now < blockade.until);
    let Some(refused) = blockades.map(|blockade| blockade.flowspec).reduce(|a, b| a.lower(&b))
    else {
        return merged(flowspecs.iter());
    };
    let free = merged(flowspecs.iter().filter(|flowspec| !flowspec.covers(&refused)));
    let free = free.filter(|free| !free.covers(&refused));
    free.or_else(|| flowspecs.iter().copied().reduce(|all, one| all.lower(&one)))
}
