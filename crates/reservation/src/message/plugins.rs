//! PLUGINS: plugin classes that each router on the way binds to the flow of a one-packet setup, in their order.
//!
//! The class number is one for private use, from the range that routers without support ignore or forward (RFC 3936,
//! 2; RFC 2205, 3.10). Contents of such a class begin with an enterprise number; Nilometer has none, and uses the one
//! for documentation (RFC 5612). Objects of other enterprises are ignored.
//!
//! ```text
//!   length (2)  │ class 252 (1) │ C-Type 1 (1)
//!   enterprise number 32473 (4)
//!   plugins: 1 to 8 (1)
//!   each: bytes of the class (1) │ bytes of the configuration (1) │ class │ configuration
//!   zeros up to the next multiple of 4
//! ```

use alloc::string::String;
use alloc::vec::Vec;

use thiserror::Error;

use crate::message::bytes::{Contents, put_object};
use crate::message::class;
use crate::message::malformed::Malformed;

/// The most plugins of a flow.
pub const FLOW_PLUGINS_MAX: usize = 8;
/// The longest name of a class, with its version, in bytes.
pub const CLASS_BYTES_MAX: usize = 64;
/// The longest configuration of a plugin, in bytes.
pub const CONFIGURATION_BYTES_MAX: usize = 255;
/// The longest PLUGINS object, so that a setup with an explicit route still fits an MTU.
pub const OBJECT_BYTES_MAX: usize = 512;
/// What stands in front of the plugins: the header, the enterprise number, and how many there are.
const HEAD_BYTES: usize = 9;
/// The enterprise number for documentation (RFC 5612).
const ENTERPRISE: u32 = 32_473;

/// A plugin that a setup names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamedPlugin {
    /// Its class, `NAME` or `NAME@VERSION`.
    pub class: String,
    /// What it is configured with, in the class's own words.
    pub configuration: String,
}

impl NamedPlugin {
    /// The name of its class, without a version.
    pub fn name(&self) -> &str {
        self.class.split_once('@').map_or(&self.class, |(name, _)| name)
    }

    fn bytes(&self) -> usize {
        2 + self.class.len() + self.configuration.len()
    }
}

/// Why plugins cannot be named by signalling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PluginsError {
    /// None, or too many.
    #[error("a flow has 1 to {FLOW_PLUGINS_MAX} plugins, not {0}")]
    Count(usize),
    /// A class's name is empty, too long, or has other letters.
    #[error("a class is NAME or NAME@VERSION, at most {CLASS_BYTES_MAX} letters and digits")]
    Class,
    /// A configuration is too long, or has control characters.
    #[error(
        "a configuration has at most {CONFIGURATION_BYTES_MAX} bytes, and no control characters"
    )]
    Configuration,
    /// All together do not fit an object.
    #[error("the plugins of a flow need {0} bytes, and at most {OBJECT_BYTES_MAX} are possible")]
    Bytes(usize),
}

/// The plugins of a flow, in the order in which its packets pass them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FlowPlugins(Vec<NamedPlugin>);

impl FlowPlugins {
    /// These plugins.
    ///
    /// # Errors
    /// If a message cannot carry them.
    pub fn new(plugins: Vec<NamedPlugin>) -> Result<FlowPlugins, PluginsError> {
        if plugins.is_empty() || plugins.len() > FLOW_PLUGINS_MAX {
            return Err(PluginsError::Count(plugins.len()));
        }
        if !plugins.iter().all(|plugin| is_class(&plugin.class)) {
            return Err(PluginsError::Class);
        }
        if !plugins.iter().all(|plugin| is_configuration(&plugin.configuration)) {
            return Err(PluginsError::Configuration);
        }
        let bytes = HEAD_BYTES + plugins.iter().map(NamedPlugin::bytes).sum::<usize>();
        let bytes = bytes.next_multiple_of(4);
        match bytes > OBJECT_BYTES_MAX {
            true => Err(PluginsError::Bytes(bytes)),
            false => Ok(FlowPlugins(plugins)),
        }
    }

    /// They, in their order.
    pub fn plugins(&self) -> &[NamedPlugin] {
        &self.0
    }

    /// Reads the object; `None` if it is another enterprise's.
    pub(crate) fn read(mut contents: Contents<'_>) -> Result<Option<FlowPlugins>, Malformed> {
        if contents.word()? != ENTERPRISE {
            return Ok(None);
        }
        if contents.c_type != 1 {
            return Err(contents.unknown_c_type());
        }
        let [count] = contents.take()?;
        if usize::from(count) > FLOW_PLUGINS_MAX {
            return Err(Malformed::TooMany { what: "plugins", most: FLOW_PLUGINS_MAX });
        }
        let mut plugins = Vec::new();
        for _ in 0..count {
            let [class_bytes, configuration_bytes] = contents.take()?;
            let class = text(&mut contents, class_bytes)?;
            let configuration = text(&mut contents, configuration_bytes)?;
            plugins.push(NamedPlugin { class, configuration });
        }
        contents.padding()?;
        let refused = |why| match why {
            PluginsError::Count(_) => contents.value("no plugin"),
            PluginsError::Class => contents.value("a plugin class that can be none"),
            PluginsError::Configuration => contents.value("a configuration that can be none"),
            PluginsError::Bytes(_) => contents.value("too many bytes of plugins"),
        };
        FlowPlugins::new(plugins).map(Some).map_err(refused)
    }

    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        put_object(to, class::PLUGINS, 1, |to| {
            let begin = to.len();
            to.extend(ENTERPRISE.to_be_bytes());
            to.push(self.0.len() as u8);
            for NamedPlugin { class, configuration } in &self.0 {
                to.extend([class.len() as u8, configuration.len() as u8]);
                to.extend(class.as_bytes());
                to.extend(configuration.as_bytes());
            }
            let bytes = (to.len() - begin).next_multiple_of(4);
            to.resize(begin + bytes, 0);
        });
    }
}

fn text(contents: &mut Contents<'_>, bytes: u8) -> Result<String, Malformed> {
    let text = contents.split(bytes.into())?;
    text.text().ok_or_else(|| contents.value("a text that is not UTF-8"))
}

/// Whether a class may have this name, without a version: letters, digits and hyphens, as `wave-video`.
pub fn is_class_name(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    (1..=CLASS_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_letter)
}

/// A name, and perhaps a version after `@` (`policer`, `mark@0.1.0-rc.1`).
fn is_class(class: &str) -> bool {
    let (name, version) = match class.split_once('@') {
        None => (class, None),
        Some((name, version)) => (name, Some(version)),
    };
    let is_version = |text: &str| {
        let is_of_it = |byte: u8| byte.is_ascii_alphanumeric() || b".-+".contains(&byte);
        !text.is_empty() && text.bytes().all(is_of_it)
    };
    is_class_name(name) && class.len() <= CLASS_BYTES_MAX && version.is_none_or(is_version)
}

fn is_configuration(text: &str) -> bool {
    text.len() <= CONFIGURATION_BYTES_MAX && !text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::borrow::ToOwned;
    use alloc::vec;

    fn named(class: &str, configuration: &str) -> NamedPlugin {
        let (class, configuration) = (class.to_owned(), configuration.to_owned());
        NamedPlugin { class, configuration }
    }

    #[test]
    fn plugins_that_no_message_can_carry_are_refused() {
        let new = |plugins: Vec<NamedPlugin>| FlowPlugins::new(plugins).map(|all| all.0.len());
        let one = named("policer", "cir=1000000 cbs=3000");
        assert_eq!(one.name(), "policer");
        assert_eq!(named("mark@0.1.0-rc.1", "").name(), "mark");
        assert_eq!(new(vec![one.clone(), named("mark@0.1.0-rc.1", "")]), Ok(2));
        assert_eq!(new(vec![]), Err(PluginsError::Count(0)));
        assert_eq!(new(vec![one; 9]), Err(PluginsError::Count(9)));
        for class in ["", "@1.0.0", "a@", "a b", "a/../b", "\u{e4}", &"a".repeat(65)] {
            assert_eq!(new(vec![named(class, "")]), Err(PluginsError::Class), "{class:?}");
        }
        for text in ["\n", "\u{1b}[2J", &"a".repeat(256)] {
            let refused = new(vec![named("a", text)]);
            assert_eq!(refused, Err(PluginsError::Configuration), "{text:?}");
        }
        assert_eq!(new(vec![named("a", &"x".repeat(248)), named("b", &"x".repeat(249))]), Ok(2));
        let beyond = vec![named("a", &"x".repeat(250)), named("b", &"x".repeat(249))];
        assert_eq!(new(beyond), Err(PluginsError::Bytes(516)));
    }
}
