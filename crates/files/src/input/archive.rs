//! Files in which collectors keep flow records, recognised by their headers: nfcapd's and those of
//! flow-tools.

use anyhow::{Context, Result};
use nilometer_flow::flow_tools;
use nilometer_flow::nfcapd::{self, FileHeader};

/// A collector's file, with its header read.
#[derive(Clone, Copy, Debug)]
pub enum Archive {
    /// Written by nfdump's collector.
    Nfcapd(FileHeader),
    /// Written by flow-tools.
    FlowTools(flow_tools::Header),
}

/// Reads the header of such a file from its first bytes; `None` for any other beginning.
///
/// # Errors
/// When it is such a file, but cut or damaged within its header.
pub fn recognise(first: &[u8]) -> Result<Option<Archive>> {
    if first.starts_with(&nfcapd::MAGIC_BYTES) {
        Ok(Some(Archive::Nfcapd(FileHeader::read(first).context("nfcapd")?)))
    } else if first.starts_with(&flow_tools::MAGIC_BYTES) {
        Ok(Some(Archive::FlowTools(flow_tools::Header::read(first).context("flow-tools")?)))
    } else {
        Ok(None)
    }
}
