//! Devices under test that the lab starts itself, between the two ends of a testbed.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use nilometer_linux::prefix::Prefix;
use nilometer_linux::scheduling::{Role, Timed};
use nilometer_linux::testbed::{Testbed, TestbedConfig};
use nilometer_linux::xdp_object::{AttachedXdp, XdpObject};
use nilometer_routerd::testbed::RouterFile;
use nilometer_sim::fault::FaultCounts;
use nilometer_wire::Span;

use super::config::{StampChoice, StreamConfig};
use crate::device::fault::{FaultDevice, FaultSeen, Stands};
use crate::device::kernel::{attach_programs, make_bridge, make_packet_filter};
use crate::device::paths::Paths;
use crate::device::processes::Processes;
use crate::device::rules::Rules;
use crate::device::spec::FaultSpec;
use crate::trial::config::DutKind;
use crate::trial::leg::{device_kind, processes};
use crate::trial::router::{RouterSeen, RouterUnderTest};
use crate::wiring::ExternalSection;
use crate::wiring::check::{Families, ensure_wired};

/// Which device, and how it is to be.
#[derive(Clone, Debug)]
pub struct DeviceRequest {
    /// The kind.
    pub dut: DutKind,
    /// The specification of a fault box.
    pub fault: Option<FaultSpec>,
    /// The file of our router, if one is given.
    pub router: Option<RouterFile>,
    /// The rules of a packet filter, if they are given.
    pub rules: Option<Rules>,
    /// The XDP programs of a device that is one, if they are given.
    pub program: Option<XdpObject>,
    /// The interfaces of an external device.
    pub external: Option<ExternalSection>,
    /// The receiver behind it, where that is on another host.
    pub receiver: Option<ReceiverRequest>,
    /// The seed of a device that draws by chance.
    pub seed: u64,
}

impl DeviceRequest {
    /// Nothing but a wire.
    pub fn wire() -> DeviceRequest {
        DeviceRequest {
            dut: DutKind::Wire,
            fault: None,
            router: None,
            rules: None,
            program: None,
            external: None,
            receiver: None,
            seed: 0,
        }
    }

    /// Reads the device's files.
    ///
    /// # Errors
    /// When a file is invalid.
    pub fn new(config: &StreamConfig) -> Result<DeviceRequest> {
        Ok(DeviceRequest {
            dut: config.dut,
            fault: config.fault.clone(),
            router: config.router.as_deref().map(RouterFile::read).transpose()?,
            rules: config.rules.clone(),
            program: config.program.as_deref().map(XdpObject::read).transpose()?,
            external: config.external.clone(),
            receiver: ReceiverRequest::of(config)?,
            seed: config.seed,
        })
    }

    /// An external device behind whose server's side one interface of this host is.
    pub fn behind(interface: &str, is_transparent: bool) -> DeviceRequest {
        let external = ExternalSection {
            server_interface: interface.to_owned(),
            transparent: is_transparent,
            ..ExternalSection::default()
        };
        DeviceRequest { dut: DutKind::External, external: Some(external), ..DeviceRequest::wire() }
    }

    /// Whether the device forwards by Ethernet addresses.
    pub fn is_transparent(&self) -> bool {
        self.external.as_ref().is_some_and(|external| external.transparent)
    }

    /// The longest that a frame may stay in the device, according to its files.
    pub fn longest_stay(&self) -> Span {
        match self.dut {
            DutKind::Fault => self.fault.as_ref().map_or(Span::ZERO, |fault| fault.longest_stay()),
            DutKind::Nilometer => {
                let stays = self.router.as_ref().map(RouterFile::stays).unwrap_or_default();
                stays.into_iter().max().unwrap_or(Span::ZERO)
            }
            _ => Span::ZERO,
        }
    }
}

/// The configuration of the testbed for a device.
pub fn testbed_config(request: &DeviceRequest) -> TestbedConfig {
    let usual = TestbedConfig::default();
    // (A stream is of IPv4; neighbours and routes of the other family would be of no use.)
    let four = |all: Vec<Prefix>| all.into_iter().filter(|one| !one.is_ipv6()).collect();
    TestbedConfig {
        device: device_kind(request.dut),
        clients: four(usual.clients),
        servers: four(usual.servers),
        links: four(usual.links),
        external: request.external.as_ref().map(ExternalSection::for_testbed),
        ..TestbedConfig::default()
    }
}

/// A receiver on another host.
#[derive(Clone, Debug)]
pub struct ReceiverRequest {
    /// HOST:PORT.
    pub name: String,
    /// Its addresses, of which one is enough.
    pub addresses: Vec<SocketAddr>,
    /// Whether packet sockets may stamp there if programs in the driver cannot.
    pub may_fall_back: bool,
}

impl ReceiverRequest {
    fn of(config: &StreamConfig) -> Result<Option<ReceiverRequest>> {
        let Some(receiver) = &config.receiver else { return Ok(None) };
        let is_whole =
            receiver.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        ensure!(is_whole, "receiver {receiver}: write it as HOST:PORT");
        let addresses =
            receiver.to_socket_addrs().with_context(|| format!("receiver {receiver}"))?;
        let may_fall_back = config.stamps != StampChoice::Driver;
        let (name, addresses) = (receiver.clone(), addresses.collect());
        Ok(Some(ReceiverRequest { name, addresses, may_fall_back }))
    }
}

/// A device at work.
pub struct Device<'a> {
    router: Option<RouterUnderTest<'a>>,
    fault: Option<FaultDevice>,
    processes: Option<Processes<'a>>,
    _programs: Option<AttachedXdp>,
}

/// What a device reports afterwards.
#[derive(Default)]
pub struct DeviceSeen {
    /// Our router.
    pub router: Option<RouterSeen>,
    /// The fault box.
    pub fault: Option<FaultCounts>,
    /// Packets that were still in the fault box at the end, and frames that no port took.
    pub left_behind: u64,
}

impl<'a> Device<'a> {
    /// Starts the device in a testbed whose links are down, and brings them up.
    ///
    /// # Errors
    /// When it cannot be started; one line says what it needs.
    pub fn start(
        request: &'a DeviceRequest,
        testbed: &'a Testbed,
        timed: &Timed,
        stop: &Arc<AtomicBool>,
    ) -> Result<Device<'a>> {
        let router = (request.dut == DutKind::Nilometer)
            .then(|| RouterUnderTest::start(testbed, request.seed, request.router.as_ref()))
            .transpose()?;
        let fault = match (request.dut, &request.fault) {
            (DutKind::Fault, fault) => {
                let paths = Paths::from(fault.clone().unwrap_or_default());
                let stands = Stands::AsDevice;
                Some(FaultDevice::start(testbed, stands, (&paths, request.seed), stop)?)
            }
            _ => None,
        };
        match request.dut {
            DutKind::Bridge => make_bridge(testbed)?,
            DutKind::Nftables => make_packet_filter(testbed, request.rules.as_ref())?,
            _ => {}
        }
        let object = request.program.as_ref();
        let programs = object.map(|object| attach_programs(testbed, object)).transpose()?;
        testbed.raise()?;
        if request.dut == DutKind::External {
            ensure_wired(testbed, &testbed_config(request), Families { ipv4: true, ipv6: false })?;
        }
        if let Some(router) = &router {
            router.wait_until_up()?;
            timed.add(Role::Router, router.thread_id()?);
        }
        if let Some(fault) = &fault {
            timed.add(Role::FaultBox, fault.thread_id());
        }
        let processes = processes(request.dut).map(|kind| Processes::start(kind, testbed));
        let processes = processes.transpose()?;
        processes.iter().try_for_each(|processes| processes.be_favoured(timed))?;
        Ok(Device { router, fault, processes, _programs: programs })
    }

    /// The traffic begins at this moment: the device's timetable starts then.
    pub fn traffic_begins(&self, at: Instant) {
        if let Some(fault) = &self.fault {
            fault.watch_from(at);
        }
    }

    /// Its threads that forward, where it has some.
    ///
    /// # Errors
    /// When it has stopped.
    pub fn threads(&self) -> Result<Vec<i32>> {
        let router = self.router.as_ref().map(RouterUnderTest::thread_id).transpose()?;
        let fault = self.fault.as_ref().map(FaultDevice::thread_id);
        let processes = self.processes.as_ref().map(Processes::threads).transpose()?;
        Ok(router.into_iter().chain(fault).chain(processes.unwrap_or_default()).collect())
    }

    /// Ends it.
    ///
    /// # Errors
    /// When it failed.
    pub fn stop(self) -> Result<DeviceSeen> {
        let router = self.router.map(RouterUnderTest::stop).transpose()?;
        let fault = self.fault.map(FaultDevice::stop).transpose()?;
        let left = |seen: &FaultSeen| seen.inside + seen.unsent;
        Ok(DeviceSeen {
            router,
            left_behind: fault.as_ref().map_or(0, left),
            fault: fault.map(|seen| seen.counts),
        })
    }
}
