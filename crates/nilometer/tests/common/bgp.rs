//! A small BGP speaker (RFC 4271, RFC 6793): it opens a session, announces and withdraws.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use nilometer_linux::namespace::Namespace;
use nilometer_router::Prefix;
use nilometer_stat::Rng;
use socket2::{Domain, Socket, Type};

const OPEN: u8 = 1;
const UPDATE: u8 = 2;
const KEEPALIVE: u8 = 4;
/// The longest message.
const MESSAGE_BYTES: usize = 4096;

/// Next hops of [`some_routes`].
const NEXT_HOPS: u64 = 64;

/// Prefixes drawn from most of the unicast addresses, no two alike, none in the labs' own networks;
/// each with one of 64 next hops, from `first` on.
pub fn some_routes(count: usize, first: Ipv4Addr) -> Vec<(Prefix<u32>, Ipv4Addr)> {
    let mut rng = Rng::new(11, 1, 0);
    let mut seen = BTreeSet::new();
    let mut routes = Vec::new();
    while routes.len() < count {
        let length = [16, 20, 22, 23, 24, 24, 24, 24][rng.below(8) as usize];
        let address = (0x1000_0000 + rng.below(0x9000_0000)) as u32;
        let prefix = Prefix::new(address, length).expect("short enough");
        let is_reserved = [127, 172].contains(&(prefix.address() >> 24));
        if !is_reserved && seen.insert(prefix) {
            let next = u32::from(first) + rng.below(NEXT_HOPS) as u32;
            routes.push((prefix, Ipv4Addr::from(next)));
        }
    }
    routes
}

/// A session that is established; it ends when this goes.
pub struct Speaker {
    connection: TcpStream,
    autonomous_system: u32,
}

impl Speaker {
    /// Connects from an address of the namespace, as soon as the peer answers.
    pub fn connect(namespace: &Namespace, from: Ipv4Addr, to: Ipv4Addr, own_as: u32) -> Speaker {
        let patience = Instant::now();
        let connection = loop {
            let tried = namespace.enter(|| {
                let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
                socket.bind(&SocketAddr::from((from, 0)).into())?;
                let to = SocketAddr::from((to, 179));
                socket.connect_timeout(&to.into(), Duration::from_secs(1))?;
                Ok(TcpStream::from(socket))
            });
            let opened = tried.ok().and_then(|stream| open(stream, from, own_as).ok());
            match opened {
                Some(connection) => break connection,
                None => thread::sleep(Duration::from_millis(200)),
            }
            assert!(patience.elapsed() < Duration::from_secs(30), "no BGP session to {to}");
        };
        let mut incoming = connection.try_clone().expect("a descriptor");
        // The other side's messages do not matter, but must be read to keep its window open.
        thread::spawn(move || {
            let mut buffer = [0; MESSAGE_BYTES];
            while incoming.read(&mut buffer).is_ok_and(|count| count > 0) {}
        });
        Speaker { connection, autonomous_system: own_as }
    }

    /// Announces routes, those of one next hop packed together.
    pub fn announce(&mut self, routes: &[(Prefix<u32>, Ipv4Addr)]) {
        let mut routes = routes.to_vec();
        routes.sort_by_key(|(_, next)| *next);
        let mut out = Vec::new();
        for group in routes.chunk_by(|one, other| one.1 == other.1) {
            let attributes = self.attributes(group[0].1);
            let room = MESSAGE_BYTES - 23 - attributes.len();
            let prefixes: Vec<Prefix<u32>> = group.iter().map(|(prefix, _)| *prefix).collect();
            for packed in packed(&prefixes, room) {
                let mut body = vec![0, 0];
                body.extend((attributes.len() as u16).to_be_bytes());
                body.extend(&attributes);
                body.extend(packed);
                out.extend(message(UPDATE, &body));
            }
        }
        self.connection.write_all(&out).expect("the session lives");
    }

    /// Withdraws routes.
    pub fn withdraw(&mut self, prefixes: &[Prefix<u32>]) {
        let mut out = Vec::new();
        for packed in packed(prefixes, MESSAGE_BYTES - 23) {
            let mut body = (packed.len() as u16).to_be_bytes().to_vec();
            body.extend(packed);
            body.extend([0, 0]);
            out.extend(message(UPDATE, &body));
        }
        self.connection.write_all(&out).expect("the session lives");
    }

    /// ORIGIN, AS_PATH and NEXT_HOP.
    fn attributes(&self, next: Ipv4Addr) -> Vec<u8> {
        let mut attributes = vec![0x40, 1, 1, 0, 0x40, 2, 6, 2, 1];
        attributes.extend(self.autonomous_system.to_be_bytes());
        attributes.extend([0x40, 3, 4]);
        attributes.extend(next.octets());
        attributes
    }
}

/// Both OPENs and KEEPALIVEs.
fn open(mut stream: TcpStream, id: Ipv4Addr, own_as: u32) -> std::io::Result<TcpStream> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut body = vec![4];
    body.extend((own_as as u16).to_be_bytes());
    // No hold time: neither side needs to send keepalives (4.2).
    body.extend([0, 0]);
    body.extend(id.octets());
    // Capabilities: IPv4 unicast, four octets of AS number.
    body.extend([14, 2, 12, 1, 4, 0, 1, 0, 1, 65, 4]);
    body.extend(own_as.to_be_bytes());
    stream.write_all(&message(OPEN, &body))?;
    for expected in [OPEN, KEEPALIVE] {
        let mut head = [0; 19];
        stream.read_exact(&mut head)?;
        let length = usize::from(u16::from_be_bytes([head[16], head[17]]));
        let mut rest = vec![0; length - head.len()];
        stream.read_exact(&mut rest)?;
        if head[18] != expected {
            return Err(std::io::ErrorKind::ConnectionRefused.into());
        }
        if expected == OPEN {
            stream.write_all(&message(KEEPALIVE, &[]))?;
        }
    }
    stream.set_read_timeout(None)?;
    Ok(stream)
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut message = vec![0xff; 16];
    message.extend((body.len() as u16 + 19).to_be_bytes());
    message.push(kind);
    message.extend(body);
    message
}

/// Prefixes in their form of RFC 4271, 4.3, as many in each piece as there is room for.
fn packed(prefixes: &[Prefix<u32>], room: usize) -> Vec<Vec<u8>> {
    let mut pieces = vec![Vec::new()];
    for prefix in prefixes {
        let octets = prefix.address().to_be_bytes();
        let used = prefix.length().div_ceil(8) as usize;
        if pieces[pieces.len() - 1].len() + 1 + used > room {
            pieces.push(Vec::new());
        }
        let piece = pieces.last_mut().expect("at least one");
        piece.push(prefix.length() as u8);
        piece.extend(&octets[..used]);
    }
    pieces
}
