//! Switches in user space as devices: Open vSwitch's userspace datapath, and DPDK's testpmd on packet sockets.
//!
//! Both pass frames between the device's two ports as they are. They keep their files in memory that is mounted only
//! for them ([`super::mounts`]), so that they are isolated from others of their kind on the machine, and nothing is
//! left of them. testpmd polls, so that it takes a whole processor.

use std::fs::{self, File};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::daemon::Daemon;
use super::mounts::{self, Mounts};
use super::namespace::Namespace;
use crate::system_file::system_text;

/// Where their files are, in mounts of their own.
const MEETING: &str = "/run/nilometer";
/// Where Debian's packages put programs and the database's schema.
const FOLDERS: [&str; 4] = ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"];
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";
/// How long one may take until it forwards.
const READY_WITHIN: Duration = Duration::from_secs(20);
/// Memory of testpmd without huge pages, MiB.
const MEMORY_MIB: &str = "256";
/// Its packet buffers, each of some 2 KiB.
const BUFFERS: u32 = 1 << 14;

/// Which switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserSwitchKind {
    /// Open vSwitch, its userspace datapath.
    OpenVSwitch,
    /// DPDK's testpmd, forwarding from one port to the other.
    Testpmd,
}

impl UserSwitchKind {
    /// Its programs, and the Debian package that they are in.
    fn programs(self) -> (&'static [&'static str], &'static str) {
        match self {
            UserSwitchKind::OpenVSwitch => {
                (&["ovs-vswitchd", "ovsdb-server", "ovsdb-tool", "ovs-vsctl"], "openvswitch-switch")
            }
            UserSwitchKind::Testpmd => (&["dpdk-testpmd"], "dpdk-dev"),
        }
    }

    /// Whether it is on this machine.
    pub fn is_installed(self) -> bool {
        self.programs().0.iter().all(|name| program(name).is_some())
    }

    /// # Errors
    /// If it is not installed: one line with the package that it needs.
    pub fn ensure_installed(self) -> Result<()> {
        let (programs, package) = self.programs();
        let missing = programs.iter().find(|name| program(name).is_none());
        match missing {
            Some(name) => bail!("{name} is not installed (Debian: apt-get install {package})"),
            None => Ok(()),
        }
    }
}

/// Where a program is.
fn program(name: &str) -> Option<PathBuf> {
    FOLDERS.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.exists())
}

/// A switch between two ports.
#[derive(Debug)]
pub struct UserSwitch {
    /// The daemon that forwards is the first.
    daemons: Vec<Daemon>,
    _room: Room,
}

impl UserSwitch {
    /// Starts one between two interfaces of a namespace whose links are up, and returns when it forwards.
    ///
    /// # Errors
    /// When it is not installed or does not start, with its output.
    pub fn start(
        kind: UserSwitchKind,
        namespace: &Namespace,
        ports: [&str; 2],
    ) -> Result<UserSwitch> {
        kind.ensure_installed()?;
        let room = Room::new()?;
        let daemons = match kind {
            UserSwitchKind::OpenVSwitch => open_vswitch(&room, namespace, ports)?,
            UserSwitchKind::Testpmd => vec![testpmd(&room, namespace, ports)?],
        };
        Ok(UserSwitch { daemons, _room: room })
    }

    /// Its threads, all of the program that forwards.
    ///
    /// # Errors
    /// When it has ended.
    pub fn threads(&self) -> Result<Vec<i32>> {
        let process = self.daemons[0].id();
        let tasks = fs::read_dir(format!("/proc/{process}/task")).context("a switch has ended")?;
        let number = |task: fs::DirEntry| task.file_name().to_str()?.parse().ok();
        Ok(tasks.flatten().filter_map(number).collect())
    }
}

/// Mounts of a switch's own, and the folder in them.
#[derive(Debug)]
struct Room {
    mounts: Mounts,
    folder: OwnedFd,
}

impl Room {
    fn new() -> Result<Room> {
        let (mounts, folder) = Mounts::new(|| {
            mounts::cover("/run", c"mode=755,size=256m")?;
            fs::create_dir(MEETING).context(MEETING)?;
            mounts::reach(MEETING)
        })?;
        Ok(Room { mounts, folder })
    }

    /// A file in the folder as this process reaches it.
    fn file(&self, name: &str) -> PathBuf {
        let folder = self.folder.as_raw_fd();
        PathBuf::from(format!("/proc/{}/fd/{folder}/{name}", std::process::id()))
    }

    /// A program with its output in a file of the folder.
    fn spawn(&self, namespace: &Namespace, name: &str, words: &[String]) -> Result<Daemon> {
        let path = program(name).with_context(|| format!("{name} is not installed"))?;
        let lines = program("stdbuf").context("stdbuf (Debian: coreutils) is not there")?;
        let log = File::create(self.file(&format!("{name}.log"))).context("a log")?;
        // (What it writes is to be in the file line by line.)
        let mut command = Command::new(lines);
        command.arg("-oL").arg(path).args(words).current_dir("/").env_clear();
        for key in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR"] {
            command.env(key, MEETING);
        }
        // (testpmd ends with its input, which stays open for as long as we have it.)
        command.stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log);
        Daemon::spawn(command, (namespace, &self.mounts), name)
    }

    fn log(&self, name: &str) -> String {
        let text = system_text(self.file(&format!("{name}.log"))).unwrap_or_default();
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let cause = lines.iter().rev().find(|line| line.trim_start().starts_with("Cause:"));
        match cause {
            Some(cause) => cause.trim().to_owned(),
            None => lines[lines.len().saturating_sub(3)..].join("; "),
        }
    }

    fn wait(&self, daemon: &mut Daemon, name: &str, is_ready: impl Fn() -> bool) -> Result<()> {
        let began = Instant::now();
        while !is_ready() {
            ensure!(
                !daemon.has_ended() && began.elapsed() < READY_WITHIN,
                "{name} does not start: {}",
                self.log(name)
            );
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Runs a tool of Open vSwitch to its end, outside of the namespaces.
    fn run(&self, name: &str, words: &[&str]) -> Result<()> {
        let path = program(name).with_context(|| format!("{name} is not installed"))?;
        let output = Command::new(path).args(words).stdin(Stdio::null()).output();
        let output = output.with_context(|| format!("cannot start {name}"))?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{name}: {}", stderr.trim().replace('\n', "; "));
        Ok(())
    }
}

/// The database, the switch, and a bridge of both ports.
fn open_vswitch(room: &Room, namespace: &Namespace, ports: [&str; 2]) -> Result<Vec<Daemon>> {
    let database = room.file("conf.db");
    let shown = database.to_str().context("a path of numbers and letters")?;
    room.run("ovsdb-tool", &["create", shown, SCHEMA])?;
    let socket = format!("unix:{MEETING}/db.sock");
    let words = [format!("{MEETING}/conf.db"), format!("--remote=p{socket}")];
    let mut server = room.spawn(namespace, "ovsdb-server", &words)?;
    room.wait(&mut server, "ovsdb-server", || room.file("db.sock").exists())?;
    let reached = format!("--db=unix:{}", room.file("db.sock").display());
    let control = |words: &[&str]| {
        room.run("ovs-vsctl", &[&[&reached[..], "--timeout=20"][..], words].concat())
    };
    control(&["--no-wait", "init"])?;
    let mut switch = room.spawn(namespace, "ovs-vswitchd", &[socket])?;
    let bridge = ["add-br", "br", "--", "set", "bridge", "br", "datapath_type=netdev"];
    let [client, server_port] = ports;
    let both = ["--", "add-port", "br", client, "--", "add-port", "br", server_port];
    control(&[&bridge[..], &both].concat()).map_err(|why| match switch.has_ended() {
        true => why.context(format!("ovs-vswitchd has ended: {}", room.log("ovs-vswitchd"))),
        false => why,
    })?;
    Ok(vec![switch, server])
}

fn testpmd(room: &Room, namespace: &Namespace, ports: [&str; 2]) -> Result<Daemon> {
    let device =
        |(number, name): (usize, &str)| format!("--vdev=eth_af_packet{number},iface={name}");
    let mut words: Vec<String> =
        ["--no-huge", "-m", MEMORY_MIB, "--no-pci"].map(str::to_owned).to_vec();
    words.extend(ports.into_iter().enumerate().map(device));
    words.extend(["--", "--auto-start", "--forward-mode=io", "--no-mlockall"].map(str::to_owned));
    words.push(format!("--total-num-mbufs={BUFFERS}"));
    let mut daemon = room.spawn(namespace, "dpdk-testpmd", &words)?;
    let has_begun = || {
        let log = system_text(room.file("dpdk-testpmd.log")).unwrap_or_default();
        log.contains("Press enter to exit")
    };
    room.wait(&mut daemon, "dpdk-testpmd", has_begun)?;
    Ok(daemon)
}
