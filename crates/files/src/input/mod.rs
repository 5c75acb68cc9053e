//! Inputs: captures and flow exports opened, recognised and streamed.

pub mod archive;
pub mod capture;
pub mod captured;
pub mod choice;
pub mod contents;
pub mod datagrams;
mod digest;
pub mod expand;
pub mod live;
pub mod observe;
pub mod open;
mod packing;
pub mod pcap;
pub mod pcapng;
pub mod pipe;
pub mod records;
pub mod series;
pub mod sides;
pub mod sight;
mod sites;
pub mod source;
pub mod summary;
pub mod supplement;
pub mod text;
pub mod udp;
pub mod unpack;
pub mod window;
