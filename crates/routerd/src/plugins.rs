//! Plugins as an operator writes them: a `[[plugin]]` of ROUTER.toml, and the instances made from it.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use nilometer_loader::builtin::{builtin, builtin_of};
use nilometer_loader::fetch::CodeServer;
use nilometer_loader::store::Store;
use nilometer_router::plugin::{Class, ClassFacts, Engine, Instance, OnFault};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Artefacts are fetched and installed one after the other: the store is a directory.
static FETCHING: Mutex<()> = Mutex::new(());
/// How long a code server may take.
const FETCHED_WITHIN: Duration = Duration::from_secs(10);
/// The longest name of an instance, bytes.
const NAME_BYTES_MAX: usize = 64;
/// The longest configuration, bytes.
pub const CONFIGURATION_BYTES_MAX: usize = 16 << 10;

/// `[[plugin]]`: an instance of a plugin class; filters with the action `active` pass packets to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PluginSection {
    /// Its name: letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// Its class, built in or installed (`nilometer plugin install`): `NAME` for the newest version, or
    /// `NAME@VERSION`.
    pub class: String,
    /// Configuration, in the format that the class defines.
    #[serde(default)]
    pub configuration: String,
    /// Action for packets after the instance was disabled because it trapped or exceeded its budget.
    #[serde(default)]
    pub on_fault: FaultPolicy,
}

nilometer_wire::named! {
    /// Action for the packets of a disabled plugin.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum FaultPolicy {
        /// Drop them.
        #[default]
        Drop = "drop",
        /// Pass them on as if the plugin were not in the chain.
        Bypass = "bypass",
    }
}

impl From<FaultPolicy> for OnFault {
    fn from(policy: FaultPolicy) -> OnFault {
        match policy {
            FaultPolicy::Drop => OnFault::Drop,
            FaultPolicy::Bypass => OnFault::Bypass,
        }
    }
}

/// Where classes come from that are not built in.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClassSources<'a> {
    /// Where plugins are installed; the usual place where absent.
    pub directory: Option<&'a Path>,
    /// The code server from which missing classes are fetched.
    pub code_server: Option<&'a str>,
}

/// An instance that no router has yet.
pub struct NewInstance {
    /// What its class is.
    pub class: ClassFacts,
    /// The instance.
    pub instance: Box<dyn Instance>,
}

impl PluginSection {
    /// Checks the name and the configuration.
    ///
    /// # Errors
    /// The first invalid field, by its name.
    pub fn check(&self) -> Result<()> {
        let name = &self.name;
        let is_of_name = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        ensure!(
            !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(is_of_name),
            "plugin.name: {name:?} is not a name; give up to {NAME_BYTES_MAX} letters, digits, `-`, `_` and `.`"
        );
        let bytes = self.configuration.len();
        ensure!(
            bytes <= CONFIGURATION_BYTES_MAX,
            "plugin {name}: its configuration has {bytes} bytes, and {CONFIGURATION_BYTES_MAX} are the most"
        );
        Ok(())
    }

    /// Makes the instance for a router of this seed; the same section, seed and class always make the same instance.
    /// A class that is not installed comes from the code server, where there is one.
    ///
    /// # Errors
    /// When there is no such class, or it refuses the configuration.
    pub fn make(&self, seed: u64, sources: &ClassSources<'_>) -> Result<NewInstance> {
        self.check()?;
        let name = &self.name;
        let class = class(&self.class, sources).with_context(|| format!("plugin {name}"))?;
        let index = name.bytes().fold(0u64, |sum, byte| sum.wrapping_mul(31) + u64::from(byte));
        let seed = seed.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let instance = class.instantiate(&self.configuration, seed);
        let instance =
            instance.map_err(|why| anyhow!("plugin {name}: class {}: {why}", self.class))?;
        Ok(NewInstance { class: class.facts().clone(), instance })
    }

    /// The section with the module version that an instance was made from, so that later installations change
    /// nothing.
    pub fn pinned(&self, class: &ClassFacts) -> PluginSection {
        let class = match class.engine {
            Engine::Native => self.class.clone(),
            Engine::Wasm => format!("{}@{}", class.name, class.version),
        };
        PluginSection { class, ..self.clone() }
    }
}

/// The class of a name, `NAME` or `NAME@VERSION`: a built-in one; else an installed one; else, where there is a code
/// server, one of the server's, which is installed first.
///
/// # Errors
/// When there is no such class, or it may not be run.
fn class(name: &str, sources: &ClassSources<'_>) -> Result<Box<dyn Class>> {
    let (name, version) = match name.split_once('@') {
        None => (name, None),
        Some((name, version)) => {
            let read =
                version.parse().map_err(|why| anyhow!("{version:?} is not a version: {why}"));
            (name, Some(read?))
        }
    };
    if let Some(class) = builtin_of(name).filter(|_| version.is_none()) {
        return Ok(class);
    }
    let store = match sources.directory {
        Some(directory) => Store::new(directory),
        None => Store::new(&Store::usual_directory()),
    };
    let missing = match store.class(name, version.as_ref()) {
        Ok(class) => return Ok(Box::new(class)),
        Err(why) => why,
    };
    let Some(code_server) = sources.code_server else {
        let names: Vec<String> = builtin().iter().map(|class| class.facts().name.clone()).collect();
        let names = names.join(", ");
        let why = format!("there is no plugin class {name:?} ({names} are built in)");
        return Err(missing.context(why));
    };
    let server = CodeServer::at(code_server, FETCHED_WITHIN)?;
    // (Another thread that needs the same class waits, and then finds it installed.)
    let _fetching = FETCHING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Ok(class) = store.class(name, version.as_ref()) {
        return Ok(Box::new(class));
    }
    let artefact = server.artefact(name, version.as_ref())?;
    store.install(&artefact, Some((name, version.as_ref())), false)?;
    Ok(Box::new(store.class(name, version.as_ref())?))
}
