//! Devices: namespaces, veth pairs, packet rings, a router's ports, interfaces' counters, and FRR's
//! daemons.

mod bpf;
pub mod frr;
mod interface;
pub mod listener;
mod mapping;
pub mod memory;
pub mod memory_port;
pub mod mounts;
pub mod namespace;
pub mod netlink;
pub mod offload;
pub mod packet_port;
pub mod partial_checksum;
pub mod port;
pub mod prefix;
pub mod privilege;
pub mod ring;
pub mod shortcut;
pub mod steer;
pub mod tap;
mod tcx;
pub mod testbed;
mod virtio_header;
pub mod xdp;
