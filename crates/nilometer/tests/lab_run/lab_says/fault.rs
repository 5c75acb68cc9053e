//! The fault box as a device: what the meter saw held against what the box says that it did, packet by packet.

use std::collections::BTreeMap;

use nilometer_files::table::packets::{Fate, PacketRow, read_packet_table};
use nilometer_lab::device::truth::PacketTruth;
use serde_json::Value;

use crate::common::{Room, privileged};

/// The rows of the meter for packets that entered, by direction and order of entering, and how many left twice.
fn metered(room: &Room) -> ([Vec<PacketRow>; 2], [u64; 2]) {
    let (mut entered, mut twice) = ([Vec::new(), Vec::new()], [0; 2]);
    read_packet_table(&room.path("run/packets.parquet"), &mut |row| {
        let way = usize::from(row.direction);
        match row.fate {
            Fate::Duplicated => twice[way] += 1,
            _ if row.entered_ns.is_some() => entered[way].push(row),
            _ => {}
        }
        Ok(())
    })
    .expect("packet stamps");
    for rows in &mut entered {
        rows.sort_by_key(|row| row.entered_ns);
    }
    (entered, twice)
}

/// The truth about the packets that the meter saw: what came when it had ended (hosts reset what is open then) is
/// left out.
fn truths(room: &Room, entered: &[Vec<PacketRow>; 2]) -> [Vec<PacketTruth>; 2] {
    let mut truths = [Vec::new(), Vec::new()];
    for line in room.read("run/fault.ndjson").lines() {
        let packet: PacketTruth = serde_json::from_str(line).expect("a packet");
        truths[usize::from(packet.direction)].push(packet);
    }
    for (truths, rows) in truths.iter_mut().zip(entered) {
        let last_ns = rows.last().and_then(|row| row.entered_ns).expect("a packet") as i64;
        assert!(truths[rows.len()..].iter().all(|packet| packet.came_ns > last_ns + 1_000_000));
        truths.truncate(rows.len());
    }
    truths
}

fn run(room: &Room, faults: &str) -> Value {
    let words = ["lab", "run", "-o", "run", "--duration", "6", "--calibration", "0"];
    room.counted(&[&words[..], &["--fault", faults, "--json"]].concat())
}

/// Holds what the meter says of each packet against the truth. A packet that was lost or damaged and sent again is
/// byte by byte the same as the one before, and the meter pairs such packets first in, first out: it then says of the
/// second what happened to the first. So what does not agree must be of few packets, and cancel out among those of
/// the same length. How many there are.
fn count_mismatched<T: Ord + Copy + std::fmt::Debug>(
    pairs: impl Iterator<Item = (u32, T, T)>,
) -> usize {
    let (mut balance, mut all, mut exchanged) = (BTreeMap::new(), 0, 0);
    for (bytes, seen, true_one) in pairs {
        all += 1;
        if seen != true_one {
            exchanged += 1;
            *balance.entry((bytes, seen)).or_insert(0) += 1;
            *balance.entry((bytes, true_one)).or_insert(0) -= 1;
        }
    }
    assert!(balance.values().all(|&rest| rest == 0), "{balance:?}");
    assert!(50 * exchanged <= all, "{exchanged} of {all} packets are told for others");
    exchanged
}

#[test]
fn the_meter_sees_what_the_fault_box_lost_and_doubled() {
    if !privileged("a run through the fault box") {
        return;
    }
    let room = Room::new("fault");
    let faults = "rate=50Mbit,delay=5ms,loss=0.01,burst_loss=0.002:0.3,duplicate=0.01,reorder=0.02";
    let result = run(&room, faults);
    assert_eq!((&result["dut"], &result["fault"]["faults"]), (&"fault".into(), &faults.into()));
    assert_eq!(result["fault"]["unheard"], 0, "{result}");
    assert_eq!(result["scheduling"][0]["role"], "fault-box");
    let (entered, twice) = metered(&room);
    let truths = truths(&room, &entered);
    let mut differences = BTreeMap::new();
    for way in 0..2 {
        assert_eq!(entered[way].len(), truths[way].len(), "all that entered came to the box");
        let copies = truths[way].iter().filter(|packet| packet.copy_left_ns.is_some()).count();
        assert_eq!(copies as u64, twice[way]);
        let pairs = || entered[way].iter().zip(&truths[way]);
        let exchanged = count_mismatched(pairs().map(|(row, truth)| {
            (row.bytes, row.fate == Fate::Lost, truth.lost || truth.discarded)
        }));
        println!(
            "{exchanged} of {} packets are told for others with the same bytes",
            truths[way].len()
        );
        for (row, truth) in pairs() {
            let (Some(delay), Some(left)) = (row.delay_ns, truth.left_ns) else { continue };
            // (The meter knows a packet by the first of its copies that leaves.)
            *differences.entry(delay - (left - truth.came_ns)).or_insert(0u32) += 1;
        }
    }
    let lost: usize = truths.iter().flatten().filter(|packet| packet.lost).count();
    let held_back = truths.iter().flatten().filter(|packet| packet.held_back).count();
    assert!(lost > 10 && held_back > 10, "{lost} lost and {held_back} held back are too few");
    let count: u32 = differences.values().sum();
    let mut below = 0;
    let median = differences.iter().find(|(_, times)| {
        below += **times;
        2 * below >= count
    });
    let median = *median.expect("some packets left").0;
    println!("the meter's delay exceeds the box's by {median} ns (median of {count} packets)");
    assert!(median.abs() < 1_000_000, "{median} ns");
}

/// A damaged packet that its host sends again, the same byte by byte, is one that the meter says went through; then
/// it knows nobody to whom the damaged one could belong, and says that the device made it and lost another.
#[test]
fn what_the_fault_box_corrupts_is_metered_as_corrupted() {
    if !privileged("a run through the fault box") {
        return;
    }
    let room = Room::new("corrupt");
    let result = run(&room, "corrupt=0.03");
    let count = |of: &str, key: &str| result[of][key].as_u64().expect("a count");
    let (damaged, known) = (count("fault", "corrupted"), count("packets", "corrupted"));
    assert!(damaged > 40, "{result}");
    assert!(known <= damaged && 10 * known >= 8 * damaged, "{known} of {damaged}");
    let rest = [count("packets", "lost"), count("packets", "originated")];
    // (What comes when the meter has ended is the box's alone.)
    assert!(rest[0] == rest[1] && rest[0] + known <= damaged, "{rest:?}, {known} of {damaged}");
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
