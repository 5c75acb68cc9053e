//! Inputs: captures and flow exports opened, recognised and streamed.

pub mod archive;
pub mod beside;
pub mod capture;
pub mod choice;
pub mod datagrams;
mod delivery;
mod digest;
pub mod expand;
mod exports;
pub mod live;
pub mod observe;
pub mod open;
mod packing;
mod passed_over;
pub mod pcap;
pub mod pcapng;
pub mod records;
pub mod series;
pub mod sides;
pub mod source;
pub mod summary;
pub mod text;
pub mod udp;
pub mod unpack;
pub mod window;
