//! Steering: lets only one processor handle an interface's input, so that it keeps its order.
//!
//! A veth passes a packet to the queue of the processor that sent it. Where two processors send,
//! there are two queues, and their order is lost: of a connection whose thread moves from one
//! processor to the other, packets overtake each other. In the kernel, *receive packet steering*
//! configures which processors do the work of an interface. If that is one, there is one queue.
//!
//! The setting is a file of `/sys`, which shows the interfaces of the network namespace in which it was
//! mounted. A private mount is made for the purpose in the calling thread's network namespace, and is
//! gone afterwards.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use anyhow::{Context, Result, ensure};
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::{Errno, write};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use rustix::thread::{CpuSet, sched_getaffinity};

/// Receive queues that are looked for.
const QUEUES_MAX: u32 = 1_024;

/// Lets only one processor handle the input of an interface of the calling thread's namespace: of those
/// that the thread may use, each `number` gets another one in turn.
///
/// # Errors
/// When there is no such interface, or the kernel or a container does not permit it.
pub fn to_one_processor(interface: &str, number: usize) -> Result<()> {
    let step = || format!("cannot steer what comes in by {interface} to one processor");
    let allowed = sched_getaffinity(None).with_context(step)?;
    let allowed: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&at| allowed.is_set(at)).collect();
    let processor = allowed[number % allowed.len().max(1)];
    let system = mount().with_context(step)?;
    let mut count = 0;
    while count < QUEUES_MAX {
        let file = format!("class/net/{interface}/queues/rx-{count}/rps_cpus");
        match openat(&system, file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()) {
            Ok(file) => write(&file, mask(processor).as_bytes()).with_context(step)?,
            Err(Errno::NOENT) => break,
            Err(error) => return Err(error).with_context(step),
        };
        count += 1;
    }
    ensure!(count > 0, "{interface} has no receive queue that could be steered");
    Ok(())
}

/// `/sys` as the calling thread's network namespace has it.
fn mount() -> io::Result<OwnedFd> {
    let context = fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(context.as_fd())?;
    let flags = (FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty());
    Ok(fsmount(context.as_fd(), flags.0, flags.1)?)
}

/// The set of one processor, in the kernel's hexadecimal words of 32.
fn mask(processor: usize) -> String {
    format!("{:x}{}", 1u32 << (processor % 32), ",00000000".repeat(processor / 32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_has_one_processor() {
        assert_eq!((mask(0), mask(5)), ("1".to_owned(), "20".to_owned()));
        assert_eq!((mask(31), mask(32)), ("80000000".to_owned(), "1,00000000".to_owned()));
        assert_eq!(mask(69), "20,00000000,00000000");
    }
}
