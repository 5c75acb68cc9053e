//! A router's ports on real interfaces: frames, transfers, failures; skipped without privilege.

mod lab;
mod shortcuts;

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::Result;
use lab::{Host, Kind, Lab, Patch, exchange, memory, privileged};
use nilometer_linux::memory_port::MemoryPort;
use nilometer_linux::netlink::Netlink;
use nilometer_linux::port::ChecksumOffload::{self, AsIs, Partial};
use nilometer_linux::port::{AnyPort, PortError, PortIo};
use nilometer_linux::tap::{TapConfig, TapPort};
use nilometer_linux::xdp::{Attachment, XdpConfig, XdpMode};
use nilometer_wire::checksum::{Checksum, internet_checksum};

/// Waits until it is so, for ten seconds.
fn await_that(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let began = std::time::Instant::now();
    while !is_so()? {
        anyhow::ensure!(began.elapsed() < Duration::from_secs(10), "{what}: not in ten seconds");
        std::thread::yield_now();
    }
    Ok(())
}

/// Every length that an MTU allows, in steps that also hit the ends.
fn lengths(mtu_bytes: usize) -> Vec<usize> {
    let mut lengths: Vec<usize> = (60..mtu_bytes + 14).step_by(7).collect();
    lengths.extend([mtu_bytes + 14, 60]);
    lengths
}

fn both_ways(lab: &Lab, patch: &mut Patch, mtu_bytes: usize) -> Result<()> {
    let (left, right) = (Host::open(&lab.left, "l0")?, Host::open(&lab.right, "r0")?);
    exchange(patch, &left, &right, &lengths(mtu_bytes))?;
    exchange(patch, &right, &left, &lengths(mtu_bytes))?;
    let count = lengths(mtu_bytes).len() as u64;
    let bytes: u64 = lengths(mtu_bytes).iter().map(|&bytes| bytes as u64).sum();
    for port in &mut patch.ports {
        let counted = port.statistics()?;
        assert_eq!((counted.rx_packets, counted.rx_bytes), (count, bytes), "{counted:?}");
        assert_eq!((counted.tx_packets, counted.tx_bytes), (count, bytes), "{counted:?}");
        assert_eq!((counted.rx_lost(), counted.tx_invalid), (0, 0), "{counted:?}");
    }
    Ok(())
}

fn passes_frames(mtu_bytes: usize, kinds: [Kind; 2]) -> Result<()> {
    let lab = Lab::new(mtu_bytes as u32, false)?;
    let mut memory = memory()?;
    let ports = [lab.open(&mut memory, &kinds[0], "p0")?, lab.open(&mut memory, &kinds[1], "p1")?];
    for (port, last) in ports.iter().zip([3, 4]) {
        assert_eq!((port.mac(), port.mtu_bytes()), ([2, 0, 0, 0, 0, last], mtu_bytes as u32));
        assert!(port.link_is_up()?);
    }
    let mut patch = Patch::new(memory, ports);
    both_ways(&lab, &mut patch, mtu_bytes)?;
    patch.close()
}

#[test]
fn native_xdp_passes_every_frame_in_order() -> Result<()> {
    if !privileged("native XDP ports") {
        return Ok(());
    }
    let kind = Kind::xdp(XdpMode::Native, AsIs);
    passes_frames(1500, [kind.clone(), kind.clone()])?;
    passes_frames(3498, [kind.clone(), kind])?;
    let kind = Kind::xdp(XdpMode::Native, Partial);
    passes_frames(1500, [kind.clone(), kind])
}

#[test]
fn the_hook_passes_every_frame_in_order() -> Result<()> {
    if !privileged("ports by the traffic control hook") {
        return Ok(());
    }
    let kind = Kind::xdp(XdpMode::Fitting, AsIs);
    passes_frames(1500, [kind.clone(), kind.clone()])?;
    passes_frames(3800, [kind.clone(), kind])?;
    let kinds = [Kind::xdp(XdpMode::Fitting, Partial), Kind::xdp(XdpMode::Native, Partial)];
    passes_frames(1500, kinds)
}

#[test]
fn the_hook_counts_frames_without_room_and_restores_tags() -> Result<()> {
    if !privileged("losses at the traffic control hook") {
        return Ok(());
    }
    let lab = Lab::new(1500, false)?;
    let mut memory = memory()?;
    let mut port = lab.open(&mut memory, &Kind::xdp(XdpMode::Fitting, AsIs), "p0")?;
    let left = Host::open(&lab.left, "l0")?;
    // Rings of 512.
    for number in 0..600 {
        left.send(&lab::frame(number, 60))?;
    }
    // A frame sent on one processor may arrive on another, a moment later.
    let is_over = |port: &mut AnyPort| Ok(port.statistics()?.rx_ring_full == 88);
    await_that("600 frames come", || is_over(&mut port))?;
    let mut batch = Vec::new();
    while port.receive(&mut memory, &mut batch, 100)? > 0 {}
    for (number, packet) in batch.iter().enumerate() {
        assert_eq!(memory.frame(packet), lab::frame(number as u64, 60));
    }
    let counted = port.statistics()?;
    assert_eq!((batch.len(), counted.rx_packets, counted.rx_ring_full), (512, 512, 88));

    let mut tagged = lab::frame(1, 100);
    tagged.splice(12..12, [0x81, 0x00, 0x20, 0x07]);
    left.send(&tagged)?;
    await_that("a frame comes", || Ok(port.receive(&mut memory, &mut batch, 100)? == 1))?;
    assert_eq!(memory.frame(batch.last().expect("it came")), tagged);
    batch.into_iter().for_each(|packet| memory.give(packet));
    let sleeps = |port: &mut AnyPort| {
        let patience = Duration::from_millis(20);
        let began = std::time::Instant::now();
        let woken = nilometer_linux::port::wait(std::slice::from_mut(port), |_| false, patience);
        woken.map(|is_woken| (is_woken, began.elapsed() >= patience))
    };
    assert_eq!(sleeps(&mut port)?, (false, true), "nothing comes");
    left.send(&lab::frame(2, 60))?;
    assert_eq!(sleeps(&mut port)?, (true, false), "something has come");
    assert_eq!(port.receive(&mut memory, &mut Vec::new(), 0)?, 0);
    assert_eq!(sleeps(&mut port)?, (true, false), "and is still there");
    let mut batch = Vec::new();
    assert_eq!(port.receive(&mut memory, &mut batch, 100)?, 1);
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(5));
            left.send(&lab::frame(3, 60))
        });
        let is_woken = nilometer_linux::port::wait(
            std::slice::from_mut(&mut port),
            |_| false,
            Duration::from_secs(10),
        );
        assert!(is_woken.expect("it can wait"), "a sleeping thread is woken");
        sender.join().expect("no panic")
    })?;
    assert_eq!(port.receive(&mut memory, &mut batch, 100)?, 1);
    batch.into_iter().for_each(|packet| memory.give(packet));
    port.close(&mut memory);
    assert_eq!(memory.census().lent, 0);
    Ok(())
}

#[test]
fn senders_on_all_processors_lose_nothing_in_a_ring_that_has_room() -> Result<()> {
    const EACH: u64 = 12_000;
    if !privileged("senders on all processors") {
        return Ok(());
    }
    let lab = Lab::new(1500, false)?;
    let mut memory = memory()?;
    let config = XdpConfig { mode: XdpMode::Fitting, ring_entries: 32_768, ..Default::default() };
    let mut port = lab.open(&mut memory, &Kind::Xdp(config), "p0")?;
    std::thread::scope(|scope| {
        for sender in 0..2 {
            let lab = &lab;
            scope.spawn(move || {
                let left = Host::open(&lab.left, "l0").expect("a socket");
                for number in 0..EACH {
                    left.send(&lab::frame(sender * EACH + number, 60)).expect("the link is up");
                }
            });
        }
    });
    let (mut next, mut batch) = ([0, EACH], Vec::new());
    await_that("all frames come", || {
        port.receive(&mut memory, &mut batch, 64)?;
        for packet in batch.drain(..) {
            let frame = memory.frame(&packet);
            let sender = next.iter().position(|&number| frame == lab::frame(number, 60));
            next[sender.expect("the next of one of them")] += 1;
            memory.give(packet);
        }
        Ok(next == [EACH, 2 * EACH])
    })?;
    let counted = port.statistics()?;
    assert_eq!((next, counted.rx_lost()), ([EACH, 2 * EACH], 0), "{counted:?}");
    port.close(&mut memory);
    Ok(())
}

/// Two ports that the thread that opened them drives, as a router does.
fn at_home<T: Send>(
    mtu_bytes: u32,
    checksum: ChecksumOffload,
    work: impl FnOnce(&Lab, &mut Patch) -> Result<T> + Send,
) -> Result<T> {
    let lab = Lab::new(mtu_bytes, false)?;
    lab.router.enter(|| {
        let mut memory = memory()?;
        let kind = Kind::xdp(XdpMode::Fitting, checksum);
        let ports = [kind.open(&mut memory, "p0")?, kind.open(&mut memory, "p1")?];
        let AnyPort::Xdp(first) = &ports[0] else { unreachable!("of this kind") };
        println!("{}", first.description());
        let mut patch = Patch::new(memory, ports);
        let result = work(&lab, &mut patch)?;
        patch.close()?;
        Ok(result)
    })
}

#[test]
fn batches_pass_every_frame_in_order() -> Result<()> {
    if !privileged("native XDP ports that send in batches") {
        return Ok(());
    }
    for mtu_bytes in [1_500, 3_498] {
        at_home(mtu_bytes, Partial, |lab, patch| both_ways(lab, patch, mtu_bytes as usize))?;
    }
    Ok(())
}

/// By the ring, the kernel runs the receiver's whole stack behind each frame before it sends the next.
#[test]
fn two_frames_leave_by_one_call_and_a_lone_one_by_the_ring() -> Result<()> {
    if !privileged("small batches") {
        return Ok(());
    }
    at_home(1_500, AsIs, |lab, patch| {
        let right = Host::open(&lab.right, "r0")?;
        let Patch { memory, ports, queues, .. } = patch;
        for (count, in_the_ring) in [(1, 1), (2, 0), (7, 0)] {
            for number in 0..count {
                let packet = memory.take().expect("there are many").packet(60);
                memory.frame_mut(&packet).copy_from_slice(&lab::frame(number, 60));
                queues[1].push_back(packet);
            }
            assert_eq!(ports[1].transmit(memory, &mut queues[1])?, count as usize);
            assert_eq!(ports[1].sending(), in_the_ring, "of {count}");
            ports[1].flush(memory)?;
            for number in 0..count {
                assert_eq!(right.receive()?, Some(lab::frame(number, 60)));
            }
        }
        Ok(())
    })
}

/// A UDP datagram whose checksum is still to be filled in, or is there.
fn datagram(number: u16, is_open: bool) -> Vec<u8> {
    let (source, destination) = ([198, 18, 0, 1], [198, 18, 0, 2]);
    let payload = vec![number as u8; usize::from(number) * 20];
    let bytes = 8 + payload.len() as u16;
    let mut packet = vec![0x45, 0];
    packet.extend((20 + bytes).to_be_bytes());
    packet.extend(number.to_be_bytes());
    packet.extend([0, 0, 64, 17, 0, 0]);
    packet.extend(source.iter().chain(&destination));
    let sum = internet_checksum(&[&packet]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    for word in [1_000, 2_000, bytes, 0] {
        packet.extend(word.to_be_bytes());
    }
    packet.extend(payload);
    let mut checksum = Checksum::new();
    checksum.add_pseudo_header(source.into(), destination.into(), 17, u32::from(bytes));
    if !is_open {
        checksum.add(&packet[20..]);
    }
    let sum = checksum.finish();
    let sum = if is_open { !sum } else { sum };
    packet[26..28].copy_from_slice(&sum.to_be_bytes());
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    frame.extend(packet);
    frame
}

#[test]
fn batches_complete_partial_checksums_and_leave_others_alone() -> Result<()> {
    if !privileged("checksums of batches") {
        return Ok(());
    }
    at_home(1_500, Partial, |lab, patch| {
        let (left, right) = (Host::open(&lab.left, "l0")?, Host::open(&lab.right, "r0")?);
        let numbers = 1..=32;
        for number in numbers.clone() {
            left.send(&datagram(number, number % 3 == 0))?;
        }
        let mut came = 0;
        while came < 32 {
            came += patch.step()?;
        }
        for number in numbers {
            let found = right.receive_of([8, 0])?.expect("it comes");
            assert_eq!(found, datagram(number, false), "{number}");
        }
        let counted = patch.ports[1].statistics()?;
        assert_eq!((counted.tx_partial_checksum, counted.tx_invalid), (10, 0), "{counted:?}");
        Ok(())
    })
}

#[test]
fn a_batch_on_a_link_that_is_down_is_counted_and_reported() -> Result<()> {
    if !privileged("a batch on a link that is down") {
        return Ok(());
    }
    at_home(1_500, AsIs, |lab, patch| {
        Netlink::open()?.set_down("p1")?;
        lab::await_link(&lab.router, "p1", false)?;
        for number in 0..16 {
            let buffer = patch.memory.take().expect("there are many");
            let packet = buffer.packet(60);
            patch.memory.frame_mut(&packet).copy_from_slice(&lab::frame(number, 60));
            patch.queues[1].push_back(packet);
        }
        let failure = patch.ports[1].transmit(&mut patch.memory, &mut patch.queues[1]);
        assert!(matches!(failure, Err(PortError::Down { .. })), "{failure:?}");
        assert_eq!(patch.ports[1].statistics()?.tx_invalid, 16);
        assert!(patch.queues[1].is_empty());
        Netlink::open()?.set_up("p1")
    })
}

#[test]
fn generic_xdp_passes_every_frame_in_order() -> Result<()> {
    if !privileged("generic XDP ports") {
        return Ok(());
    }
    let kind = Kind::xdp(XdpMode::Generic, AsIs);
    passes_frames(1500, [kind.clone(), kind])
}

#[test]
fn packet_sockets_pass_every_frame_in_order() -> Result<()> {
    if !privileged("AF_PACKET ports") {
        return Ok(());
    }
    passes_frames(1500, [Kind::packet(AsIs), Kind::packet(Partial)])?;
    passes_frames(3498, [Kind::packet(AsIs), Kind::packet(AsIs)])
}

#[test]
fn unlike_ports_share_one_memory() -> Result<()> {
    if !privileged("ports of two kinds") {
        return Ok(());
    }
    passes_frames(1500, [Kind::xdp(XdpMode::Native, Partial), Kind::packet(Partial)])
}

#[test]
fn a_tap_passes_every_frame_in_order() -> Result<()> {
    if !privileged("TAP ports") {
        return Ok(());
    }
    let lab = Lab::new(1500, false)?;
    let mut memory = memory()?;
    let xdp = lab.open(&mut memory, &Kind::xdp(XdpMode::Native, AsIs), "p0")?;
    let config = TapConfig {
        name: "t0".into(),
        mac: [2, 0, 0, 0, 0, 7],
        mtu_bytes: 1500,
        checksum: AsIs,
        reserve: 64,
    };
    let tap = lab.right.enter(|| {
        offload_free(&config)?;
        TapPort::create(&mut memory, &config)
    })?;
    assert_eq!((tap.mac(), tap.mtu_bytes(), tap.link_is_up()?), (config.mac, 1500, true));
    let again = lab.right.enter(|| Ok(TapPort::create(&mut memory, &config).err()))?;
    assert!(format!("{:#}", again.expect("the name is taken")).contains("t0"));
    let mut patch = Patch::new(memory, [xdp, AnyPort::Tap(tap)]);
    let (left, kernel) = (Host::open(&lab.left, "l0")?, Host::open(&lab.right, "t0")?);
    exchange(&mut patch, &left, &kernel, &lengths(1500))?;
    exchange(&mut patch, &kernel, &left, &lengths(1500))?;
    patch.close()
}

/// A TAP's name must not be one that a veth of the same namespace has.
fn offload_free(config: &TapConfig) -> Result<()> {
    assert!(Netlink::open()?.link(&config.name).is_err());
    Ok(())
}

#[test]
fn a_wire_in_memory_keeps_order_and_pushes_back() -> Result<()> {
    let mut memory = memory()?;
    let [mut one, mut other] = MemoryPort::pair(&memory, "wire", 8)?;
    let take = |memory: &mut nilometer_linux::memory::PacketMemory, number: u8| {
        let packet = memory.take().expect("a chunk").packet(60);
        memory.frame_mut(&packet).fill(number);
        packet
    };
    let mut queue: VecDeque<_> = (0..20).map(|number| take(&mut memory, number)).collect();
    assert!(!nilometer_linux::port::wait(
        std::slice::from_mut(&mut other),
        |_| false,
        Duration::from_millis(1)
    )?);
    let mut seen = 0;
    while seen < 20 {
        let room = one.room(&mut memory).min(queue.len());
        assert_eq!(one.transmit(&mut memory, &mut queue)?, room);
        one.flush(&mut memory)?;
        assert!(nilometer_linux::port::wait(
            std::slice::from_mut(&mut other),
            |_| false,
            Duration::from_secs(1)
        )?);
        let mut batch = Vec::new();
        assert!(other.receive(&mut memory, &mut batch, 5)? <= 5);
        for packet in batch {
            assert_eq!(memory.frame(&packet), [seen; 60]);
            memory.give(packet);
            seen += 1;
        }
    }
    assert!(one.statistics()?.tx_full > 0);
    one.set_link(false);
    assert!(matches!(other.receive(&mut memory, &mut Vec::new(), 1), Err(PortError::Down { .. })));
    one.set_link(true);
    queue.push_back(take(&mut memory, 0));
    one.transmit(&mut memory, &mut queue)?;
    one.close(&mut memory);
    other.close(&mut memory);
    assert_eq!(memory.census().held, 0);
    Ok(())
}

#[test]
fn a_port_describes_itself() -> Result<()> {
    if !privileged("the descriptions of ports") {
        return Ok(());
    }
    let lab = Lab::new(1500, true)?;
    let mut memory = memory()?;
    for _ in 0..3 {
        // The queue is busy for a moment after each close.
        let port = lab.open(&mut memory, &Kind::xdp(XdpMode::Native, Partial), "p0")?;
        let AnyPort::Xdp(port) = port else { unreachable!() };
        println!("{}", port.description());
        assert_eq!(port.attachment(), Some(Attachment::Native));
        assert!(port.description().starts_with("native XDP, "));
        assert_eq!(port.passes_partial_checksums(), port.description().contains("passed on"));
        port.close(&mut memory);
    }
    let refused = lab.open(&mut memory, &Kind::xdp(XdpMode::Generic, AsIs), "p0").err();
    let refused = format!("{:#}", refused.expect("the offloads are on"));
    assert!(refused.contains("p0") && refused.contains("unsegmented"), "{refused}");
    let foreign = Kind::packet(AsIs).open(&mut memory, "lo").err();
    let foreign = format!("{:#}", foreign.expect("the host's interface is not ours"));
    assert!(foreign.contains("--host-interfaces"), "{foreign}");
    assert_eq!(memory.census().lent, 0);
    Ok(())
}
