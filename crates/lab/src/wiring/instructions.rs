//! A device's configuration, in the command languages of common devices.

use std::fmt::Write;
use std::net::IpAddr;

use super::{LinkAddress, Wiring};

/// The device's port on each side, as the texts call it.
fn ports(wiring: &Wiring) -> [&'static str; 2] {
    match wiring.is_one_armed() {
        true => ["PORT"; 2],
        false => ["CLIENT_PORT", "SERVER_PORT"],
    }
}

/// All texts, one below the other, each with a heading.
pub fn all(wiring: &Wiring) -> String {
    let mut text = words(wiring);
    if wiring.routes.is_empty() {
        return text;
    }
    for (heading, part) in [
        ("Linux (iproute2)", iproute2(wiring)),
        ("FRR (vtysh)", frr(wiring)),
        ("IOS and its like", ios(wiring)),
    ] {
        let _ = write!(text, "\n{heading}:\n\n{part}");
    }
    text
}

/// For a person.
pub fn words(wiring: &Wiring) -> String {
    let mut text = String::new();
    let lists = |addresses: &[LinkAddress]| {
        let each = addresses.iter().map(|it| format!("{}/{}", it.address, it.length));
        each.collect::<Vec<_>>().join(" and ")
    };
    for (side, name) in wiring.sides().into_iter().zip(["clients", "servers"]) {
        let host = lists(&side.host_addresses);
        let _ = match side.device_addresses.is_empty() {
            true => writeln!(
                text,
                "{} leads to the {name}' side of the device; the lab's host there is {host}.",
                side.interface
            ),
            false => writeln!(
                text,
                "{} leads to the {name}' side of the device. The lab's host there is {host}; give the device's port \
                 {}.",
                side.interface,
                lists(&side.device_addresses)
            ),
        };
    }
    for route in &wiring.routes {
        let _ =
            writeln!(text, "Give the device a static route to {} via {}.", route.prefix, route.via);
    }
    let _ = match wiring.routes.is_empty() {
        true => writeln!(
            text,
            "The device needs no address and no route: hosts on both sides are neighbours."
        ),
        false => writeln!(
            text,
            "Let it forward, with an MTU of 1500 bytes. Then try it: nilometer lab wiring --check"
        ),
    };
    text
}

fn family(address: IpAddr) -> &'static str {
    if address.is_ipv6() { "-6 " } else { "" }
}

/// As root on a Linux machine.
pub fn iproute2(wiring: &Wiring) -> String {
    let mut text = String::new();
    for (side, port) in wiring.sides().into_iter().zip(ports(wiring)) {
        for LinkAddress { address, length } in &side.device_addresses {
            let _ =
                writeln!(text, "ip {}address add {address}/{length} dev {port}", family(*address));
        }
        let _ = writeln!(text, "ip link set {port} mtu 1500 up");
    }
    for route in &wiring.routes {
        let _ =
            writeln!(text, "ip {}route add {} via {}", family(route.via), route.prefix, route.via);
    }
    text.push_str("sysctl -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1\n");
    text
}

/// FRR's shell; the kernel below it must forward.
pub fn frr(wiring: &Wiring) -> String {
    let mut text = String::from("configure terminal\nip forwarding\nipv6 forwarding\n");
    for (side, port) in wiring.sides().into_iter().zip(ports(wiring)) {
        let _ = writeln!(text, "interface {port}");
        for LinkAddress { address, length } in &side.device_addresses {
            let word = if address.is_ipv6() { "ipv6" } else { "ip" };
            let _ = writeln!(text, " {word} address {address}/{length}");
        }
        text.push_str("exit\n");
    }
    for route in &wiring.routes {
        let word = if route.via.is_ipv6() { "ipv6" } else { "ip" };
        let _ = writeln!(text, "{word} route {} {}", route.prefix, route.via);
    }
    text.push_str("end\n");
    text
}

/// A router whose configuration reads as Cisco's.
pub fn ios(wiring: &Wiring) -> String {
    let mut text = String::from("configure terminal\nip routing\nipv6 unicast-routing\n");
    for (port_number, (side, port)) in wiring.sides().into_iter().zip(ports(wiring)).enumerate() {
        let _ = writeln!(text, "interface {port}");
        for LinkAddress { address, length } in &side.device_addresses {
            let _ = match address {
                IpAddr::V4(v4) if wiring.is_one_armed() && port_number == 1 => {
                    writeln!(text, " ip address {v4} {} secondary", mask(*length))
                }
                IpAddr::V4(v4) => writeln!(text, " ip address {v4} {}", mask(*length)),
                IpAddr::V6(v6) => writeln!(text, " ipv6 address {v6}/{length}"),
            };
        }
        text.push_str(" no shutdown\n");
    }
    for route in &wiring.routes {
        let _ = match route.prefix.address() {
            IpAddr::V4(v4) => {
                writeln!(text, "ip route {v4} {} {}", mask(route.prefix.length()), route.via)
            }
            IpAddr::V6(_) => writeln!(text, "ipv6 route {} {}", route.prefix, route.via),
        };
    }
    text.push_str("end\n");
    text
}

/// A network's length as a mask.
fn mask(length: u8) -> std::net::Ipv4Addr {
    std::net::Ipv4Addr::from(u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wiring::ExternalSection;
    use nilometer_linux::testbed::{DeviceKind, TestbedConfig};

    fn wiring(transparent: bool) -> Wiring {
        let section = ExternalSection {
            client_interface: "eth1".to_owned(),
            server_interface: "eth2".to_owned(),
            transparent,
            ..ExternalSection::default()
        };
        let config = TestbedConfig {
            device: DeviceKind::External,
            external: Some(section.for_testbed()),
            ..TestbedConfig::default()
        };
        Wiring::of(&config).expect("sound")
    }

    #[test]
    fn every_language_has_each_address_and_each_route() {
        let wiring = wiring(false);
        let text = all(&wiring);
        for words in [
            "eth1 leads to the clients' side of the device. The lab's host there is 198.19.255.1/30 and \
             fd00:ffff::1/126; give the device's port 198.19.255.2/30 and fd00:ffff::2/126.",
            "Give the device a static route to 198.18.0.0/16 via 198.19.255.1.",
            "ip address add 198.19.255.5/30 dev SERVER_PORT",
            "ip -6 route add fd00:c::/64 via fd00:ffff::1",
            "ip route 198.19.0.0/17 198.19.255.6",
            " ip address 198.19.255.2 255.255.255.252",
            "ip route 198.18.0.0 255.255.0.0 198.19.255.1",
            "ipv6 route fd00:5::/64 fd00:ffff::6",
        ] {
            assert!(text.contains(words), "{words} is not in\n{text}");
        }
        assert_eq!(
            (mask(0).to_string(), mask(32).to_string()),
            ("0.0.0.0".into(), "255.255.255.255".into())
        );
    }

    #[test]
    fn a_transparent_device_needs_nothing() {
        let wiring = wiring(true);
        assert!(wiring.routes.is_empty() && wiring.client.device_addresses.is_empty());
        let text = all(&wiring);
        assert!(text.contains("needs no address and no route") && !text.contains("iproute2"));
        let host = |side: &super::super::WiredSide| side.host_addresses[0].address.to_string();
        assert_eq!(
            (host(&wiring.client), host(&wiring.server)),
            ("198.19.255.1".into(), "198.19.255.2".into())
        );
    }

    #[test]
    fn the_json_has_the_names_that_scripts_use() {
        let json = serde_json::to_value(wiring(false)).expect("JSON");
        assert_eq!(json["client"]["interface"], "eth1");
        assert_eq!(json["client"]["host_addresses"][0], "198.19.255.1/30");
        assert_eq!(json["server"]["device_addresses"][1], "fd00:ffff::5/126");
        assert_eq!(json["routes"][0]["prefix"], "198.18.0.0/16");
        assert_eq!(json["routes"][0]["via"], "198.19.255.1");
    }
}
