//! External XDP programs, loaded from an ELF object as clang writes it and attached to a device's ports.
//!
//! An object has one XDP program for both ports, or two named `client` and `server` after what is behind their ports.
//! Its maps are made empty; one called `ports` that holds interfaces (`BPF_MAP_TYPE_DEVMAP`) gets the clients' port
//! at 0 and the servers' at 1, so that a program can redirect from one to the other. Relocations and maps described
//! by BTF are `aya`'s.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use aya::Ebpf;
use aya::maps::DevMap;
use aya::programs::{Program, Xdp, XdpMode};

use crate::interface::Interface;
use crate::namespace::Namespace;
use crate::system_file::within;

/// The longest object.
const BYTES_MAX: u64 = 16 << 20;
/// The programs of the ports where each has its own, in the order of the ports.
const OF_PORTS: [&str; 2] = ["client", "server"];
/// The map of interfaces.
const PORTS: &str = "ports";

/// An object that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpObject {
    path: PathBuf,
    bytes: Vec<u8>,
}

/// Programs that are attached, until this value goes.
pub struct AttachedXdp(#[expect(dead_code, reason = "programs stay for as long as it lives")] Ebpf);

impl XdpObject {
    /// Reads an object.
    ///
    /// # Errors
    /// When it cannot be read, or is not an ELF file.
    pub fn read(path: &Path) -> Result<XdpObject> {
        let name = path.display();
        let file = File::open(path).with_context(|| format!("{name}: cannot be opened"))?;
        let bytes = within(file, BYTES_MAX).with_context(|| format!("{name}: cannot be read"))?;
        let bytes = bytes.with_context(|| format!("{name}: is longer than {BYTES_MAX} bytes"))?;
        let is_elf = bytes.starts_with(b"\x7fELF");
        ensure!(
            is_elf,
            "{name}: is not an ELF object; compile it with clang -O2 -g -target bpf -c"
        );
        Ok(XdpObject { path: path.to_owned(), bytes })
    }

    /// Attaches its programs to the two ports of a device, the clients' first: in the driver, or behind it where that takes
    /// none.
    ///
    /// # Errors
    /// When it has no XDP program, or not those of the ports, or the kernel does not take them.
    pub fn attach(&self, device: &Namespace, ports: [&str; 2]) -> Result<AttachedXdp> {
        device.enter(|| self.attach_here(ports)).with_context(|| self.path.display().to_string())
    }

    fn attach_here(&self, ports: [&str; 2]) -> Result<AttachedXdp> {
        let mut loaded = Ebpf::load(&self.bytes).context("cannot be loaded")?;
        let mut names = Vec::new();
        for (name, program) in loaded.programs_mut() {
            if let Program::Xdp(program) = program {
                program.load().with_context(|| format!("the kernel does not take {name}"))?;
                names.push(name.to_owned());
            }
        }
        let indices = [0, 1].map(|port| Interface::open(ports[port], true).map(|it| it.index()));
        let [client, server] = indices;
        let indices = [client?, server?];
        if let Some(map) = loaded.map_mut(PORTS) {
            let mut map = DevMap::try_from(map).context("the map `ports` holds no interfaces")?;
            for (place, index) in (0..).zip(indices) {
                map.set(place, index, None, 0).context("the map `ports`")?;
            }
        }
        for (port, index) in indices.into_iter().enumerate() {
            let name = match &names[..] {
                [] => bail!("has no XDP program, which is a function in a section `xdp`"),
                [one] => one.clone(),
                _ if OF_PORTS.iter().all(|name| names.iter().any(|one| one == name)) => {
                    OF_PORTS[port].to_owned()
                }
                _ => bail!(
                    "has the XDP programs {}: give it one for both ports, or `client` and `server`",
                    names.join(", ")
                ),
            };
            let program = loaded.program_mut(&name).context("a program of the object")?;
            let program: &mut Xdp = program.try_into().context("an XDP program")?;
            let native = program.attach_to_if_index(index, XdpMode::Driver);
            native
                .or_else(|_| program.attach_to_if_index(index, XdpMode::Skb))
                .with_context(|| format!("{name} cannot be attached to {}", ports[port]))?;
        }
        Ok(AttachedXdp(loaded))
    }
}
