//! FRR's daemons in anonymous namespaces; they end with the test, however it ends.

use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nilometer_lab::device::namespace::Namespace;
use serde_json::Value;

const FOLDER: &str = "/usr/lib/frr";

/// Whether FRR is there; says what is left out where it is not.
pub fn installed(what: &str) -> bool {
    let found = Path::new(FOLDER).join("zebra").exists();
    if !found {
        println!("skipped: {what}: FRR is not installed (Debian: apt-get install frr)");
    }
    found
}

/// A process of ours, killed when this goes or when the thread that started it ends.
pub struct Daemon {
    child: Child,
}

impl Daemon {
    /// Processor time so far, user and system, seconds.
    pub fn cpu_s(&self) -> f64 {
        let text = fs::read_to_string(format!("/proc/{}/schedstat", self.child.id()));
        let nanos = text.ok().and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
        nanos.unwrap_or(0.0) / 1e9
    }

    pub fn resident_kib(&self) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let text = text.unwrap_or_default();
        let line = text.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
        line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0)
    }
}

impl Daemon {
    /// As SIGKILL does: without a word.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.kill();
    }
}

/// One router: a namespace and a folder in which its daemons meet.
pub struct Router<'a> {
    pub namespace: &'a Namespace,
    folder: PathBuf,
}

impl<'a> Router<'a> {
    pub fn new(namespace: &'a Namespace, folder: PathBuf) -> Router<'a> {
        fs::create_dir_all(&folder).expect("a scratch folder");
        // The daemons give up root for the user that Debian's package makes for them.
        let users = fs::read_to_string("/etc/passwd").expect("users");
        let line = users.lines().find(|line| line.starts_with("frr:")).expect("the user frr");
        let mut numbers = line.split(':').skip(2).map(|number| number.parse().ok());
        let (user, group) = (numbers.next().flatten(), numbers.next().flatten());
        chown(&folder, user, group).expect("a scratch folder for them");
        Router { namespace, folder }
    }

    /// Starts a daemon with its configuration; `words` are further options.
    pub fn start(&self, name: &str, configuration: &str, words: &[&str]) -> Daemon {
        let file = |ending: &str| self.folder.join(format!("{name}.{ending}"));
        fs::write(file("conf"), configuration).expect("a scratch file");
        let mut command = Command::new(Path::new(FOLDER).join(name));
        command.arg("-f").arg(file("conf")).arg("-i").arg(file("pid"));
        command.arg("-z").arg(self.folder.join("zserv.api"));
        command.arg("--vty_socket").arg(&self.folder);
        command.args(["-P", "0"]).args(words);
        let log = fs::File::create(file("log")).expect("a scratch file");
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a descriptor")).stderr(log);
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
        Daemon { child: command.spawn().expect("an FRR daemon") }
    }

    /// Waits until a daemon answers on its socket.
    pub fn wait_for(&self, name: &str) {
        let socket = self.folder.join(format!("{name}.vty"));
        for _ in 0..500 {
            if socket.exists() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("{name} does not start: {}", self.log(name));
    }

    pub fn log(&self, name: &str) -> String {
        fs::read_to_string(self.folder.join(format!("{name}.log"))).unwrap_or_default()
    }

    /// What `vtysh` prints for a command.
    pub fn show(&self, command: &str) -> Value {
        let output = Command::new("/usr/bin/vtysh")
            .arg("--vty_socket")
            .arg(&self.folder)
            .args(["-c", command])
            .output()
            .expect("vtysh");
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
    }
}
