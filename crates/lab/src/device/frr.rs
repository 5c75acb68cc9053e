//! FRR's daemons in a namespace: a routing suite beside a device under test, or as its control plane.
//!
//! Debian keeps the daemons in one folder and makes a user for them, to whom they give up root. Here
//! they meet in a folder of their own, so that several suites on one machine, and the machine's own, do
//! not know of each other. A daemon is killed when its value goes, or when the process that started it
//! ends, however that comes about: the kernel would see to that, but forgets it when a process gives up root,
//! so a shell waits beside each daemon for the end of a pipe of ours.

use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{DirBuilderExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::namespace::Namespace;
use super::testbed::DevicePort;
use crate::document::bounded::system_text;

const FOLDER: &str = "/usr/lib/frr";
/// How long a daemon may take until it answers, and routes until the kernel has them.
const READY_WITHIN: Duration = Duration::from_secs(10);
/// A route's flag that it has a gateway (`RTF_GATEWAY`), in `/proc`.
const HAS_GATEWAY: u32 = 2;

/// Whether the daemons are on this machine.
pub fn is_installed() -> bool {
    ["zebra", "staticd"].iter().all(|name| Path::new(FOLDER).join(name).exists())
}

/// A process of ours, killed when this goes.
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    watcher: Child,
}

/// A shell that kills a process when its standard input ends, as it does with whoever holds the other end.
fn watcher_of(process: u32) -> Result<Child> {
    let mut shell = Command::new("sh");
    shell.args(["-c", "read -r _; kill -9 \"$1\"", "sh", &process.to_string()]);
    // A terminal's interrupt is for us, and must not end who waits for our end.
    shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    shell.spawn().context("cannot start a shell")
}

impl Daemon {
    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Ends it as SIGKILL does, without a word.
    pub fn kill(&mut self) {
        // The watcher first, or it would kill whoever has the daemon's number next. These fail only for those
        // that have ended.
        for process in [&mut self.watcher, &mut self.child] {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The daemons of one router: a namespace, and a folder in which they meet.
#[derive(Debug)]
pub struct Suite<'a> {
    /// Where they run.
    pub namespace: &'a Namespace,
    /// Where their configurations, sockets and logs are.
    pub folder: PathBuf,
}

impl<'a> Suite<'a> {
    /// Makes the folder, and gives it to the user that the daemons will be.
    ///
    /// # Errors
    /// When FRR is not installed, or the folder cannot be made, as when there is one.
    pub fn new(namespace: &'a Namespace, folder: PathBuf) -> Result<Suite<'a>> {
        ensure!(is_installed(), "FRR is not installed (Debian: apt-get install frr)");
        make(&folder)?;
        let users = system_text("/etc/passwd").context("/etc/passwd")?;
        let line = users.lines().find(|line| line.starts_with("frr:"));
        let mut numbers = line.context("there is no user frr")?.split(':').skip(2);
        let mut number = || numbers.next().and_then(|number| number.parse().ok());
        chown(&folder, number(), number()).with_context(|| format!("{}", folder.display()))?;
        Ok(Suite { namespace, folder })
    }

    /// Starts a daemon with its configuration; `words` are further options.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&self, name: &str, configuration: &str, words: &[&str]) -> Result<Daemon> {
        let file = |ending: &str| self.folder.join(format!("{name}.{ending}"));
        fs::write(file("conf"), configuration).with_context(|| format!("FRR's {name}"))?;
        let mut command = Command::new(Path::new(FOLDER).join(name));
        command.arg("-f").arg(file("conf")).arg("-i").arg(file("pid"));
        command.arg("-z").arg(self.folder.join("zserv.api"));
        command.arg("--vty_socket").arg(&self.folder);
        command.args(["-P", "0"]).args(words);
        let log = File::create(file("log")).with_context(|| format!("FRR's {name}"))?;
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let namespace = self.namespace.as_fd().as_raw_fd();
        // SAFETY: between fork and exec only prctl and setns are called, which take integers; the
        // descriptor is open in the child as it is here.
        unsafe {
            command.pre_exec(move || {
                let enters = libc::setns(namespace, libc::CLONE_NEWNET) == 0;
                if enters && libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) == 0 {
                    return Ok(());
                }
                Err(std::io::Error::last_os_error())
            });
        }
        let mut child = command.spawn().with_context(|| format!("cannot start FRR's {name}"))?;
        match watcher_of(child.id()) {
            Ok(watcher) => Ok(Daemon { child, watcher }),
            Err(error) => {
                child.kill().and_then(|()| child.wait()).context("FRR's daemon cannot be ended")?;
                Err(error)
            }
        }
    }

    /// Waits until a daemon answers on its socket.
    ///
    /// # Errors
    /// When it does not, with what it said.
    pub fn wait_for(&self, name: &str) -> Result<()> {
        let (socket, began) = (self.folder.join(format!("{name}.vty")), Instant::now());
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
        system_text(self.folder.join(format!("{name}.log"))).unwrap_or_default()
    }
}

/// A device under test that the kernel forwards for, by routes that FRR keeps.
#[derive(Debug)]
pub struct FrrDevice {
    _daemons: [Daemon; 2],
    folder: PathBuf,
}

impl FrrDevice {
    /// Starts zebra and staticd with the routes of `ports`, and returns when the kernel has them.
    ///
    /// # Errors
    /// When FRR is not there, or the routes do not come.
    pub fn start(namespace: &Namespace, ports: &[DevicePort]) -> Result<FrrDevice> {
        let chance = RandomState::new().build_hasher().finish();
        let folder = format!("nilometer-frr-{}-{chance:016x}", std::process::id());
        let suite = Suite::new(namespace, std::env::temp_dir().join(folder))?;
        let zebra = suite.start("zebra", "", &[])?;
        suite.wait_for("zebra")?;
        let staticd = suite.start("staticd", &static_routes(ports), &[])?;
        let device = FrrDevice { _daemons: [zebra, staticd], folder: suite.folder.clone() };
        let wanted: usize = ports.iter().map(|port| port.routes.len()).sum();
        let began = Instant::now();
        while namespace.enter(gateway_routes)? < wanted {
            ensure!(
                began.elapsed() < READY_WITHIN,
                "FRR did not bring the kernel its {wanted} routes within {READY_WITHIN:?}: {}",
                suite.log("staticd").trim_end()
            );
            thread::sleep(Duration::from_millis(10));
        }
        Ok(device)
    }
}

impl Drop for FrrDevice {
    fn drop(&mut self) {
        // A folder of the machine's temporary files is the worst that can stay.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Makes a folder that was not there: one that was might be another's, and what is in it a link to what only
/// root may write.
fn make(folder: &Path) -> Result<()> {
    let made = fs::DirBuilder::new().mode(0o700).create(folder);
    made.with_context(|| format!("cannot make {}", folder.display()))
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
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn a_folder_that_is_there_is_not_taken() {
        let folder = std::env::temp_dir().join(format!("nilometer-taken-{}", std::process::id()));
        make(&folder).expect("a new one");
        let mode = fs::metadata(&folder).expect("it is there").permissions().mode();
        let again = make(&folder).expect_err("it might be another's");
        fs::remove_dir(&folder).expect("ours");
        assert_eq!(mode & 0o777, 0o700);
        assert!(format!("{again:#}").contains("exists"), "{again:#}");
        std::os::unix::fs::symlink("nowhere", &folder).expect("a link");
        let led = make(&folder).is_err();
        fs::remove_file(&folder).expect("ours");
        assert!(led, "a link leads elsewhere");
    }

    #[test]
    fn who_is_watched_ends_with_us_and_not_before() {
        let mut sleeper = Command::new("sleep").arg("60").spawn().expect("a process");
        let mut watcher = watcher_of(sleeper.id()).expect("a shell");
        assert!(sleeper.try_wait().expect("ours").is_none());
        // As the kernel does with our end of the pipe when we are killed.
        drop(watcher.stdin.take());
        assert_eq!(sleeper.wait().expect("ours").signal(), Some(libc::SIGKILL));
        watcher.wait().expect("ours");
        let child = Command::new("sleep").arg("60").spawn().expect("a process");
        let mut daemon = Daemon { watcher: watcher_of(child.id()).expect("a shell"), child };
        daemon.kill();
        assert!(daemon.child.try_wait().expect("ours").is_some());
    }
}
