//! FRR's daemons in a namespace: a routing suite beside a device under test, or as its control plane.
//!
//! Here their sockets are in a folder of their own, in memory that is mounted only for them
//! ([`super::mounts`]), so that several suites on one machine, and the machine's own, are isolated from each
//! other, and nothing is left of them however they and we end. Their files elsewhere, below `/run` and
//! `/var/tmp`, are there too.
//!
//! Debian makes a user for the daemons, to which they drop root. In a user namespace, as an ordinary user
//! has it, there is no user but root: its numbers are not mapped, and the kernel answers "Invalid
//! argument". There the daemons see a list of users in which theirs has root's numbers, which are our
//! user's outside: they have no rights beyond ours.

use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::daemon::Daemon;
use super::mounts::{self, Mounts};
use super::namespace::Namespace;
use super::testbed::DevicePort;
use crate::system_file::system_text;

const FOLDER: &str = "/usr/lib/frr";
/// Where the daemons meet, in mounts of their own.
const MEETING: &str = "/run/nilometer";
/// How long a daemon may take until it answers, and routes until the kernel has them.
const READY_WITHIN: Duration = Duration::from_secs(10);
/// A route's flag that it has a gateway (`RTF_GATEWAY`), in `/proc`.
const HAS_GATEWAY: u32 = 2;
/// The users and groups of a user namespace that has one of each.
const USERS: &str = "root:x:0:0:root:/:/bin/false\nfrr:x:0:0:FRR:/:/bin/false\n";
const GROUPS: &str = "root:x:0:\nfrr:x:0:\nfrrvty:x:0:frr\n";

/// Whether the daemons are on this machine.
pub fn is_installed() -> bool {
    ["zebra", "staticd"].iter().all(|name| Path::new(FOLDER).join(name).exists())
}

/// The daemons of one router: a namespace, and a folder in which they meet.
#[derive(Debug)]
pub struct Suite<'a> {
    /// Where they run.
    pub namespace: &'a Namespace,
    mounts: Mounts,
    folder: OwnedFd,
}

impl<'a> Suite<'a> {
    /// Makes the folder, and gives it to the user that the daemons will be.
    ///
    /// # Errors
    /// When FRR is not installed, or the folder cannot be made.
    pub fn new(namespace: &'a Namespace) -> Result<Suite<'a>> {
        ensure!(is_installed(), "FRR is not installed (Debian: apt-get install frr)");
        let (user, group) = user_of_daemons()?;
        let apart = is_mapped("uid", user)? && is_mapped("gid", group)?;
        let (mounts, folder) = Mounts::new(|| {
            mounts::cover("/run", c"mode=755,size=256m")?;
            mounts::cover("/var/tmp", c"mode=1777,size=64m")?;
            fs::DirBuilder::new().mode(0o700).create(MEETING).context(MEETING)?;
            if apart {
                chown(MEETING, Some(user), Some(group)).context(MEETING)?;
            } else {
                mounts::replace("/etc/passwd", Path::new("/run/passwd"), USERS)?;
                mounts::replace("/etc/group", Path::new("/run/group"), GROUPS)?;
            }
            mounts::reach(MEETING)
        })?;
        Ok(Suite { namespace, mounts, folder })
    }

    /// The folder as processes of this machine reach it while this value lives.
    pub fn folder(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.folder.as_raw_fd()))
    }

    /// Starts a daemon with its configuration; `words` are further options.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&self, name: &str, configuration: &str, words: &[&str]) -> Result<Daemon> {
        let file = |ending: &str| self.folder().join(format!("{name}.{ending}"));
        fs::write(file("conf"), configuration).with_context(|| format!("FRR's {name}"))?;
        let mut command = Command::new(Path::new(FOLDER).join(name));
        command.current_dir("/").arg("-f").arg(format!("{MEETING}/{name}.conf"));
        command.arg("-i").arg(format!("{MEETING}/{name}.pid"));
        command.args(["-z", &format!("{MEETING}/zserv.api"), "--vty_socket", MEETING]);
        command.args(["-P", "0"]).args(words);
        let log = File::create(file("log")).with_context(|| format!("FRR's {name}"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Daemon::spawn(command, (self.namespace, &self.mounts), &format!("FRR's {name}"))
    }

    /// Waits until a daemon answers on its socket.
    ///
    /// # Errors
    /// When it does not, with its output.
    pub fn wait_for(&self, name: &str) -> Result<()> {
        let (socket, began) = (self.folder().join(format!("{name}.vty")), Instant::now());
        while !socket.exists() {
            if began.elapsed() >= READY_WITHIN {
                bail!("FRR's {name} does not start: {}", self.log(name).trim_end());
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// What a daemon has written.
    pub fn log(&self, name: &str) -> String {
        system_text(self.folder().join(format!("{name}.log"))).unwrap_or_default()
    }
}

/// A device under test that the kernel forwards for, by routes that FRR keeps.
#[derive(Debug)]
pub struct FrrDevice<'a> {
    _daemons: [Daemon; 2],
    _suite: Suite<'a>,
}

/// Whether FRR's zebra starts in this namespace and answers.
///
/// # Errors
/// If it does not: one line with the reason.
pub fn try_out(namespace: &Namespace) -> Result<()> {
    let suite = Suite::new(namespace)?;
    let _zebra = suite.start("zebra", "", &[])?;
    suite.wait_for("zebra")
}

impl<'a> FrrDevice<'a> {
    /// Starts zebra and staticd with the routes of `ports`, and returns when the kernel has them.
    ///
    /// # Errors
    /// When FRR is not installed, or the routes do not appear.
    pub fn start(namespace: &'a Namespace, ports: &[DevicePort]) -> Result<FrrDevice<'a>> {
        let suite = Suite::new(namespace)?;
        let zebra = suite.start("zebra", "", &[])?;
        suite.wait_for("zebra")?;
        let staticd = suite.start("staticd", &static_routes(ports), &[])?;
        let wanted: usize = ports.iter().map(|port| port.routes.len()).sum();
        let began = Instant::now();
        while namespace.enter(gateway_routes)? < wanted {
            ensure!(
                began.elapsed() < READY_WITHIN,
                "FRR did not install its {wanted} routes in the kernel within {READY_WITHIN:?}: {}",
                suite.log("staticd").trim_end()
            );
            thread::sleep(Duration::from_millis(10));
        }
        Ok(FrrDevice { _daemons: [zebra, staticd], _suite: suite })
    }
}

/// The numbers of the user that the daemons become, and of its group.
fn user_of_daemons() -> Result<(u32, u32)> {
    let users = system_text("/etc/passwd").context("/etc/passwd")?;
    let line = users.lines().find(|line| line.starts_with("frr:"));
    let mut numbers = line.context("there is no user frr")?.split(':').skip(2);
    let mut number = || numbers.next()?.parse().ok();
    number().zip(number()).context("the user frr has no numbers in /etc/passwd")
}

/// Whether a number of a user (`uid`) or group (`gid`) is mapped in this user namespace.
fn is_mapped(kind: &str, number: u32) -> Result<bool> {
    let path = format!("/proc/self/{kind}_map");
    let text = system_text(&path).with_context(|| path.clone())?;
    Ok(is_in_map(&text, number))
}

/// Whether one of the ranges of a map, each a line of first number inside, first outside, and length, has it.
fn is_in_map(map: &str, number: u32) -> bool {
    map.lines().any(|line| {
        let mut words = line.split_whitespace().map(|word| word.parse::<u64>().ok());
        let first = words.next().flatten();
        let length = words.nth(1).flatten();
        let number = u64::from(number);
        first.zip(length).is_some_and(|(first, length)| (first..first + length).contains(&number))
    })
}

fn static_routes(ports: &[DevicePort]) -> String {
    let routes = ports.iter().flat_map(|port| port.routes.iter().map(move |route| (port, route)));
    let line = |(port, (prefix, gateway)): (&DevicePort, &(_, std::net::IpAddr))| {
        let family = if gateway.is_ipv6() { "ipv6" } else { "ip" };
        let prefix: &super::prefix::Prefix = prefix;
        format!("{family} route {prefix} {gateway} {}\n", port.interface)
    };
    routes.map(line).collect()
}

/// The routes by a gateway that the kernel has in the calling thread's namespace, of both families.
fn gateway_routes() -> Result<usize> {
    let read = |name: &str| {
        let path = format!("/proc/thread-self/net/{name}");
        system_text(&path).with_context(|| path.clone())
    };
    let count = |text: &str, column: usize| {
        let flags = text.lines().filter_map(|line| {
            let flags = line.split_whitespace().nth(column)?;
            u32::from_str_radix(flags, 16).ok()
        });
        flags.filter(|flags| flags & HAS_GATEWAY != 0).count()
    };
    Ok(count(&read("route")?, 3) + count(&read("ipv6_route")?, 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_has_its_ranges() {
        assert!(is_in_map("         0          0 4294967295\n", 102));
        let one = "         0      65534          1\n";
        assert!(is_in_map(one, 0) && !is_in_map(one, 1) && !is_in_map(one, 65_534));
        assert!(is_in_map("0 1000 1\n1 100000 65536\n", 65_536));
        assert!(!is_in_map("", 0));
    }
}
