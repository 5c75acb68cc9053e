//! One leg of a trial: a testbed raised, a plan played over it, and everything seen.
//!
//! A lab run has two legs, the bare wire (the calibration cable) and the device; they differ in
//! nothing but the device. All of a leg is in this process: namespaces are held by file descriptors,
//! hosts are threads, so that however the process ends nothing is left.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow};
use nilometer_traffic::PlannedConnection;
use nilometer_traffic::script::Script;
use nilometer_wire::{Span, Time};

use super::config::{DutKind, LabConfig};
use super::hosts::{Clients, Hosts, Performed, Servers};
use super::meter::{Likewise, MeterLive, PassiveMeter, Sighted, Watch};
use super::router::{RouterSeen, RouterUnderTest};
use super::scores::{Scores, Timing};
use super::simulated_hosts::HostsSeen;
use super::simulated_hosts::live::LiveHosts;
use crate::device::fault::{FaultDevice, FaultSeen, Stands};
use crate::device::kernel::{attach_programs, make_bridge, make_packet_filter};
use crate::device::paths::Paths;
use crate::device::processes::{ProcessKind, Processes};
use crate::generate::{Execution, LiveCounters, ServerReport};
use crate::wiring::ExternalSection;
use crate::wiring::check::{Families, ensure_wired};
use nilometer_files::document::results::ResultFile;
use nilometer_files::say;
use nilometer_linux::borrowed::ensure_lendable;
use nilometer_linux::idle_states::AwakeProcessors;
use nilometer_linux::machine::{Machine, MachineUse};
use nilometer_linux::prefix::Prefix;
use nilometer_linux::scheduling::{Class, Granted, Role, Timed};
use nilometer_linux::testbed::{DeviceKind, InterfaceCounters, Testbed, TestbedConfig};
use nilometer_linux::usage::usage;
use nilometer_linux::user_switch::UserSwitchKind;
use nilometer_linux::xdp_object::{AttachedXdp, XdpObject};
use nilometer_routerd::testbed::RouterFile;

/// Links between the hosts and the device.
const LINKS: [&str; 2] = ["198.19.255.0/24", "fd00:ffff::/64"];
/// Time between the testbed's readiness and the traffic's beginning.
const LEAD: Duration = Duration::from_millis(500);
/// Time for the last packets to arrive and for closing handshakes to end.
pub(super) const SETTLE: Duration = Duration::from_millis(300);

/// What is to be played.
pub struct Leg<'a> {
    /// The device under test.
    pub dut: DutKind,
    /// The lab's configuration.
    pub config: &'a LabConfig,
    /// The file of our router, if one is given.
    pub router: Option<&'a RouterFile>,
    /// The paths in front of the device and behind it, where there are any.
    pub paths: [Option<&'a Paths>; 2],
    /// The connections, by start.
    pub connections: &'a [PlannedConnection],
    /// What both ends of each do; empty where each is a request and an answer.
    pub scripts: &'a [Script],
    /// When the scripts are over, whatever is open then; ns after the beginning.
    pub end_ns: u64,
    /// Ends of the plan's intervals, ns after the beginning.
    pub interval_ends_ns: Vec<u64>,
    /// How the traffic is observed, as the original was; none where that is not needed.
    pub likewise: Option<Likewise>,
    /// Where to keep packets: the client's, the server's.
    pub captures: Option<[ResultFile; 2]>,
    /// Where to keep the stamps of each packet.
    pub stamps: Option<ResultFile>,
}

impl<'a> Leg<'a> {
    /// Whether boxes stand in front of its device and behind it.
    pub(super) fn has_paths(&self) -> [bool; 2] {
        self.paths.map(|paths| paths.is_some())
    }

    /// What its hosts perform.
    pub(super) fn scores(&self) -> Scores<'a> {
        let length = Duration::from_nanos(self.end_ns);
        Scores { connections: self.connections, scripts: self.scripts, length }
    }
}

/// The counters for a progress display.
#[derive(Debug, Default)]
pub struct LegLive {
    /// The client engine.
    pub traffic: LiveCounters,
    /// The meter.
    pub meter: MeterLive,
}

/// How timed threads were scheduled, and what else the machine did meanwhile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scheduling {
    /// By role.
    pub threads: Vec<Granted>,
    /// What processors did that had nothing to do.
    pub idle_processors: String,
    /// All processors of the machine.
    pub machine: MachineUse,
    /// What this process used of them, in seconds.
    pub own_s: f64,
}

impl Scheduling {
    /// Time stolen by a hypervisor, in percent of all processors.
    pub fn stolen_percent(&self) -> f64 {
        100.0 * self.machine.stolen_s / self.machine.all_s.max(f64::MIN_POSITIVE)
    }

    /// What others used, likewise.
    pub fn others_percent(&self) -> f64 {
        let others_s = (self.machine.busy_s - self.own_s).max(0.0);
        100.0 * others_s / self.machine.all_s.max(f64::MIN_POSITIVE)
    }
}

/// What came of a leg.
pub struct LegOutcome {
    /// The engine's executions, one for each connection.
    pub executions: Vec<Execution>,
    /// What the servers did.
    pub served: ServerReport,
    /// What the meter saw.
    pub sighted: Sighted,
    /// The counters of the hosts' interfaces.
    pub interfaces: InterfaceCounters,
    /// How our router was assembled, and its counters; where it is the device.
    pub router: Option<RouterSeen>,
    /// The fault box's account, where it is the device.
    pub fault: Option<FaultSeen>,
    /// The account of the path in front of the device, where there is one.
    pub path: Option<FaultSeen>,
    /// The account of the path behind the device, where there is one.
    pub rear_path: Option<FaultSeen>,
    /// What simulated hosts did, where the hosts are not the kernel's.
    pub simulated: Option<HostsSeen>,
    /// What of borrowed interfaces could not be made as it was before, in a line each.
    pub not_restored: Vec<String>,
    /// How timed threads were scheduled, and what else the machine did.
    pub scheduling: Scheduling,
    /// The wall clock at the traffic's beginning, ns since 1970.
    pub origin_ns: u64,
    /// When a signal ended the traffic, ns after its beginning.
    pub interrupted_ns: Option<u64>,
    /// By how much the wall clock, which stamps packets, and the monotonic one, which plays the plan, moved
    /// apart while the leg was played, ns; positive where the wall clock was set forward.
    pub clock_step_ns: i64,
    /// Congestion control as a socket read it back: clients', servers'.
    pub congestion: (String, String),
}

impl LegOutcome {
    /// How long the traffic went on, of a plan that ends then; ns.
    pub fn played_ns(&self, end: Time) -> u64 {
        self.interrupted_ns.unwrap_or(u64::MAX).min(end.as_nanos())
    }
}

fn prefixes<T: ToString>(texts: &[T]) -> Result<Vec<Prefix>> {
    texts.iter().map(|text| text.to_string().parse()).collect()
}

/// The testbed of a configuration, links still down.
fn build_testbed(dut: DutKind, config: &LabConfig, has_paths: [bool; 2]) -> Result<Testbed> {
    Testbed::build(&testbed_config(dut, config, has_paths)?)
}

/// The kind of device in the device's namespace.
pub fn device_kind(dut: DutKind) -> DeviceKind {
    match dut {
        DutKind::Nilometer => DeviceKind::Program,
        DutKind::Linux | DutKind::Nftables | DutKind::Xdp => DeviceKind::Linux,
        DutKind::Frr => DeviceKind::LinuxWithoutRoutes,
        DutKind::Fault | DutKind::Bridge | DutKind::Ovs | DutKind::Testpmd => {
            DeviceKind::Transparent
        }
        DutKind::External => DeviceKind::External,
        DutKind::Wire => DeviceKind::Wire,
    }
}

/// The programs of others that a device is, if it is some.
pub fn processes(dut: DutKind) -> Option<ProcessKind> {
    match dut {
        DutKind::Frr => Some(ProcessKind::Frr),
        DutKind::Ovs => Some(ProcessKind::Switch(UserSwitchKind::OpenVSwitch)),
        DutKind::Testpmd => Some(ProcessKind::Switch(UserSwitchKind::Testpmd)),
        _ => None,
    }
}

/// The configuration of that testbed.
///
/// With `has_paths`, boxes stand in front of the device and behind it.
///
/// # Errors
/// Where a pool is no prefix.
pub fn testbed_config(
    dut: DutKind,
    config: &LabConfig,
    has_paths: [bool; 2],
) -> Result<TestbedConfig> {
    Ok(TestbedConfig {
        device: device_kind(dut),
        clients: prefixes(&config.traffic.clients)?,
        servers: prefixes(&config.traffic.servers)?,
        links: prefixes(&LINKS)?,
        mtu_bytes: 1500,
        has_path: has_paths[0],
        has_rear_path: has_paths[1],
        external: match dut {
            DutKind::External => config.external.as_ref().map(ExternalSection::for_testbed),
            _ => None,
        },
        hosts_by_program: config.simulates_hosts(),
    })
}

/// Starts our router on the testbed's device ports, if it is the device.
fn start_router<'a>(
    dut: DutKind,
    testbed: &Testbed,
    seed: u64,
    file: Option<&'a RouterFile>,
) -> Result<Option<RouterUnderTest<'a>>> {
    let is_device = dut == DutKind::Nilometer;
    is_device.then(|| RouterUnderTest::start(testbed, seed, file)).transpose()
}

/// Starts the fault boxes: the device, if it is one, and the paths in front of it and behind it, if there are such. They
/// set `stop` should they fail.
fn start_faults(
    dut: DutKind,
    testbed: &Testbed,
    (config, paths): (&LabConfig, [Option<&Paths>; 2]),
    stop: &Arc<AtomicBool>,
) -> Result<[Option<FaultDevice>; 3]> {
    let start = |stands, paths: Option<&Paths>| {
        paths
            .map(|paths| FaultDevice::start(testbed, stands, (paths, config.seed), stop))
            .transpose()
    };
    let spec = config.fault.clone().filter(|_| dut == DutKind::Fault);
    let [front, rear] = paths;
    Ok([
        start(Stands::AsDevice, spec.map(Paths::from).as_ref())?,
        start(Stands::AsPath, front)?,
        start(Stands::AsRearPath, rear)?,
    ])
}

/// Opens the ports of simulated hosts, if those are the hosts.
fn start_simulated(
    dut: DutKind,
    testbed: &Testbed,
    (config, has_paths): (&LabConfig, [bool; 2]),
    scores: Scores<'_>,
    stop: &Arc<AtomicBool>,
) -> Result<Option<LiveHosts>> {
    let layout = testbed_config(dut, config, has_paths)?;
    let open = || LiveHosts::open(testbed, (config, &layout), scores, stop);
    config.simulates_hosts().then(open).transpose().context("hosts simulated")
}

/// Sets up the kernel of the device's namespace as the device, beyond plain forwarding. Programs on its ports stay as
/// long as the returned value.
fn set_up_kernel(
    dut: DutKind,
    testbed: &Testbed,
    config: &LabConfig,
) -> Result<Option<AttachedXdp>> {
    match dut {
        DutKind::Bridge => make_bridge(testbed).map(|()| None),
        DutKind::Nftables => make_packet_filter(testbed, config.rules.as_ref()).map(|()| None),
        DutKind::Xdp => {
            let path = config.program.as_deref().context("dut xdp")?;
            attach_programs(testbed, &XdpObject::read(path)?).map(Some)
        }
        _ => Ok(None),
    }
}

/// Builds everything that a leg needs, links down, and releases it again, so that a configuration
/// that this machine cannot carry out is refused before anything is read or written.
///
/// # Errors
/// The obstacle: address pools, congestion control, ring memory, the kernel.
pub fn rehearse(config: &LabConfig, router: Option<&RouterFile>) -> Result<()> {
    if let Some(external) = &config.external {
        for interface in external.interfaces() {
            ensure_lendable(interface).context("dut external")?;
        }
    }
    // (Interfaces of others are not moved about for nothing: a wire has all else that a leg needs.)
    let dut = if config.dut == DutKind::External { DutKind::Wire } else { config.dut };
    let has_round_trips = config.may_play_round_trips();
    let has_paths = [config.path.is_some() || has_round_trips, has_round_trips];
    let testbed = build_testbed(dut, config, has_paths)?;
    PassiveMeter::open(&testbed, config.meter.ring_mib)?;
    set_up_kernel(config.dut, &testbed, config)?;
    start_router(config.dut, &testbed, config.seed, router)?;
    let nowhere = Paths::default();
    let [front, rear] = [config.path.as_ref(), None];
    let round_trips = has_round_trips.then_some(&nowhere);
    let paths = [front.or(round_trips), rear.or(round_trips)];
    start_faults(config.dut, &testbed, (config, paths), &Arc::default())?;
    if let (Some(namespace), Some(kind)) = (testbed.device(), processes(config.dut)) {
        kind.try_out(namespace)?;
    }
    let (nothing, now) =
        (Scores { connections: &[], scripts: &[], length: Duration::ZERO }, Instant::now());
    if start_simulated(dut, &testbed, (config, has_paths), nothing, &Arc::default())?.is_some() {
        return Ok(());
    }
    let timing = Timing { origin: now, timed: Arc::new(Timed::new(Class::Ordinary)) };
    testbed.server().enter(|| Servers::bind(config, nothing, now))?;
    testbed.client().enter(|| Clients::new(config, nothing, timing))?;
    Ok(())
}

/// The longest that a packet may stay in the device according to its file, or the fault box's
/// specification.
pub(super) fn longest_stay(leg: &Leg<'_>) -> Span {
    if let Some(spec) = leg.config.fault.as_ref().filter(|_| leg.dut == DutKind::Fault) {
        return spec.longest_stay();
    }
    let stays = leg.router.map(RouterFile::stays).unwrap_or_default();
    stays.into_iter().max().unwrap_or(Span::ZERO)
}

/// The wall clock now, ns since 1970, beside the monotonic one.
fn both_clocks() -> (u64, Instant) {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (wall.as_nanos() as u64, Instant::now())
}

/// Tests an external device, and opens the meter when the test traffic has left the links; returns the counts
/// until then.
fn meter_after_wiring(
    testbed: &Testbed,
    leg: &Leg<'_>,
) -> Result<(PassiveMeter, InterfaceCounters)> {
    let addresses = leg.connections.iter().map(|connection| connection.destination);
    let layout = testbed_config(leg.dut, leg.config, leg.has_paths())?;
    ensure_wired(testbed, &layout, Families::of(addresses))?;
    let meter = PassiveMeter::open(testbed, leg.config.meter.ring_mib)?;
    Ok((meter, testbed.interface_counters()?))
}

/// Plays a leg in real time. `stop` ends it early and keeps what was done.
///
/// # Errors
/// Where the testbed cannot be built or a thread of it fails.
pub fn play(leg: &Leg<'_>, live: &LegLive, stop: &Arc<AtomicBool>) -> Result<LegOutcome> {
    let mut testbed = build_testbed(leg.dut, leg.config, leg.has_paths())?;
    let played = play_in(&testbed, leg, live, stop);
    let not_restored = testbed.give_back()?;
    if played.is_err() {
        not_restored.iter().for_each(|problem| say!("warning: not restored: {problem}"));
    }
    Ok(LegOutcome { not_restored, ..played? })
}

fn play_in(
    testbed: &Testbed,
    leg: &Leg<'_>,
    live: &LegLive,
    stop: &Arc<AtomicBool>,
) -> Result<LegOutcome> {
    let meter = match leg.dut {
        DutKind::External => None,
        _ => Some(PassiveMeter::open(testbed, leg.config.meter.ring_mib)?),
    };
    let _programs = set_up_kernel(leg.dut, testbed, leg.config)?;
    let router = start_router(leg.dut, testbed, leg.config.seed, leg.router)?;
    let boxes = start_faults(leg.dut, testbed, (leg.config, leg.paths), stop)?;
    let (config, scores) = (leg.config, leg.scores());
    let simulated = start_simulated(leg.dut, testbed, (config, leg.has_paths()), scores, stop)?;
    testbed.raise()?;
    let (meter, counted_before) = match meter {
        Some(meter) => (meter, InterfaceCounters::default()),
        None => meter_after_wiring(testbed, leg)?,
    };
    if let Some(router) = &router {
        router.wait_until_up()?;
    }
    let processes = processes(leg.dut).map(|kind| Processes::start(kind, testbed));
    let processes = processes.transpose()?;
    let (wall_ns, now) = both_clocks();
    let (origin, origin_ns) = (now + LEAD, wall_ns + LEAD.as_nanos() as u64);
    let timed =
        Timed::new(leg.config.scheduling).guarded().context("the guard of timed threads")?;
    let timed = Arc::new(timed);
    let awake = AwakeProcessors::for_class(config.scheduling);
    processes.iter().try_for_each(|processes| processes.be_favoured(&timed))?;
    if let Some(router) = &router {
        timed.add(Role::Router, router.thread_id()?);
    }
    for (fault, role) in boxes.iter().zip([Role::FaultBox, Role::Path, Role::Path]) {
        let Some(fault) = fault else { continue };
        timed.add(role, fault.thread_id());
        fault.watch_from(origin);
    }
    let timing = Timing { origin, timed: Arc::clone(&timed) };
    let hosts = Hosts::ready(simulated, testbed, (config, scores), &timing)?;
    let stay = longest_stay(leg);
    let watch = Watch {
        origin_ns,
        interval_ends_ns: leg.interval_ends_ns.clone(),
        device_addresses: testbed.device_addresses(),
        captures: leg.captures.clone(),
        stamps: leg.stamps.clone(),
        stay,
        likewise: leg.likewise,
        offload: router.as_ref().map(|router| router.watch_offload(origin)).transpose()?,
    };
    if let Some(router) = &router {
        router.watch_from(origin)?;
    }
    let machine = Machine::now()?;
    let own = usage()?.cpu_seconds;
    let (over, settled) = (AtomicBool::new(false), AtomicBool::new(false));
    let (executions, (played, (machine, own_s)), served, sighted) = thread::scope(|scope| {
        // Traffic that is not observed need not be played to its end.
        let metering = scope.spawn(|| {
            let sighted = meter.run(watch, &live.meter, &settled);
            sighted.inspect_err(|_| stop.store(true, Ordering::Release))
        });
        let serving = scope.spawn(|| hosts.serve(testbed, scores, &timing, &over));
        let threads = config.traffic.threads;
        let played = hosts.play((testbed, threads), scores, &live.traffic, stop);
        let played_for = origin.elapsed();
        // Packets still in the path enter the device, and the other way round.
        let [device_box, path_boxes @ ..] = &boxes;
        let settle_paths = || {
            for (path, on_path) in path_boxes.iter().zip(leg.paths) {
                let stay = on_path.map_or(Span::ZERO, Paths::longest_stay);
                path.iter().for_each(|path| path.settle(stay, stop));
            }
        };
        settle_paths();
        let emptied = router.as_ref().map_or(Ok(()), RouterUnderTest::settle);
        let used = (Machine::now()?.since(&machine), usage()?.cpu_seconds - own);
        device_box.iter().for_each(|fault| fault.settle(stay, stop));
        settle_paths();
        thread::sleep(SETTLE);
        over.store(true, Ordering::Release);
        let served = serving.join();
        settled.store(true, Ordering::Release);
        let sighted = metering.join();
        let fell = |who: &str| anyhow!("the {who}'s thread panicked");
        anyhow::Ok((
            played.context("the client engine failed")?,
            (played_for, used),
            served.map_err(|_| fell("server"))?.context("the server engine failed")?,
            emptied.and(sighted.map_err(|_| fell("meter"))?.context("the meter failed"))?,
        ))
    })?;
    let interrupted_ns = stop.load(Ordering::Acquire).then_some(played.as_nanos() as u64);
    let (wall_end_ns, end) = both_clocks();
    let clock_step_ns = (wall_end_ns as i64 - wall_ns as i64) - (end - now).as_nanos() as i64;
    let [fault, path, rear_path] = boxes.map(|one| one.map(FaultDevice::stop).transpose());
    let interfaces = testbed.interface_counters()?.since(&counted_before);
    let Performed { executions, served, congestion, simulated } =
        hosts.end((executions, served), config, scores)?;
    Ok(LegOutcome {
        executions,
        congestion,
        served,
        simulated,
        sighted,
        interfaces,
        not_restored: Vec::new(),
        router: router.map(RouterUnderTest::stop).transpose()?,
        fault: fault?,
        path: path?,
        rear_path: rear_path?,
        scheduling: Scheduling {
            threads: timed.granted(),
            idle_processors: awake.to_string(),
            machine,
            own_s,
        },
        origin_ns,
        interrupted_ns,
        clock_step_ns,
    })
}
