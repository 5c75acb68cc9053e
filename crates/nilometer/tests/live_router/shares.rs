//! The shares of virtual output queues, live: an overloaded output costs its neighbour no packet.
//!
//! ```text
//!   l0 ── p0 ─ router ─┬─ p1 ── b0      40 Mb/s for a link of 10
//!                      └─ p2 ── i0      sixty probes
//! ```

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use nilometer_linux::namespace::Namespace;
use nilometer_routerd::config::RouterConfig;
use nilometer_routerd::running::Running;
use nilometer_routerd::tally::Tally;

use super::links::{link, settle};
use super::{PATIENCE, privileged};

const SENDER: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
const BUSY: Ipv4Addr = Ipv4Addr::new(198, 19, 1, 2);
const IDLE: Ipv4Addr = Ipv4Addr::new(198, 19, 2, 2);
const PORT: u16 = 7_000;

const LINK_BITS_PER_SECOND: f64 = 10e6;
/// 40 Mb/s in frames of 1,014 bytes.
const LOAD_PPS: f64 = 40e6 / 8.0 / 1_014.0;
const LOAD_BYTES: usize = 972;
const PROBES: u32 = 60;

/// No flow takes a shortcut: all of them are to pass the fabric.
const ROUTER: &str = r#"
[tables]
routes_v4 = 1000
routes_v6 = 1000
filters = 100
shortcuts = 0
[[port]]
interface = "p0"
addresses = ["198.18.0.1/24"]
[[port]]
interface = "p1"
addresses = ["198.19.1.1/24"]
[[port]]
interface = "p2"
addresses = ["198.19.2.1/24"]
"#;

struct Site {
    router: Namespace,
    sender: Namespace,
    /// Hosts that send nothing.
    busy: Namespace,
    idle: Namespace,
}

impl Site {
    fn new() -> Result<Site> {
        let [router, sender, busy, idle] =
            [Namespace::new()?, Namespace::new()?, Namespace::new()?, Namespace::new()?];
        for (number, (host, name)) in
            [(&sender, "l0"), (&busy, "b0"), (&idle, "i0")].iter().enumerate()
        {
            link(&router, &format!("p{number}"), host, name, number as u8)?;
        }
        let gateway = |a: [u8; 4]| Some(("198.19.0.0/16", Ipv4Addr::from(a).into()));
        settle(&sender, "l0", SENDER, gateway([198, 18, 0, 1]))?;
        settle(&busy, "b0", BUSY, None)?;
        settle(&idle, "i0", IDLE, None)?;
        Ok(Site { router, sender, busy, idle })
    }
}

/// The outcome of the probes, and the router's counters before and after.
struct Outcome {
    came: u32,
    before: Tally,
    after: Tally,
}

/// Sends datagrams of `LOAD_BYTES` to the busy host until it is stopped.
fn load(socket: &UdpSocket, stop: &AtomicBool) {
    let (began, mut sent, bytes) = (Instant::now(), 0u64, [0; LOAD_BYTES]);
    while !stop.load(Ordering::Relaxed) {
        let due = (began.elapsed().as_secs_f64() * LOAD_PPS) as u64;
        let some = due.saturating_sub(sent).min(64);
        for _ in 0..some {
            // Datagrams that the sender's own link has no room for are not sent.
            let _ = socket.send_to(&bytes, (BUSY, PORT));
        }
        sent += some;
        thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until a datagram to `far` arrives there.
fn reach(near: &UdpSocket, far: &UdpSocket, at: Ipv4Addr) -> Result<()> {
    let began = Instant::now();
    far.set_read_timeout(Some(Duration::from_millis(50)))?;
    while far.recv(&mut [0; 8]).is_err() {
        ensure!(began.elapsed() < PATIENCE, "nothing reaches {at}");
        near.send_to(b"there", (at, PORT))?;
    }
    while far.recv(&mut [0; 8]).is_ok() {}
    Ok(())
}

/// Overloads `p1` and sends sixty probes to `p2`, 20 ms apart.
fn played(fabric: &str) -> Result<Outcome> {
    let site = Site::new()?;
    let config: RouterConfig = toml::from_str(&format!("{fabric}{ROUTER}"))?;
    let running = Running::start(Some(&site.router), config, false)?;
    running.wait_until_up()?;
    let near = site.sender.enter(|| Ok(UdpSocket::bind((SENDER, 0))?))?;
    let busy = site.busy.enter(|| Ok(UdpSocket::bind((BUSY, PORT))?))?;
    let idle = site.idle.enter(|| Ok(UdpSocket::bind((IDLE, PORT))?))?;
    reach(&near, &busy, BUSY)?;
    reach(&near, &idle, IDLE)?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let loaded = near.try_clone()?;
        let stop = &stop;
        scope.spawn(move || load(&loaded, stop));
        let result: Result<(Tally, Tally)> = (|| {
            // Four times the link's rate fills any buffer meanwhile.
            thread::sleep(Duration::from_secs(3));
            let before = running.tally()?;
            for number in 0..PROBES {
                near.send_to(&number.to_be_bytes(), (IDLE, PORT))?;
                thread::sleep(Duration::from_millis(20));
            }
            Ok((before, running.tally()?))
        })();
        stop.store(true, Ordering::Relaxed);
        let (before, after) = result?;
        idle.set_read_timeout(Some(Duration::from_millis(500)))?;
        let came = (0..).take_while(|_| idle.recv(&mut [0; 8]).is_ok()).count() as u32;
        let tally = running.stop()?;
        ensure!(tally.balances, "{tally:?}");
        Ok(Outcome { came, before, after })
    })
}

#[test]
fn an_overloaded_output_costs_its_neighbour_no_packet() {
    if !privileged("shares of the fabric") {
        return;
    }
    let cases = [("dq_plus", 2.0), ("reserved", 2.0), ("original", 1.0)];
    for (queueing, speedup) in cases {
        let fabric = format!(
            "[fabric]\nqueueing = \"{queueing}\"\nspeedup = {speedup:.1}\nlink_rate = \"10 Mb/s\"\n"
        );
        let Outcome { came, before, after } = played(&fabric).expect("it is played");
        let (old, new) = (&before.ports[1], &after.ports[1]);
        let bits = (new.out_bytes - old.out_bytes) as f64 * 8.0;
        let rate = bits / (after.seconds - before.seconds);
        let drops = &after.ports[0].input_drops;
        println!("{queueing}: {came} of {PROBES} probes; p1 gets {rate:.0} b/s; dropped {drops:?}");
        let dropped: u64 = drops.values().sum();
        assert!(dropped > 1_000, "{queueing}: the output was not overloaded: {after:?}");
        assert_eq!(came, PROBES, "{queueing}: {after:?}");
        assert!(rate >= 0.9 * LINK_BITS_PER_SECOND, "{queueing}: {rate} b/s; {after:?}");
    }
}
