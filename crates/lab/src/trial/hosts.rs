//! The hosts of a leg: clients and servers that perform its plan, as files or as connection vectors.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::Result;
use nilometer_linux::scheduling::Timed;
use nilometer_traffic::PlannedConnection;
use nilometer_traffic::script::Script;

use super::config::LabConfig;
use crate::generate::vectors::{VectorClient, VectorConfig, VectorServer};
use crate::generate::{
    Client, ClientConfig, Execution, LiveCounters, Server, ServerConfig, ServerReport,
};

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

/// What is performed: the connections, and the scripts of those that have one.
#[derive(Clone, Copy)]
pub struct Scores<'a> {
    /// The connections, by start.
    pub connections: &'a [PlannedConnection],
    /// What both ends of each do; empty where each is a request and an answer.
    pub scripts: &'a [Script],
    /// How long scripts are performed, whatever is open then.
    pub length: Duration,
}

/// When, and in which scheduling class.
#[derive(Clone, Debug)]
pub struct Timing {
    /// When the plan's `Time::ZERO` is.
    pub origin: Instant,
    /// Whom the threads of the clients join.
    pub timed: Arc<Timed>,
}

impl Scores<'_> {
    fn are_vectors(&self) -> bool {
        !self.scripts.is_empty()
    }
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

/// The servers of a run. They have no limits: nobody but the run's own clients can reach a namespace
/// without a name, they end with the run, and the device may be as slow as it likes. Whom the server gave
/// up would be missing from the result.
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
