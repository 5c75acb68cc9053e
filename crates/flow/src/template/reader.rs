//! Sets of records, read by their template (RFC 7011, 3.4.3; RFC 3954, 5.3).

use alloc::collections::BTreeMap;

use super::definition::Definition;
use super::element::Slot;
use super::flow::{Start, give};
use super::message::Header;
use super::plan::{Fields, Left, Places, Plan, TemplateKind, Values};
use super::replacement::Place;
use super::sampling::Samplers;
use crate::counts::{Counts, Skip};
use crate::record::FlowRecord;

/// A template, and how to read its records.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) place: Place,
    pub(super) definition: Definition,
    pub(super) plan: Plan,
}

/// Information from an observation domain's options records: its samplers, and when its exporter started.
#[derive(Clone, Debug, Default)]
pub(super) struct Speaker {
    pub(super) samplers: Samplers,
    pub(super) start: Start,
}

/// A set of records about to be read.
pub(super) struct Reader<'a, F> {
    pub(super) plan: &'a Plan,
    /// Those of its domain, for lists.
    pub(super) templates: &'a BTreeMap<u16, Known>,
    pub(super) header: &'a Header,
    pub(super) speaker: &'a mut Speaker,
    pub(super) counts: &'a mut Counts,
    pub(super) out: &'a mut F,
}

impl<F: FnMut(FlowRecord)> Reader<'_, F> {
    pub(super) fn read(self, body: &[u8], [places, of_lists]: &mut [Places; 2]) {
        let Reader { plan, templates, header, speaker, counts, out } = self;
        let mut values = Values::new();
        let left = plan.cut(body, places, |fields, bytes| {
            counts.records += 1;
            counts.bytes.records += bytes as u64;
            match plan.kind() {
                TemplateKind::Flows => {
                    plan.read(fields, &mut values);
                    if plan.has_list() {
                        counts.lists_unknown +=
                            read_list(plan, fields, templates, of_lists, &mut values);
                    }
                    let interval = speaker.samplers.interval(plan, &values);
                    let when = (header, &mut speaker.start);
                    give(plan, &values, when, interval, counts, out);
                }
                TemplateKind::Options => {
                    plan.read(fields, &mut values);
                    counts.options += 1;
                    counts.sampling_late += speaker.samplers.learn(plan, &values);
                    match values.get(Slot::SystemInit) {
                        0 => {}
                        told_ns => speaker.start.told_ns = Some(told_ns),
                    }
                }
                TemplateKind::Skipped(reason) => counts.skips.add(reason),
            }
        });
        match left {
            Left::Padding(rest) => counts.bytes.padding += rest.len() as u64,
            Left::Damaged(rest) => {
                counts.records += 1;
                counts.skips.add(Skip::RecordDamaged);
                counts.bytes.skipped += rest.len() as u64;
            }
        }
    }
}

/// Reads the flags from a record's lists; returns how many of these have an unknown template.
fn read_list(
    plan: &Plan,
    fields: Fields<'_>,
    templates: &BTreeMap<u16, Known>,
    places: &mut Places,
    values: &mut Values,
) -> u64 {
    values.forget_flags();
    let mut unknown = 0;
    for (id, records) in plan.listed(fields) {
        match templates.get(&id) {
            Some(known) if known.plan.has_flags() => known.plan.read_flags(records, places, values),
            Some(_) => {}
            None => unknown += 1,
        }
    }
    unknown
}
