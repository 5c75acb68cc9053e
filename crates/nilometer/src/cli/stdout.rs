//! Standard output that cannot be written to: how a command ends then.
//!
//! Commands print with `print!`, which panics where nothing can be printed. Nearly always that is a
//! reader who has seen enough (`nilometer simulate … | head -1`) and is no error: the command ends
//! without a word and with the status of one that SIGPIPE ended. Whatever else it is, a full disk say,
//! is told in one line, and the command could not run.

use std::panic::{self, PanicHookInfo};
use std::process::exit;

/// What a shell says of a process that SIGPIPE ended: 128 and the signal's number.
const UNREAD: i32 = 141;
/// What [`print!`] says, before the reason.
const FAILED: &str = "failed printing to stdout: ";

/// Lets commands end as the module says, from now on.
pub(super) fn mind() {
    let usual = panic::take_hook();
    panic::set_hook(Box::new(move |about| match reason(about) {
        Some(reason) if reason.starts_with("Broken pipe") => exit(UNREAD),
        Some(reason) => {
            eprintln!("nilometer: standard output cannot be written: {reason}");
            exit(2);
        }
        None => usual(about),
    }));
}

/// Why nothing could be printed, if it is that.
fn reason<'a>(about: &'a PanicHookInfo<'_>) -> Option<&'a str> {
    about.payload().downcast_ref::<String>()?.strip_prefix(FAILED)
}
