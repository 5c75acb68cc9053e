//! Devices: network namespaces, veth pairs, packet rings and the counters of interfaces.
