//! The hosts of a leg: clients and servers that perform its plan, as files or as connection vectors.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use nilometer_linux::scheduling::Role;
use nilometer_linux::testbed::Testbed;

use super::config::LabConfig;
use super::scores::{Scores, Timing};
use super::simulated_hosts::HostsSeen;
use super::simulated_hosts::live::LiveHosts;
use crate::generate::vectors::{VectorClient, VectorConfig, VectorServer};
use crate::generate::{
    Client, ClientConfig, Execution, LiveCounters, Server, ServerConfig, ServerReport,
};

/// How often simulated hosts look whether all is over.
const LOOK: Duration = Duration::from_millis(5);

/// Both hosts of a leg, ready to begin.
pub enum Hosts {
    /// Engines over the kernel's TCP.
    Kernel(Clients, Servers),
    /// Our own TCP, which is driven from the traffic's beginning on.
    Simulated(LiveHosts),
}

/// What hosts came to.
pub struct Performed {
    /// One for each connection.
    pub executions: Vec<Execution>,
    /// What the servers did.
    pub served: ServerReport,
    /// Congestion control as a socket read it back, or the stack's of simulated hosts: clients', servers'.
    pub congestion: (String, String),
    /// What simulated hosts did beside.
    pub simulated: Option<HostsSeen>,
}

impl Hosts {
    /// The hosts of a testbed that is up: the simulated ones, where they are open, or engines over the kernel's TCP.
    ///
    /// # Errors
    /// One line: what the kernel does not allow.
    pub fn ready(
        simulated: Option<LiveHosts>,
        testbed: &Testbed,
        (config, scores): (&LabConfig, Scores<'_>),
        timing: &Timing,
    ) -> Result<Hosts> {
        if let Some(live) = simulated {
            live.begin(timing);
            return Ok(Hosts::Simulated(live));
        }
        let server = testbed.server().enter(|| Servers::bind(config, scores, timing.origin))?;
        let client = testbed.client().enter(|| Clients::new(config, scores, timing.clone()))?;
        Ok(Hosts::Kernel(client, server))
    }

    /// Serves until `over` is set.
    ///
    /// # Errors
    /// One line: what the system refuses.
    pub fn serve(
        &self,
        testbed: &Testbed,
        scores: Scores<'_>,
        timing: &Timing,
        over: &AtomicBool,
    ) -> Result<ServerReport> {
        match self {
            Hosts::Kernel(_, server) => testbed.server().enter(|| {
                timing.timed.enter(Role::Server);
                server.serve(scores, over)
            }),
            Hosts::Simulated(live) => {
                while !over.load(Ordering::Acquire) {
                    thread::sleep(LOOK);
                }
                live.stop();
                Ok(ServerReport::default())
            }
        }
    }

    /// Performs the connections; returns an execution for each of the kernel's.
    ///
    /// # Errors
    /// One line: what the system refuses.
    pub fn play(
        &self,
        (testbed, threads): (&Testbed, usize),
        scores: Scores<'_>,
        live: &LiveCounters,
        stop: &AtomicBool,
    ) -> Result<Vec<Execution>> {
        match self {
            Hosts::Kernel(client, _) => {
                testbed.client().enter(|| client.play(threads, scores, live, stop))
            }
            Hosts::Simulated(hosts) => {
                hosts.wait(scores, live, stop);
                Ok(Vec::new())
            }
        }
    }

    /// The outcome of the hosts; `executions` and the server's report are those of the kernel's
    /// engines.
    ///
    /// # Errors
    /// When a simulated host failed.
    pub fn end(
        self,
        (executions, served): (Vec<Execution>, ServerReport),
        config: &LabConfig,
        scores: Scores<'_>,
    ) -> Result<Performed> {
        match self {
            Hosts::Kernel(client, _) => {
                let servers =
                    served.congestion.clone().unwrap_or_else(|| "not measured".to_owned());
                let congestion = (client.congestion().to_owned(), servers);
                Ok(Performed { executions, served, congestion, simulated: None })
            }
            Hosts::Simulated(live) => {
                let (executions, served, seen) = live.end(config, scores)?;
                let name = config.traffic.congestion.clone();
                let congestion = (name.clone(), name);
                Ok(Performed { executions, served, congestion, simulated: Some(seen) })
            }
        }
    }
}

/// What servers perform.
pub enum Servers {
    /// A request and an answer each.
    Files(Server),
    /// Scripts.
    Vectors(VectorServer),
}

/// What clients perform.
pub enum Clients {
    /// A request and an answer each.
    Files(Client),
    /// Scripts.
    Vectors(VectorClient),
}

fn vectors(config: &LabConfig, scores: Scores<'_>, origin: Instant) -> VectorConfig {
    VectorConfig {
        congestion: config.traffic.congestion.clone(),
        owns_namespace: true,
        ..VectorConfig::new(config.traffic.port, origin, scores.length)
    }
}

impl Servers {
    /// Listens in this thread's namespace.
    ///
    /// # Errors
    /// One line: what the kernel does not allow.
    pub fn bind(config: &LabConfig, scores: Scores<'_>, origin: Instant) -> Result<Servers> {
        if scores.are_vectors() {
            let any = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
            let server = VectorServer::bind(vectors(config, scores, origin), &any)?;
            return Ok(Servers::Vectors(server));
        }
        Server::bind(files(config)).map(Servers::Files)
    }

    /// Serves until `over` is set.
    ///
    /// # Errors
    /// One line: what the system refuses.
    pub fn serve(&self, scores: Scores<'_>, over: &AtomicBool) -> Result<ServerReport> {
        let live = LiveCounters::new();
        match self {
            Servers::Files(server) => server.run(&live, over),
            Servers::Vectors(server) => server.run(scores.connections, scores.scripts, &live, over),
        }
    }
}

/// The servers of a run. They have no limits: only the run's own clients can reach a namespace
/// without a name, they end with the run, and the device may be arbitrarily slow. Clients that the
/// server gave up would be missing from the result.
fn files(config: &LabConfig) -> ServerConfig {
    let port = config.traffic.port;
    let any = [
        SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)),
        SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)),
    ];
    let congestion = config.traffic.congestion.clone();
    ServerConfig { congestion, limits: None, ..ServerConfig::new(any.to_vec()) }
}

impl Clients {
    /// Clients in this thread's namespace.
    ///
    /// # Errors
    /// One line: what the kernel does not allow.
    pub fn new(config: &LabConfig, scores: Scores<'_>, timing: Timing) -> Result<Clients> {
        let Timing { origin, timed } = timing;
        if scores.are_vectors() {
            let vectors = vectors(config, scores, origin);
            let client = VectorClient::new(VectorConfig { timed: Some(timed), ..vectors });
            return client.map(Clients::Vectors);
        }
        let client = Client::new(ClientConfig {
            congestion: config.traffic.congestion.clone(),
            drain: Duration::from_secs_f64(config.traffic.drain_s),
            timed: Some(timed),
            ..ClientConfig::new(config.traffic.port, origin)
        })?;
        Ok(Clients::Files(client))
    }

    /// Performs the connections; one execution for each.
    ///
    /// # Errors
    /// One line: what the system refuses.
    pub fn play(
        &self,
        threads: usize,
        scores: Scores<'_>,
        live: &LiveCounters,
        stop: &AtomicBool,
    ) -> Result<Vec<Execution>> {
        let threads = NonZeroUsize::new(threads).unwrap_or(NonZeroUsize::MIN);
        let Scores { connections, scripts, .. } = scores;
        match self {
            Clients::Files(client) => client.run_threads(threads, connections, live, stop),
            Clients::Vectors(client) => {
                client.run_threads(threads, connections, scripts, live, stop)
            }
        }
    }

    /// The congestion control that a socket read back.
    pub fn congestion(&self) -> &str {
        match self {
            Clients::Files(client) => client.congestion(),
            Clients::Vectors(client) => client.congestion(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_cuts_none_of_its_own_connections() {
        assert_eq!(files(&LabConfig::default()).limits, None);
    }
}
