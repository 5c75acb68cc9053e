//! The control processor: how a running router is looked at, changed, saved and watched.
//!
//! ```text
//!   route ctl, curl, Prometheus ── socket or HTTP ── gate ── endpoints ── command channel ── between two turns ── driver
//!                                    [`serve`]             [`endpoints`]  [`command_channel`]
//! ```
//!
//! A thread of its own serves each door, at a lower priority than the one that forwards. Their cost is
//! bounded, each bound a constant where it is enforced: connections at a door and how long they may
//! stay unproven or read nothing, bytes of a request, time for it, requests a second, requests to the
//! forwarding thread a second.

pub mod answer;
mod change;
pub mod client;
pub mod command_channel;
pub mod connection_table;
pub mod endpoints;
pub mod events;
pub mod fabric_view;
mod filters;
mod flow_plugins;
mod host;
mod lock;
mod look;
pub mod messages;
pub mod metrics;
pub mod peer;
pub mod plugins;
pub mod reservations;
mod routing;
pub mod serve;
pub mod simulated;
pub mod socket;
pub mod stress;
mod timed;
pub mod trace;
pub mod view;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};

use self::command_channel::CommandChannel;
use self::flow_plugins::FlowBinder;
use self::serve::{Door, Server, token};
use self::socket::{Claimed, usual_place};
use super::config::RouterConfig;
use super::running::Running;
use super::snmp::Subagent;

/// The control processor of a running router, which ends when this value goes.
pub struct Control {
    /// Its operations, for callers in the same process.
    pub commands: Arc<CommandChannel>,
    server: Option<Server>,
    socket: Option<Claimed>,
    _snmp: Option<Subagent>,
    _binder: FlowBinder,
}

impl Control {
    /// Opens the doors that `config` describes, if any, in the namespace of the calling thread.
    ///
    /// # Errors
    /// When an address is open to others and there is no token, a socket is another's, or a door
    /// cannot be opened.
    pub fn start(running: &Running, config: &RouterConfig) -> Result<Control> {
        let commands = Arc::new(CommandChannel::new(running, config)?);
        let binder = FlowBinder::start(&commands)?;
        let (mut doors, mut socket) = (Vec::new(), None);
        if let Some(path) = &config.control.socket {
            let (listener, claimed) = Claimed::listen(path).context("control.socket")?;
            doors.push(Door::Unix(listener));
            socket = Some(claimed);
        }
        if let Some(address) = config.control.listen {
            let token = config.control.token_file.as_deref().map(token).transpose()?;
            doors.push(Door::tcp(address, token)?);
        }
        let is_open = !doors.is_empty();
        let server = is_open.then(|| Server::start(doors, &commands)).transpose()?;
        let place = config.control.agentx.as_deref();
        let snmp = place.map(|place| Subagent::start(place, Arc::clone(&commands))).transpose()?;
        Ok(Control { commands, server, socket, _snmp: snmp, _binder: binder })
    }

    /// Where its socket is.
    pub fn socket(&self) -> Option<PathBuf> {
        self.socket.as_ref().map(|claimed| claimed.path().to_owned())
    }

    /// The address that it serves HTTP at.
    pub fn address(&self) -> Option<std::net::SocketAddr> {
        self.server.as_ref().and_then(Server::address)
    }
}

/// Puts the socket of a router called `name` in its usual place if the file does not name one, whether
/// or not it listens by TCP as well. Returns the obstacle if that is impossible.
pub fn with_usual_socket(config: &mut RouterConfig, name: &str) -> Option<String> {
    let control = &mut config.control;
    if control.socket.is_some() {
        return None;
    }
    match usual_place(name).and_then(|path| Claimed::listen(&path).map(|_| path)) {
        Ok(path) => {
            control.socket = Some(path);
            None
        }
        Err(why) => Some(format!("no control socket: {why:#}")),
    }
}
