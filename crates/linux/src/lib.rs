//! What speaks to the Linux kernel: namespaces, veth pairs, packet rings, a router's ports (AF_XDP, AF_PACKET, TAP),
//! BPF programs, netlink, clocks, timers and epoll, and FRR's daemons.

mod bpf;
pub mod clock;
pub mod epoll;
pub mod flow_offload;
pub mod frr;
mod interface;
pub mod listener;
pub mod machine;
mod mapping;
pub mod memory;
pub mod memory_port;
pub mod mounts;
pub mod namespace;
pub mod netlink;
pub mod offload;
mod packet_memory;
pub mod packet_port;
pub mod pages;
pub mod partial_checksum;
pub mod port;
pub mod port_io;
pub mod prefix;
pub mod privilege;
pub mod processors;
pub mod ring;
pub mod scheduling;
pub mod spinning;
pub mod steer;
pub mod system_file;
pub mod tap;
mod tcx;
pub mod testbed;
pub mod usage;
pub mod veth;
mod virtio_header;
pub mod xdp;
