//! What is known of a Machine, as its plan and its calls see it: with its driver and with what the watches show.

use millwright_core::api::{Machine, meta};
use millwright_core::driver::DriverInfo;
use millwright_core::ids::{DriverName, Name, Uid};
use millwright_core::ledger::Calls;
use millwright_core::machine::{self, DriverView, Observed, leave};
use millwright_core::world::World;

use super::shared::Shared;
use crate::driver::DriverState;

/// Shows a Machine with all that is known about it.
pub(super) fn look_at<T>(shared: &Shared, world: &World, machine: &Machine, ask: impl FnOnce(&Observed<'_>) -> T) -> T {
    let uid = meta::identity(&machine.metadata).1;
    let driver = driver_of(world, machine);
    let state = driver.as_ref().map(|driver| shared.drivers.get(driver));
    let (info, nothing): (DriverInfo, _);
    let driver_name = driver.as_ref().map_or("", |driver| driver.as_str());
    nothing = Calls::default();
    let driver_view = match &state {
        None => DriverView::Unnamed,
        Some(DriverState::Missing { .. }) => DriverView::Missing { name: driver_name },
        Some(DriverState::Away { why }) => DriverView::Away { name: driver_name, why },
        Some(DriverState::Ready(driver)) => {
            info = driver.info().clone();
            DriverView::Ready(&info)
        }
    };
    let asked = machine::view::Asked {
        world,
        driver: driver_view,
        calls: world.ledger.calls.get(&uid).unwrap_or(&nothing),
        sight: shared.sight(driver.as_ref()),
        settings: &shared.settings,
    };
    machine::look(asked, machine, ask)
}

/// Whether its VM may go although the call had to wait: a Node that joined meanwhile is drained first.
pub(super) fn is_due_still(shared: &Shared, name: &Name, uid: &Uid) -> bool {
    let now = shared.env.now();
    shared.look(|world| {
        let known = world.machines.get(name);
        let it = known.filter(|machine| meta::identity(&machine.metadata).1 == *uid);
        it.is_none_or(|machine| look_at(shared, world, machine, |seen| leave::due(seen, now).is_none()))
    })
}

/// The driver of a Machine: the one that was asked for its VM, else the class's.
pub(super) fn driver_of(world: &World, machine: &Machine) -> Option<DriverName> {
    let asked = machine.creation_request().and_then(|request| request.driver());
    asked.or_else(|| {
        let class = world.classes.get(&Name::new(machine.class_name()?))?;
        world.ledger.driver_of(class)
    })
}
