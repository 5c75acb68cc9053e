//! Filters, entered and taken out while packets pass.

use nilometer_router::classifier::RuleId;

use super::answer::Refused;
use super::command_channel::CommandChannel;
use super::view::{FilterView, FiltersView, Made};
use crate::filter::FilterSection;
use crate::machine::{enter_filter, remove_filter};
use crate::recording::Command;
use nilometer_router::memory::Memory;
use nilometer_router::pipeline::Router;
use nilometer_wire::Time;

/// Filters that are reported at once.
const TOLD_AT_ONCE: usize = 1_000;

impl CommandChannel {
    /// Filters from number `from` on, with what they met.
    ///
    /// # Errors
    /// When the router has stopped.
    pub fn filters(&self, from: u32) -> Result<FiltersView, Refused> {
        let in_force = self.change();
        let mut rest = in_force.filters.range(from..);
        let some: Vec<_> = rest.by_ref().take(TOLD_AT_ONCE).collect();
        let next = rest.next().map(|(id, _)| *id);
        let more = usize::from(next.is_some()) + rest.count();
        let ids: Vec<RuleId> = some.iter().map(|(id, _)| RuleId(**id)).collect();
        let met = self.ask(move |driver| {
            let (tables, outputs) = (driver.router().tables(), driver.router().output_filters());
            let met = |id: &RuleId| {
                let fours = [&tables.filters4, &outputs.filters4].map(|some| some.get(*id));
                let sixes = [&tables.filters6, &outputs.filters6].map(|some| some.get(*id));
                let fours = fours.into_iter().flatten().map(|(_, filter)| filter);
                let all = fours.chain(sixes.into_iter().flatten().map(|(_, filter)| filter));
                all.fold((0, 0), |sum, it| (sum.0 + it.packets, sum.1 + it.bytes))
            };
            ids.iter().map(met).collect::<Vec<(u64, u64)>>()
        })?;
        let view = |((id, filter), (packets, bytes)): ((&u32, &FilterSection), _)| FilterView {
            id: *id,
            packets,
            bytes,
            filter: filter.clone(),
        };
        let filters = some.into_iter().zip(met).map(view).collect();
        Ok(FiltersView { count: in_force.filters.len(), filters, more, next })
    }

    /// Enters a filter; it goes behind those of its priority, as long as there are numbers.
    ///
    /// # Errors
    /// 400 for a filter that cannot be, 409 where there is no room.
    pub fn add_filter(&self, mut filter: FilterSection) -> Result<Made, Refused> {
        let rules = filter.rules().map_err(Refused::bad)?;
        let ports = filter.inputs.iter_mut().chain(&mut filter.outputs);
        for asked in ports.flatten() {
            *asked = self.interface(asked)?;
        }
        let mut in_force = self.change();
        let side = in_force.config.side_of(&filter).map_err(Refused::bad)?;
        let plugins = filter.plugins.clone();
        let room = in_force.config.tables.filters;
        let last = in_force.filters.keys().next_back().map_or(0, |last| last + 1);
        let free = || (0..room).find(|id| !in_force.filters.contains_key(id));
        let number = Some(last).filter(|last| *last < room).or_else(free);
        let Some(number) = number else {
            let why = format!("there are {room} filters, and tables.filters allows no more");
            return Err(Refused::conflict(why));
        };
        let command = Command::AddFilter { id: number, filter: Box::new(filter.clone()) };
        let done = self.ask(move |driver| {
            let mut done = Ok(());
            let enter = |_: Time, router: &mut Router, _: &mut dyn Memory| {
                done = enter_filter(router, number, (side, &plugins), rules);
            };
            driver.change(|| command, enter).map_err(Refused::unavailable)?;
            done.map_err(Refused::conflict)
        })?;
        done?;
        in_force.filters.insert(number, filter);
        self.told(format!("filter {number} is entered"));
        Ok(Made { id: number })
    }

    /// Takes a filter out.
    ///
    /// # Errors
    /// 404 where there is none of this number.
    pub fn remove_filter(&self, id: u32) -> Result<String, Refused> {
        let mut in_force = self.change();
        if !in_force.filters.contains_key(&id) {
            return Err(Refused::missing(format!("there is no filter {id}")));
        }
        let done = self.ask(move |driver| {
            driver.change(|| Command::RemoveFilter { id }, |_, router, _| remove_filter(router, id))
        })?;
        done.map_err(Refused::unavailable)?;
        in_force.filters.remove(&id);
        Ok(self.told(format!("filter {id} is taken out")))
    }
}
