//! Options of reading inputs.

use nilometer_flow::meter::MeterConfig;

use super::super::choice::ReadAs;

/// How inputs are read.
#[derive(Clone, Copy, Debug)]
pub struct FlowOptions {
    /// When flows end, and how many are kept at once.
    pub meter: MeterConfig,
    /// As what captures are read; `None` lets each capture decide.
    pub read_as: Option<ReadAs>,
    /// Repair records, so that flows that an exporter split are joined again.
    pub repairs: bool,
    /// Collect information for a model besides the records: burstiness of packets on every time scale, and
    /// round trips from openings of connections. Records are screened, and each input is processed by itself.
    pub for_model: bool,
    /// Count TCP connections; without it the summary has none.
    pub counts_connections: bool,
    /// Compute digests of the inputs: needed for everything that is stored and was made from them.
    pub digests: bool,
    /// Refuse packets that come through a pipe, which cannot be read a second time; records are accepted.
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
