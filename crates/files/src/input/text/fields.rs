//! The content of a column of text, by its name.

/// The unit of a time that is a bare number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Seconds, with a fraction.
    Seconds,
    /// Milliseconds.
    Millis,
    /// Nanoseconds.
    Nanos,
}

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// The first packet.
    Start(Unit),
    /// The last packet.
    End(Unit),
    /// The time between them, seconds.
    Duration,
    /// The sender's address.
    Source,
    /// The receiver's address.
    Destination,
    /// The sender's port.
    SourcePort,
    /// The receiver's port.
    DestinationPort,
    /// The protocol, by number or name.
    Protocol,
    /// Packets.
    Packets,
    /// Bytes from the IP header on.
    Octets,
    /// Packets of the reverse direction.
    PacketsBack,
    /// Bytes of the reverse direction.
    OctetsBack,
    /// Packets of both directions.
    PacketsBoth,
    /// Bytes of both directions.
    OctetsBoth,
    /// Payload.
    Payload,
    /// Payload of the reverse direction.
    PayloadBack,
    /// TCP flags.
    Flags,
    /// Zeek's history of a connection.
    History,
    /// Argus' flags of both directions.
    State,
    /// flowEndReason.
    EndReason,
    /// Did this side open the connection?
    Opened,
    /// One packet in this many was counted.
    Sampling,
}

/// Names in lower case. IPFIX (what Nilometer writes), Zeek, nfdump's two kinds of CSV and its
/// ndjson, Argus, FlowTest, pmacct.
const NAMES: [(&str, Field); 81] = [
    ("flowstartnanoseconds", Field::Start(Unit::Nanos)),
    ("flowendnanoseconds", Field::End(Unit::Nanos)),
    ("flowstartmilliseconds", Field::Start(Unit::Millis)),
    ("flowendmilliseconds", Field::End(Unit::Millis)),
    ("flowstartseconds", Field::Start(Unit::Seconds)),
    ("flowendseconds", Field::End(Unit::Seconds)),
    ("sourceipaddress", Field::Source),
    ("destinationipaddress", Field::Destination),
    ("sourceipv4address", Field::Source),
    ("destinationipv4address", Field::Destination),
    ("sourceipv6address", Field::Source),
    ("destinationipv6address", Field::Destination),
    ("sourcetransportport", Field::SourcePort),
    ("destinationtransportport", Field::DestinationPort),
    ("protocolidentifier", Field::Protocol),
    ("packetdeltacount", Field::Packets),
    ("octetdeltacount", Field::Octets),
    ("tcpcontrolbits", Field::Flags),
    ("flowendreason", Field::EndReason),
    ("payloadoctets", Field::Payload),
    ("initiator", Field::Opened),
    ("samplinginterval", Field::Sampling),
    ("ts", Field::Start(Unit::Seconds)),
    ("id.orig_h", Field::Source),
    ("id.orig_p", Field::SourcePort),
    ("id.resp_h", Field::Destination),
    ("id.resp_p", Field::DestinationPort),
    ("proto", Field::Protocol),
    ("duration", Field::Duration),
    ("orig_bytes", Field::Payload),
    ("resp_bytes", Field::PayloadBack),
    ("history", Field::History),
    ("orig_pkts", Field::Packets),
    ("orig_ip_bytes", Field::Octets),
    ("resp_pkts", Field::PacketsBack),
    ("resp_ip_bytes", Field::OctetsBack),
    ("te", Field::End(Unit::Seconds)),
    ("sa", Field::Source),
    ("da", Field::Destination),
    ("sp", Field::SourcePort),
    ("dp", Field::DestinationPort),
    ("pr", Field::Protocol),
    ("flg", Field::Flags),
    ("ipkt", Field::Packets),
    ("ibyt", Field::Octets),
    ("opkt", Field::PacketsBack),
    ("obyt", Field::OctetsBack),
    ("firstseen", Field::Start(Unit::Seconds)),
    ("lastseen", Field::End(Unit::Seconds)),
    ("first", Field::Start(Unit::Seconds)),
    ("last", Field::End(Unit::Seconds)),
    ("srcaddr", Field::Source),
    ("dstaddr", Field::Destination),
    ("src4_addr", Field::Source),
    ("dst4_addr", Field::Destination),
    ("src6_addr", Field::Source),
    ("dst6_addr", Field::Destination),
    ("srcport", Field::SourcePort),
    ("dstport", Field::DestinationPort),
    ("src_port", Field::SourcePort),
    ("dst_port", Field::DestinationPort),
    ("in_packets", Field::Packets),
    ("in_bytes", Field::Octets),
    ("packets", Field::Packets),
    ("bytes", Field::Octets),
    ("tcp_flags", Field::Flags),
    ("starttime", Field::Start(Unit::Seconds)),
    ("dur", Field::Duration),
    ("sport", Field::SourcePort),
    ("dport", Field::DestinationPort),
    ("state", Field::State),
    ("totpkts", Field::PacketsBoth),
    ("totbytes", Field::OctetsBoth),
    ("srcpkts", Field::Packets),
    ("dstpkts", Field::PacketsBack),
    ("srcbytes", Field::Octets),
    ("dstbytes", Field::OctetsBack),
    ("start_time", Field::Start(Unit::Millis)),
    ("end_time", Field::End(Unit::Millis)),
    ("src_ip", Field::Source),
    ("dst_ip", Field::Destination),
];
/// Further names: synonyms of these.
const OTHER_NAMES: [(&str, Field); 13] = [
    ("protocol", Field::Protocol),
    ("l4_proto", Field::Protocol),
    ("packets_rev", Field::PacketsBack),
    ("bytes_rev", Field::OctetsBack),
    ("timestamp_start", Field::Start(Unit::Seconds)),
    ("timestamp_end", Field::End(Unit::Seconds)),
    ("ip_src", Field::Source),
    ("ip_dst", Field::Destination),
    ("port_src", Field::SourcePort),
    ("port_dst", Field::DestinationPort),
    ("ip_proto", Field::Protocol),
    ("out_packets", Field::PacketsBack),
    ("out_bytes", Field::OctetsBack),
];

/// The content of a column with this name, if it is known.
pub fn field_of(name: &str) -> Option<Field> {
    let name = name.trim().to_ascii_lowercase();
    let mut all = NAMES.iter().chain(&OTHER_NAMES);
    all.find(|(known, _)| *known == name).map(|(_, field)| *field)
}

/// The content of a file's columns, in their order.
#[derive(Clone, Debug)]
pub struct Fields(Vec<Option<Field>>);

impl Fields {
    /// The fields of these names; `None` unless both addresses are among them.
    pub fn of<'a>(names: impl Iterator<Item = &'a str>) -> Option<Fields> {
        let fields = Fields(names.map(field_of).collect());
        (fields.has(Field::Source) && fields.has(Field::Destination)).then_some(fields)
    }

    /// The field of each column.
    pub fn iter(&self) -> impl Iterator<Item = Option<Field>> + '_ {
        self.0.iter().copied()
    }

    /// Are these Argus' columns?
    pub fn is_argus(&self) -> bool {
        self.has(Field::PacketsBoth) && self.has(Field::State)
    }

    /// The first thing that a flow needs and no column has.
    pub fn missing(&self) -> Option<&'static str> {
        let any = |of: &dyn Fn(Field) -> bool| self.iter().flatten().any(of);
        if !any(&|field| matches!(field, Field::Start(_))) {
            Some("start")
        } else if !self.has(Field::Protocol) {
            Some("protocol")
        } else if !self.has(Field::Packets) && !self.has(Field::PacketsBoth) {
            Some("packets")
        } else if !self.has(Field::Octets) && !self.has(Field::OctetsBoth) {
            Some("bytes")
        } else {
            None
        }
    }

    fn has(&self, field: Field) -> bool {
        self.0.contains(&Some(field))
    }
}
