//! The mirror of the kernel's routes hears all that a dump says.

mod common;
#[path = "../../router/tests/netlink/mod.rs"]
mod netlink;

use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use anyhow::Result;
use common::privileged;
use netlink::Message;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nilometer_lab::device::namespace::Namespace;
use nilometer_lab::route::kernel::KernelMirror;
use nilometer_lab::route::news::RouteNews;
use nilometer_router::{Hop, RouteUpdate, Source, Way};

const PATIENCE: Duration = Duration::from_secs(10);
/// `RTM_NEWNEXTHOP`, and `NHA_ID` and `NHA_BLACKHOLE`.
const NEW_NEXT_HOP: u16 = 104;
const ID: u16 = 1;
const BLACKHOLE: u16 = 4;

/// Makes next-hop objects of the calling thread's namespace that lead nowhere.
fn make(ids: &[u32]) -> Result<()> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    for &id in ids {
        // For IPv4, by hand; flags of the request: acknowledge, create.
        let message = Message::new(NEW_NEXT_HOP, &[2, 0, 4, 0, 0, 0, 0, 0]);
        let mut bytes = message.number(ID, id).attribute(BLACKHOLE, &[]).bytes();
        bytes[6..8].copy_from_slice(&0x405u16.to_ne_bytes());
        socket.send(&bytes, 0)?;
        let mut answer = [0; 1_024];
        let count = socket.recv(&mut &mut answer[..], 0)?;
        assert!(count >= 20 && answer[16..20] == [0; 4], "object {id}: {:?}", &answer[..count]);
    }
    Ok(())
}

/// Three objects, and the end of what is said of them, are one datagram.
#[test]
fn next_hop_objects_that_are_there_already_are_told() -> Result<()> {
    if !privileged("a mirror of next-hop objects") {
        return Ok(());
    }
    let namespace = Namespace::new()?;
    let ids = [7, 8, 19];
    namespace.enter(|| make(&ids))?;
    let (news, heard) = sync_channel(10_000);
    let mirror = KernelMirror::start(Some(&namespace), news)?;
    let (mut told, mut is_over, began) = (Vec::new(), false, Instant::now());
    while !is_over && began.elapsed() < PATIENCE {
        let Ok(RouteNews::Routes(batch)) = heard.recv_timeout(PATIENCE) else { continue };
        for update in batch.updates {
            match update {
                RouteUpdate::Define { id, way: Way::Fate(Hop::Blackhole) } => told.push(id),
                RouteUpdate::ReplayEnds => is_over |= batch.source == Source::Kernel,
                _ => {}
            }
        }
    }
    assert!(is_over, "{:?}", mirror.status());
    told.sort_unstable();
    assert_eq!(told, ids);
    Ok(())
}
