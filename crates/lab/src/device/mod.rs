//! Devices: network namespaces, veth pairs, packet rings and the counters of interfaces.

pub mod namespace;
pub mod netlink;
pub mod offload;
pub mod prefix;
pub mod privilege;
pub mod ring;
pub mod testbed;
