//! The router under test: started as its file says, watched while it forwards, stopped with its
//! final account.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nilometer_router::classifier::RuleId;
use nilometer_router::pipeline::Router;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::by_path::OffloadObservation;
use super::lost::{Loss, Unexplained};
use super::planning::hex;
use nilometer_files::table::queues::QueueRow;
use nilometer_linux::testbed::Testbed;
use nilometer_routerd::assemble::Notes;
use nilometer_routerd::config::RouterConfig;
use nilometer_routerd::driver::{Driver, PortCourses, Step, Waited};
use nilometer_routerd::rib_thread::RibStatus;
use nilometer_routerd::running::Running;
use nilometer_routerd::tally::{Tally, tally};
use nilometer_routerd::testbed::{RouterFile, testbed_router};

/// Where the text of ROUTER.toml is kept among the results.
pub const ROUTER_FILE: &str = "router.toml";
/// Where the courses of queues are kept among the results.
pub const QUEUES_FILE: &str = "queues.parquet";

/// Our router as the device under test.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RouterOutcome {
    /// SHA-256 of `router.toml` beside this file; nothing where the router was as usual.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_digest: Option<String>,
    /// How it was put together.
    pub notes: Notes,
    /// What it looked packets up in.
    #[serde(default)]
    pub tables: TablesOutcome,
    /// The queues of its ports, the clients' first.
    #[serde(default)]
    pub queues: Vec<QueueOutcome>,
    /// Its filters, in the order of the file, and their counters.
    #[serde(default)]
    pub filters: Vec<FilterOutcome>,
    /// What became of the packets that the meter calls lost, by direction, place and reason.
    #[serde(default)]
    pub losses: Vec<Loss>,
    /// Packets that the meter reports as lost beyond these.
    #[serde(default)]
    pub unexplained: Unexplained,
    /// Its last counters.
    pub tally: Tally,
}

/// The lookup tables of the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TablesOutcome {
    /// Where routes of IPv4 were looked up.
    pub engine_v4: String,
    /// Where routes of IPv6 were looked up.
    pub engine_v6: String,
    /// What found the filters.
    pub classifier: String,
    /// Bytes that lookups of IPv4 may read.
    pub fib_v4_bytes: u64,
    /// Bytes that lookups of IPv6 may read.
    pub fib_v6_bytes: u64,
}

/// The queues of one port, from the beginning of the traffic to the last packet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueOutcome {
    /// The port: `client` or `server`.
    pub port: String,
    /// The queueing discipline before its link.
    pub discipline: String,
    /// The rate of its link, bits per second; nothing where only the device limited it.
    pub rate_bps: Option<u64>,
    /// By how much its link was made longer, nanoseconds.
    pub delay_ns: u64,
    /// In the discipline, before the link.
    pub output: Backlog,
    /// At the input, before the fabric.
    pub input: Backlog,
}

/// How much waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Backlog {
    /// Packets, averaged by time.
    pub mean_packets: f64,
    /// The most packets.
    pub max_packets: u64,
    /// Bytes, averaged by time.
    pub mean_bytes: f64,
    /// The most bytes.
    pub max_bytes: u64,
}

impl From<Waited> for Backlog {
    fn from(waited: Waited) -> Backlog {
        let Waited { mean_packets, max_packets, mean_bytes, max_bytes } = waited;
        Backlog { mean_packets, max_packets, mean_bytes, max_bytes }
    }
}

/// A filter and what it met.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FilterOutcome {
    /// Its number, from 0, in the order of the file.
    pub number: u32,
    /// What becomes of packets: `deny` or `permit`.
    pub action: String,
    /// Packets that it decided.
    pub packets: u64,
    /// Their bytes, from the IP header on.
    pub bytes: u64,
}

/// All that was seen of a router under test.
pub struct RouterSeen {
    /// The part for the result; losses are explained later.
    pub outcome: RouterOutcome,
    /// How long its queues were over time, the clients' port first.
    pub courses: Vec<QueueCourse>,
    /// Packets that were still in the router at the end: to the servers, to the clients.
    pub under_way: [u64; 2],
}

impl RouterSeen {
    /// What waited at each place in each step, as rows of a table.
    pub fn queue_rows(&self) -> impl Iterator<Item = QueueRow<'_>> {
        let steps = self.courses.iter().flat_map(|course| {
            course.steps.iter().map(|step| (course.port.as_str(), course.place, step))
        });
        steps.map(|(port, place, step)| QueueRow {
            port,
            place,
            start_ns: step.start_ns,
            length_ns: step.length_ns,
            mean_packets: step.waited.mean_packets,
            max_packets: step.waited.max_packets,
            mean_bytes: step.waited.mean_bytes,
            max_bytes: step.waited.max_bytes,
        })
    }
}

/// The course of one queue.
pub struct QueueCourse {
    /// The port.
    pub port: String,
    /// `output` or `input`.
    pub place: &'static str,
    /// Its steps, from the beginning of the traffic on.
    pub steps: Vec<Step>,
}

/// A router that is being tested.
pub struct RouterUnderTest<'a> {
    running: Running,
    config: RouterConfig,
    file: Option<&'a RouterFile>,
}

/// What the driver returns in one call, so that all of it is from one moment.
pub(super) struct RouterAccount {
    tally: Tally,
    courses: Vec<PortCourses>,
    met: Vec<(u64, u64)>,
    under_way: [u64; 2],
}

impl<'a> RouterUnderTest<'a> {
    /// Starts it on the testbed's device ports.
    ///
    /// # Errors
    /// The invalid setting, with the name of its file.
    pub fn start(
        testbed: &Testbed,
        seed: u64,
        file: Option<&'a RouterFile>,
    ) -> Result<RouterUnderTest<'a>> {
        let config = testbed_router(&testbed.device_ports(), seed, file);
        let running = Running::start(testbed.device(), config.clone(), false);
        let running = running.with_context(|| match file {
            Some(file) => format!("{}: the router cannot start", file.path.display()),
            None => "the router cannot start".to_owned(),
        })?;
        Ok(RouterUnderTest { running, config, file })
    }

    /// The kernel's id of the forwarding thread.
    ///
    /// # Errors
    /// When it has stopped.
    pub fn thread_id(&self) -> Result<i32> {
        self.running.thread_id()
    }

    /// Returns when its ports carry traffic.
    ///
    /// # Errors
    /// When they do not within ten seconds.
    pub fn wait_until_up(&self) -> Result<()> {
        self.running.wait_until_up()
    }

    /// Watches the backlogs from `origin` on.
    ///
    /// # Errors
    /// When it has stopped.
    pub fn watch_from(&self, origin: Instant) -> Result<()> {
        self.running.remote.call(move |driver| driver.watch_backlogs(origin))
    }

    /// Logs from now on which flows are offloaded, for a meter of traffic that begins at `origin`.
    ///
    /// # Errors
    /// When it has stopped.
    pub fn watch_offload(&self, origin: Instant) -> Result<OffloadObservation> {
        Ok(OffloadObservation { log: self.running.remote.call(Driver::log_offloads)?, origin })
    }

    /// Returns when no packet is in it, or the longest that one may stay has passed.
    ///
    /// # Errors
    /// When it has stopped.
    pub fn settle(&self) -> Result<()> {
        let Some(file) = self.file else { return Ok(()) };
        let stays = file.stays().map(|stay| Duration::from_nanos(stay.as_nanos()));
        let longest: Duration = stays.into_iter().sum();
        let began = Instant::now();
        while began.elapsed() < longest && self.running.tally()?.inside > 0 {
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Stops it; all that was seen of it.
    ///
    /// # Errors
    /// When it failed, or lost count of its packets.
    pub fn stop(self) -> Result<RouterSeen> {
        let filters = self.config.filters.len() as u32;
        let failed = || "the router under test failed";
        let account = self.running.remote.call(move |driver| account(driver, filters));
        let account = account.with_context(failed)?;
        let status = self.running.routes.rib_thread().status();
        let notes = self.running.notes.clone();
        self.running.stop().with_context(failed)?;
        seen(&self.config, self.file, (notes, status), account)
    }
}

/// The observations of a router: how it was assembled, and its account.
///
/// # Errors
/// When it lost count of its packets.
pub(super) fn seen(
    config: &RouterConfig,
    file: Option<&RouterFile>,
    (notes, status): (Notes, RibStatus),
    account: RouterAccount,
) -> Result<RouterSeen> {
    let tally = account.tally;
    ensure!(tally.balances, "the router under test lost count of its packets: {tally:?}");
    let tables = &config.tables;
    let queues = config.ports.iter().zip(&tally.ports).zip(&account.courses);
    let queues = queues.map(|((section, port), courses)| QueueOutcome {
        port: port.name.clone(),
        discipline: port.discipline.clone(),
        rate_bps: section.rate.map(|rate| rate.bits_per_second()),
        delay_ns: section.delay.as_nanos(),
        output: courses.output.whole().into(),
        input: courses.input.whole().into(),
    });
    let filters = config.filters.iter().zip(&account.met).zip(0..);
    let filters = filters.map(|((section, &(packets, bytes)), number)| FilterOutcome {
        number,
        action: section.action.name().to_owned(),
        packets,
        bytes,
    });
    let names = config.ports.iter().map(|port| port.interface.clone());
    let courses = names.zip(&account.courses).flat_map(|(port, courses)| {
        let places = [("output", &courses.output), ("input", &courses.input)];
        places.map(|(place, course)| {
            let port = port.clone();
            QueueCourse { port, place, steps: course.steps() }
        })
    });
    let digest = |file: &RouterFile| hex(&Sha256::digest(file.text.as_bytes()));
    Ok(RouterSeen {
        courses: courses.collect(),
        under_way: account.under_way,
        outcome: RouterOutcome {
            file_digest: file.map(digest),
            notes,
            tables: TablesOutcome {
                engine_v4: tables.engine_v4.name().to_owned(),
                engine_v6: tables.engine_v6.name().to_owned(),
                classifier: tables.classifier.name().to_owned(),
                fib_v4_bytes: status.fib_v4_bytes as u64,
                fib_v6_bytes: status.fib_v6_bytes as u64,
            },
            queues: queues.collect(),
            filters: filters.collect(),
            losses: Vec::new(),
            unexplained: Unexplained::default(),
            tally,
        },
    })
}

fn account(driver: &mut Driver, filters: u32) -> RouterAccount {
    let (courses, tally) = (driver.backlogs(), tally(driver));
    RouterAccount::of(driver.router(), tally, courses, filters)
}

impl RouterAccount {
    /// The account of a router with `filters` filters.
    pub(super) fn of(
        router: &Router,
        tally: Tally,
        courses: Vec<PortCourses>,
        filters: u32,
    ) -> RouterAccount {
        let (tables, fabric) = (router.tables(), router.fabric());
        let met = (0..filters).map(RuleId).map(|id| {
            let four = tables.filters4.get(id).map(|(_, filter)| filter);
            let six = tables.filters6.get(id).map(|(_, filter)| filter);
            let both = [four, six].into_iter().flatten();
            both.fold((0, 0), |sum, it| (sum.0 + it.packets, sum.1 + it.bytes))
        });
        // Packets received at the clients' port wait at its input; packets sent there, at its output or on
        // its link.
        let inputs = [0, 1].map(|port| fabric.input_backlog(port).packets);
        let outputs = [0, 1].map(|port| fabric.waiting(port).packets - inputs[port]);
        let under_way = [inputs[0] + outputs[1], inputs[1] + outputs[0]];
        RouterAccount { courses, met: met.collect(), under_way, tally }
    }
}
