//! Kernel features for future devices and stamps: io_uring and BPF.

use std::path::Path;

use super::machine::read;
use super::{Finding, Purpose};

/// Looks for both of them.
pub fn examine() -> Vec<Finding> {
    vec![io_uring(), bpf()]
}

fn io_uring() -> Finding {
    let finding = |found: &str| Finding::ok("io_uring", Purpose::Later, found);
    let later = "nothing yet: connections are driven by epoll";
    match read("/proc/sys/kernel/io_uring_disabled").as_deref() {
        Some("0") => finding("allowed"),
        Some(_) => finding("switched off by kernel.io_uring_disabled")
            .missing(later, "`sudo sysctl -w kernel.io_uring_disabled=0`"),
        None => finding("not built, or a kernel before 6.6, which does not report it")
            .doubtful(later, "a kernel with CONFIG_IO_URING"),
    }
}

fn bpf() -> Finding {
    let finding = |found: &str| Finding::ok("BPF", Purpose::Later, found);
    let later = "nothing yet: packets are stamped by packet sockets";
    if read("/proc/sys/kernel/unprivileged_bpf_disabled").is_none() {
        return finding("not built").missing(later, "a kernel with CONFIG_BPF_SYSCALL");
    }
    let types = Path::new("/sys/kernel/btf/vmlinux").exists();
    let compiled = read("/proc/sys/net/core/bpf_jit_enable");
    match (types, compiled.as_deref()) {
        (true, Some("1" | "2")) => finding("compiled to machine code, with type information (BTF)"),
        (true, Some("0")) => {
            finding("interpreted").doubtful(later, "`sudo sysctl -w net.core.bpf_jit_enable=1`")
        }
        (true, _) => finding("with type information (BTF); whether it is compiled root can see"),
        (false, _) => finding("without type information (BTF)")
            .doubtful(later, "a kernel with CONFIG_DEBUG_INFO_BTF"),
    }
}
