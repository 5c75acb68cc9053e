//! A compiled template: which bytes fill which slot, decided once for all of its records.
//!
//! Few of a template's fields matter for a flow, and several may mean the same. Compiling keeps the best
//! field for each slot as a [`Step`] (where, how long, how, into which slot) and only the lengths of the
//! others. A record is then read by running through the steps. Slots that no step writes stay zero from
//! record to record, so nothing is cleared in between.
//!
//! Where every field has its length in the template, steps hold offsets into the record. Where one
//! does not, the lengths are walked first, and steps are relative to the beginnings of fields.
//!
//! A field may hold records of other templates (RFC 6313). YAF puts the flags of TCP there; nothing else is
//! read from them, because everything else about a flow stands beside the list.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

use super::definition::{Definition, VARIABLE};
use super::element::{Meaning, Read, SLOTS, Slot, is_list, meaning};
use crate::bytes::be16;
use crate::counts::Skip;

/// The values read from one record.
#[derive(Clone, Debug)]
pub(super) struct Values([u64; SLOTS]);

impl Values {
    pub(super) fn new() -> Values {
        Values([0; SLOTS])
    }

    pub(super) fn get(&self, slot: Slot) -> u64 {
        self.0[slot as usize]
    }

    /// Forgets the flags from a list.
    pub(super) fn forget_flags(&mut self) {
        FLAGS.into_iter().for_each(|(slot, reverse)| self.0[slot.index(reverse)] = 0);
    }

    /// The value of a slot that exists for each direction.
    pub(super) fn of(&self, slot: Slot, reverse: bool) -> u64 {
        self.0[slot.index(reverse)]
    }
}

/// What the records of a template describe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TemplateKind {
    Flows,
    Options,
    /// Skipped, for this reason.
    Skipped(Skip),
}

/// A compiled template.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    kind: TemplateKind,
    layout: Layout,
    steps: Box<[Step]>,
    /// A bit for each slot that is written.
    written: u64,
    /// How starts and ends are encoded, forward and reverse.
    times: [[Option<Read>; 2]; 2],
    /// Number of the field that holds records of other templates, where these may add to this one.
    list: Option<usize>,
    /// Are bytes those of payload alone, forward and reverse?
    counts_payload: [bool; 2],
}

#[derive(Clone, Debug)]
enum Layout {
    /// All records have this many bytes.
    Fixed(usize),
    /// Records have at least `least_bytes`; the lengths of their fields.
    Variable { least_bytes: usize, lengths: Box<[u16]> },
}

/// One value to read.
#[derive(Clone, Copy, Debug)]
struct Step {
    /// Number of the field.
    field: u16,
    /// Bytes from the beginning of a record of fixed layout.
    offset: u32,
    length: u8,
    slot: u8,
    read: Read,
}

/// One record, where its fields lie.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fields<'a> {
    Fixed(&'a [u8]),
    Walked(&'a [u8], &'a [Range<usize>]),
}

/// Where the fields of a record lie that was walked.
pub(super) type Places = Vec<Range<usize>>;

/// The slots of flags.
const FLAGS: [(Slot, bool); 4] = [
    (Slot::Flags, false),
    (Slot::Flags, true),
    (Slot::FirstFlags, false),
    (Slot::FirstFlags, true),
];

fn is_of_flags(slot: u8) -> bool {
    FLAGS.into_iter().any(|(flags, reverse)| flags.index(reverse) == usize::from(slot))
}

impl Plan {
    /// Compiles a template; `None` if its records would be empty, or too long for a set.
    pub(super) fn new(definition: &Definition) -> Option<Plan> {
        let layout = Layout::of(definition)?;
        let mut best: [Option<(u8, Step)>; SLOTS] = [None; SLOTS];
        let mut offset = 0u32;
        for (field, described) in definition.fields.iter().enumerate() {
            if let Some(Meaning { slot, reverse, read, rank }) = meaning(described) {
                let slot = slot.index(reverse);
                if best[slot].is_none_or(|(kept, _)| rank <= kept) {
                    let length = described.length as u8;
                    let (field, slot_number) = (field as u16, slot as u8);
                    let step = Step { field, offset, length, slot: slot_number, read };
                    best[slot] = Some((rank, step));
                }
            }
            offset += u32::from(described.length);
        }
        let steps: Box<[Step]> = best.iter().flatten().map(|(_, step)| *step).collect();
        let written = steps.iter().fold(0, |bits, step| bits | 1u64 << step.slot);
        let read_of = |slot: Slot, reverse| best[slot.index(reverse)].map(|(_, step)| step.read);
        let times = [false, true]
            .map(|reverse| [Slot::Start, Slot::End].map(|slot| read_of(slot, reverse)));
        let counts_payload =
            [false, true].map(|reverse| read_of(Slot::Octets, reverse) == Some(Read::Payload));
        let kind = TemplateKind::Options;
        let mut plan = Plan { kind, layout, steps, written, times, list: None, counts_payload };
        if !definition.is_options {
            plan.kind = plan.kind_of_data();
        }
        if !plan.has_flags() {
            plan.list = definition.fields.iter().position(is_list);
        }
        Some(plan)
    }

    pub(super) fn kind(&self) -> TemplateKind {
        self.kind
    }

    /// Does a record have a value for this slot?
    pub(super) fn has(&self, slot: Slot, reverse: bool) -> bool {
        self.written & 1 << slot.index(reverse) != 0
    }

    /// How this time is encoded, if it is there.
    pub(super) fn time(&self, slot: Slot, reverse: bool) -> Option<Read> {
        self.times[usize::from(reverse)][usize::from(slot == Slot::End)]
    }

    /// Does a record have flags, of either direction?
    pub(super) fn has_flags(&self) -> bool {
        FLAGS.into_iter().any(|(slot, reverse)| self.has(slot, reverse))
    }

    /// The records of other templates that a record holds: the number of each template, and its records.
    /// Contradictory content ends the iteration.
    pub(super) fn listed<'a>(&self, fields: Fields<'a>) -> impl Iterator<Item = (u16, &'a [u8])> {
        let list = self.list.and_then(|field| match fields {
            Fields::Walked(record, places) => record.get(places[field].clone()),
            Fields::Fixed(_) => None,
        });
        // The semantics of the list come first.
        let mut rest = list.and_then(|list| list.get(1..)).unwrap_or_default();
        core::iter::from_fn(move || {
            let id = rest.get(..2).map(|id| be16(id, 0))?;
            let bytes = rest.get(2..4).map(|bytes| usize::from(be16(bytes, 0)))?;
            let records = rest.get(4..bytes)?;
            rest = &rest[bytes..];
            Some((id, records))
        })
    }

    /// Does a record have a list that may add to it?
    pub(super) fn has_list(&self) -> bool {
        self.list.is_some()
    }

    /// Reads the flags alone of records of this template into the values of another one.
    pub(super) fn read_flags(&self, records: &[u8], places: &mut Places, values: &mut Values) {
        self.cut(records, places, |fields, _| {
            for step in self.steps.iter().filter(|step| is_of_flags(step.slot)) {
                match fields {
                    Fields::Fixed(record) => step.run(&record[step.offset as usize..], values),
                    Fields::Walked(record, places) => {
                        step.run(&record[places[usize::from(step.field)].start..], values);
                    }
                }
            }
        });
    }

    /// Are the bytes of this direction those of its payload, without the headers of its packets?
    pub(super) fn counts_payload(&self, reverse: bool) -> bool {
        self.counts_payload[usize::from(reverse)]
    }

    /// Reads a record into `values`, which no other plan may have written to.
    pub(super) fn read(&self, fields: Fields<'_>, values: &mut Values) {
        match fields {
            Fields::Fixed(record) => {
                for step in &self.steps {
                    step.run(&record[step.offset as usize..], values);
                }
            }
            Fields::Walked(record, places) => {
                for step in &self.steps {
                    step.run(&record[places[usize::from(step.field)].start..], values);
                }
            }
        }
    }

    /// Cuts `body` into records; each is given to `take` with its length. `places` is scratch space.
    /// Returns what is left over.
    pub(super) fn cut<'a>(
        &self,
        mut body: &'a [u8],
        places: &mut Places,
        mut take: impl FnMut(Fields<'_>, usize),
    ) -> Left<'a> {
        match &self.layout {
            Layout::Fixed(bytes) => {
                let mut records = body.chunks_exact(*bytes);
                for record in &mut records {
                    take(Fields::Fixed(record), *bytes);
                }
                Left::Padding(records.remainder())
            }
            Layout::Variable { least_bytes, lengths } => {
                while body.len() >= *least_bytes {
                    let Some(bytes) = walk(body, lengths, places) else {
                        return Left::Damaged(body);
                    };
                    take(Fields::Walked(&body[..bytes], places), bytes);
                    body = &body[bytes..];
                }
                Left::Padding(body)
            }
        }
    }

    fn kind_of_data(&self) -> TemplateKind {
        let has = |slot| self.has(slot, false);
        let is_addressed = has(Slot::SourceV4) && has(Slot::DestinationV4)
            || has(Slot::SourceV6) && has(Slot::DestinationV6);
        let is_counted = [false, true]
            .iter()
            .any(|reverse| self.has(Slot::Octets, *reverse) || self.has(Slot::Packets, *reverse));
        match (is_addressed, is_counted) {
            (false, _) => TemplateKind::Skipped(Skip::NoAddresses),
            (true, false) => TemplateKind::Skipped(Skip::NoCounts),
            (true, true) => TemplateKind::Flows,
        }
    }
}

/// The rest of a set behind its last record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left<'a> {
    /// Too little for a record.
    Padding(&'a [u8]),
    /// A record that ends beyond its set.
    Damaged(&'a [u8]),
}

impl Layout {
    fn of(definition: &Definition) -> Option<Layout> {
        let fields = &definition.fields;
        let is_variable = fields.iter().any(|field| field.length == VARIABLE);
        // A field of variable length has one byte at least, which says how many follow.
        let least = |length| if length == VARIABLE { 1 } else { usize::from(length) };
        let least_bytes: usize = fields.iter().map(|field| least(field.length)).sum();
        match is_variable {
            _ if least_bytes == 0 || least_bytes > usize::from(u16::MAX) => None,
            false => Some(Layout::Fixed(least_bytes)),
            true => {
                let lengths = fields.iter().map(|field| field.length).collect();
                Some(Layout::Variable { least_bytes, lengths })
            }
        }
    }
}

/// Finds the fields of a record (RFC 7011, section 7); its length, if it fits.
fn walk(body: &[u8], lengths: &[u16], places: &mut Places) -> Option<usize> {
    places.clear();
    let mut at = 0;
    for length in lengths {
        let bytes = if *length != VARIABLE {
            usize::from(*length)
        } else {
            let first = *body.get(at)?;
            at += 1;
            if first < 255 {
                usize::from(first)
            } else {
                at += 2;
                usize::from(be16(body.get(at - 2..at)?, 0))
            }
        };
        places.push(at..at + bytes);
        at += bytes;
        if at > body.len() {
            return None;
        }
    }
    Some(at)
}

impl Step {
    /// Reads the value at the beginning of `bytes`.
    #[inline]
    fn run(&self, bytes: &[u8], values: &mut Values) {
        let field = &bytes[..usize::from(self.length)];
        let slot = usize::from(self.slot);
        values.0[slot] = match self.read {
            Read::Number | Read::Payload | Read::Uptime | Read::Before => number(field),
            Read::Time(unit_ns) => number(field).saturating_mul(unit_ns),
            Read::Ntp => since_1970_ns(number(field)),
            Read::Address => {
                values.0[slot + 1] = number(&field[8..]);
                number(&field[..8])
            }
            Read::Float if field.len() == 4 => {
                f64::from(f32::from_bits(number(field) as u32)).to_bits()
            }
            Read::Float => number(field),
        };
    }
}

/// A big-endian number of one to eight bytes.
#[inline]
fn number(field: &[u8]) -> u64 {
    match *field {
        [a] => a.into(),
        [a, b] => u16::from_be_bytes([a, b]).into(),
        [a, b, c, d] => u32::from_be_bytes([a, b, c, d]).into(),
        [a, b, c, d, e, f, g, h] => u64::from_be_bytes([a, b, c, d, e, f, g, h]),
        _ => field.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)),
    }
}

/// A moment of the NTP format (RFC 5905, section 6), ns since 1970; 0 means no time. Seconds before 1970
/// belong to the era that begins in 2036.
fn since_1970_ns(moment: u64) -> u64 {
    const FROM_1900_TO_1970_SECS: u32 = 2_208_988_800;
    if moment == 0 {
        return 0;
    }
    let seconds = ((moment >> 32) as u32).wrapping_sub(FROM_1900_TO_1970_SECS);
    let fraction_ns = ((moment & 0xffff_ffff) * 1_000_000_000) >> 32;
    u64::from(seconds) * 1_000_000_000 + fraction_ns
}
