//! Wire to SDK and back: the only place that knows both.
//!
//! Requests have passed `validate.rs`. Of answers it decides what the contract allows: texts for people are cut, and an
//! answer that would mislead the manager is a `DRIVER_FAULT`.

mod answer;
mod json;
mod request;

pub(crate) use self::answer::{
    class_report, class_schema, created, deletion, driver_info, initialized, node_template, not_deleted_yet, page,
    status, watch_event,
};
pub(crate) use self::json::json_object;
pub(crate) use self::request::{
    create_machine, delete_machine, get_machine_status, get_node_template, initialize_machine, list_machines,
    validate_machine_class, watch_machines,
};
