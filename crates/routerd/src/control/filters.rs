//! Filters, entered and taken out while packets pass.

use nilometer_router::classifier::RuleId;

use super::answer::Refused;
use super::command_channel::{CommandChannel, InForce};
use super::view::{FilterView, FiltersView, Made};
use crate::driver::Driver;
use crate::filter::{FilterSection, Rules, Side};
use crate::machine::{enter_filter, remove_filter};
use crate::recording::Command;
use nilometer_router::memory::Memory;
use nilometer_router::pipeline::Router;
use nilometer_wire::Time;

/// Filters that are reported at once.
const TOLD_AT_ONCE: usize = 1_000;

impl CommandChannel {
    /// Filters from number `from` on, with their counters.
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
    /// 400 for an invalid filter, 409 where there is no room.
    pub fn add_filter(&self, mut filter: FilterSection) -> Result<Made, Refused> {
        let rules = filter.rules().map_err(Refused::bad)?;
        let ports = filter.inputs.iter_mut().chain(&mut filter.outputs);
        for port in ports.flatten() {
            *port = self.interface(port)?;
        }
        let mut in_force = self.change();
        let side = in_force.config.side_of(&filter).map_err(Refused::bad)?;
        let number = in_force.free_filter()?;
        let new = filter.clone();
        self.ask(move |driver| put_filter_in(driver, (number, &new), side, rules))??;
        in_force.filters.insert(number, filter);
        self.report_change(format!("filter {number} is entered"));
        Ok(Made { id: number })
    }

    /// Removes a filter.
    ///
    /// # Errors
    /// 404 where there is no filter of this number.
    pub fn remove_filter(&self, id: u32) -> Result<String, Refused> {
        let mut in_force = self.change();
        if !in_force.filters.contains_key(&id) {
            return Err(Refused::missing(format!("there is no filter {id}")));
        }
        if let Some(reservation) = in_force.reservation_of(id) {
            let why = format!("filter {id} is of reservation {}, and goes with it", reservation.0);
            return Err(Refused::conflict(why));
        }
        self.ask(move |driver| take_filter_out(driver, id))??;
        in_force.filters.remove(&id);
        Ok(self.report_change(format!("filter {id} is taken out")))
    }
}

impl InForce {
    /// A number for one more filter: behind all others, as long as there are numbers.
    ///
    /// # Errors
    /// 409 where there is no room.
    pub(super) fn free_filter(&self) -> Result<u32, Refused> {
        let room = self.config.tables.filters;
        let last = self.filters.keys().next_back().map_or(0, |last| last + 1);
        let free = || (0..room).find(|id| !self.filters.contains_key(id));
        Some(last).filter(|last| *last < room).or_else(free).ok_or_else(|| {
            let why = format!("there are {room} filters, and tables.filters allows no more");
            Refused::conflict(why)
        })
    }
}

/// Enters a filter, and records it.
///
/// # Errors
/// 409 where there is no room, or no such plugin.
pub(super) fn put_filter_in(
    driver: &mut Driver,
    (number, filter): (u32, &FilterSection),
    side: Side,
    rules: Rules,
) -> Result<(), Refused> {
    let mut done = Ok(());
    let command = Command::AddFilter { id: number, filter: Box::new(filter.clone()) };
    let enter = |_: Time, router: &mut Router, _: &mut dyn Memory| {
        done = enter_filter(router, number, (side, &filter.plugins), rules);
    };
    driver.change(|| command, enter).map_err(Refused::unavailable)?;
    done.map_err(Refused::conflict)
}

/// Takes a filter out, and records it.
///
/// # Errors
/// When it cannot be recorded.
pub(super) fn take_filter_out(driver: &mut Driver, id: u32) -> Result<(), Refused> {
    let taken =
        driver.change(|| Command::RemoveFilter { id }, |_, router, _| remove_filter(router, id));
    taken.map_err(Refused::unavailable)
}
