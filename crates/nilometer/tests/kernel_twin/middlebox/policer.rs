//! The policer compared with nftables' limit of bytes.

use std::thread;
use std::time::Duration;

use nilometer_wire::build;

use super::super::rig::Service;
use super::{IPV4, LEFT, both};

/// 1,000 bytes a second and a bucket of 3,000: nftables' bucket for bytes holds what the rate gives in its unit of time
/// besides the burst.
const SERVICE: Service = Service {
    rules: "table ip lab {\n chain forward {\n type filter hook forward priority filter; policy accept;\n \
            udp dport 7000 limit rate over 1000 bytes/second burst 2000 bytes drop\n \
            udp dport 7001 limit rate over 1000 bytes/second burst 3000 bytes drop\n }\n}\n",
    router: "[[plugin]]\nname = \"one\"\nclass = \"policer\"\nconfiguration = \"cir=8000 cbs=3000\"\n\
             [[plugin]]\nname = \"two\"\nclass = \"policer\"\nconfiguration = \"cir=8000 cbs=3000\"\n\
             [[filter]]\naction = \"active\"\nplugins = [\"one\"]\nprotocol = \"udp\"\ndestination_ports = \"7000\"\n\
             [[filter]]\naction = \"active\"\nplugins = [\"two\"]\nprotocol = \"udp\"\ndestination_ports = \"7001\"\n",
    inside: "198.18.64.0/24",
};

/// A datagram whose IP packet has `ip_bytes`.
fn datagram(port: u16, ip_bytes: usize) -> Vec<u8> {
    let from = "198.18.64.1:4000".parse().expect("an end");
    build::udp(from, std::net::SocketAddr::from(([198, 19, 0, 2], port)), &vec![0; ip_bytes - 28])
}

/// Which of these packets pass the kernel, and which our router. Each is preceded by a wait in
/// milliseconds.
fn passed(port: u16, packets: &[(u64, usize)]) -> Option<[Vec<bool>; 2]> {
    let [mut kernel, mut ours] = both("the policer", &SERVICE)?;
    let mut all = [Vec::new(), Vec::new()];
    for (wait_ms, ip_bytes) in packets {
        thread::sleep(Duration::from_millis(*wait_ms));
        let packet = datagram(port, *ip_bytes);
        for (passed, rig) in all.iter_mut().zip([&mut kernel, &mut ours]) {
            passed.push(!rig.ask_from(LEFT, IPV4, &packet).expect("an answer").is_empty());
        }
    }
    Some(all)
}

/// No decision is closer than 300 bytes, or 300 ms, to the opposite one.
#[test]
fn the_policer_does_as_nftables_limit_with_the_same_bucket() {
    let packets = [
        (0, 1_000),
        (0, 1_000),
        (0, 700),       // 300 are left
        (0, 1_000),     // too many, and none is taken
        (700, 600),     // of 1,000
        (0, 800),       // of 400
        (1_500, 1_200), // of 1,900
        (0, 1_280),     // of 700
        (4_000, 1_280), // of 3,000, not 4,700
        (0, 1_280),     // 440 are left
        (0, 800),
        (300, 400), // of 740
    ];
    let Some([kernel, ours]) = passed(7_000, &packets) else { return };
    println!("kernel {kernel:?}\nours   {ours:?}");
    assert_eq!(kernel, ours);
    let expected = [true, true, true, false, true, false, true, false, true, true, false, true];
    assert_eq!(ours, expected);
}

/// With the same burst for both, the kernel passes a second's worth more at first.
#[test]
fn a_bucket_of_nftables_holds_a_second_more_than_its_burst() {
    let Some([kernel, ours]) = passed(7_001, &[(0, 1_000); 6]) else { return };
    let count = |passed: &[bool]| passed.iter().filter(|it| **it).count();
    assert_eq!([count(&kernel), count(&ours)], [4, 3]);
}
