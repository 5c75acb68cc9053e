//! Claims: an interface is a port of one router alone.
//!
//! Two routers on an interface would both forward what arrives there, and every packet would leave twice. So
//! a starting router binds a name for each of its interfaces: the kernel keeps such names (abstract Unix
//! addresses) for each network namespace, grants each only once, and releases it however a process ends.

use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use anyhow::{Context, Result, bail};

/// The interfaces that are this router's while the value lives.
#[derive(Debug)]
pub struct Claims {
    _names: Vec<UnixDatagram>,
}

impl Claims {
    /// Claims interfaces of the calling thread's namespace, whether they are there or not.
    ///
    /// # Errors
    /// When another router has one of them.
    pub fn of<'a>(interfaces: impl IntoIterator<Item = &'a str>) -> Result<Claims> {
        let names = interfaces.into_iter().map(claim).collect::<Result<_>>()?;
        Ok(Claims { _names: names })
    }
}

fn claim(interface: &str) -> Result<UnixDatagram> {
    let step = || format!("cannot claim the interface {interface}");
    let name = format!("nilometer/route/{interface}");
    let address = SocketAddr::from_abstract_name(name).with_context(step)?;
    match UnixDatagram::bind_addr(&address) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            bail!("{interface} is a port of another router, which has to end first")
        }
        other => other.with_context(step),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_has_one_router_until_that_has_ended() {
        let names = ["a claim of the tests", "another"];
        let first = Claims::of(names).expect("the names are free");
        let refused = Claims::of(names[1..].iter().copied()).expect_err("it is taken").to_string();
        assert!(refused.contains("another is a port of another router"), "{refused}");
        drop(first);
        Claims::of(names).expect("they are free again");
    }
}
