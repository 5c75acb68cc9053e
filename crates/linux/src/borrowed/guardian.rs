//! The guardian: a process that moves interfaces out, waits for the lab's end, and moves them back.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result, ensure};

use super::state::InterfaceState;
use super::{HELD, REFUSED};
use crate::namespace::Namespace;
use crate::netlink::Netlink;

/// An interface out on loan.
struct Out {
    state: InterfaceState,
    namespace: Namespace,
    called: String,
}

/// Does a guardian's work, as the last thing that its process does: `arguments` are those that
/// [`super::Borrowed::borrow`] appends, `lifeline` ends when the lab does, and `told` reads what is said. The caller
/// sees to it that no signal but SIGKILL ends the process.
///
/// # Errors
/// When arguments are wrong, or nothing could be moved; `told` has heard why.
pub fn stand_guard(
    arguments: &[String],
    lifeline: &mut impl Read,
    told: &mut impl Write,
) -> Result<()> {
    let out = match move_out(arguments) {
        Ok(out) => out,
        Err(error) => {
            writeln!(told, "{REFUSED}{error:#}")?;
            return Err(error);
        }
    };
    // Who does not listen any more has ended: the read says so, too.
    let _ = writeln!(told, "{HELD}").and_then(|()| told.flush());
    let mut byte = [0];
    loop {
        match lifeline.read(&mut byte) {
            Ok(0) => break,
            Err(error) if error.kind() != ErrorKind::Interrupted => break,
            _ => {}
        }
    }
    for problem in move_back(&out) {
        let _ = writeln!(told, "{}", problem.replace('\n', " "));
    }
    Ok(())
}

/// Moves all of them or none.
fn move_out(arguments: &[String]) -> Result<Vec<Out>> {
    let usage =
        "PID and, for each interface, its NAME, the DESCRIPTOR of a namespace and a NAME in it";
    let (parent, loans) = arguments.split_first().context(usage)?;
    ensure!(loans.len().is_multiple_of(3) && !loans.is_empty(), usage);
    let mut all = Vec::new();
    for loan in loans.chunks_exact(3) {
        let file = File::open(format!("/proc/{parent}/fd/{}", loan[1]))
            .with_context(|| format!("cannot open a namespace of process {parent}"))?;
        let state = InterfaceState::read(&loan[0])?;
        let namespace = Namespace::from_descriptor(OwnedFd::from(file));
        all.push(Out { state, namespace, called: loan[2].clone() });
    }
    for (number, loan) in all.iter().enumerate() {
        let name = loan.state.name();
        let moved = Netlink::open()
            .and_then(|mut netlink| netlink.move_link(name, loan.namespace.as_fd(), &loan.called));
        if let Err(error) = moved {
            let mut why = format!("{error:#}");
            for problem in move_back(&all[..number]) {
                why = format!("{why}; {problem}");
            }
            anyhow::bail!("{why}");
        }
    }
    Ok(all)
}

/// Moves all back and makes them what they were; what could not be done.
fn move_back(all: &[Out]) -> Vec<String> {
    let home = match File::open("/proc/thread-self/ns/net") {
        Ok(file) => OwnedFd::from(file),
        Err(error) => return vec![format!("cannot open the namespace of the interfaces: {error}")],
    };
    let mut problems = Vec::new();
    for loan in all {
        let name = loan.state.name();
        let moved = loan.namespace.enter(|| {
            let mut netlink = Netlink::open()?;
            netlink.set_down(&loan.called)?;
            netlink.move_link(&loan.called, home.as_fd(), name)
        });
        match moved {
            Ok(()) => problems.extend(loan.state.restore()),
            Err(error) => problems.push(format!("{name} was not given back: {error:#}")),
        }
    }
    problems
}
