//! The plugin's side of the WebAssembly interface: from addresses in linear memory to calls of a plugin.
//!
//! All that is unsafe in a plugin is here and in `allocator`: a plugin's author writes none. The host makes one call at a
//! time, and there are no threads.

mod allocator;

use alloc::string::String;
use alloc::vec::Vec;
use core::cell::UnsafeCell;
use core::fmt::Write;
use core::panic::PanicInfo;

use crate::context::{PortNumbers, Services};
use crate::interface::{CHANGED, DONE, Descriptor, NO_PORT, NO_TIMER, REFUSED, description};
use crate::{Decision, Packet, Plugin, Running};

pub use allocator::Allocator;

mod host {
    //! What the host does for a plugin.

    // SAFETY: the names and types of version 1 of the interface; the host reads memory and writes none.
    #[link(wasm_import_module = "nilometer")]
    unsafe extern "C" {
        pub(super) safe fn emit(address: *const u8, bytes: usize) -> u32;
        pub(super) safe fn log(address: *const u8, bytes: usize);
        pub(super) safe fn reply(address: *const u8, bytes: usize);
        pub(super) safe fn set_timer(at_ns: u64);
        pub(super) safe fn share() -> i64;
        pub(super) safe fn fault(address: *const u8, bytes: usize);
    }
}

/// The host, as a plugin sees it.
struct Host;

impl Services for Host {
    fn emit(&mut self, packet: &[u8]) -> bool {
        host::emit(packet.as_ptr(), packet.len()) != 0
    }

    fn log(&mut self, line: &str) {
        host::log(line.as_ptr(), line.len());
    }

    fn share_bps(&self) -> Option<u64> {
        u64::try_from(host::share()).ok()
    }
}

/// Reports the reason, and traps.
pub fn fault(panic: &PanicInfo<'_>) -> ! {
    /// Room on the stack: the heap may be what is at an end.
    struct Line {
        bytes: [u8; 200],
        end: usize,
    }

    impl Write for Line {
        fn write_str(&mut self, text: &str) -> core::fmt::Result {
            let room = &mut self.bytes[self.end..];
            let end = text.len().min(room.len());
            room[..end].copy_from_slice(&text.as_bytes()[..end]);
            self.end += end;
            Ok(())
        }
    }

    let mut line = Line { bytes: [0; 200], end: 0 };
    let _ = write!(line, "{panic}");
    host::fault(line.bytes.as_ptr(), line.end);
    core::arch::wasm32::unreachable()
}

struct Inside<P> {
    running: Option<Running<P>>,
    area: Vec<u64>,
    /// The timer that the host has been given.
    timer: Option<u64>,
}

/// The one instance of a module, and the memory that its host writes to.
pub struct Guest<P>(UnsafeCell<Inside<P>>);

// SAFETY: a module has one thread, and the host calls it again when the call before has ended; a call does not come
// back into the module through an import.
unsafe impl<P> Sync for Guest<P> {}

impl<P: Plugin> Guest<P> {
    /// A module without an instance yet.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Guest<P> {
        Guest(UnsafeCell::new(Inside { running: None, area: Vec::new(), timer: None }))
    }

    #[allow(clippy::mut_from_ref)]
    fn inside(&self) -> &mut Inside<P> {
        // SAFETY: every export calls this once, exports do not call each other, and calls do not overlap (above).
        unsafe { &mut *self.0.get() }
    }

    /// Bytes that the host has written.
    fn given(&self, address: u32, bytes: u32) -> &[u8] {
        // SAFETY: the host wrote them into the area that it got from `area`, before this call, and it stays until
        // the next call of that.
        unsafe { core::slice::from_raw_parts(address as *const u8, bytes as usize) }
    }

    /// The plugin's description; the text is never freed, since a host reads it once.
    pub fn describe(&self) -> u64 {
        let mut text = String::new();
        let _ = writeln!(text, "{} {}", description::NAME, P::NAME);
        let _ = writeln!(text, "{} {}", description::VERSION, P::VERSION);
        let _ = writeln!(text, "{} {}", description::SEEN_BYTES, P::SEEN_BYTES);
        for counter in P::COUNTERS {
            let _ = writeln!(text, "{} {counter}", description::COUNTER);
        }
        let text: &'static mut str = text.leak();
        text.as_ptr() as u64 | (text.len() as u64) << 32
    }

    /// Room for `bytes` bytes.
    pub fn area(&self, bytes: u32) -> u32 {
        let inside = self.inside();
        inside.area = Vec::new();
        if inside.area.try_reserve_exact((bytes as usize).div_ceil(8)).is_err() {
            return 0;
        }
        inside.area.resize((bytes as usize).div_ceil(8), 0);
        inside.area.as_ptr() as u32
    }

    /// Makes the instance.
    pub fn instantiate(&self, address: u32, bytes: u32, seed: u64) -> i32 {
        let configuration = String::from_utf8_lossy(self.given(address, bytes));
        match Running::new(&configuration, seed) {
            Ok(running) => self.inside().running = Some(running),
            Err(why) => return replied(REFUSED, &why),
        }
        DONE
    }

    /// Where the counters are.
    pub fn counters(&self) -> u32 {
        running(self.inside()).counters().as_ptr() as u32
    }

    /// Decides on a batch.
    pub fn process(&self, area: u32, packets: u32, now_ns: u64) -> i32 {
        let inside = self.inside();
        // SAFETY: the host wrote so many descriptors to the area, which is aligned to 8 bytes and outlives the call; no
        // other reference to them exists.
        let descriptors =
            unsafe { core::slice::from_raw_parts_mut(area as *mut Descriptor, packets as usize) };
        let running = running(inside);
        for descriptor in descriptors {
            let seen: &mut [u8] = match descriptor.seen_bytes {
                0 => &mut [],
                // SAFETY: the host wrote the packet behind the descriptors, and none overlaps another.
                seen_bytes => unsafe {
                    core::slice::from_raw_parts_mut(
                        descriptor.address as *mut u8,
                        seen_bytes.into(),
                    )
                },
            };
            let port = |number: u16| (number != NO_PORT).then_some(number);
            let ports =
                PortNumbers { input: port(descriptor.input), output: port(descriptor.output) };
            let mut packet = Packet::new(seen, descriptor.ip_bytes);
            if running.process(now_ns, ports, &mut packet, &mut Host) == Decision::Drop {
                descriptor.decision = Decision::Drop as u8;
            }
            if packet.is_changed() {
                descriptor.flags = CHANGED;
            }
        }
        pass_timer(inside);
        DONE
    }

    /// Answers a message.
    pub fn message(&self, address: u32, bytes: u32, now_ns: u64) -> i32 {
        let message = String::from_utf8_lossy(self.given(address, bytes));
        let inside = self.inside();
        let answer = running(inside).message(now_ns, &message, &mut Host);
        pass_timer(inside);
        match answer {
            Ok(answer) => replied(DONE, &answer),
            Err(why) => replied(REFUSED, &why),
        }
    }

    /// The timer is due.
    pub fn timeout(&self, now_ns: u64) -> i32 {
        let inside = self.inside();
        inside.timer = None;
        running(inside).timeout(now_ns, &mut Host);
        pass_timer(inside);
        DONE
    }
}

fn running<P>(inside: &mut Inside<P>) -> &mut Running<P> {
    inside.running.as_mut().expect("the host makes an instance before it calls one")
}

fn replied(status: i32, text: &str) -> i32 {
    host::reply(text.as_ptr(), text.len());
    status
}

/// Passes the timer to the host if it has changed.
fn pass_timer<P: Plugin>(inside: &mut Inside<P>) {
    let timer = running(inside).timer();
    if timer != inside.timer {
        host::set_timer(timer.unwrap_or(NO_TIMER));
        inside.timer = timer;
    }
}
