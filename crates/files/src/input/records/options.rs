//! How inputs are read: what becomes of packets and records on their way.

use nilometer_flow::meter::MeterConfig;

use super::super::choice::ReadAs;

/// How inputs are read.
#[derive(Clone, Copy, Debug)]
pub struct FlowOptions {
    /// When flows end, and how many are kept at once.
    pub meter: MeterConfig,
    /// What captures are read as; `None` lets each capture decide.
    pub read_as: Option<ReadAs>,
    /// Repair the records on their way, so that what an exporter split is one again.
    pub repairs: bool,
    /// Say what a model wants to know beside the records: how bursty packets are on every time scale, and the
    /// round trips that the openings of connections show. Records are screened, and each input is by itself.
    pub for_model: bool,
    /// Count TCP connections; without it the summary has none.
    pub counts_connections: bool,
    /// Digest the inputs: wherever something is kept that is made of them.
    pub digests: bool,
    /// Refuse packets that come through a pipe, which cannot be read a second time; records may.
    pub refuses_piped_packets: bool,
}

impl Default for FlowOptions {
    /// Usual timers, captures decide, records as they are, connections counted, inputs digested.
    fn default() -> FlowOptions {
        FlowOptions {
            meter: MeterConfig::default(),
            read_as: None,
            repairs: false,
            for_model: false,
            counts_connections: true,
            digests: true,
            refuses_piped_packets: false,
        }
    }
}
