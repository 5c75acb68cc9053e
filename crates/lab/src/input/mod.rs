//! Inputs: captures and flow exports opened, recognised and streamed.

pub mod capture;
pub mod pcap;
pub mod pcapng;
pub mod source;
pub mod window;
