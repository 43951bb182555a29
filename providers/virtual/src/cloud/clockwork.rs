//! The clock's own events: a VM powers on, a deletion ends. Decides nothing; it orders, and the writer decides.

use jiff::Timestamp;

use super::{
    Cloud, Happening,
    journal::Event,
    vm::{Vm, VmId},
    writer::Ask,
};
use crate::agenda::Agenda;

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Boot(VmId),
    Purge(VmId),
}

pub(super) async fn run(cloud: &Cloud) {
    let (vms, mut happenings) = cloud.follow();
    let mut agenda = Agenda::new();
    for vm in &vms {
        plan(&mut agenda, vm);
    }
    drop(vms);
    loop {
        tokio::select! {
            biased;
            () = agenda.wait(cloud.now()) => order_due(cloud, &mut agenda, cloud.now()),
            Some(Happening { event, vm }) = happenings.recv() => match event {
                Event::Accepted | Event::Deleting => plan(&mut agenda, &vm),
                Event::Booted | Event::Joined | Event::Stopped | Event::Removed => {}
            },
        }
    }
}

fn plan(agenda: &mut Agenda<Due>, vm: &Vm) {
    if !vm.booted {
        agenda.add(vm.running_at, Due::Boot(vm.id.clone()));
    }
    if let Some(deletion) = vm.deletion {
        agenda.add(deletion.gone_at, Due::Purge(vm.id.clone()));
    }
}

fn order_due(cloud: &Cloud, agenda: &mut Agenda<Due>, now: Timestamp) {
    while let Some(due) = agenda.pop_due(now) {
        cloud.tell(match due {
            Due::Boot(id) => Ask::Booted(id),
            Due::Purge(id) => Ask::Purge(id),
        });
    }
}
