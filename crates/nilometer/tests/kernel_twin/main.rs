//! The same hostile packets through our router and through the kernel: the outputs are the same, or
//! the difference is explained.

mod comparison;
mod hostile;
mod middlebox;
mod rig;

use std::collections::BTreeMap;

use comparison::{Comparison, INTENDED, canonical};
use nilometer_linux::privilege::{self, Privilege};
use rig::{Device, Out, Rig};

/// A class of packets that the two devices treat differently on purpose.
struct Explained {
    why: &'static str,
    /// Whether a packet, the kernel's output and ours are of this class.
    is_it: fn(&[u8], &str, &str) -> bool,
}

const EXPLAINED: [Explained; 6] = [
    Explained {
        why: "an IPv6 packet without the header that it names next: broken, which the kernel sees only \
              when it has to read that header",
        is_it: |packet, _, own| {
            own == "nothing" && packet[0] >> 4 == 6 && packet[4..6] == [0, 0] && packet[6] != 59
        },
    },
    Explained {
        why: "UDP-Lite to the device: the kernel speaks it (RFC 3828), we do not and say so",
        is_it: |packet, theirs, _| {
            let protocol = if packet[0] >> 4 == 4 { packet[9] } else { packet[6] };
            theirs == "nothing" && protocol == 136
        },
    },
    Explained {
        why: "to or from 0.0.0.0/8 or 240.0.0.0/4: RFC 1812, 5.3.7 and 4.2.2.11, has them discarded; \
              the kernel forwards them since 5.3",
        is_it: |packet, _, own| {
            let is_martian = |first: u8| first == 0 || first >= 240;
            own == "nothing"
                && packet[0] >> 4 == 4
                && (is_martian(packet[12]) || is_martian(packet[16]))
        },
    },
    Explained {
        why: "a parameter problem: we point at the octet that is wrong (RFC 792), an option's length; \
              the kernel at where the option begins",
        is_it: |_, theirs, own| theirs == own && own.ends_with("icmp 12/0"),
    },
    Explained {
        why: "a source route, which we refuse and tell (RFC 7126, 4.3); the kernel is silent",
        is_it: |packet, theirs, own| {
            let options = packet[0] >> 4 == 4 && packet[0] & 15 > 5;
            options && theirs == "nothing" && own.ends_with("icmp 3/13")
        },
    },
    Explained {
        why: "a timestamp option: the kernel has milliseconds since midnight, we say that ours are not",
        is_it: |packet, theirs, own| {
            theirs == own && packet[0] & 15 > 5 && packet[20..].first() == Some(&0x44)
        },
    },
];

/// How many packets are compared at most.
const PACKETS_MAX: usize = 30_000;

/// What became of the packets of one class of differences.
#[derive(Default)]
struct Class {
    packets: u64,
    example: String,
}

#[test]
fn hostile_packets_fare_as_in_the_kernel() {
    match privilege::privilege() {
        Privilege::Root => {}
        other => {
            return println!("skipped the comparison with the kernel: root is needed ({other})");
        }
    }
    let packets = hostile::packets(PACKETS_MAX);
    let mut kernel = Rig::new(Device::Kernel).expect("a kernel");
    let mut ours = Rig::new(Device::Ours).expect("a router");
    let (mut same, mut intended, mut classes) = (0, [0; INTENDED.len()], BTreeMap::new());
    for (kind, packet) in &packets {
        let theirs = kernel.ask(*kind, packet).expect("the kernel answers");
        let own = ours.ask(*kind, packet).expect("the router answers");
        match comparison::compare(&theirs, &own) {
            Comparison::Same => same += 1,
            Comparison::IntendedDifference(why) => intended[why] += 1,
            Comparison::Different => {
                let words = (canonical(&theirs), canonical(&own));
                let is_it = |one: &&Explained| (one.is_it)(packet, &words.0, &words.1);
                let why = EXPLAINED.iter().find(is_it).map_or("UNEXPLAINED", |one| one.why);
                let class: &mut Class = classes.entry((words, why)).or_default();
                class.packets += 1;
                if class.example.is_empty() {
                    class.example = shown(packet, &theirs, &own);
                }
            }
        }
    }
    println!("{same} of {} packets fare alike", packets.len());
    for (count, intended) in intended.iter().zip(&INTENDED) {
        println!("{count} otherwise: {}", intended.why);
    }
    let mut unexplained = 0;
    for (((theirs, own), why), class) in &classes {
        println!("{}: kernel {theirs}; ours {own}: {why}", class.packets);
        if *why == "UNEXPLAINED" {
            unexplained += class.packets;
            println!("{}", class.example);
        }
    }
    assert_eq!(unexplained, 0, "packets fare otherwise than in the kernel, unexplained");
}

fn shown(packet: &[u8], theirs: &[Out], own: &[Out]) -> String {
    let hex = |bytes: &[u8]| {
        let text: Vec<String> = bytes.iter().take(120).map(|byte| format!("{byte:02x}")).collect();
        format!("{} ({} bytes)", text.concat(), bytes.len())
    };
    let all = |out: &[Out]| {
        let lines = out.iter().take(3).map(|(side, packet)| format!("    {side}: {}", hex(packet)));
        lines.collect::<Vec<_>>().join("\n")
    };
    format!("  in {}\n  kernel\n{}\n  ours\n{}", hex(packet), all(theirs), all(own))
}
