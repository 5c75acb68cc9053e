//! A plugin in WebAssembly text written by a test: its state, and its code for packets and messages.

use nilometer_loader::artefact::{Manifest, sign};
use nilometer_loader::keys::SecretKey;
use nilometer_loader::{Limits, wasm};
use semver::Version;

/// The parts of a module that differ from one test to the other, in WebAssembly's text.
#[derive(Clone, Copy)]
pub struct Module<'a> {
    pub name: &'a str,
    /// The last number of its version, 0.0.N.
    pub number: u16,
    pub seen_bytes: u16,
    pub globals: &'a str,
    /// The code for the packet whose descriptor is at `$at`.
    pub packet: &'a str,
    /// The code for a message whose first byte is `$first`.
    pub message: &'a str,
}

impl Module<'_> {
    pub fn version(&self) -> Version {
        Version::new(0, 0, self.number.into())
    }

    /// The module.
    pub fn binary(&self) -> Vec<u8> {
        let Module { name, seen_bytes, globals, packet, message, .. } = self;
        let version = self.version();
        let description = format!("name {name}\nversion {version}\nseen-bytes {seen_bytes}\n");
        let place = (description.len() as u64) << 32 | 16;
        let description = description.replace('\n', "\\0a");
        let text = format!(
            "(module (memory (export \"memory\") 2) (data (i32.const 16) \"{description}\") {globals}
               (func (export \"nilometer_interface\") (result i32) i32.const 1)
               (func (export \"nilometer_describe\") (result i64) i64.const {place})
               (func (export \"nilometer_area\") (param i32) (result i32) i32.const 4096)
               (func (export \"nilometer_new\") (param i32 i32 i64) (result i32) i32.const 0)
               (func (export \"nilometer_process\") (param $at i32) (param $packets i32) (param i64)
                 (result i32)
                 (block $done (loop $next
                   (br_if $done (i32.eqz (local.get $packets)))
                   {packet}
                   (local.set $at (i32.add (local.get $at) (i32.const 16)))
                   (local.set $packets (i32.sub (local.get $packets) (i32.const 1)))
                   (br $next)))
                 i32.const 0)
               (func (export \"nilometer_message\") (param $at i32) (param i32) (param i64)
                 (result i32) (local $first i32)
                 (local.set $first (i32.load8_u (local.get $at)))
                 {message}
                 i32.const 0)
               (func (export \"nilometer_timeout\") (param i64) (result i32) i32.const 0)
               (func (export \"nilometer_counters\") (result i32) i32.const 256))"
        );
        wasm::from_text(text.as_bytes()).unwrap_or_else(|why| panic!("{why}\n{text}"))
    }

    /// The module in a signed artefact, and its manifest.
    pub fn signed(&self, key: &SecretKey) -> (Manifest, Vec<u8>) {
        let module = self.binary();
        let manifest = Manifest::new(self.name, self.version(), &module, &Limits::default());
        let artefact = sign(&manifest, &module, key);
        (manifest, artefact)
    }
}
