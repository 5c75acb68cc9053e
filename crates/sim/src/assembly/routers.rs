//! Routers with descriptions of their own: their places, their ports, and the addresses of flows.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::vec::Vec;

use super::Making;
use crate::forwarder::{GROUPS_MAX, MakeRouter, RouterLink, RouterSite, address};
use crate::member::Member;
use crate::refusal::Refusal;
use crate::scenario::Scenario;
use crate::topology::{GroupPath, Step, Topology};

/// Where routers with descriptions stand.
#[derive(Debug, Default)]
pub(super) struct Routers {
    /// By the number of their place: the member, and the links of its ports, away from it.
    placed: BTreeMap<usize, (u32, Vec<Step>)>,
}

impl Routers {
    /// The member and the port at which one comes to such a router over a link, if it leads to one.
    pub(super) fn entrance(&self, topology: &Topology, step: Step) -> Option<(u32, u16)> {
        let (member, ports) = self.placed.get(&topology.far_end(step))?;
        let back = Step { is_back: !step.is_back, ..step };
        let port = ports.iter().position(|&port| port == back)?;
        Some((*member, port as u16))
    }
}

impl Making<'_> {
    /// Makes the routers that have a description.
    pub(super) fn routers(
        &mut self,
        scenario: &Scenario,
        make: &mut MakeRouter<'_>,
    ) -> Result<(), Refusal> {
        for router in &scenario.router {
            let Some(file) = &router.file else { continue };
            let refuse = |what: &str| Refusal::value(format!("router `{}`", router.name), what);
            if scenario.host.len() > GROUPS_MAX as usize {
                let what = "beside it a scenario has 255 groups of hosts at most";
                return Err(refuse(what));
            }
            let steps = self.topology.links_at(&router.name).to_vec();
            let groups = self.topology.groups_by_link(&router.name);
            let mut links = Vec::with_capacity(steps.len());
            for (step, groups) in steps.iter().zip(groups) {
                let spec = &scenario.link[step.wire];
                if self.topology.instances(step.wire) != 1 {
                    let what = format!(
                        "link `{}` is one for each host of a group, and it has one port for a link; put a router \
                         without a file between",
                        spec.name
                    );
                    return Err(refuse(&what));
                }
                if self.boxes[step.wire].is_some() && !step.is_back {
                    let what = format!(
                        "link `{}` has faults and leaves it; give them to another link",
                        spec.name
                    );
                    return Err(refuse(&what));
                }
                let back = spec.rate_back.unwrap_or(spec.rate);
                links.push(RouterLink {
                    name: spec.name.clone(),
                    rate: if step.is_back { back } else { spec.rate },
                    mtu_bytes: spec.mtu,
                    groups,
                });
            }
            let site = RouterSite { name: router.name.clone(), file: file.clone(), links };
            let member = Member::Router(make(&site)?);
            let ports = steps.iter().map(|&step| self.topology.link(step, 0)).collect();
            let members = &mut self.assembly.plan.members;
            if let Some(place) = self.topology.place_named(&router.name) {
                self.routers.placed.insert(place, (members.len() as u32, steps));
            }
            members.push((member, ports));
        }
        Ok(())
    }

    /// Notes the addresses of the next flow's ends, if there is a router that needs them.
    pub(super) fn note_ends(&mut self, way: &GroupPath, hosts: [u32; 2]) {
        if !self.routers.placed.is_empty() {
            let [from, to] = way.ends().map(|group| group as u32);
            self.ends.push([address(from, hosts[0]), address(to, hosts[1])]);
        }
    }

    /// Passes the addresses of each flow's ends to the routers.
    pub(super) fn introduce(&mut self) {
        for (member, _) in self.routers.placed.values() {
            if let (Member::Router(router), _) = &mut self.assembly.plan.members[*member as usize] {
                router.meet(&self.ends);
            }
        }
    }
}
