//! The fault box as a device: the meter's observations compared with the box's own log, packet by packet.

use std::collections::{BTreeMap, HashMap};

use nilometer_files::table::packets::{Fate, PacketRow, read_packet_table};
use nilometer_lab::device::truth::PacketTruth;
use serde_json::Value;

use crate::common::{Room, privileged};

const ETHERNET_BYTES: usize = 14;
/// Ethernet's header, preamble, check sequence and gap: what a link carries besides the IP packet.
const LINK_OVERHEAD_BYTES: u64 = 38;
/// A stamp is taken before a packet is queued: of two that two processors send closer together than this, the later may
/// come first.
const EXCHANGED_NS: u64 = 100_000;
/// Identical packets that enter closer together than this are in the box in one turn: their times of arrival and
/// departure differ by no more than a turn takes, and nothing on the wire shows which of them was lost, or whether a
/// frame that left twice was a copy of the first or the second. The wire does show how many were damaged: a damaged one
/// that left before the second entered was the first.
const INDISTINGUISHABLE_NS: u64 = 500_000;

/// One packet as the meter, the box and the wire have it.
struct Known {
    row: PacketRow,
    truth: PacketTruth,
    /// From IP's header on.
    bytes: Vec<u8>,
    /// The number of the first packet with the same bytes that entered at nearly the same time, if there are others.
    double_of: Option<usize>,
}

/// The known facts of each direction: packets in the order in which they entered, when the originals of copies entered,
/// and how many packets are reported as sent by no host.
struct Way {
    packets: Vec<Known>,
    copied_ns: Vec<u64>,
    originated: u64,
}

fn run(room: &Room, faults: &str) -> Value {
    let words = ["lab", "run", "-o", "run", "--duration", "6", "--calibration", "0", "--pcap"];
    room.counted(&[&words[..], &["--fault", faults, "--json"]].concat())
}

/// The IP packets that left a host, in the order of its capture.
fn sent(capture: &[u8]) -> Vec<Vec<u8>> {
    let word = |at: usize| u32::from_le_bytes(capture[at..at + 4].try_into().expect("four bytes"));
    let (mut at, mut sent) = (0, Vec::new());
    while at < capture.len() {
        let (kind, length) = (word(at), word(at + 4) as usize);
        if kind == 6 {
            let (begin, bytes) = (at + 28, word(at + 20) as usize);
            let frame = &capture[begin..begin + bytes];
            // (The first option is the packet's flags: 1 came in, 2 went out.)
            let is_outgoing = word(begin + bytes.next_multiple_of(4) + 4) & 3 == 2;
            if is_outgoing && matches!(frame[12..14], [0x08, 0x00] | [0x86, 0xdd]) {
                sent.push(frame[ETHERNET_BYTES..].to_vec());
            }
        }
        at += length;
    }
    sent
}

/// Joins the three. Frames after the end of the meter (hosts reset open connections then) are left out.
fn known(room: &Room) -> [Way; 2] {
    let mut ways = [(), ()].map(|()| (Vec::<PacketRow>::new(), Vec::new(), 0));
    read_packet_table(&room.path("run/packets.parquet"), &mut |row| {
        let (entered, copied_ns, originated) = &mut ways[usize::from(row.direction)];
        match (row.fate, row.entered_ns) {
            (Fate::Duplicated, Some(at)) => copied_ns.push(at),
            (_, Some(_)) => entered.push(row),
            (_, None) => *originated += 1,
        }
        Ok(())
    })
    .expect("packet stamps");
    let mut truths = [Vec::new(), Vec::new()];
    for line in room.read("run/fault.ndjson").lines() {
        let packet: PacketTruth = serde_json::from_str(line).expect("a packet");
        truths[usize::from(packet.direction)].push(packet);
    }
    let captures = ["client", "server"].map(|name| room.read_bytes(&format!("run/{name}.pcapng")));
    let mut captures = captures.iter();
    let mut truths = truths.into_iter();
    ways.map(|(mut rows, mut copied_ns, originated)| {
        let (truths, bytes) = (truths.next().expect("two"), sent(captures.next().expect("two")));
        let last_ns = rows.iter().filter_map(|row| row.entered_ns).max().expect("a packet") as i64;
        assert!(truths[rows.len()..].iter().all(|packet| packet.came_ns > last_ns + 1_000_000));
        assert_eq!(rows.len(), bytes.len(), "the capture has what was metered");
        rows.sort_by_key(|row| row.entered_ns);
        copied_ns.sort();
        let mut packets: Vec<Known> = Vec::new();
        let mut rest: Vec<(PacketRow, Vec<u8>)> = rows.into_iter().zip(bytes).rev().collect();
        for truth in truths.into_iter().take(rest.len()) {
            // The first that has its length and may have arrived by now.
            let first_ns = rest.last().and_then(|(row, _)| row.entered_ns).expect("a packet");
            let place = rest.iter().rposition(|(row, _)| {
                u64::from(row.bytes) + LINK_OVERHEAD_BYTES == truth.link_bytes
                    && row.entered_ns.is_some_and(|at| at < first_ns + EXCHANGED_NS)
            });
            let (row, bytes) = rest.remove(place.unwrap_or_else(|| panic!("who is {truth:?}?")));
            packets.push(Known { row, truth, bytes, double_of: None });
        }
        mark_doubles(&mut packets);
        Way { packets, copied_ns, originated }
    })
}

fn mark_doubles(packets: &mut [Known]) {
    let mut before: HashMap<Vec<u8>, usize> = HashMap::new();
    for number in 0..packets.len() {
        let Some(other) = before.insert(packets[number].bytes.clone(), number) else { continue };
        let apart_ns = packets[number].row.entered_ns.expect("it entered")
            - packets[other].row.entered_ns.expect("it entered");
        if apart_ns < INDISTINGUISHABLE_NS {
            let first = packets[other].double_of.unwrap_or(other);
            (packets[number].double_of, packets[other].double_of) = (Some(first), Some(first));
        }
    }
}

/// Addresses and ports: all of it is TCP, without options or extension headers.
fn flow(bytes: &[u8]) -> &[u8] {
    if bytes[0] >> 4 == 4 { &bytes[12..24] } else { &bytes[8..44] }
}

/// Whether each packet left after one of its flow that arrived later (RFC 4737): the order of departure by the box's
/// own account, that of arrival by the meter's stamps, since two processors may queue two packets the other way round
/// within [`EXCHANGED_NS`] after they are stamped.
fn overtaken(packets: &[Known]) -> Vec<bool> {
    let mut came: Vec<usize> = (0..packets.len()).collect();
    came.sort_by_key(|number| packets[*number].row.entered_ns);
    let mut rank = vec![0; packets.len()];
    came.iter().enumerate().for_each(|(at, number)| rank[*number] = at);
    let mut left: Vec<usize> =
        (0..packets.len()).filter(|number| packets[*number].truth.left_as.is_some()).collect();
    left.sort_by_key(|number| packets[*number].truth.left_as);
    let (mut newest, mut overtaken) = (HashMap::new(), vec![false; packets.len()]);
    for number in left {
        let at = rank[number];
        let newest = newest.entry(flow(&packets[number].bytes).to_vec()).or_insert(at);
        overtaken[number] = at < *newest;
        *newest = at.max(*newest);
    }
    overtaken
}

fn fate(truth: &PacketTruth) -> Fate {
    match (truth.left_ns, truth.corrupted) {
        (None, _) => Fate::Lost,
        (Some(_), true) => Fate::Corrupted,
        (Some(_), false) => Fate::Passed,
    }
}

/// Compares the meter's view of each packet with the truth: fate, copies, order. The fates of packets that the wire
/// does not distinguish must agree in sum (their order cannot be seen at all); returns how many they are.
fn hold_against_each_other(ways: &[Way; 2]) -> usize {
    let (mut doubles, mut differences, mut exchanged) = (0, 0, 0);
    for (number, way) in ways.iter().enumerate() {
        let overtaken = overtaken(&way.packets);
        let mut open: Option<(u64, _, _)> = None;
        for (place, (known, is_overtaken)) in way.packets.iter().zip(overtaken).enumerate() {
            let seen = (known.row.fate, known.row.reordered);
            let true_one = (fate(&known.truth), is_overtaken);
            if known.double_of.is_some() {
                doubles += 1;
            } else if seen.0 == true_one.0 && is_passed_by_a_double(&way.packets, place) {
                // (Which of the doubles went past it is not on the wire.)
            } else if seen != true_one {
                differences += 1;
                // Two of one length that changed places differ both, each as the other one.
                let at = known.row.entered_ns.expect("it entered");
                match open.take() {
                    Some(before)
                        if at.abs_diff(before.0) < EXCHANGED_NS
                            && (before.1, before.2) == (true_one, seen) =>
                    {
                        (differences, exchanged) = (differences - 2, exchanged + 1);
                    }
                    _ => open = Some((at, seen, true_one)),
                }
                println!("{true_one:?} is metered as {:?}: {:?}", known.row, known.truth);
            }
        }
        hold_doubles(way, number);
        hold_copies(way, number);
        assert_eq!(way.originated, 0, "the box makes no packets, direction {number}");
    }
    let count: usize = ways.iter().map(|way| way.packets.len()).sum();
    println!(
        "{count} packets, {doubles} with doubles, {exchanged} times two of one length in another order, \
         {differences} metered for another"
    );
    assert_eq!(differences, 0, "of {count} packets");
    assert!(exchanged <= 2, "{exchanged} of {count} packets");
    doubles
}

/// Whether a packet that has doubles entered behind this one, in its flow, before this one left.
fn is_passed_by_a_double(packets: &[Known], place: usize) -> bool {
    let left_ns = packets[place].row.left_ns.unwrap_or(0);
    packets[place + 1..]
        .iter()
        .take_while(|other| entered_ns(other).is_some_and(|at| at < left_ns))
        .any(|other| other.double_of.is_some() && flow(&other.bytes) == flow(&packets[place].bytes))
}

/// Compares the fates of doubles, and the number of their copies, with the truth: the sums of each group of identical
/// packets must agree, except that a copy and a loss may stand for a packet that left, and the reverse.
fn hold_doubles(way: &Way, number: usize) {
    let mut groups: BTreeMap<usize, BTreeMap<String, i64>> = BTreeMap::new();
    let mut add = |group: usize, fate: Fate, more: i64| {
        *groups.entry(group).or_default().entry(format!("{fate:?}")).or_default() += more;
    };
    let mut group_at: HashMap<u64, usize> = HashMap::new();
    for known in &way.packets {
        let Some(group) = known.double_of else { continue };
        add(group, known.row.fate, 1);
        add(group, fate(&known.truth), -1);
        add(group, Fate::Duplicated, -i64::from(known.truth.copy_left_ns.is_some()));
        group_at.extend(entered_ns(known).map(|at| (at, group)));
    }
    for at in &way.copied_ns {
        group_at.get(at).into_iter().for_each(|group| add(*group, Fate::Duplicated, 1));
    }
    for (group, sums) in groups {
        if sums.values().all(|sum| *sum == 0) {
            continue;
        }
        for known in way.packets.iter().filter(|known| known.double_of == Some(group)) {
            println!("{:?} {:?}", known.row, known.truth);
        }
        println!("{} originated", way.originated);
        let sum = |fate: Fate| sums.get(&format!("{fate:?}")).copied().unwrap_or(0);
        let (copies, lost) = (sum(Fate::Duplicated), sum(Fate::Lost));
        let (passed, damaged) = (sum(Fate::Passed), sum(Fate::Corrupted));
        let is_exchange =
            lost == copies && passed + damaged == -copies && passed * damaged >= 0 && copies != 0;
        assert!(is_exchange, "direction {number}: {sums:?}");
    }
}

/// Compares the copies that the meter reports with the truth, except doubles: their originals, and how many there are.
fn hold_copies(way: &Way, number: usize) {
    let doubles = way.packets.iter().filter(|known| known.double_of.is_some());
    let doubles_ns: Vec<u64> = doubles.filter_map(entered_ns).collect();
    let copied = way.packets.iter().filter(|known| known.truth.copy_left_ns.is_some());
    let mut truly_ns: Vec<u64> = copied.filter_map(entered_ns).collect();
    let mut seen_ns = way.copied_ns.clone();
    for all in [&mut seen_ns, &mut truly_ns] {
        all.retain(|at| !doubles_ns.contains(at));
    }
    for known in &way.packets {
        let at = known.row.entered_ns.expect("it entered");
        if seen_ns.contains(&at) != truly_ns.contains(&at) {
            println!("a copy is told for another: {:?} {:?}", known.row, known.truth);
        }
    }
    assert_eq!(seen_ns, truly_ns, "when originals of copies entered, direction {number}");
}

fn entered_ns(known: &Known) -> Option<u64> {
    known.row.entered_ns
}

/// The median by which the meter's delay exceeds the box's.
fn excess_ns(ways: &[Way; 2]) -> (i64, i64, usize) {
    let mut excess: Vec<i64> = ways
        .iter()
        .flat_map(|way| &way.packets)
        .filter_map(|known| {
            Some(known.row.delay_ns? - (known.truth.left_ns? - known.truth.came_ns))
        })
        .collect();
    excess.sort_unstable();
    let mean = excess.iter().sum::<i64>() / excess.len() as i64;
    (excess[excess.len() / 2], mean, excess.len())
}

#[test]
fn the_meter_finds_losses_and_duplicates_of_the_fault_box() {
    if !privileged("a run through the fault box") {
        return;
    }
    let room = Room::new("fault");
    let faults = "rate=50Mbit,delay=5ms,loss=0.02,burst_loss=0.002:0.3,duplicate=0.01,reorder=0.04";
    let result = run(&room, faults);
    assert_eq!((&result["dut"], &result["fault"]["faults"]), (&"fault".into(), &faults.into()));
    assert_eq!(result["fault"]["unheard"], 0, "{result}");
    assert_eq!(result["scheduling"][0]["role"], "fault-box");
    let ways = known(&room);
    let doubles = hold_against_each_other(&ways);
    let all = || ways.iter().flat_map(|way| &way.packets);
    assert!(20 * doubles < all().count(), "{doubles} cannot be distinguished");
    let lost = all().filter(|known| known.truth.lost).count();
    let overtaken = all().filter(|known| known.row.reordered).count();
    assert!(lost > 20 && overtaken > 10, "{lost} lost and {overtaken} overtaken are too few");
    let (median, mean, count) = excess_ns(&ways);
    println!(
        "the meter's delay exceeds the box's by {median} ns (median), {mean} ns (mean of {count} packets)"
    );
    assert!(median.abs() < 100_000, "{median} ns");
}

#[test]
fn packets_corrupted_by_the_fault_box_are_metered_as_corrupted() {
    if !privileged("a run through the fault box") {
        return;
    }
    let room = Room::new("corrupt");
    let result = run(&room, "corrupt=0.03,loss=0.005");
    let count = |of: &str, key: &str| result[of][key].as_u64().expect("a count");
    assert!(count("fault", "corrupted") > 40, "{result}");
    let ways = known(&room);
    hold_against_each_other(&ways);
}

#[test]
fn a_fault_box_without_faults_and_faults_without_the_box_are_refused() {
    let room = Room::new("refusals");
    let line = room.refused(&["lab", "run", "--dut", "fault"]);
    assert!(line.contains("give --fault (fault), for instance rate=50Mbit"), "{line}");
    let line = room.refused(&["lab", "run", "--dut", "linux", "--fault", "loss=0.1"]);
    assert!(line.contains("the device is linux: give --dut fault"), "{line}");
    let line = room.refused(&["lab", "run", "--fault", "loss=10"]);
    assert!(line.contains("give a probability from 0 to 1"), "{line}");
}
