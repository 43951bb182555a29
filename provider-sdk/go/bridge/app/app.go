// Package app stands in for github.com/gardener/machine-controller-manager/pkg/util/provider/app: a provider that imports it
// instead serves the Driver API and needs no other change.
package app

import "millwright.dev/provider-sdk/bridge"

// Run serves the Driver API; the options of the original are not read. --driver-name says the driver's name.
func Run(_, driver any) error { return bridge.Serve("", driver) }
