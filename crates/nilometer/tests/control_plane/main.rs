//! Routes, daemons and the control processor of a live router.

#[path = "../common/bgp.rs"]
mod bgp;
#[path = "../common/mod.rs"]
mod common;
#[path = "../common/forwarder.rs"]
mod forwarder;
#[path = "../common/frr.rs"]
mod frr;
mod frr_router;
mod frr_routes;
#[path = "../common/links.rs"]
mod links;
#[path = "../common/module.rs"]
mod module;
#[path = "../../../router/tests/netlink/mod.rs"]
mod netlink;
mod route_control;
mod route_mirror;
mod routes;
mod snmp;
