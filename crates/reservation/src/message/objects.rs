//! Parses messages: the common header, each object once, and from them the message of its type.

use alloc::vec::Vec;
use core::net::IpAddr;

use nilometer_wire::checksum::internet_checksum;

use super::bytes::Contents;
use super::write::type_of;
use super::{
    AdSpec, ErrorSpec, ExplicitRoute, FlowDescriptor, FlowPlugins, FlowRelease, FlowSetup,
    FlowSpec, HEADER_BYTES, Hop, MESSAGE_BYTES_MAX, Malformed, Message, MessageType, Path, PathErr,
    PathTear, Received, Resv, ResvConf, ResvErr, ResvTear, Sender, Session, Style, Tspec, class,
};

/// The most objects of a message.
pub const OBJECTS_MAX: usize = 256;
/// The most filters of a message.
pub const FILTERS_MAX: usize = 64;

/// The class bit for unknown classes: 0 rejects the message, 1 ignores the object (RFC 2205, 3.10).
const MAY_BE_IGNORED: u8 = 0x80;

impl Message {
    /// Reads a message.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn read(bytes: &[u8]) -> Result<Received, Malformed> {
        let arrived = bytes.len();
        let header = bytes.first_chunk::<HEADER_BYTES>().ok_or(Malformed::Length(arrived))?;
        if arrived > MESSAGE_BYTES_MAX {
            return Err(Malformed::Length(arrived));
        }
        let [version, number, high, low, send_ttl, _, length_high, length_low] = *header;
        if version >> 4 != 1 {
            return Err(Malformed::Version(version >> 4));
        }
        let claimed = usize::from(u16::from_be_bytes([length_high, length_low]));
        if claimed != arrived {
            return Err(Malformed::Claimed { claimed, arrived });
        }
        // A checksum of zero means that none was sent (RFC 2205, 3.1.1).
        if [high, low] != [0, 0] && internet_checksum(&[bytes]) != 0 {
            return Err(Malformed::Checksum);
        }
        let kind = type_of(number).ok_or(Malformed::Type(number))?;
        let objects = Objects::read(&bytes[HEADER_BYTES..])?;
        // (Only a setup has a place for plugins.)
        let is_beside = kind != MessageType::FlowSetup && objects.plugins.is_some();
        let objects_ignored = objects.ignored + u32::from(is_beside);
        let message = objects.into_message(kind)?;
        Ok(Received { message, send_ttl, objects_ignored })
    }
}

/// A part of a flow descriptor, in the order of the message.
enum FlowPart {
    FlowSpec(FlowSpec),
    Filter(Sender),
}

/// The objects of a message, each with where it begins.
#[derive(Default)]
struct Objects {
    session: Option<Session>,
    hop: Option<Hop>,
    refresh_ms: Option<u32>,
    error: Option<ErrorSpec>,
    style: Option<Style>,
    sender: Option<Sender>,
    tspec: Option<Tspec>,
    adspec: Option<AdSpec>,
    confirm: Option<IpAddr>,
    route: Option<ExplicitRoute>,
    plugins: Option<FlowPlugins>,
    flow_parts: Vec<(usize, FlowPart)>,
    filters: usize,
    ignored: u32,
}

/// Keeps the one object of its class.
fn once<T>(
    place: &mut Option<T>,
    at: usize,
    object: &'static str,
    read: T,
) -> Result<(), Malformed> {
    match place.replace(read) {
        None => Ok(()),
        Some(_) => Err(Malformed::Misplaced { at, object }),
    }
}

impl Objects {
    fn read(bytes: &[u8]) -> Result<Objects, Malformed> {
        let mut objects = Objects::default();
        let mut rest = bytes;
        let mut count = 0;
        while !rest.is_empty() {
            let at = HEADER_BYTES + bytes.len() - rest.len();
            let claimed = rest.first_chunk::<2>().map_or(0, |length| u16::from_be_bytes(*length));
            let length = usize::from(claimed);
            let wrong = Malformed::ObjectLength { at, bytes: length };
            if length < 4 || !length.is_multiple_of(4) {
                return Err(wrong);
            }
            let (object, behind) = rest.split_at_checked(length).ok_or(wrong)?;
            rest = behind;
            count += 1;
            if count > OBJECTS_MAX {
                return Err(Malformed::TooMany { what: "objects", most: OBJECTS_MAX });
            }
            objects.take(Contents::new(at, object[2], object[3], &object[4..]))?;
        }
        Ok(objects)
    }

    /// Takes one object.
    fn take(&mut self, mut contents: Contents<'_>) -> Result<(), Malformed> {
        let at = contents.at;
        match contents.class {
            class::SESSION => once(&mut self.session, at, "SESSION", Session::read(contents)?),
            class::HOP => once(&mut self.hop, at, "RSVP_HOP", Hop::read(contents)?),
            class::TIME_VALUES => {
                if contents.c_type != 1 {
                    return Err(contents.unknown_c_type());
                }
                let refresh_ms = contents.word()?;
                contents.end()?;
                once(&mut self.refresh_ms, at, "TIME_VALUES", refresh_ms)
            }
            class::ERROR_SPEC => {
                once(&mut self.error, at, "ERROR_SPEC", ErrorSpec::read(contents)?)
            }
            class::STYLE => once(&mut self.style, at, "STYLE", Style::read(contents)?),
            class::SENDER_TEMPLATE => {
                once(&mut self.sender, at, "SENDER_TEMPLATE", Sender::read(contents)?)
            }
            class::SENDER_TSPEC => {
                once(&mut self.tspec, at, "SENDER_TSPEC", Tspec::read(contents)?)
            }
            class::ADSPEC => once(&mut self.adspec, at, "ADSPEC", AdSpec::read(contents)?),
            class::RESV_CONFIRM => {
                let receiver = contents.address(contents.is_v6()?)?;
                contents.end()?;
                once(&mut self.confirm, at, "RESV_CONFIRM", receiver)
            }
            class::EXPLICIT_ROUTE => {
                once(&mut self.route, at, "EXPLICIT_ROUTE", ExplicitRoute::read(contents)?)
            }
            class::FLOWSPEC => {
                let flowspec = FlowSpec::read(contents)?;
                self.flow_part(at, FlowPart::FlowSpec(flowspec))
            }
            class::FILTER_SPEC => {
                let sender = Sender::read(contents)?;
                self.filters += 1;
                self.flow_part(at, FlowPart::Filter(sender))
            }
            class::PLUGINS => match FlowPlugins::read(contents)? {
                Some(plugins) => once(&mut self.plugins, at, "PLUGINS", plugins),
                None => {
                    self.ignored += 1;
                    Ok(())
                }
            },
            class::INTEGRITY | class::POLICY_DATA | class::SCOPE => Ok(()),
            class if class & MAY_BE_IGNORED != 0 => {
                self.ignored += 1;
                Ok(())
            }
            class => Err(Malformed::UnknownClass { at, class, c_type: contents.c_type }),
        }
    }

    fn flow_part(&mut self, at: usize, part: FlowPart) -> Result<(), Malformed> {
        if self.filters > FILTERS_MAX {
            return Err(Malformed::TooMany { what: "filters", most: FILTERS_MAX });
        }
        self.flow_parts.push((at, part));
        Ok(())
    }

    /// The flow descriptors of a style, which come in its order (RFC 2205, 3.1.4).
    fn flows(&mut self, style: Style, kind: MessageType) -> Result<Vec<FlowDescriptor>, Malformed> {
        let mut flows: Vec<FlowDescriptor> = Vec::new();
        let mut last = None;
        for (at, part) in self.flow_parts.drain(..) {
            let misplaced = |object| Malformed::Misplaced { at, object };
            match part {
                FlowPart::FlowSpec(flowspec) => {
                    if style != Style::FixedFilter {
                        if !flows.is_empty() {
                            return Err(misplaced("FLOWSPEC"));
                        }
                        flows.push(FlowDescriptor { flowspec, senders: Vec::new() });
                    }
                    last = Some(flowspec);
                }
                FlowPart::Filter(sender) => match (style, last) {
                    (Style::WildcardFilter, _) | (_, None) => return Err(misplaced("FILTER_SPEC")),
                    (Style::FixedFilter, Some(flowspec)) => {
                        flows.push(FlowDescriptor { flowspec, senders: Vec::from([sender]) });
                    }
                    (Style::SharedExplicit, Some(_)) => {
                        flows.last_mut().expect("behind a FLOWSPEC").senders.push(sender);
                    }
                },
            }
        }
        let is_whole =
            |flow: &FlowDescriptor| style == Style::WildcardFilter || !flow.senders.is_empty();
        if flows.is_empty() {
            return Err(missing(kind, "FLOWSPEC"));
        }
        if flows.iter().all(is_whole) { Ok(flows) } else { Err(missing(kind, "FILTER_SPEC")) }
    }

    /// The senders of a tear, whose flowspecs are ignored.
    fn torn(&mut self) -> Vec<Sender> {
        let parts = self.flow_parts.drain(..);
        let filter = |(_, part)| match part {
            FlowPart::Filter(sender) => Some(sender),
            FlowPart::FlowSpec(_) => None,
        };
        parts.filter_map(filter).collect()
    }

    /// All addresses are of the session's version.
    fn check_versions(&self, session: &Session) -> Result<(), Malformed> {
        let is_v4 = session.destination.is_ipv4();
        let sender = self.sender.is_some_and(|sender| sender.source.is_ipv4() != is_v4);
        let hop = self.hop.is_some_and(|hop| hop.address.is_ipv4() != is_v4);
        let confirm = self.confirm.is_some_and(|receiver| receiver.is_ipv4() != is_v4);
        let singles = [(sender, "SENDER_TEMPLATE"), (hop, "RSVP_HOP"), (confirm, "RESV_CONFIRM")];
        if let Some((_, object)) = singles.into_iter().find(|(is_mixed, _)| *is_mixed) {
            return Err(Malformed::MixedVersions { at: HEADER_BYTES, object });
        }
        for (at, part) in &self.flow_parts {
            if matches!(part, FlowPart::Filter(sender) if sender.source.is_ipv4() != is_v4) {
                return Err(Malformed::MixedVersions { at: *at, object: "FILTER_SPEC" });
            }
        }
        Ok(())
    }

    fn into_message(mut self, kind: MessageType) -> Result<Message, Malformed> {
        let session = self.session.ok_or(missing(kind, "SESSION"))?;
        self.check_versions(&session)?;
        let hop = self.hop.ok_or(missing(kind, "RSVP_HOP"));
        let refresh_ms = self.refresh_ms.ok_or(missing(kind, "TIME_VALUES"));
        let sender = self.sender.ok_or(missing(kind, "SENDER_TEMPLATE"));
        let tspec = self.tspec.ok_or(missing(kind, "SENDER_TSPEC"));
        let error = self.error.ok_or(missing(kind, "ERROR_SPEC"));
        let style = self.style.ok_or(missing(kind, "STYLE"));
        Ok(match kind {
            MessageType::Path => {
                let (hop, refresh_ms, sender, tspec) = (hop?, refresh_ms?, sender?, tspec?);
                let (route, adspec) = (self.route, self.adspec);
                Message::Path(Path { session, hop, refresh_ms, route, sender, tspec, adspec })
            }
            MessageType::Resv => {
                let (hop, refresh_ms, style, confirm) = (hop?, refresh_ms?, style?, self.confirm);
                let flows = self.flows(style, kind)?;
                Message::Resv(Resv { session, hop, refresh_ms, confirm, style, flows })
            }
            MessageType::PathErr => {
                let (error, sender, tspec) = (error?, sender?, tspec?);
                Message::PathErr(PathErr { session, error, sender, tspec })
            }
            MessageType::ResvErr => {
                let (hop, error, style) = (hop?, error?, style?);
                let flow = self.flows(style, kind)?.swap_remove(0);
                Message::ResvErr(ResvErr { session, hop, error, style, flow })
            }
            MessageType::PathTear => {
                let (hop, sender, tspec) = (hop?, sender?, self.tspec);
                Message::PathTear(PathTear { session, hop, sender, tspec })
            }
            MessageType::ResvTear => {
                let (hop, style, senders) = (hop?, style?, self.torn());
                if senders.is_empty() && style != Style::WildcardFilter {
                    return Err(missing(kind, "FILTER_SPEC"));
                }
                Message::ResvTear(ResvTear { session, hop, style, senders })
            }
            MessageType::ResvConf => {
                let (error, style) = (error?, style?);
                let receiver = self.confirm.ok_or(missing(kind, "RESV_CONFIRM"))?;
                let flows = self.flows(style, kind)?;
                Message::ResvConf(ResvConf { session, error, receiver, style, flows })
            }
            MessageType::FlowSetup => Message::FlowSetup(self.flow_setup(session)?),
            MessageType::FlowRelease => {
                Message::FlowRelease(FlowRelease { session, hop: hop?, sender: sender? })
            }
        })
    }

    fn flow_setup(mut self, session: Session) -> Result<FlowSetup, Malformed> {
        let lacks = |object| missing(MessageType::FlowSetup, object);
        let flowspec = match self.flow_parts.pop() {
            Some((_, FlowPart::FlowSpec(flowspec))) if self.flow_parts.is_empty() => flowspec,
            Some((at, _)) => return Err(Malformed::Misplaced { at, object: "FILTER_SPEC" }),
            None => return Err(lacks("FLOWSPEC")),
        };
        Ok(FlowSetup {
            session,
            hop: self.hop.ok_or(lacks("RSVP_HOP"))?,
            refresh_ms: self.refresh_ms.ok_or(lacks("TIME_VALUES"))?,
            route: self.route.take(),
            sender: self.sender.ok_or(lacks("SENDER_TEMPLATE"))?,
            flowspec,
            adspec: self.adspec.ok_or(lacks("ADSPEC"))?,
            plugins: self.plugins,
        })
    }
}

fn missing(kind: MessageType, object: &'static str) -> Malformed {
    Malformed::Missing { message_type: kind.number(), object }
}
