//! An address of a port with the length of its network, as ROUTER.toml writes it.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// An address and the length of its network: `198.18.0.1/24`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct AddressSection {
    /// The address.
    pub address: IpAddr,
    /// The length of its network.
    pub length: u8,
}

impl From<AddressSection> for String {
    fn from(section: AddressSection) -> String {
        format!("{}/{}", section.address, section.length)
    }
}

impl TryFrom<String> for AddressSection {
    type Error = String;

    fn try_from(text: String) -> Result<AddressSection, String> {
        let malformed =
            || format!("`{text}` is not an address with prefix length, such as 198.18.0.1/24");
        let (address, length) = text.split_once('/').ok_or_else(malformed)?;
        let address: IpAddr = address.parse().map_err(|_| malformed())?;
        let length: u8 = length.parse().map_err(|_| malformed())?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        (1..=most)
            .contains(&length)
            .then_some(AddressSection { address, length })
            .ok_or_else(malformed)
    }
}
