//! `[external]` of a LAB.toml: the device that the lab did not make.

use anyhow::{Context, Result, bail, ensure};
use nilometer_linux::netlink::MacAddress;
use nilometer_linux::testbed::External;
use serde::{Deserialize, Serialize};

use super::GUARDIAN;

/// `[external]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ExternalSection {
    /// The interface of this host that leads to the device's clients' side.
    pub client_interface: String,
    /// The interface that leads to the servers' side; the same one where the device has one arm.
    pub server_interface: String,
    /// It forwards by Ethernet addresses, as a switch or a transparent firewall does: it has no addresses, and hosts on
    /// both sides are neighbours.
    pub transparent: bool,
    /// The device's Ethernet address on the clients' side, for a device that does not answer ARP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_device_mac: Option<String>,
    /// The Ethernet address of the device's port on the servers' side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_device_mac: Option<String>,
}

impl ExternalSection {
    /// The two interfaces: the clients', the servers'.
    pub fn interfaces(&self) -> [&String; 2] {
        [&self.client_interface, &self.server_interface]
    }

    /// The device's Ethernet addresses that were given; call [`ExternalSection::check`] before.
    pub fn macs(&self) -> [Option<MacAddress>; 2] {
        let given = [&self.client_device_mac, &self.server_device_mac];
        given.map(|text| text.as_ref().and_then(|text| parse_mac(text).ok()))
    }

    /// As the testbed has it.
    pub fn for_testbed(&self) -> External {
        External {
            interfaces: self.interfaces().map(String::clone),
            macs: self.macs(),
            is_transparent: self.transparent,
            guardian: GUARDIAN,
        }
    }

    /// Checks that the section fits the device, which is external or has this name, and that its values
    /// are well-formed.
    ///
    /// # Errors
    /// What does not fit, and what to do.
    pub fn check_of(section: Option<&Self>, is_external: bool, device: &str) -> Result<()> {
        match (section, is_external) {
            (None, true) => bail!(
                "the device external is attached to two interfaces of this host: give --client-interface and \
                 --server-interface (external.client_interface, external.server_interface)"
            ),
            (Some(_), false) => bail!(
                "--client-interface and --server-interface (external) lead to the device external, and the device is \
                 {device}: give --dut external (dut = \"external\"), or leave them out"
            ),
            (section, _) => section.map_or(Ok(()), ExternalSection::check),
        }
    }

    /// Checks that its values are well-formed.
    ///
    /// # Errors
    /// What is missing or malformed, and what to do.
    pub fn check(&self) -> Result<()> {
        self.ensure_given(&["client", "server"])?;
        ensure!(
            !self.transparent || self.client_interface != self.server_interface,
            "{} is given for both sides: a device that forwards by Ethernet addresses stands between two interfaces",
            self.client_interface
        );
        self.check_macs()
    }

    /// The same where the servers' side is another host's.
    ///
    /// # Errors
    /// As [`ExternalSection::check`].
    pub fn check_clients_side(&self) -> Result<()> {
        self.ensure_given(&["client"])?;
        ensure!(
            self.server_interface.is_empty() && self.server_device_mac.is_none(),
            "--server-interface (external.server_interface, external.server_device_mac) is at the other host, where \
             --receiver (receiver) is: leave it out"
        );
        self.check_macs()
    }

    fn ensure_given(&self, sides: &[&str]) -> Result<()> {
        for (interface, side) in self.interfaces().into_iter().zip(sides) {
            ensure!(
                !interface.is_empty(),
                "--{side}-interface (external.{side}_interface) is missing: the interface of this host that leads to \
                 the device's {side}s' side"
            );
        }
        Ok(())
    }

    fn check_macs(&self) -> Result<()> {
        let macs = [&self.client_device_mac, &self.server_device_mac];
        for (text, side) in macs.into_iter().zip(["client", "server"]) {
            let Some(text) = text else { continue };
            parse_mac(text).with_context(|| format!("external.{side}_device_mac"))?;
            ensure!(
                !self.transparent,
                "external.{side}_device_mac: a transparent device has no address of its own; leave it out"
            );
        }
        Ok(())
    }
}

/// Six bytes in hexadecimal, with colons between them.
fn parse_mac(text: &str) -> Result<MacAddress> {
    let bytes: Result<Vec<u8>, _> =
        text.split(':').map(|part| u8::from_str_radix(part, 16)).collect();
    match bytes.ok().and_then(|bytes| MacAddress::try_from(bytes).ok()) {
        Some(mac) if mac[0] & 1 == 0 => Ok(mac),
        Some(_) => bail!("{text} is the address of a group; give that of the device's port"),
        None => bail!("{text} is not an Ethernet address; write it as 02:4e:49:4c:4f:01"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_sections_are_refused_with_a_remedy() {
        let both = "client_interface = \"a\"\nserver_interface = \"b\"\n";
        for (text, words) in [
            (
                "client_interface = \"a\"".to_owned(),
                "--server-interface (external.server_interface) is missing",
            ),
            (format!("{}transparent = true", both.replace("\"b\"", "\"a\"")), "for both sides"),
            (
                format!("{both}client_device_mac = \"2:3\""),
                "client_device_mac: 2:3 is not an Ethernet address",
            ),
            (format!("{both}server_device_mac = \"ff:ff:ff:ff:ff:ff\""), "of a group"),
            (
                format!("{both}transparent = true\nserver_device_mac = \"02:00:00:00:00:01\""),
                "has no address of its own",
            ),
        ] {
            let section: ExternalSection = toml::from_str(&text).expect(&text);
            let error = format!("{:#}", section.check().expect_err(&text));
            assert!(error.contains(words) && !error.contains('\n'), "{error}");
        }
        let sound = format!("{both}client_device_mac = \"02:0:0:0:0:a\"");
        let section: ExternalSection = toml::from_str(&sound).expect("sound");
        section.check().expect("sound");
        assert_eq!(section.macs(), [Some([2, 0, 0, 0, 0, 10]), None]);
    }
}
