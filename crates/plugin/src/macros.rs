//! The macro that exports a plugin from a WebAssembly module.

/// Writes the exports of the WebAssembly interface for a [`Plugin`](crate::Plugin), its allocator and its panic
/// handler. In a native build it writes nothing. Use it once in a module.
#[macro_export]
macro_rules! export_plugin {
    ($Plugin:ty) => {
        #[cfg(target_arch = "wasm32")]
        mod exported {
            use super::*;
            use $crate::guest::{Allocator, Guest};

            static GUEST: Guest<$Plugin> = Guest::new();

            #[global_allocator]
            static ALLOCATOR: Allocator = Allocator::new();

            #[panic_handler]
            fn panic(panic: &core::panic::PanicInfo<'_>) -> ! {
                $crate::guest::fault(panic)
            }

            // SAFETY: the names are this module's only exports and clash with nothing.
            #[unsafe(no_mangle)]
            extern "C" fn nilometer_interface() -> u32 {
                $crate::interface::VERSION
            }

            // SAFETY: as above.
            #[unsafe(no_mangle)]
            extern "C" fn nilometer_describe() -> u64 {
                GUEST.describe()
            }

            // SAFETY: as above.
            #[unsafe(no_mangle)]
            extern "C" fn nilometer_area(bytes: u32) -> u32 {
                GUEST.area(bytes)
            }

            // SAFETY: as above.
            #[unsafe(no_mangle)]
            extern "C" fn nilometer_new(address: u32, bytes: u32, seed: u64) -> i32 {
                GUEST.instantiate(address, bytes, seed)
            }

            // SAFETY: as above.
            #[unsafe(no_mangle)]
            extern "C" fn nilometer_process(area: u32, packets: u32, now_ns: u64) -> i32 {
                GUEST.process(area, packets, now_ns)
            }

            // SAFETY: as above.
            #[unsafe(no_mangle)]
            extern "C" fn nilometer_message(address: u32, bytes: u32, now_ns: u64) -> i32 {
                GUEST.message(address, bytes, now_ns)
            }

            // SAFETY: as above.
            #[unsafe(no_mangle)]
            extern "C" fn nilometer_timeout(now_ns: u64) -> i32 {
                GUEST.timeout(now_ns)
            }

            // SAFETY: as above.
            #[unsafe(no_mangle)]
            extern "C" fn nilometer_counters() -> u32 {
                GUEST.counters()
            }
        }
    };
}
