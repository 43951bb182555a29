//! The CustomResourceDefinitions of the four kinds.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

use super::{Machine, MachineClass, MachineDeployment, MachineSet};

/// All four, in the order in which they are installed.
pub fn all() -> Vec<CustomResourceDefinition> {
    vec![
        MachineClass::crd(),
        Machine::crd(),
        MachineSet::crd(),
        MachineDeployment::crd(),
    ]
}
