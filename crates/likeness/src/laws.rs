//! The laws by which a copy is compared, each with its distance, its unit and its limits.

nilometer_wire::named! {
    /// The unit of a distance.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Unit {
        /// Greatest difference of two distribution functions (Kolmogorov and Smirnov), 0 to 1.
        Ks = "ks",
        /// Octaves by which mass has to be moved (Wasserstein 1 of log₂), or energies differ.
        Octaves = "octaves",
        /// Jensen-Shannon divergence, bits, 0 to 1.
        Bits = "bits",
        /// Difference of two correlation coefficients, 0 to 2.
        Correlation = "correlation",
    }
}

impl Unit {
    /// The greatest median floor at which a law is judged: above it, a second sample of the original would
    /// be so far from it that hardly any copy could be distinguished from one.
    pub fn floor_max(self) -> f64 {
        match self {
            Unit::Ks | Unit::Correlation => 0.125,
            Unit::Octaves => 0.5,
            Unit::Bits => 0.189,
        }
    }
}

/// What is drawn anew for a second sample of the original.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampled {
    /// Whole sessions.
    Sessions,
    /// Stretches of time.
    Bins,
    /// Stretches of the row in which sessions arrived.
    Arrivals,
}

impl Sampled {
    /// All of them, in the order of their numbers.
    pub const ALL: [Sampled; 3] = [Sampled::Sessions, Sampled::Bins, Sampled::Arrivals];
}

/// What a law is measured from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Whole connections: their ends, times and bytes.
    Connections,
    /// What the applications of both ends sent.
    Payload,
    /// How connections ended.
    Endings,
    /// Which end spoke when.
    Exchanges,
    /// Packets, one by one.
    Packets,
}

/// A law.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Law {
    /// Its name in results.
    pub name: &'static str,
    /// The unit of its distance.
    pub unit: Unit,
    /// What is drawn again for its floor.
    pub sampled: Sampled,
    /// The greatest distance that may be called alike.
    pub cap: f64,
    /// What is compared, in words.
    pub what: &'static str,
    /// What it is measured from.
    pub needs: Needs,
}

impl Law {
    const fn needs(self, needs: Needs) -> Law {
        Law { needs, ..self }
    }
}

const fn of_sessions(name: &'static str, unit: Unit, cap: f64, what: &'static str) -> Law {
    Law { name, unit, sampled: Sampled::Sessions, cap, what, needs: Needs::Connections }
}

const fn of_bins(name: &'static str, unit: Unit, cap: f64, what: &'static str) -> Law {
    Law { name, unit, sampled: Sampled::Bins, cap, what, needs: Needs::Packets }
}

/// All of them, in the order of results.
pub const LAWS: [Law; 21] = [
    of_sessions("size_asked", Unit::Ks, 0.1, "bytes that the client of a connection sent")
        .needs(Needs::Payload),
    of_sessions("size_asked_tail", Unit::Octaves, 0.5, "the same, by octaves, tail included")
        .needs(Needs::Payload),
    of_sessions("size_answered", Unit::Ks, 0.1, "bytes that the server of a connection sent")
        .needs(Needs::Payload),
    of_sessions("size_answered_tail", Unit::Octaves, 0.5, "the same, by octaves, tail included")
        .needs(Needs::Payload),
    of_sessions("bytes_by_size", Unit::Ks, 0.15, "bytes by size of their connection")
        .needs(Needs::Payload),
    of_sessions("exchanges", Unit::Ks, 0.1, "exchanges of a connection").needs(Needs::Exchanges),
    of_sessions("first_speaker", Unit::Bits, 0.05, "which end of a connection sent data first")
        .needs(Needs::Exchanges),
    of_sessions("think_time", Unit::Ks, 0.1, "pauses of a client between two exchanges")
        .needs(Needs::Exchanges),
    of_sessions("duration", Unit::Ks, 0.1, "from a connection's first packet to its end"),
    of_sessions("gap", Unit::Ks, 0.1, "between two connections of a session"),
    of_sessions(
        "gap_correlation",
        Unit::Correlation,
        0.2,
        "correlation of consecutive gaps of a session",
    ),
    Law {
        name: "session_arrivals",
        unit: Unit::Ks,
        sampled: Sampled::Arrivals,
        cap: 0.1,
        what: "between the starts of two sessions",
        needs: Needs::Connections,
    },
    of_sessions("sources", Unit::Bits, 0.05, "connections of each client, by rank"),
    of_sessions("destinations", Unit::Bits, 0.05, "connections of each server, by rank"),
    of_sessions("pairs", Unit::Bits, 0.05, "connections of each pair of hosts, by rank"),
    of_sessions("bytes_by_host", Unit::Bits, 0.1, "bytes of each host, by rank"),
    of_bins("packets_per_second", Unit::Ks, 0.15, "rate of packets in tenths of seconds"),
    of_bins("bytes_per_second", Unit::Ks, 0.15, "rate of bytes in tenths of seconds"),
    of_sessions("packet_size", Unit::Ks, 0.1, "bytes of a packet, each direction by itself")
        .needs(Needs::Packets),
    of_sessions("endings", Unit::Bits, 0.05, "how connections ended, and by which end")
        .needs(Needs::Endings),
    of_bins("scaling", Unit::Octaves, 0.5, "energy of the rate's changes, octave by octave"),
];
