//! Messages written: objects in the order of the RFC behind a common header with its checksum.

use alloc::vec::Vec;
use core::net::IpAddr;

use nilometer_wire::checksum::internet_checksum;

use super::bytes::{c_type_of, put_address, put_object};
use super::{
    AdSpec, ExplicitRoute, FlowDescriptor, HEADER_BYTES, Message, MessageType, Sender, Style, class,
};

const VERSION: u8 = 1;

impl Message {
    /// The bytes of the message, as it is sent in a packet of this TTL.
    pub fn write(&self, send_ttl: u8) -> Vec<u8> {
        let kind = self.message_type();
        let mut to = Vec::with_capacity(256);
        to.extend([VERSION << 4, kind.number(), 0, 0, send_ttl, 0, 0, 0]);
        self.session().write(&mut to);
        self.write_objects(&mut to);
        let bytes = u16::try_from(to.len()).expect("limits keep messages short");
        to[6..HEADER_BYTES].copy_from_slice(&bytes.to_be_bytes());
        let checksum = internet_checksum(&[&to]);
        to[2..4].copy_from_slice(&checksum.to_be_bytes());
        to
    }

    /// Everything behind the session.
    fn write_objects(&self, to: &mut Vec<u8>) {
        match self {
            Message::Path(path) => {
                path.hop.write(to);
                time_values(to, path.refresh_ms);
                explicit_route(to, path.route.as_ref());
                path.sender.write(class::SENDER_TEMPLATE, to);
                path.tspec.write(to);
                path.adspec.iter().for_each(|adspec| adspec.write(to));
            }
            Message::Resv(resv) => {
                resv.hop.write(to);
                time_values(to, resv.refresh_ms);
                resv.confirm.iter().for_each(|receiver| confirm(to, *receiver));
                flow_descriptors(to, resv.style, &resv.flows);
            }
            Message::PathErr(refused) => {
                refused.error.write(to);
                refused.sender.write(class::SENDER_TEMPLATE, to);
                refused.tspec.write(to);
            }
            Message::ResvErr(refused) => {
                refused.hop.write(to);
                refused.error.write(to);
                flow_descriptors(to, refused.style, core::slice::from_ref(&refused.flow));
            }
            Message::PathTear(tear) => {
                tear.hop.write(to);
                tear.sender.write(class::SENDER_TEMPLATE, to);
                tear.tspec.iter().for_each(|tspec| tspec.write(to));
            }
            Message::ResvTear(tear) => {
                tear.hop.write(to);
                tear.style.write(to);
                filters(to, &tear.senders);
            }
            Message::ResvConf(confirmed) => {
                confirmed.error.write(to);
                confirm(to, confirmed.receiver);
                flow_descriptors(to, confirmed.style, &confirmed.flows);
            }
            Message::FlowSetup(setup) => {
                setup.hop.write(to);
                time_values(to, setup.refresh_ms);
                explicit_route(to, setup.route.as_ref());
                setup.sender.write(class::SENDER_TEMPLATE, to);
                setup.flowspec.write(to);
                AdSpec::write(&setup.adspec, to);
                setup.plugins.iter().for_each(|plugins| plugins.write(to));
            }
            Message::FlowRelease(release) => {
                release.hop.write(to);
                release.sender.write(class::SENDER_TEMPLATE, to);
            }
        }
    }
}

fn time_values(to: &mut Vec<u8>, refresh_ms: u32) {
    put_object(to, class::TIME_VALUES, 1, |to| to.extend(refresh_ms.to_be_bytes()));
}

fn explicit_route(to: &mut Vec<u8>, route: Option<&ExplicitRoute>) {
    route.filter(|route| !route.0.is_empty()).into_iter().for_each(|route| route.write(to));
}

fn confirm(to: &mut Vec<u8>, receiver: IpAddr) {
    put_object(to, class::RESV_CONFIRM, c_type_of(receiver), |to| put_address(to, receiver));
}

fn flow_descriptors(to: &mut Vec<u8>, style: Style, flows: &[FlowDescriptor]) {
    style.write(to);
    for flow in flows {
        flow.flowspec.write(to);
        filters(to, &flow.senders);
    }
}

fn filters(to: &mut Vec<u8>, senders: &[Sender]) {
    senders.iter().for_each(|sender| sender.write(class::FILTER_SPEC, to));
}

/// The message types in the numbers of their common header.
pub(super) fn type_of(number: u8) -> Option<MessageType> {
    MessageType::ALL.into_iter().find(|kind| kind.number() == number)
}
