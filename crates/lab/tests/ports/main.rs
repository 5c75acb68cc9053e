//! A router's ports on real interfaces: frames, transfers, failures; skipped without privilege.

mod lab;

use std::collections::VecDeque;
use std::time::Duration;

use anyhow::Result;
use lab::{Host, Kind, Lab, Patch, exchange, memory, privileged};
use nilometer_lab::device::memory_port::MemoryPort;
use nilometer_lab::device::netlink::Netlink;
use nilometer_lab::device::port::ChecksumOffload::{AsIs, Partial};
use nilometer_lab::device::port::{Port, PortError, PortIo};
use nilometer_lab::device::tap::{TapConfig, TapPort};
use nilometer_lab::device::xdp::{Attachment, XdpMode};

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
    let mut patch = Patch::new(memory, [xdp, Port::Tap(tap)]);
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
    let take = |memory: &mut nilometer_lab::device::memory::Memory, number: u8| {
        let packet = memory.take().expect("a chunk").packet(60);
        memory.frame_mut(&packet).fill(number);
        packet
    };
    let mut queue: VecDeque<_> = (0..20).map(|number| take(&mut memory, number)).collect();
    assert!(!nilometer_lab::device::port::wait(
        std::slice::from_mut(&mut other),
        |_| false,
        Duration::from_millis(1)
    )?);
    let mut seen = 0;
    while seen < 20 {
        let room = one.room(&mut memory).min(queue.len());
        assert_eq!(one.transmit(&mut memory, &mut queue)?, room);
        one.flush(&mut memory)?;
        assert!(nilometer_lab::device::port::wait(
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
fn a_port_says_what_it_is() -> Result<()> {
    if !privileged("the descriptions of ports") {
        return Ok(());
    }
    let lab = Lab::new(1500, true)?;
    let mut memory = memory()?;
    for _ in 0..3 {
        // The queue is busy for a moment after each close.
        let port = lab.open(&mut memory, &Kind::xdp(XdpMode::Native, Partial), "p0")?;
        let Port::Xdp(port) = port else { unreachable!() };
        println!("{}", port.description());
        assert_eq!(port.attachment(), Attachment::Native);
        assert!(port.description().starts_with("native XDP, "));
        assert_eq!(port.passes_partial_checksums(), port.description().contains("passed on"));
        port.close(&mut memory);
    }
    let refused = lab.open(&mut memory, &Kind::xdp(XdpMode::Generic, AsIs), "p0").err();
    let refused = format!("{:#}", refused.expect("the offloads are on"));
    assert!(refused.contains("p0") && refused.contains("unsegmented"), "{refused}");
    let foreign = Kind::packet(AsIs).open(&mut memory, "lo").err();
    let foreign = format!("{:#}", foreign.expect("the host's interface is not ours"));
    assert!(foreign.contains("allow_foreign"), "{foreign}");
    assert_eq!(memory.census().lent, 0);
    Ok(())
}
