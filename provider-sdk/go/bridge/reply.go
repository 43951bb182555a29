package bridge

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
)

// reply is what a response of the original's driver says.
type reply struct {
	providerID, nodeName, lastKnownState string
	addresses                            []address
	machines                             map[string]string // provider id to machine name
}

type address struct{ Type, Address string }

func readReply(response reflect.Value) (out reply) {
	for response.Kind() == reflect.Pointer || response.Kind() == reflect.Interface {
		if response.IsNil() {
			return out
		}
		response = response.Elem()
	}
	if response.Kind() != reflect.Struct {
		return out
	}
	readField(response, "ProviderID", &out.providerID)
	readField(response, "NodeName", &out.nodeName)
	readField(response, "LastKnownState", &out.lastKnownState)
	readField(response, "Addresses", &out.addresses)
	readField(response, "MachineList", &out.machines)
	return out
}

// readField reads a field of a response. One of another type, of another version, counts as absent.
func readField[T any](response reflect.Value, field string, into *T) {
	at := response.FieldByName(field)
	if !at.IsValid() {
		return
	}
	var read T
	text, err := json.Marshal(at.Interface())
	if err == nil && json.Unmarshal(text, &read) == nil {
		*into = read
	}
}

// ids are the provider ids of a list, in order.
func (r reply) ids() []string { return slices.Sorted(maps.Keys(r.machines)) }
