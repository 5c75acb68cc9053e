//! The sockets of a script over one connection: what its system calls do and what they return.
//!
//! There is one connection at a time, as in the scripts. File descriptors are those of the script.

use std::collections::BTreeMap;

use nilometer_tcp::{Config, Connection, Episode, State};

use super::call::{Call, Value};

/// `errno` by name, or nothing.
type Error = Option<&'static str>;

/// How a call stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    Done(i64, Error),
    Blocks,
}

const DONE: Ending = Ending::Done(0, None);

const fn fails(error: &'static str) -> Ending {
    Ending::Done(-1, Some(error))
}

#[derive(Clone, Debug)]
struct Descriptor {
    config: Config,
    listens: bool,
    nonblocking: bool,
    /// Whether it stands for the connection.
    is_connected: bool,
    reads_shut: bool,
    writes_shut: bool,
}

/// All of a script's descriptors, and the connection.
pub struct Sockets {
    config: Config,
    descriptors: BTreeMap<i64, Descriptor>,
    connection: Option<Connection>,
    /// A connection that came in and was not accepted yet.
    waits: bool,
}

/// Whether a call ended as its script says.
pub fn judge(call: &Call, value: i64, error: Error) -> Result<(), String> {
    let returns = call.returns.unwrap_or(value);
    let named = call.error.as_deref();
    if returns == value && (named.is_none() || named == error) {
        return Ok(());
    }
    let error = error.map_or(String::new(), |error| format!(" {error}"));
    Err(format!("{} returns {value}{error}", call.name))
}

impl Sockets {
    pub fn new(config: Config) -> Sockets {
        Sockets { config, descriptors: BTreeMap::new(), connection: None, waits: false }
    }

    pub fn connection(&self) -> Option<&Connection> {
        self.connection.as_ref()
    }

    pub fn connection_mut(&mut self) -> Option<&mut Connection> {
        self.connection.as_mut()
    }

    /// Whether a SYN would find a listening socket, and no connection of its own.
    pub fn takes_connections(&self) -> bool {
        self.connection.is_none() && self.descriptors.values().any(|socket| socket.listens)
    }

    /// Makes the connection that a listening socket has for a SYN.
    pub fn begin_passive(&mut self, isn: u32) {
        let listening = self.descriptors.values().find(|socket| socket.listens);
        if let Some(listening) = listening {
            self.connection = Some(Connection::listen(listening.config, isn));
            self.waits = true;
        }
    }

    /// Lets go of a connection that is over, as a kernel would.
    pub fn forget_closed(&mut self) {
        if self.connection().is_some_and(|connection| connection.state() == State::Closed) {
            self.connection = None;
        }
    }

    /// Performs `call`, or returns that it has to wait; then nothing has changed.
    ///
    /// # Errors
    ///
    /// A call or an argument that is not known.
    pub fn attempt(&mut self, call: &Call, isn: u32) -> Result<Ending, String> {
        let descriptor = call.number(0).unwrap_or(-1);
        match call.name.as_str() {
            "socket" => {
                let descriptor = call.returns.unwrap_or(3);
                let config = self.config;
                self.descriptors.insert(descriptor, Descriptor::new(config));
                return Ok(Ending::Done(descriptor, None));
            }
            "close" => return Ok(self.close(descriptor)),
            _ => {}
        }
        if !self.descriptors.contains_key(&descriptor) {
            return Ok(fails("EBADF"));
        }
        let ending = match call.name.as_str() {
            "bind" => DONE,
            "listen" => {
                self.at(descriptor).listens = true;
                DONE
            }
            "accept" => self.accept(descriptor, call.returns),
            "connect" => self.connect(descriptor, isn),
            "fcntl" => self.control(descriptor, call),
            "setsockopt" => return self.set_option(descriptor, call),
            "getsockopt" => return self.get_option(descriptor, call),
            "write" | "send" | "sendto" => {
                let bytes = call.number(2).unwrap_or(0);
                self.write(descriptor, bytes, call.mentions("MSG_MORE"))
            }
            "sendmsg" => {
                let more = call.mentions("MSG_MORE");
                self.write(descriptor, call.vector_bytes(), more)
            }
            "read" | "recv" | "recvfrom" => self.read(descriptor, call.number(2).unwrap_or(0)),
            "shutdown" => self.shutdown(descriptor, call),
            "ioctl" if call.mentions("SIOCINQ") => {
                let readable = self.connection().map_or(0, Connection::readable) as i64;
                match call.arguments.get(2).and_then(Value::number) {
                    Some(expected) if expected == readable => DONE,
                    _ => return Err(format!("SIOCINQ says {readable}")),
                }
            }
            name => return Err(format!("no system call {name}")),
        };
        Ok(ending)
    }

    fn at(&mut self, descriptor: i64) -> &mut Descriptor {
        let config = self.config;
        self.descriptors.entry(descriptor).or_insert_with(|| Descriptor::new(config))
    }

    /// The connection, if `descriptor` stands for it.
    fn connected(&mut self, descriptor: i64) -> Option<&mut Connection> {
        let is_connected = self.descriptors.get(&descriptor).is_some_and(|it| it.is_connected);
        self.connection.as_mut().filter(|_| is_connected)
    }

    fn accept(&mut self, descriptor: i64, returns: Option<i64>) -> Ending {
        let is_ready = self.waits && self.connection().is_some_and(is_open);
        if !is_ready {
            return if self.at(descriptor).nonblocking { fails("EAGAIN") } else { Ending::Blocks };
        }
        self.waits = false;
        let accepted = returns.unwrap_or(4);
        let parent = self.at(descriptor).clone();
        let child = Descriptor { listens: false, nonblocking: false, is_connected: true, ..parent };
        self.descriptors.insert(accepted, child);
        Ending::Done(accepted, None)
    }

    fn connect(&mut self, descriptor: i64, isn: u32) -> Ending {
        let socket = self.at(descriptor);
        let nonblocking = socket.nonblocking;
        if !socket.is_connected {
            socket.is_connected = true;
            let config = socket.config;
            self.connection = Some(Connection::connect(config, isn));
            if nonblocking {
                return fails("EINPROGRESS");
            }
        }
        match self.connection.as_ref() {
            Some(connection) if is_open(connection) => DONE,
            Some(connection) if connection.state() != State::Closed => Ending::Blocks,
            _ => fails("ETIMEDOUT"),
        }
    }

    fn control(&mut self, descriptor: i64, call: &Call) -> Ending {
        if call.mentions("F_SETFL") {
            self.at(descriptor).nonblocking = call.mentions("O_NONBLOCK");
            return DONE;
        }
        // O_RDWR is 2 and O_NONBLOCK 04000 on Linux.
        Ending::Done(if self.at(descriptor).nonblocking { 0x802 } else { 2 }, None)
    }

    fn set_option(&mut self, descriptor: i64, call: &Call) -> Result<Ending, String> {
        let Some(Value::Names(names)) = call.arguments.get(2) else {
            return Err("a socket option without a name".to_string());
        };
        let value = call.number(3);
        let is_on = value != Some(0);
        match (names[0].as_str(), value) {
            ("SO_REUSEADDR" | "SO_SNDBUF" | "IP_TOS" | "IP_MTU_DISCOVER" | "SO_MARK", _) => {}
            ("TCP_MAXSEG", Some(bytes)) => {
                self.at(descriptor).config.mss =
                    u16::try_from(bytes).map_err(|_| "an MSS too large".to_string())?;
            }
            ("TCP_NODELAY", Some(_)) => {
                self.at(descriptor).config.nagle = !is_on;
                if let Some(connection) = self.connected(descriptor) {
                    connection.set_nagle(!is_on);
                }
            }
            ("TCP_CORK", Some(_)) => {
                if let Some(connection) = self.connected(descriptor) {
                    connection.set_cork(is_on);
                }
            }
            (name, _) => return Err(format!("no socket option {name}")),
        }
        Ok(DONE)
    }

    fn get_option(&mut self, descriptor: i64, call: &Call) -> Result<Ending, String> {
        let Some(Value::Names(names)) = call.arguments.get(2) else {
            return Err("a socket option without a name".to_string());
        };
        let seen = match names[0].as_str() {
            "SO_ERROR" => 0,
            "TCP_MAXSEG" => match self.connected(descriptor) {
                Some(connection) => i64::from(connection.window().mss),
                None => i64::from(self.at(descriptor).config.mss),
            },
            name => return Err(format!("no socket option {name}")),
        };
        if call.number(3) == Some(seen) { Ok(DONE) } else { Err(format!("{} is {seen}", names[0])) }
    }

    fn write(&mut self, descriptor: i64, bytes: i64, more: bool) -> Ending {
        let socket = self.at(descriptor);
        if socket.writes_shut {
            return fails("EPIPE");
        }
        let Some(connection) = self.connected(descriptor) else { return fails("EPIPE") };
        if more {
            connection.write_more(bytes as u64);
        } else {
            connection.write(bytes as u64);
        }
        Ending::Done(bytes, None)
    }

    fn read(&mut self, descriptor: i64, bytes: i64) -> Ending {
        let socket = self.at(descriptor).clone();
        let Some(connection) = self.connected(descriptor) else { return Ending::Done(0, None) };
        let readable = connection.readable() as i64;
        if readable > 0 {
            let taken = readable.min(bytes);
            connection.read(taken as u64);
            return Ending::Done(taken, None);
        }
        if socket.reads_shut || has_ended(connection) {
            return Ending::Done(0, None);
        }
        if socket.nonblocking { fails("EAGAIN") } else { Ending::Blocks }
    }

    fn shutdown(&mut self, descriptor: i64, call: &Call) -> Ending {
        let both = call.mentions("SHUT_RDWR");
        let socket = self.at(descriptor);
        socket.reads_shut |= both || call.mentions("SHUT_RD");
        let shuts_writes = both || call.mentions("SHUT_WR");
        let first = shuts_writes && !socket.writes_shut;
        socket.writes_shut |= shuts_writes;
        match self.connected(descriptor) {
            Some(connection) if first => connection.close(),
            Some(_) => {}
            None => return fails("ENOTCONN"),
        }
        DONE
    }

    fn close(&mut self, descriptor: i64) -> Ending {
        let Some(socket) = self.descriptors.remove(&descriptor) else { return fails("EBADF") };
        if !socket.is_connected {
            return DONE;
        }
        if let Some(connection) = self.connection.as_mut() {
            if connection.readable() > 0 {
                // Data from the peer was not read, so it gets a reset (RFC 2525, 2.17).
                connection.abort();
            } else {
                connection.close();
            }
        }
        DONE
    }

    /// A field of `tcp_info`, as Linux counts it.
    pub fn field(&self, name: &str) -> Option<i64> {
        let connection = self.connection.as_ref()?;
        let window = connection.window();
        let segments = |bytes: u64| i64::try_from(bytes / u64::from(window.mss)).ok();
        match name {
            "tcpi_snd_cwnd" => segments(window.cwnd),
            "tcpi_snd_ssthresh" if window.ssthresh == u64::MAX => Some(0x7fff_ffff),
            "tcpi_snd_ssthresh" => segments(window.ssthresh),
            "tcpi_snd_mss" => Some(i64::from(window.mss)),
            "tcpi_advmss" => Some(i64::from(connection.config().mss)),
            "tcpi_rtt" => connection.smoothed_rtt().map(|rtt| (rtt.as_nanos() / 1000) as i64),
            "tcpi_ca_state" => Some(match connection.episode() {
                Episode::Open => 0,
                Episode::Disorder => 1,
                Episode::Reduction => 2,
                Episode::Recovery => 3,
                Episode::Loss => 4,
            }),
            "tcpi_unacked" => Some(connection.segments()?.outstanding as i64),
            "tcpi_sacked" => Some(connection.segments()?.sacked as i64),
            "tcpi_lost" => Some(connection.segments()?.lost as i64),
            "tcpi_retrans" => Some(connection.segments()?.repeated as i64),
            "tcpi_reordering" => Some(connection.reordering()?.0 as i64),
            "tcpi_reord_seen" => Some(connection.reordering()?.1 as i64),
            _ => None,
        }
    }
}

fn is_open(connection: &Connection) -> bool {
    connection.state().is_synchronized()
}

/// Whether the peer has sent its FIN.
fn has_ended(connection: &Connection) -> bool {
    let state = connection.state();
    matches!(state, State::CloseWait | State::LastAck | State::Closing | State::TimeWait)
}

impl Descriptor {
    fn new(config: Config) -> Descriptor {
        Descriptor {
            config,
            listens: false,
            nonblocking: false,
            is_connected: false,
            reads_shut: false,
            writes_shut: false,
        }
    }
}
