//! Shortcuts on real links: sound packets take them as the pipeline would have forwarded them, all others
//! come by the ring, and none is overtaken.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nilometer_linux::flow_offload::{Exit, FlowOffload, Place};
use nilometer_linux::memory::PacketMemory;
use nilometer_linux::port::{AnyPort, PortIo};
use nilometer_linux::steer;
use nilometer_linux::xdp::{XdpConfig, XdpMode};
use nilometer_router::forward::hop;
use nilometer_router::header::{self, protocol};
use nilometer_router::{AnyKey, Header, Key};
use nilometer_stat::Rng;
use nilometer_wire::checksum::internet_checksum;

use super::lab::{Host, Kind, Lab, Patch, memory, privileged};

const PORT: [u8; 6] = [2, 0, 0, 0, 0, 3];
const FROM: [u8; 6] = [2, 0, 0, 0, 0, 4];
const TO: [u8; 6] = [2, 0, 0, 0, 0, 2];
const MTU_BYTES: u16 = 600;
const PATIENCE: Duration = Duration::from_secs(10);

/// The flow of these tests.
fn flow(protocol: u8) -> Key<u32> {
    Key {
        source: 0xc612_0001,
        destination: 0xc612_0102,
        source_port: 1_000,
        destination_port: 2_000,
        protocol,
        flags: 0,
    }
}

/// A sound frame of the flow, with `payload` bytes of payload, the first eight of which are its number.
fn frame(key: &Key<u32>, hop_limit: u8, number: u64, payload: usize) -> Vec<u8> {
    let transport = if key.protocol == protocol::TCP { 20 } else { 8 };
    let bytes = (20 + transport + payload) as u16;
    let mut packet = vec![0x45, 0];
    packet.extend(bytes.to_be_bytes());
    packet.extend([number as u8, 1, 0x40, 0, hop_limit, key.protocol, 0, 0]);
    packet.extend(key.source.to_be_bytes());
    packet.extend(key.destination.to_be_bytes());
    close(&mut packet);
    packet.extend(key.source_port.to_be_bytes());
    packet.extend(key.destination_port.to_be_bytes());
    packet.resize(20 + transport, 0);
    packet.extend(number.to_be_bytes());
    packet.resize(usize::from(bytes), number as u8);
    let mut frame = [&PORT[..], &[2, 0, 0, 0, 0, 1], &[8, 0]].concat();
    frame.extend(packet);
    frame
}

/// Gives a header its checksum.
fn close(packet: &mut [u8]) {
    packet[10..12].fill(0);
    let checksum = internet_checksum(&[&packet[..20]]);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
}

/// The output where the pipeline sees nothing unusual about a frame of the flow: the twin of the program.
fn forwarded(frame: &[u8], key: &Key<u32>) -> Option<Vec<u8>> {
    let header = Header::read(frame).ok()?;
    let AnyKey::V4(found) = header.key else { return None };
    let is_usual = frame[..6] == PORT
        && Key { flags: 0, ..found } == *key
        && header.notes & (header::OPTIONS | header::FRAGMENT) == 0
        && !hop::expires(header.hop_limit)
        && frame.len() == 14 + usize::from(header.ip_bytes)
        && header.ip_bytes <= MTU_BYTES;
    let mut out = is_usual.then(|| [&TO[..], &FROM[..], &frame[12..]].concat())?;
    hop::decrement_ipv4(&mut out[14..]).ok()?;
    Some(out)
}

/// A sound frame, or one in which something is not as it should be.
fn some(rng: &mut Rng, number: u64) -> Vec<u8> {
    let key = flow(if rng.below(2) == 0 { protocol::UDP } else { protocol::TCP });
    let mut frame = frame(&key, rng.next_u64() as u8, number, 8 + rng.below(700) as usize);
    match rng.below(6) {
        0 => frame[rng.below(42) as usize] ^= 1 << rng.below(8),
        1 => {
            // The header is changed, and its checksum with it.
            frame[14 + rng.below(20) as usize] ^= 1 << rng.below(8);
            close(&mut frame[14..]);
        }
        2 => frame.extend([0; 7]),
        3 => frame.truncate(frame.len() - 1 - rng.below(8) as usize),
        _ => {}
    }
    frame
}

/// A port with the table, and the flow's exit by the other.
fn open(lab: &Lab, memory: &mut PacketMemory) -> Result<(FlowOffload, [AnyPort; 2], Exit)> {
    let table = FlowOffload::new(64)?;
    let with = |input| {
        let (mode, flow_offload) = (XdpMode::Fitting, Some((table.clone(), input)));
        let (ring_entries, reserve) = (2_048, 2_048);
        Kind::Xdp(XdpConfig { mode, flow_offload, ring_entries, reserve, ..Default::default() })
    };
    let ports = [lab.open(memory, &with(0), "p0")?, lab.open(memory, &with(1), "p1")?];
    let interface = ports[1].interface_index().context("it is the kernel's")?;
    let exit = Exit { interface, from: FROM, to: TO, mtu_bytes: MTU_BYTES };
    Ok((table, ports, exit))
}

/// Gives the flow its exit.
fn grant(table: &FlowOffload, key: &Key<u32>, exit: &Exit, way: usize) -> Place {
    let place = table.places_of(0, key)[way];
    table.set(place, 0, key, exit);
    place
}

#[test]
fn sound_packets_take_the_shortcut_and_all_others_come_by_the_ring() -> Result<()> {
    const FRAMES: u64 = 6_000;
    if !privileged("shortcuts") {
        return Ok(());
    }
    let lab = Lab::new(1500, false)?;
    let mut memory = memory()?;
    let (table, mut ports, exit) = open(&lab, &mut memory)?;
    let (left, right) = (Host::open(&lab.left, "l0")?, Host::open(&lab.right, "r0")?);
    let keys = [flow(protocol::UDP), flow(protocol::TCP)];
    let places = [grant(&table, &keys[0], &exit, 0), grant(&table, &keys[1], &exit, 1)];
    let (mut rng, mut by_ring, mut expected) = (Rng::new(11, 5, 0), 0, [(0, 0); 2]);
    let mut batch = Vec::new();
    for number in 0..FRAMES {
        let sent = some(&mut rng, number);
        left.send(&sent)?;
        let way = keys.iter().position(|key| forwarded(&sent, key).is_some());
        let Some(way) = way else {
            let began = Instant::now();
            while batch.is_empty() {
                ports[0].receive(&mut memory, &mut batch, 64)?;
                ensure!(began.elapsed() < PATIENCE, "{number} is not in the ring: {sent:02x?}");
            }
            for packet in batch.drain(..) {
                ensure!(memory.frame(&packet) == sent, "{number}: {sent:02x?}");
                memory.give(packet);
            }
            by_ring += 1;
            table.left(memory.take_unmarked());
            thread::sleep(Duration::from_micros(60));
            continue;
        };
        let found = right.receive_of([8, 0])?.with_context(|| format!("{number}: {sent:02x?}"))?;
        ensure!(Some(&found) == forwarded(&sent, &keys[way]).as_ref(), "{number}: {found:02x?}");
        expected[way].0 += 1;
        expected[way].1 += sent.len() as u64 - 14;
    }
    let came = places.map(|place| table.forwarded(place));
    assert_eq!(came, expected);
    assert!(by_ring > FRAMES / 4 && expected.iter().all(|way| way.0 > FRAMES / 8));
    assert_eq!(ports[0].statistics()?.rx_lost(), 0);
    ports.into_iter().for_each(|port| port.close(&mut memory));
    Ok(())
}

#[test]
fn nothing_is_overtaken_while_shortcuts_come_and_go() -> Result<()> {
    const FRAMES: u64 = 30_000;
    if !privileged("the order of shortcuts") {
        return Ok(());
    }
    let lab = Lab::new(1500, false)?;
    let mut memory = memory()?;
    let (table, ports, exit) = open(&lab, &mut memory)?;
    // What processors send is to be seen in the order of the link, not of the queues that each has.
    lab.right.enter(|| steer::to_one_processor("r0", 0))?;
    let (left, right) = (Host::open(&lab.left, "l0")?, Host::open(&lab.right, "r0")?);
    let key = flow(protocol::UDP);
    let mut patch = Patch::new(memory, ports);
    let (is_over, came) = (AtomicBool::new(false), AtomicU64::new(0));
    let by_shortcut = thread::scope(|scope| -> Result<u64> {
        scope.spawn(|| {
            for number in 0..FRAMES {
                left.send(&frame(&key, 64, number, 100)).expect("the link is up");
                // As many as there is room for, whatever else the machine does.
                while number > came.load(Ordering::Relaxed) + 1_000
                    && !is_over.load(Ordering::Relaxed)
                {
                    thread::sleep(Duration::from_micros(100));
                }
                if number % 16 == 0 {
                    thread::sleep(Duration::from_micros(100));
                }
            }
        });
        let (table, is_over) = (&table, &is_over);
        let routing = scope.spawn(move || -> Result<u64> {
            let (mut rng, mut place) = (Rng::new(11, 6, 0), None);
            while !is_over.load(Ordering::Relaxed) {
                patch.step()?;
                table.left(patch.memory.take_unmarked());
                match (rng.below(500), place) {
                    (0, Some(granted)) => (table.clear(granted), place = None).1,
                    (1..3, None) => place = Some(grant(table, &key, &exit, 0)),
                    // A flow is given the exit that it has: a program may meet it half written.
                    (3..30, Some(granted)) => table.set(granted, 0, &key, &exit),
                    _ => {}
                }
            }
            patch.close()?;
            Ok(table.forwarded(table.places_of(0, &key)[0]).0)
        });
        let mut outcome = Ok(());
        for expected in 0..FRAMES {
            let found = right.receive_of([8, 0])?;
            let number = found.as_ref().and_then(|frame| frame.get(42..50)?.try_into().ok());
            came.store(expected, Ordering::Relaxed);
            if number.map(u64::from_be_bytes) != Some(expected) {
                outcome = Err(anyhow::anyhow!("not {expected} but {number:?}"));
                break;
            }
        }
        is_over.store(true, Ordering::Relaxed);
        let by_shortcut = routing.join().expect("no panic")?;
        outcome.map(|()| by_shortcut)
    })?;
    println!("{by_shortcut} of {FRAMES} by the shortcut");
    assert!((FRAMES / 50..FRAMES - FRAMES / 50).contains(&by_shortcut), "{by_shortcut}");
    Ok(())
}
