//! Orders to bind plugins to reserved flows: given by the forwarding thread, carried out by others that may wait.
//!
//! Only the latest order of each reservation counts, so there are never more orders than reservations. Orders to
//! unbind go first and do not wait. Up to [`BOUND_AT_ONCE`] flows are bound at once, since a class may have to be
//! fetched, and only one thread handles a reservation at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use nilometer_reservation::{Reservation, ReservationId};

/// Flows whose plugins are made at the same time.
const BOUND_AT_ONCE: usize = 4;

/// The plugins that a reservation shall have from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PluginOrder {
    /// Its number.
    pub id: ReservationId,
    /// The reservation, whose plugins are to be bound to its flow; none where all are to be unbound.
    pub reservation: Option<Reservation>,
}

#[derive(Debug, Default)]
struct Orders {
    waiting: BTreeMap<ReservationId, Option<Reservation>>,
    /// Those that are carried out.
    busy: BTreeSet<ReservationId>,
    /// Those to which plugins are bound.
    bound: BTreeSet<ReservationId>,
    /// Of those that are carried out, orders to bind.
    binding: usize,
    is_over: bool,
}

/// The orders that wait.
#[derive(Debug, Default)]
pub struct PluginOrders {
    orders: Mutex<Orders>,
    changed: Condvar,
}

impl PluginOrders {
    fn lock(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives an order, in place of one that waits for this reservation.
    pub fn order(&self, order: PluginOrder) {
        let PluginOrder { id, reservation } = order;
        let mut orders = self.lock();
        let is_of_account =
            reservation.is_some() || orders.busy.contains(&id) || orders.bound.contains(&id);
        match is_of_account && !orders.is_over {
            true => drop(orders.waiting.insert(id, reservation)),
            false => drop(orders.waiting.remove(&id)),
        }
        self.changed.notify_all();
    }

    /// Waits for the next order that can be carried out; none when no more will come. The caller reports the end
    /// by [`PluginOrders::done`].
    pub fn next(&self) -> Option<PluginOrder> {
        let mut orders = self.lock();
        loop {
            if orders.is_over {
                return None;
            }
            if let Some(id) = orders.ready() {
                let reservation = orders.waiting.remove(&id).flatten();
                orders.busy.insert(id);
                orders.binding += usize::from(reservation.is_some());
                return Some(PluginOrder { id, reservation });
            }
            orders = self.changed.wait(orders).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// An order was carried out; whether plugins are bound to the flow now.
    pub fn done(&self, order: &PluginOrder, is_bound: bool) {
        let mut orders = self.lock();
        orders.busy.remove(&order.id);
        orders.binding -= usize::from(order.reservation.is_some());
        match is_bound {
            true => orders.bound.insert(order.id),
            false => orders.bound.remove(&order.id),
        };
        self.changed.notify_all();
    }

    /// No more orders are carried out.
    pub fn end(&self) {
        let mut orders = self.lock();
        orders.is_over = true;
        orders.waiting.clear();
        self.changed.notify_all();
    }
}

impl Orders {
    fn ready(&self) -> Option<ReservationId> {
        let mut free = self.waiting.iter().filter(|(id, _)| !self.busy.contains(id));
        let unbound = free.clone().find(|(_, reservation)| reservation.is_none());
        let bound = free.next().filter(|_| self.binding < BOUND_AT_ONCE);
        unbound.or(bound).map(|(id, _)| *id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nilometer_reservation::process::Owner;

    fn bind(number: u64) -> PluginOrder {
        let id = ReservationId(number);
        let reservation = Reservation {
            id,
            owner: Owner::FlowSetup,
            flows: Vec::new(),
            inputs: Vec::new(),
            output: 0,
            next_hop: [198, 18, 0, 1].into(),
            is_pinned: true,
            rate_bytes: 1,
            bucket_bytes: 1,
            plugins: None,
            expires_at: None,
        };
        PluginOrder { id, reservation: Some(reservation) }
    }

    fn unbind(number: u64) -> PluginOrder {
        PluginOrder { id: ReservationId(number), reservation: None }
    }

    fn waiting(orders: &PluginOrders) -> usize {
        orders.lock().waiting.len()
    }

    #[test]
    fn the_latest_order_counts_and_one_reservation_is_in_one_hand() {
        let orders = PluginOrders::default();
        orders.order(unbind(1));
        assert_eq!(waiting(&orders), 0, "nothing is bound that could be unbound");
        orders.order(bind(1));
        orders.order(unbind(1));
        assert_eq!(waiting(&orders), 0, "taken back before it was carried out");
        orders.order(bind(1));
        let taken = orders.next().expect("an order");
        assert_eq!(taken, bind(1));
        orders.order(unbind(1));
        orders.order(bind(2));
        assert_eq!(orders.next(), Some(bind(2)), "the first is being carried out");
        orders.done(&taken, true);
        assert_eq!(orders.next(), Some(unbind(1)));
        orders.done(&unbind(1), false);
        orders.done(&bind(2), true);
        orders.order(unbind(2));
        assert_eq!(orders.next(), Some(unbind(2)));
        orders.end();
        orders.order(bind(3));
        assert_eq!((orders.next(), waiting(&orders)), (None, 0));
    }

    #[test]
    fn slow_bindings_are_few_and_hold_up_no_removal() {
        let orders = PluginOrders::default();
        (10..20).for_each(|number| orders.order(bind(number)));
        let taken: Vec<_> = (0..BOUND_AT_ONCE).map(|_| orders.next().expect("one")).collect();
        assert_eq!(orders.lock().ready(), None, "no more at once");
        orders.order(unbind(13));
        orders.order(bind(1));
        assert_eq!(orders.lock().ready(), None, "it is being bound");
        orders.done(&taken[3], true);
        assert_eq!(orders.lock().ready(), Some(ReservationId(13)), "before others are bound");
        (1..20).for_each(|number| orders.order(unbind(number)));
        assert_eq!(waiting(&orders), BOUND_AT_ONCE, "those that nobody took are gone");
    }
}
