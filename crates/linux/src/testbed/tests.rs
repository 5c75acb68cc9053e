//! What a testbed refuses, and which hosts reach each other in it.

use super::*;

#[test]
fn a_testbed_refuses_invalid_configurations() {
    let list = |texts: &[&str]| texts.iter().map(|text| text.parse().expect("a prefix")).collect();
    let good = TestbedConfig::default();
    let cases = [
        (TestbedConfig { mtu_bytes: 600, ..good.clone() }, "choose 1280 to 9000"),
        (TestbedConfig { clients: Vec::new(), ..good.clone() }, "no client addresses"),
        (TestbedConfig { servers: Vec::new(), ..good.clone() }, "no server addresses"),
        (TestbedConfig { clients: list(&["10.0.0.0/8"]), ..good.clone() }, "198.18.0.0/15"),
        (TestbedConfig { clients: list(&["2001:db8::/64"]), ..good.clone() }, "fd00::/8"),
        (TestbedConfig { servers: list(&["198.19.0.0/16"]), ..good.clone() }, "overlap"),
        (TestbedConfig { links: list(&["198.19.255.0/30"]), ..good.clone() }, "eight addresses"),
        (TestbedConfig { links: list(&["198.19.255.0/24"]), ..good.clone() }, "of its family"),
    ];
    for (config, words) in cases {
        let error = format!("{:#}", Plan::new(&config).expect_err(words));
        assert!(error.contains(words) && !error.contains('\n'), "{error}");
    }
}

#[test]
fn hosts_reach_each_other_and_nothing_else() {
    let ways = |config: &TestbedConfig| -> Vec<String> {
        let plan = Plan::new(config).expect("the default works");
        let routes = plan.ports.iter().flat_map(|port| {
            port.routes.iter().map(|(to, via)| format!("{} {to} via {via}", port.name))
        });
        routes.filter(|route| !route.contains("fd00")).collect()
    };
    let linux = TestbedConfig::default();
    let expected = [
        "c0 198.19.0.0/17 via 198.19.255.2",
        "c0 198.19.255.0/24 via 198.19.255.2",
        "p0 198.18.0.0/16 via 198.19.255.1",
        "p1 198.19.0.0/17 via 198.19.255.6",
        "s0 198.18.0.0/16 via 198.19.255.5",
        "s0 198.19.255.0/24 via 198.19.255.5",
    ];
    assert_eq!(ways(&linux), expected);
    let expected = ["c0 198.19.0.0/17 via 198.19.255.2", "s0 198.18.0.0/16 via 198.19.255.1"];
    assert_eq!(ways(&TestbedConfig { device: DeviceKind::Wire, ..linux }), expected);
}
