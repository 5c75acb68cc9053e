//! Plugin instances, entered, replaced, spoken to and taken out while packets pass.
//!
//! An instance is made here, where the request came, and only handed to the forwarding thread: to compile a class
//! takes milliseconds, and no packet waits for that. The old one is taken apart here as well.

use std::collections::BTreeMap;

use nilometer_router::plugin::control::InstanceState;
use nilometer_router::plugin::{ControlError, Instance};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::answer::Refused;
use super::command_channel::{CommandChannel, InForce};
use crate::driver::Driver;
use crate::plugins::{FaultPolicy, NewInstance, PluginSection};
use crate::recording::Command;

/// The longest message, bytes.
pub const MESSAGE_BYTES_MAX: usize = 4 << 10;

/// A plugin instance and its counters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PluginView {
    /// Its name.
    pub name: String,
    /// The name of its class.
    pub class: String,
    /// The version of its class.
    pub version: String,
    /// `native` or `wasm`.
    pub engine: String,
    /// Bytes at the start of each packet that are visible to it.
    pub seen_bytes: u16,
    /// Its configuration.
    pub configuration: String,
    /// Action for packets after the instance was disabled.
    pub on_fault: FaultPolicy,
    /// Why it was disabled, if it was.
    pub fault: Option<String>,
    /// Number of filters that use it.
    pub filters: usize,
    /// Packets that it processed.
    pub packets: u64,
    /// Bytes that it processed, from the IP header on.
    pub bytes: u64,
    /// Packets that it dropped.
    pub dropped: u64,
    /// Packets that it emitted.
    pub emitted: u64,
    /// Packets that it tried to emit without success.
    pub not_emitted: u64,
    /// Packets dropped because it was disabled.
    pub fault_dropped: u64,
    /// Packets that bypassed it because it was disabled.
    pub bypassed: u64,
    /// Calls that failed.
    pub faults: u64,
    /// Memory in use, in bytes.
    pub memory_bytes: u64,
    /// Counters defined by its class.
    pub counters: BTreeMap<String, u64>,
}

/// Plugin instances.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PluginsView {
    /// All instances, in the order in which they were added.
    pub plugins: Vec<PluginView>,
}

/// Changes to a plugin instance; absent fields are unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PluginBody {
    /// Its class. The same name selects the installed version.
    pub class: Option<String>,
    /// Its configuration.
    pub configuration: Option<String>,
}

/// A message to a plugin instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MessageBody {
    /// The message, in the format that the class defines.
    pub message: String,
}

/// Answer of a plugin instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AnswerView {
    /// The answer.
    pub answer: String,
}

impl CommandChannel {
    /// Every plugin instance.
    ///
    /// # Errors
    /// When the router has stopped.
    pub fn plugins(&self) -> Result<PluginsView, Refused> {
        let in_force = self.change();
        let states = self.ask(|driver| driver.router().plugins().states().collect::<Vec<_>>())?;
        let section = |name: &str| in_force.config.plugins.iter().find(|it| it.name == name);
        let plugins = states.into_iter().map(|state| {
            let section = section(&state.name).cloned().unwrap_or_default();
            view(state, section)
        });
        Ok(PluginsView { plugins: plugins.collect() })
    }

    /// Enters a plugin instance, to which filters may be bound from then on.
    ///
    /// # Errors
    /// 400 for a class or a configuration that cannot be, 409 where the name is taken.
    pub fn add_plugin(&self, section: PluginSection) -> Result<String, Refused> {
        let NewInstance { class, instance } = self.made(&section)?;
        let mut in_force = self.change();
        let (name, version) = (section.name.clone(), class.version.clone());
        let new = section.clone();
        self.ask(move |driver| enter_plugin(driver, &new, NewInstance { class, instance }))??;
        let text = format!("plugin {name}: class {} {version} is entered", section.class);
        in_force.config.plugins.push(section);
        Ok(self.report_change(text))
    }

    /// Puts a new instance in the place of one, between two packets of its flows.
    ///
    /// # Errors
    /// 400 for a class or a configuration that cannot be, 404 for no such instance, 409 where another request changed it
    /// meanwhile.
    pub fn replace_plugin(&self, name: &str, body: PluginBody) -> Result<String, Refused> {
        let old = section_of(&mut self.change(), name)?.clone();
        let section = PluginSection {
            class: body.class.unwrap_or_else(|| old.class.clone()),
            configuration: body.configuration.unwrap_or_else(|| old.configuration.clone()),
            ..old.clone()
        };
        let NewInstance { class, instance } = self.made(&section)?;
        let mut in_force = self.change();
        if *section_of(&mut in_force, name)? != old {
            let why = format!("plugin {name} was changed meanwhile; look at it and try again");
            return Err(Refused::conflict(why));
        }
        let (version, new) = (class.version.clone(), section.pinned(&class));
        let done = self.ask(move |driver| {
            let mut done = Err(ControlError::Missing(new.name.clone()));
            let command = Command::ReplacePlugin(Box::new(new.clone()));
            let recorded = driver.change(
                || command,
                |_, router, _| done = router.plugins_mut().replace(&new.name, class, instance),
            );
            recorded.map_err(Refused::unavailable)?;
            done.map_err(refused)
        })?;
        drop(done?);
        let text = format!("plugin {name}: class {} {version} is in its place", section.class);
        *section_of(&mut in_force, name)? = section;
        Ok(self.report_change(text))
    }

    /// Makes an instance with nothing locked: its class may come from a code server, which takes its time.
    fn made(&self, section: &PluginSection) -> Result<NewInstance, Refused> {
        let made = self.maker().instance_of(section);
        made.map_err(|why| Refused::bad(format!("{why:#}")))
    }

    /// Takes a plugin instance out that no filter names any more.
    ///
    /// # Errors
    /// 404 for no such instance, 409 where filters name it.
    pub fn remove_plugin(&self, name: &str) -> Result<String, Refused> {
        let mut in_force = self.change();
        let instance = name.to_owned();
        drop(self.ask(move |driver| take_plugin_out(driver, &instance))??);
        in_force.config.plugins.retain(|section| section.name != name);
        Ok(self.report_change(format!("plugin {name} is taken out")))
    }

    /// Sends a plugin instance a message and waits for its answer.
    ///
    /// # Errors
    /// 400 for a message that it refuses or that is too long, 404 for no such instance, 409 for one that was cut off.
    pub fn message_plugin(&self, name: &str, body: MessageBody) -> Result<AnswerView, Refused> {
        let MessageBody { message } = body;
        if message.len() > MESSAGE_BYTES_MAX {
            let why = format!("{MESSAGE_BYTES_MAX} bytes are the most of a message");
            return Err(Refused::bad(why));
        }
        let name = name.to_owned();
        let done = self.ask(move |driver| {
            let mut done = Err(ControlError::Missing(name.clone()));
            let command = Command::MessagePlugin { name: name.clone(), message: message.clone() };
            let recorded = driver.change(
                || command,
                |now, router, _| done = router.plugins_mut().message(now, &name, &message),
            );
            recorded.map_err(Refused::unavailable)?;
            done.map_err(refused)
        })?;
        Ok(AnswerView { answer: done? })
    }
}

/// Enters an instance, and records it.
///
/// # Errors
/// 409 where the name is taken, or there are too many.
pub(super) fn enter_plugin(
    driver: &mut Driver,
    section: &PluginSection,
    NewInstance { class, instance }: NewInstance,
) -> Result<(), Refused> {
    let mut done = Ok(());
    let command = Command::AddPlugin(Box::new(section.pinned(&class)));
    let recorded = driver.change(
        || command,
        |_, router, _| {
            let plugins = router.plugins_mut();
            done = plugins.add(&section.name, class, instance, section.on_fault.into());
        },
    );
    recorded.map_err(Refused::unavailable)?;
    done.map_err(refused)
}

/// Takes an instance out, records it, and returns it, to be dropped by a thread that does not forward.
///
/// # Errors
/// 404 for no such instance, 409 where filters name it.
pub(super) fn take_plugin_out(
    driver: &mut Driver,
    name: &str,
) -> Result<Box<dyn Instance>, Refused> {
    let mut done = Err(ControlError::Missing(name.to_owned()));
    let command = Command::RemovePlugin { name: name.to_owned() };
    let recorded =
        driver.change(|| command, |_, router, _| done = router.plugins_mut().remove(name));
    recorded.map_err(Refused::unavailable)?;
    done.map_err(refused)
}

fn refused(why: ControlError) -> Refused {
    match why {
        ControlError::Missing(_) => Refused::missing(why),
        ControlError::Answer(..) | ControlError::Length(_) => Refused::bad(why),
        _ => Refused::conflict(why),
    }
}

fn section_of<'a>(in_force: &'a mut InForce, name: &str) -> Result<&'a mut PluginSection, Refused> {
    let found = in_force.config.plugins.iter_mut().find(|section| section.name == name);
    found.ok_or_else(|| refused(ControlError::Missing(name.to_owned())))
}

fn view(state: InstanceState, section: PluginSection) -> PluginView {
    let counters = state.counters;
    PluginView {
        name: state.name,
        class: state.class.name,
        version: state.class.version,
        engine: state.class.engine.name().to_owned(),
        seen_bytes: state.class.seen_bytes,
        configuration: section.configuration,
        on_fault: section.on_fault,
        fault: state.fault.map(|(_, fault)| fault.to_string()),
        filters: state.chains,
        packets: counters.packets,
        bytes: counters.bytes,
        dropped: counters.dropped,
        emitted: counters.emitted,
        not_emitted: counters.not_emitted,
        fault_dropped: counters.fault_dropped,
        bypassed: counters.bypassed,
        faults: counters.faults,
        memory_bytes: state.memory_bytes as u64,
        counters: state.own_counters.into_iter().collect(),
    }
}
