//! Templates of every exporter and domain: datagrams in, flow records out.
//!
//! A template belongs to the domain that sent it: an exporter's address and a source ID (RFC 3954,
//! section 5.1) or observation domain (RFC 7011, section 3.1). Two routers may use one identifier for
//! two things. For IPFIX over UDP the port belongs to it, too (RFC 7011, section 8), but routers send
//! the templates and the records of one domain from several ports, so only their numberings are kept
//! apart.
//!
//! A sender can invent both, and over UDP the address as well. So each address has a limited share of memory,
//! and evictions are chosen so that templates in use are not lost to an attacker (`replacement`). Evictions
//! are counted, because the records of an evicted template cannot be read until the template comes again.

use alloc::collections::BTreeMap;
use core::net::IpAddr;

use super::definition::{Definition, Entries, Entry};
use super::domain::DomainKey;
use super::message::{self, Dialect, Error, Header, SET_HEADER_BYTES, Set};
use super::pending_records::{Held, HeldSet};
use super::plan::{Places, Plan};
use super::reader::{Known, Reader, Speaker};
use super::replacement::{Place, Replacement, Shares};
use crate::counts::{Counts, Skip};
use crate::evictions::Evictions;
use crate::record::FlowRecord;
use crate::sequence::{Numbered, Numbering};

/// The sender of datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Exporter {
    /// The source address.
    pub address: IpAddr,
    /// The source port; 0 where it is not known.
    pub port: u16,
}

/// Ports of a domain whose numbering is followed.
const PORTS_MAX: usize = 64;

/// Limits of memory. Beyond them, the least useful entries are forgotten and counted.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Domains of all exporters; at least 1.
    pub domains_max: usize,
    /// Domains of one exporter's address; at least 1.
    pub domains_of_address_max: usize,
    /// Templates of all domains; at least 1.
    pub templates_max: usize,
    /// Templates of one exporter's address, whatever its domains; at least 1.
    pub templates_of_address_max: usize,
    /// Fields of a template.
    pub fields_max: usize,
    /// Memory for sets that wait for their template.
    pub held_bytes_max: usize,
}

impl Default for Limits {
    /// 4,096 domains and 16,384 templates of 512 fields, a quarter of both for one address; 16 MiB for sets
    /// that wait.
    fn default() -> Limits {
        Limits {
            domains_max: 4_096,
            domains_of_address_max: 1_024,
            templates_max: 16_384,
            templates_of_address_max: 4_096,
            fields_max: 512,
            held_bytes_max: 16 << 20,
        }
    }
}

/// What is known about a domain.
#[derive(Clone, Debug)]
struct Domain {
    place: Place,
    templates: BTreeMap<u16, Known>,
    speaker: Speaker,
    /// Numberings by source port.
    numberings: BTreeMap<u16, Numbering>,
}

/// The state of all exporters of NetFlow version 9 and IPFIX.
#[derive(Clone, Debug)]
pub struct Session {
    limits: Limits,
    domains: BTreeMap<DomainKey, Domain>,
    /// The order in which domains are evicted, and templates.
    domain_order: Replacement<DomainKey>,
    template_order: Replacement<(DomainKey, u16)>,
    evictions: Evictions,
    held: Held,
    /// Scratch space for records, and for records in their lists.
    places: [Places; 2],
}

impl Session {
    /// A session that knows no exporter yet.
    pub fn new(limits: Limits) -> Session {
        Session {
            domains: BTreeMap::new(),
            domain_order: Replacement::new(Shares::new(
                limits.domains_max,
                limits.domains_of_address_max,
            )),
            template_order: Replacement::new(Shares::new(
                limits.templates_max,
                limits.templates_of_address_max,
            )),
            evictions: Evictions::default(),
            held: Held::new(limits.held_bytes_max),
            places: Default::default(),
            limits,
        }
    }

    /// Takes a datagram; what it holds is counted in `counts`, its flows go to `out`, and so do those
    /// that waited for a template in it. Damage behind the header is a count, not an error.
    ///
    /// # Errors
    /// When it is no such datagram, or cut; then nothing of it was taken.
    pub fn receive(
        &mut self,
        exporter: Exporter,
        datagram: &[u8],
        counts: &mut Counts,
        out: &mut impl FnMut(FlowRecord),
    ) -> Result<Header, Error> {
        let (header, sets) = message::open(datagram)?;
        let header_bytes = message::header_bytes(header.dialect);
        counts.datagrams += 1;
        counts.bytes.taken += (header_bytes + sets.bytes()) as u64;
        counts.bytes.headers += header_bytes as u64;
        let (address, dialect) = (exporter.address, header.dialect);
        let key = DomainKey { address, dialect, id: header.domain };
        self.domain_order.tick();
        self.template_order.tick();
        self.hear_of(key, counts);
        let records_before = counts.records;
        let mut records = Some(0);
        for set in sets {
            let (found_before, late_before) = (counts.records, counts.sets_late);
            let is_known = self.take_set(key, &header, set, counts, out);
            // Sets that had waited are not from this datagram, and a set that waits has an unknown number of
            // records.
            let is_own = is_known && counts.sets_late == late_before;
            records = match set {
                Set::Records(..) if is_own => {
                    records.map(|records| records + (counts.records - found_before) as u32)
                }
                Set::Records(..) | Set::Damaged(_) => None,
                _ => records,
            };
        }
        let place = self.domain(key).place;
        match counts.records > records_before {
            true => self.domain_order.useful(place),
            false => self.domain_order.renewed(place),
        }
        self.follow((key, exporter.port), &header, records, counts);
        Ok(header)
    }

    /// Counts what still waits for its template as skipped: no more is to come.
    pub fn finish(&mut self, counts: &mut Counts) {
        for set in self.held.take_all() {
            counts.skips.add(Skip::NoTemplate);
            counts.bytes.held -= set.body.len() as u64;
            counts.bytes.skipped += set.body.len() as u64;
        }
    }

    /// Domains that are known.
    pub fn domains(&self) -> usize {
        self.domains.len()
    }

    /// Templates that were forgotten because there were too many, by exporter.
    pub fn evictions(&self) -> &Evictions {
        &self.evictions
    }

    /// The last stated sampling interval of each domain that stated one.
    pub fn sampling_intervals(&self) -> impl Iterator<Item = u32> + '_ {
        self.domains
            .values()
            .map(|domain| domain.speaker.samplers.last_interval())
            .filter(|last_interval| *last_interval > 0)
    }

    /// Ensures that the domain is known.
    fn hear_of(&mut self, key: DomainKey, counts: &mut Counts) {
        if self.domains.contains_key(&key) {
            return;
        }
        if let Some(gone) = self.domain_order.make_room(key.address) {
            let domain = self.domains.remove(&gone.what).expect("it has a place");
            counts.skips.add(Skip::DomainEvicted);
            for known in domain.templates.into_values() {
                let was_useful = self.template_order.withdraw(known.place);
                self.evictions.note(gone.owner, was_useful);
                counts.skips.add(Skip::TemplateEvicted);
            }
        }
        let place = self.domain_order.enter(key.address, key);
        let (speaker, numberings) = (Speaker::default(), BTreeMap::new());
        self.domains.insert(key, Domain { place, templates: BTreeMap::new(), speaker, numberings });
    }

    /// Takes a set; returns whether its records, if it has any, could be read.
    fn take_set(
        &mut self,
        key: DomainKey,
        header: &Header,
        set: Set<'_>,
        counts: &mut Counts,
        out: &mut impl FnMut(FlowRecord),
    ) -> bool {
        if !matches!(set, Set::Padding(_) | Set::Damaged(_)) {
            counts.bytes.headers += SET_HEADER_BYTES as u64;
        }
        match set {
            Set::Templates(body) => self.learn(key, false, body, counts, out),
            Set::OptionTemplates(body) => self.learn(key, true, body, counts, out),
            Set::Records(id, body) => return self.take_records(key, header, id, body, counts, out),
            Set::Reserved(body) => {
                counts.skips.add(Skip::SetUnknown);
                counts.bytes.skipped += body.len() as u64;
            }
            Set::Padding(rest) => counts.bytes.padding += rest.len() as u64,
            Set::Damaged(rest) => {
                counts.skips.add(Skip::SetDamaged);
                counts.bytes.skipped += rest.len() as u64;
            }
        }
        true
    }

    fn learn(
        &mut self,
        key: DomainKey,
        is_options: bool,
        body: &[u8],
        counts: &mut Counts,
        out: &mut impl FnMut(FlowRecord),
    ) {
        let mut entries = Entries::new(key.dialect, is_options, self.limits.fields_max, body);
        for entry in entries.by_ref() {
            match entry {
                Entry::Template(id, definition) => {
                    if self.learn_template(key, id, definition, counts) {
                        self.take_held(key, id, counts, out);
                    }
                }
                Entry::TooManyFields(id) => {
                    self.forget(key, id);
                    counts.skips.add(Skip::TemplateLimit);
                }
                Entry::Withdrawn(id) => self.withdraw(key, counts, |known, _| known == id),
                Entry::AllWithdrawn => {
                    let is_kind = |_, known: &Known| known.definition.is_options == is_options;
                    self.withdraw(key, counts, is_kind);
                }
            }
        }
        let left = entries.left();
        counts.bytes.templates += (body.len() - left.len()) as u64;
        if left.len() < SET_HEADER_BYTES || left.iter().all(|byte| *byte == 0) {
            counts.bytes.padding += left.len() as u64;
        } else {
            counts.skips.add(Skip::TemplateDamaged);
            counts.bytes.skipped += left.len() as u64;
        }
    }

    /// Learns a template; returns whether records can be read by it now.
    fn learn_template(
        &mut self,
        key: DomainKey,
        id: u16,
        definition: Definition,
        counts: &mut Counts,
    ) -> bool {
        let old = self.domain(key).templates.get(&id);
        let (old_place, is_same) =
            (old.map(|old| old.place), old.is_some_and(|old| old.definition == definition));
        if let Some(place) = old_place.filter(|_| is_same) {
            self.template_order.renewed(place);
            return true;
        }
        let Some(plan) = Plan::new(&definition) else {
            self.forget(key, id);
            counts.skips.add(Skip::TemplateDamaged);
            return false;
        };
        let place = old_place.unwrap_or_else(|| self.place_for((key, id), counts));
        self.domain(key).templates.insert(id, Known { place, definition, plan });
        counts.templates += 1;
        true
    }

    /// A place for a new template; another may be evicted for it.
    fn place_for(&mut self, what: (DomainKey, u16), counts: &mut Counts) -> Place {
        if let Some(gone) = self.template_order.make_room(what.0.address) {
            let (key, id) = gone.what;
            self.domain(key).templates.remove(&id);
            self.evictions.note(gone.owner, gone.was_useful);
            counts.skips.add(Skip::TemplateEvicted);
        }
        self.template_order.enter(what.0.address, what)
    }

    /// Forgets a template whose redefinition cannot be used: with the old one, records would be misread.
    fn forget(&mut self, key: DomainKey, id: u16) {
        if let Some(known) = self.domain(key).templates.remove(&id) {
            self.template_order.withdraw(known.place);
        }
    }

    fn withdraw(
        &mut self,
        key: DomainKey,
        counts: &mut Counts,
        is_meant: impl Fn(u16, &Known) -> bool,
    ) {
        let domain = self.domains.get_mut(&key).expect("inserted when its datagram came");
        domain.templates.retain(|id, known| {
            let stays = !is_meant(*id, known);
            if !stays {
                self.template_order.withdraw(known.place);
                counts.withdrawn += 1;
            }
            stays
        });
    }

    /// Reads the sets that waited for this template.
    fn take_held(
        &mut self,
        key: DomainKey,
        id: u16,
        counts: &mut Counts,
        out: &mut impl FnMut(FlowRecord),
    ) {
        for set in self.held.take(key, id) {
            counts.sets_late += 1;
            counts.bytes.held -= set.body.len() as u64;
            let is_known = self.take_records(key, &set.header, id, &set.body, counts, out);
            assert!(is_known, "its template has just come");
        }
    }

    /// Reads a set of records, or holds it; returns whether it was read.
    fn take_records(
        &mut self,
        key: DomainKey,
        header: &Header,
        id: u16,
        body: &[u8],
        counts: &mut Counts,
        out: &mut impl FnMut(FlowRecord),
    ) -> bool {
        let domain = self.domains.get_mut(&key).expect("inserted when its datagram came");
        if let Some(known) = domain.templates.get(&id) {
            self.template_order.useful(known.place);
            let (templates, speaker) = (&domain.templates, &mut domain.speaker);
            let reader = Reader { plan: &known.plan, templates, header, speaker, counts, out };
            reader.read(body, &mut self.places);
            return true;
        }
        let set = HeldSet { header: *header, body: body.into() };
        let dropped = self.held.hold(key, id, set);
        counts.bytes.held += body.len() as u64;
        counts.bytes.held -= dropped.bytes;
        counts.bytes.skipped += dropped.bytes;
        counts.skips.add_many(Skip::NoTemplate, dropped.sets);
        false
    }

    /// Compares the sequence number with those before.
    fn follow(
        &mut self,
        (key, port): (DomainKey, u16),
        header: &Header,
        records: Option<u32>,
        counts: &mut Counts,
    ) {
        let units = match header.dialect {
            Dialect::NetFlow9 => Some(1),
            Dialect::Ipfix => records,
        };
        let numberings = &mut self.domain(key).numberings;
        if numberings.len() == PORTS_MAX && !numberings.contains_key(&port) {
            return;
        }
        let numbering = numberings.entry(port).or_default();
        let numbered = numbering.observe(header.sequence, units, header.export_secs);
        let lost = match header.dialect {
            Dialect::NetFlow9 => &mut counts.datagrams_lost,
            Dialect::Ipfix => &mut counts.records_lost,
        };
        match numbered {
            Numbered::Follows | Numbered::Restarted => {}
            Numbered::Lost(units) => *lost += u64::from(units),
            Numbered::Repeated => counts.datagrams_repeated += 1,
            Numbered::Late => *lost = lost.saturating_sub(units.unwrap_or(0).into()),
        }
    }

    fn domain(&mut self, key: DomainKey) -> &mut Domain {
        self.domains.get_mut(&key).expect("inserted when its datagram came")
    }
}
