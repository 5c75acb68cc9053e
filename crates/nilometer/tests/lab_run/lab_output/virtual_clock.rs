//! The lab in virtual time: one result on every machine and for every user, and a meter that agrees with the fault box.

use nilometer_files::table::packets::{Fate, PacketRow, read_packet_table};
use nilometer_lab::device::truth::PacketTruth;
use serde_json::Value;

use crate::common::{Room, text};

const VIRTUAL: [&str; 6] = ["lab", "run", "--clock", "virtual", "--duration", "10"];
/// The cable on each side of the device carries a full frame in 124 ns, and is 500 ns long. A burst waits for it.
const CABLES_NS: std::ops::RangeInclusive<i64> = 1_000..=20_000;
const CABLES_MEDIAN_NS: std::ops::RangeInclusive<i64> = 1_000..=1_300;

fn run(room: &Room, more: &[&str]) -> Value {
    room.counted(&[&VIRTUAL[..], &["--json", "--force"], more].concat())
}

#[test]
fn one_result_for_any_number_of_threads_and_any_user() {
    let room = Room::new("virtual");
    let first = run(&room, &[]);
    assert_eq!((&first["clock"], &first["dut"]), (&"virtual".into(), &"nilometer".into()));
    assert_eq!(first["router"]["tally"]["balances"], true);
    assert_eq!(first["packets"]["lost"], 0);
    assert!(first["packets"]["in"].as_u64().is_some_and(|packets| packets > 3_000));
    assert_eq!(first["execution"]["lateness_max_ns"], 0);
    let digest = |result: &Value| result["outcome_digest"].as_str().expect("a digest").to_owned();
    let expected = digest(&first);
    assert_eq!(expected.len(), 64);
    assert_eq!(digest(&run(&room, &["--threads", "2"])), expected);
    assert_ne!(digest(&run(&room, &["--seed", "2"])), expected);
    let Some(as_unprivileged) = room.as_unprivileged() else { return };
    let ended = as_unprivileged(&[&VIRTUAL[..], &["--json"]].concat());
    assert!(ended.status.success(), "{}", text(&ended.stderr));
    let result: Value = serde_json::from_slice(&ended.stdout).expect("a result");
    assert_eq!(digest(&result), expected, "an ordinary user");
}

/// In virtual time only packets with identical bytes are ambiguous: the meter agrees with the box about every
/// packet, and its delay is the box's plus that of two cables.
#[test]
fn the_meter_agrees_with_the_box_about_every_packet() {
    let room = Room::new("virtual-fault");
    let faults = "rate=50Mbit,delay=5ms,loss=0.01,loss_back=0.02";
    let result = run(
        &room,
        &[
            "--fault",
            faults,
            "-o",
            "run",
            "--clients",
            "198.18.0.0/16",
            "--servers",
            "198.19.0.0/17",
        ],
    );
    let mut seen = [Vec::new(), Vec::new()];
    read_packet_table(&room.path("run/packets.parquet"), &mut |row: PacketRow| {
        seen[usize::from(row.direction)].push(row);
        Ok(())
    })
    .expect("packet stamps");
    let mut truths = [Vec::new(), Vec::new()];
    for line in room.read("run/fault.ndjson").lines() {
        let packet: PacketTruth = serde_json::from_str(line).expect("a packet");
        truths[usize::from(packet.direction)].push(packet);
    }
    let (mut lost, mut all_beyond) = (0, Vec::new());
    for (seen, truths) in seen.iter_mut().zip(&mut truths) {
        seen.sort_by_key(|row| row.entered_ns);
        assert_eq!(seen.len(), truths.len());
        let mut rest = &mut truths[..];
        // (Rows of packets that entered at the same moment have no order of entry; they are sorted by departure.)
        for together in seen.chunk_by_mut(|one, other| one.entered_ns == other.entered_ns) {
            let (theirs, further) = rest.split_at_mut(together.len());
            together.sort_by_key(|row| (row.left_ns.is_none(), row.left_ns));
            theirs.sort_by_key(|truth| (truth.left_ns.is_none(), truth.left_ns));
            rest = further;
        }
        for (row, truth) in seen.iter().zip(&*truths) {
            assert_eq!(row.fate == Fate::Lost, truth.lost, "{row:?} {truth:?}");
            lost += u64::from(truth.lost);
            if let (Some(delay_ns), Some(left_ns)) = (row.delay_ns, truth.left_ns) {
                let beyond = delay_ns - (left_ns - truth.came_ns);
                assert!(CABLES_NS.contains(&beyond), "{row:?} {truth:?}");
                all_beyond.push(beyond);
            }
        }
    }
    all_beyond.sort_unstable();
    assert!(CABLES_MEDIAN_NS.contains(&all_beyond[all_beyond.len() / 2]));
    assert!(lost > 50, "{lost}");
    assert_eq!(result["packets"]["lost"], lost);
    assert_eq!(result["fault"]["lost"], lost);
}

#[test]
fn two_runs_are_compared_with_the_differences_by_chance() {
    let room = Room::new("virtual-pair");
    let played = |out: &str, faults: &str| run(&room, &["--fault", faults, "-o", out]);
    played("first", "delay=5ms,loss=0.01");
    played("second", "delay=9ms,loss=0.01");
    let compare = |first: &str, second: &str| {
        let result = room.counted(&["compare", first, second, "--json"]);
        result["figures"].as_array().expect("figures").clone()
    };
    let of = |figures: &[Value], name: &str| -> Value {
        figures.iter().find(|figure| figure["name"] == name).expect(name).clone()
    };
    for figure in compare("first", "first") {
        assert_eq!(figure["difference"], 0.0, "{figure}");
    }
    let figures = compare("first", "second");
    let delay = of(&figures, "delay_p50_us");
    let far = delay["difference"].as_f64().expect("a number");
    assert!(
        (far - 4_000.0).abs() < 1.0 && far > delay["noise"].as_f64().expect("noise"),
        "{delay}"
    );
    let loss = of(&figures, "loss");
    let number = |key: &str| loss[key].as_f64().expect("a number");
    assert!(number("noise") > 0.0 && number("difference").abs() <= 2.0 * number("noise"), "{loss}");
    let slower = of(&figures, "completion_p50_s");
    assert!(slower["difference"].as_f64().is_some_and(|far| far > 0.0), "{slower}");
}

#[test]
fn kernel_features_are_refused_under_a_virtual_clock() {
    let room = Room::new("virtual-refused");
    let refused = |more: &[&str]| room.refused(&[&VIRTUAL[..], more].concat());
    for dut in ["linux", "frr"] {
        let message = refused(&["--dut", dut]);
        assert!(
            message.contains("no virtual clock") && message.contains("fault or wire"),
            "{message}"
        );
    }
    assert!(refused(&["--congestion", "vegas"]).contains("cubic, reno, bbr"));
}
