//! The kernel's settings in the namespaces of a testbed.

/// In all namespaces, before their links exist: the kernel assigns no address and sends no query or
/// report on its own.
pub(super) const QUIET: [(&str, &str); 9] = [
    ("net/ipv6/conf/default/addr_gen_mode", "1"),
    ("net/ipv6/conf/default/accept_ra", "0"),
    ("net/ipv6/conf/default/autoconf", "0"),
    ("net/ipv6/conf/default/router_solicitations", "0"),
    ("net/ipv6/conf/default/accept_dad", "0"),
    ("net/ipv6/conf/default/dad_transmits", "0"),
    ("net/ipv6/conf/default/disable_ipv6", "0"),
    ("net/ipv4/conf/all/rp_filter", "0"),
    ("net/ipv4/conf/default/rp_filter", "0"),
];

/// In the hosts: no path other than the planned one, room for many connections, no memory of earlier ones, and each
/// segment as it was written, even while those before it wait in a box.
pub(super) const HOST: [(&str, &str); 11] = [
    ("net/ipv4/conf/all/accept_redirects", "0"),
    ("net/ipv4/conf/default/accept_redirects", "0"),
    ("net/ipv6/conf/default/accept_redirects", "0"),
    ("net/ipv4/ip_local_port_range", "1024 65535"),
    ("net/ipv4/ip_nonlocal_bind", "1"),
    ("net/ipv6/ip_nonlocal_bind", "1"),
    ("net/ipv4/tcp_autocorking", "0"),
    ("net/ipv4/tcp_tw_reuse", "1"),
    ("net/ipv4/tcp_no_metrics_save", "1"),
    ("net/ipv4/tcp_max_syn_backlog", "4096"),
    ("net/core/somaxconn", "4096"),
];

/// In a Linux device under test.
pub(super) const FORWARDING: [(&str, &str); 2] =
    [("net/ipv4/ip_forward", "1"), ("net/ipv6/conf/all/forwarding", "1")];
