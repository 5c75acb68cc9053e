//! The guardian: a process that moves interfaces out, waits for the lab's end, and moves them back.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result, bail, ensure};

use super::state::InterfaceState;
use super::{HELD, REFUSED};
use crate::namespace::Namespace;
use crate::netlink::Netlink;

/// The name of interfaces whose own name has been taken meanwhile; a number follows.
const SPARE_NAME: &str = "lent";
/// How many such names are tried.
const SPARE_NAMES: u32 = 100;

/// An interface out on loan, or about to be.
#[derive(Debug)]
pub(super) struct Out {
    pub(super) state: InterfaceState,
    pub(super) namespace: Namespace,
    pub(super) called: String,
}

/// Does a guardian's work, as the last thing that its process does: `arguments` are those that
/// [`super::Borrowed::borrow`] appends, `lifeline` reaches its end when the lab ends, and reports are written to
/// `replies`. The caller sees to it that no signal but SIGKILL ends the process.
///
/// # Errors
/// When arguments are wrong, or nothing could be moved; the reason has been written to `replies`.
pub fn stand_guard(
    arguments: &[String],
    lifeline: &mut impl Read,
    replies: &mut impl Write,
) -> Result<()> {
    // (Without the privilege this process can be killed like any other when memory is short.)
    let _ = fs::write("/proc/self/oom_score_adj", "-1000");
    let out = match move_out(arguments) {
        Ok(out) => out,
        Err(error) => {
            writeln!(replies, "{REFUSED}{error:#}")?;
            return Err(error);
        }
    };
    // If the listener is gone, it has ended: the read reports that, too.
    let _ = writeln!(replies, "{HELD}").and_then(|()| replies.flush());
    let mut byte = [0];
    loop {
        match lifeline.read(&mut byte) {
            Ok(0) => break,
            Err(error) if error.kind() != ErrorKind::Interrupted => break,
            _ => {}
        }
    }
    for problem in move_back(&out) {
        let _ = writeln!(replies, "{}", problem.replace('\n', " "));
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
        if let Err(error) = lend(loan) {
            let mut why = format!("{error:#}");
            for problem in move_back(&all[..=number]) {
                why = format!("{why}; {problem}");
            }
            bail!("{why}");
        }
    }
    Ok(all)
}

/// Moves one out under its own name, and renames it there: the kernel would move it even where it cannot rename it.
fn lend(loan: &Out) -> Result<()> {
    let name = loan.state.name();
    Netlink::open()?.move_link(name, loan.namespace.as_fd())?;
    loan.namespace.enter(|| Netlink::open()?.rename_link(name, &loan.called))
}

/// Moves all back and restores their state; returns what could not be done, in a line each. Those that are not out
/// are left alone.
pub(super) fn move_back(all: &[Out]) -> Vec<String> {
    let home = match File::open("/proc/thread-self/ns/net") {
        Ok(file) => OwnedFd::from(file),
        Err(error) => return vec![format!("cannot open the namespace of the interfaces: {error}")],
    };
    let (mut problems, mut back) = (Vec::new(), Vec::new());
    for loan in all {
        let name = loan.state.name();
        match bring_home(loan, &home) {
            Ok(Some(now)) => {
                if now != name {
                    problems
                        .push(format!("{name} is called {now} now: the name was taken meanwhile"));
                }
                problems.extend(loan.state.restore(&now));
                back.push((&loan.state, now));
            }
            Ok(None) => {}
            Err(error) => problems.push(format!("{name} was not given back: {error:#}")),
        }
    }
    // A route may use several of them.
    for (state, now) in back {
        problems.extend(state.restore_routes(&now));
    }
    problems
}

/// Moves one back, under its own name if that is free; returns its new name, and `None` if it was not out.
fn bring_home(loan: &Out, home: &OwnedFd) -> Result<Option<String>> {
    let name = loan.state.name();
    loan.namespace.enter(|| {
        let mut netlink = Netlink::open()?;
        let is_there = |netlink: &mut Netlink, name: &str| netlink.link(name).is_ok();
        let mut now = match is_there(&mut netlink, &loan.called) {
            true => loan.called.clone(),
            false if is_there(&mut netlink, name) => name.to_owned(),
            false => return Ok(None),
        };
        // (Whether it can be set down and renamed or not: it has to go home.)
        let _ = netlink.set_down(&now);
        if now != name && netlink.rename_link(&now, name).is_ok() {
            name.clone_into(&mut now);
        }
        let Err(first) = netlink.move_link(&now, home.as_fd()) else { return Ok(Some(now)) };
        for number in 0..SPARE_NAMES {
            let spare = format!("{SPARE_NAME}{number}");
            if netlink.rename_link(&now, &spare).is_ok() {
                now = spare;
                if netlink.move_link(&now, home.as_fd()).is_ok() {
                    return Ok(Some(now));
                }
            }
        }
        Err(first)
    })
}
