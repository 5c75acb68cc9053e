//! Counts of decoded exports: every record found becomes a flow, an option, or a skip with its reason.
//!
//! Decoders count in one [`Counts`], whatever the format, so that formats can be mixed. Two laws hold after
//! every call ([`Counts::assert_balanced`]). Records: as many were found as became flows, were options
//! (information about the exporter) or were skipped. Bytes, where a format is cut into sets: every byte of a
//! datagram that was taken is a header's, a template's, a record's, padding, held until its template comes,
//! or skipped. A decoder that loses its position breaks one of them.

nilometer_wire::named! {
    /// Why something was skipped. Each reason states what is counted: records, sets of records whose number
    /// cannot be known, templates, or whole samples.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(u8)]
    pub enum Skip {
        /// Records without both IP addresses: layer 2, or statistics of an interface or application.
        NoAddresses = "no_addresses",
        /// Records with addresses and no count of packets or bytes: events, such as translations.
        NoCounts = "no_counts",
        /// Records that are sums over many flows (NetFlow v8, all schemes but the full flow).
        Aggregate = "aggregate",
        /// Records that end beyond their set, block or sample, or contradict themselves.
        RecordDamaged = "record_damaged",
        /// Samples of interface counters (sFlow version 5, section 5.3).
        CounterSample = "counter_sample",
        /// Samples and records of a kind that is not known here.
        KindUnknown = "kind_unknown",
        /// Samples of packets that are not IP, or were cut before their IP addresses.
        NotIp = "not_ip",
        /// Sets whose template never came, or came when no more could be held.
        NoTemplate = "no_template",
        /// Sets whose length contradicts their datagram, with all that followed them; blocks likewise.
        SetDamaged = "set_damaged",
        /// Sets with an identifier that is reserved (RFC 7011, section 3.3.2), and unknown blocks.
        SetUnknown = "set_unknown",
        /// Templates that contradict themselves, or describe records of no length.
        TemplateDamaged = "template_damaged",
        /// Templates of more fields than are remembered.
        TemplateLimit = "template_limit",
        /// Templates that were forgotten because there were too many, of their exporter or in all.
        TemplateEvicted = "template_evicted",
        /// Datagrams of more exporters and domains than are followed; their records were read.
        DomainLimit = "domain_limit",
        /// Domains that were forgotten, with their templates, because there were too many.
        DomainEvicted = "domain_evicted",
    }
}

impl Skip {
    /// Are records counted under this reason? The other reasons count sets, samples, templates or datagrams.
    pub fn is_of_records(self) -> bool {
        (self as u8) < Skip::NoTemplate as u8
    }
}

/// How often each reason was met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skips([u64; Skip::ALL.len()]);

impl Skips {
    /// Counts one.
    pub fn add(&mut self, reason: Skip) {
        self.add_many(reason, 1);
    }

    /// Counts `count` of them.
    pub fn add_many(&mut self, reason: Skip, count: u64) {
        self.0[reason as usize] += count;
    }

    /// How often this reason was met.
    pub fn of(&self, reason: Skip) -> u64 {
        self.0[reason as usize]
    }

    /// The reasons that were met, and how often.
    pub fn met(&self) -> impl Iterator<Item = (Skip, u64)> + '_ {
        Skip::ALL.into_iter().map(|reason| (reason, self.of(reason))).filter(|(_, n)| *n > 0)
    }

    /// Records that were skipped, for whatever reason.
    pub fn records(&self) -> u64 {
        self.met().filter(|(reason, _)| reason.is_of_records()).map(|(_, count)| count).sum()
    }
}

/// Where the bytes of datagrams made of sets went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes {
    /// All bytes of accepted datagrams.
    pub taken: u64,
    /// Headers of datagrams and of sets.
    pub headers: u64,
    /// Templates.
    pub templates: u64,
    /// Records, whether decoded or skipped.
    pub records: u64,
    /// Padding.
    pub padding: u64,
    /// Sets that wait for their template.
    pub held: u64,
    /// Bytes outside of any record that could be found.
    pub skipped: u64,
}

/// Counts of decoded exports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Datagrams that were taken, or blocks.
    pub datagrams: u64,
    /// Datagrams that were refused with an error, or blocks.
    pub malformed: u64,
    /// Records found, by the lengths and counts that announce them.
    pub records: u64,
    /// Those among them that are flows.
    pub flows: u64,
    /// Records given beyond one for each flow: the reverse halves of biflows (RFC 5103).
    pub reverse_flows: u64,
    /// Records that describe the exporter: options, and descriptions in files.
    pub options: u64,
    /// What was skipped, by reason.
    pub skips: Skips,
    /// Where the bytes of datagrams made of sets went.
    pub bytes: Bytes,
    /// Records whose last packet is stated to be before their first; taken to end when they began.
    pub times_reversed: u64,
    /// Records timed by an exporter's uptime whose zero had to be estimated.
    pub times_estimated: u64,
    /// Records without any time; they took the moment of their export, or, where that is not known either,
    /// the uptime of their agent.
    pub times_absent: u64,
    /// Records whose counts a collector has already multiplied by the sampling interval.
    pub scaled: u64,
    /// Records with different counts for a second direction that nothing marks as the reverse direction;
    /// these counts were left out.
    pub second_counts: u64,
    /// Lists in records (RFC 6313) whose template is not known; flags may be in them.
    pub lists_unknown: u64,
    /// Records given without a sampling interval by domains that stated one later.
    pub sampling_late: u64,
    /// Templates and options templates that were learnt, or learnt anew because they had changed.
    pub templates: u64,
    /// Templates that were withdrawn (RFC 7011, section 8.1).
    pub withdrawn: u64,
    /// Sets that waited for their template and were decoded when it came.
    pub sets_late: u64,
    /// Flows that never came, by the numbering of NetFlow v5 and v7, and records by that of IPFIX.
    pub records_lost: u64,
    /// Datagrams that never came, by the numbering of NetFlow v9 and sFlow.
    pub datagrams_lost: u64,
    /// Datagrams with the number and the time of the one before them: they came twice, as from a port that is
    /// mirrored both ways, or their exporter does not number them.
    pub datagrams_repeated: u64,
    /// Packets that a sampler dropped for want of resources (sFlow version 5, section 5).
    pub samples_dropped: u64,
}

impl Counts {
    /// Both laws; see the top of this file.
    ///
    /// # Panics
    /// When a decoder has lost count, which is a defect of the decoder whatever the input.
    pub fn assert_balanced(&self) {
        let accounted = self.flows + self.options + self.skips.records();
        assert_eq!(self.records, accounted, "every record found is a flow, an option or a skip");
        let Bytes { taken, headers, templates, records, padding, held, skipped } = self.bytes;
        let accounted = headers + templates + records + padding + held + skipped;
        assert_eq!(taken, accounted, "every byte taken has its place");
    }

    /// Records given: one for each flow, and one more for each biflow with a reverse half.
    pub fn given(&self) -> u64 {
        self.flows + self.reverse_flows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_their_names_and_those_of_records_come_first() {
        let names = Skip::ALL.map(|skip| (skip.name(), skip.is_of_records()));
        let wanted = [
            ("no_addresses", true),
            ("no_counts", true),
            ("aggregate", true),
            ("record_damaged", true),
            ("counter_sample", true),
            ("kind_unknown", true),
            ("not_ip", true),
            ("no_template", false),
            ("set_damaged", false),
            ("set_unknown", false),
            ("template_damaged", false),
            ("template_limit", false),
            ("template_evicted", false),
            ("domain_limit", false),
            ("domain_evicted", false),
        ];
        assert_eq!(names, wanted);
    }
}
