//! The collector: decodes export datagrams of every format into flow records.
//!
//! The first bytes of a datagram say what it is: 5, 7, 9 and 10 in sixteen bits are NetFlow and IPFIX,
//! and sFlow begins with its version, 5, in thirty-two. One collector takes them mixed, from any number
//! of exporters, and keeps one set of counts.

use alloc::collections::BTreeMap;
use core::net::IpAddr;

use crate::counts::Counts;
use crate::evictions::Evictions;
use crate::netflow5::{self, Header};
use crate::netflow7;
use crate::record::FlowRecord;
use crate::sequence::Sequences;
use crate::sflow::{self, Agents};
use crate::template::{self, Dialect, Exporter, Limits, Session};

nilometer_wire::named! {
    /// The formats of datagrams.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Format {
        /// NetFlow version 5.
        NetFlow5 = "NetFlow v5",
        /// NetFlow version 7.
        NetFlow7 = "NetFlow v7",
        /// NetFlow version 9.
        NetFlow9 = "NetFlow v9",
        /// IPFIX, which counts itself as version 10.
        Ipfix = "IPFIX",
        /// sFlow version 5.
        Sflow5 = "sFlow v5",
    }
}

impl Format {
    /// What a datagram claims to be, by its first bytes; `None` if by them it is no export.
    pub fn of(datagram: &[u8]) -> Option<Format> {
        match *datagram.first_chunk::<4>()? {
            [0, 5, ..] => Some(Format::NetFlow5),
            [0, 7, ..] => Some(Format::NetFlow7),
            [0, 9, ..] => Some(Format::NetFlow9),
            [0, 10, ..] => Some(Format::Ipfix),
            [0, 0, 0, 5] => Some(Format::Sflow5),
            _ => None,
        }
    }
}

/// Why a datagram was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Its first bytes are of no format that is known here.
    #[error("begins as none of NetFlow v5, v7, v9, IPFIX and sFlow v5: it is not an export")]
    NoExport,
    /// It is not sound NetFlow version 5.
    #[error(transparent)]
    NetFlow5(netflow5::Error),
    /// It is not sound NetFlow version 7.
    #[error(transparent)]
    NetFlow7(netflow7::Error),
    /// It is not sound NetFlow version 9 or IPFIX.
    #[error(transparent)]
    Template(template::Error),
    /// It is not sound sFlow.
    #[error(transparent)]
    Sflow(sflow::Error),
}

/// Takes datagrams of every format from every exporter.
#[derive(Clone, Debug)]
pub struct Collector {
    exporters_max: usize,
    numbered: BTreeMap<(IpAddr, Format), Sequences>,
    session: Session,
    agents: Agents,
    counts: Counts,
}

impl Collector {
    /// A collector that knows no exporter yet. The limit `domains_max` holds for exporters of every format.
    pub fn new(limits: Limits) -> Collector {
        Collector {
            exporters_max: limits.domains_max,
            numbered: BTreeMap::new(),
            session: Session::new(limits),
            agents: Agents::new(limits.domains_max),
            counts: Counts::default(),
        }
    }

    /// Takes a datagram received at `received_ns` (ns since 1970, 0 where that is unknown; only sFlow needs
    /// it); its flows go to `out`, and so do those that waited for a template in it. Returns its format.
    ///
    /// # Errors
    /// When it is not an export, or its header is damaged; it is counted as malformed.
    pub fn receive(
        &mut self,
        exporter: Exporter,
        received_ns: u64,
        datagram: &[u8],
        out: &mut impl FnMut(FlowRecord),
    ) -> Result<Format, Error> {
        let taken = self.take(exporter, received_ns, datagram, out);
        self.counts.malformed += u64::from(taken.is_err());
        self.counts.assert_balanced();
        taken
    }

    /// Ends the input: sets that wait for a template are counted as skipped.
    pub fn finish(&mut self) {
        self.session.finish(&mut self.counts);
        self.counts.assert_balanced();
    }

    /// The counts of all datagrams.
    pub fn counts(&self) -> Counts {
        let mut counts = self.counts;
        for counted in self.numbered.values().map(Sequences::counts) {
            counts.records_lost += counted.flows_lost;
            counts.datagrams_repeated += counted.datagrams_repeated;
        }
        counts
    }

    /// Templates of version 9 and IPFIX that were forgotten because there were too many.
    pub fn evictions(&self) -> &Evictions {
        self.session.evictions()
    }

    /// Number of senders: exporters of versions 5 and 7, domains of version 9 and IPFIX, sFlow's agents.
    pub fn exporters(&self) -> usize {
        self.numbered.len() + self.session.domains() + self.agents.len()
    }

    fn take(
        &mut self,
        exporter: Exporter,
        received_ns: u64,
        datagram: &[u8],
        out: &mut impl FnMut(FlowRecord),
    ) -> Result<Format, Error> {
        let format = Format::of(datagram).ok_or(Error::NoExport)?;
        match format {
            Format::NetFlow5 | Format::NetFlow7 => {
                let mut flows = 0;
                let mut out = |flow| {
                    flows += 1;
                    out(flow);
                };
                let taken = match format {
                    Format::NetFlow5 => {
                        netflow5::decode_each(datagram, &mut out).map_err(Error::NetFlow5)?
                    }
                    _ => netflow7::decode_each(datagram, &mut out).map_err(Error::NetFlow7)?,
                };
                self.note((exporter.address, format), taken, flows);
            }
            Format::NetFlow9 | Format::Ipfix => {
                let taken = self.session.receive(exporter, datagram, &mut self.counts, out);
                let header = taken.map_err(Error::Template)?;
                assert_eq!(format == Format::Ipfix, header.dialect == Dialect::Ipfix);
            }
            Format::Sflow5 => {
                let taken = self.agents.receive(received_ns, datagram, &mut self.counts, out);
                taken.map_err(Error::Sflow)?;
            }
        }
        Ok(format)
    }

    /// Counts a datagram of fixed records, and follows its numbering.
    fn note(
        &mut self,
        key: (IpAddr, Format),
        (header, times_reversed): (Header, usize),
        flows: u32,
    ) {
        self.counts.datagrams += 1;
        self.counts.records += u64::from(flows);
        self.counts.flows += u64::from(flows);
        self.counts.times_reversed += times_reversed as u64;
        if self.numbered.len() < self.exporters_max || self.numbered.contains_key(&key) {
            self.numbered.entry(key).or_default().observe_header(&header, flows);
        }
    }
}
