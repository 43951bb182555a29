package bridge

// The original's driver, called by reflection: its module is not imported, so that this package builds without it and works
// with every version of it. Requests are filled by the fields' names and by JSON, whose names are the wire format of
// Kubernetes objects and so do not change; responses are read by the fields' names.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"runtime/debug"
	"sync/atomic"
)

// Names of the calls, as the original has them.
const (
	callCreate     = "CreateMachine"
	callInitialize = "InitializeMachine"
	callDelete     = "DeleteMachine"
	callStatus     = "GetMachineStatus"
	callList       = "ListMachines"
)

// original is a value that has the methods of the original's interface Driver.
type original struct {
	methods map[string]*method
	// Held around every call where two at once can end the process: the Go runtime does not let one recover from two writers of
	// one map.
	serial chan struct{}
}

type method struct {
	function reflect.Value
	request  reflect.Type // the struct, not the pointer
	missing  atomic.Bool  // the driver has said Unimplemented
}

var (
	contextType = reflect.TypeFor[context.Context]()
	errorType   = reflect.TypeFor[error]()
)

// originalOf looks the methods up. It fails at the start rather than at the first call if a signature is not what is expected.
func originalOf(driver any, serial bool) (*original, error) {
	value := reflect.ValueOf(driver)
	if !value.IsValid() {
		return nil, errors.New("the driver is nil")
	}
	found := &original{methods: map[string]*method{}}
	if serial {
		found.serial = make(chan struct{}, 1)
	}
	for name, needed := range map[string][]string{
		callCreate:     {"Machine", "MachineClass", "Secret"},
		callDelete:     {"Machine", "MachineClass", "Secret"},
		callStatus:     {"Machine", "MachineClass", "Secret"},
		callInitialize: {"Machine", "MachineClass", "Secret"},
		callList:       {"MachineClass", "Secret"},
	} {
		function := value.MethodByName(name)
		if !function.IsValid() && (name == callInitialize || name == callStatus) {
			continue // InitializeMachine came with version 0.53
		}
		if !function.IsValid() {
			return nil, fmt.Errorf("%T has no method %s", driver, name)
		}
		request, err := requestOf(function.Type(), needed)
		if err != nil {
			return nil, fmt.Errorf("%T.%s: %w", driver, name, err)
		}
		found.methods[name] = &method{function: function, request: request}
	}
	return found, nil
}

func requestOf(kind reflect.Type, needed []string) (reflect.Type, error) {
	if kind.NumIn() != 2 || kind.NumOut() != 2 || kind.In(0) != contextType || kind.Out(1) != errorType ||
		kind.In(1).Kind() != reflect.Pointer || kind.In(1).Elem().Kind() != reflect.Struct {
		return nil, fmt.Errorf("a %s is no func(context.Context, *Request) (*Response, error)", kind)
	}
	request := kind.In(1).Elem()
	for _, field := range needed {
		if at, ok := request.FieldByName(field); !ok || at.Type.Kind() != reflect.Pointer {
			return nil, fmt.Errorf("%s has no pointer %s", request, field)
		}
	}
	return request, nil
}

// has says whether the driver has a call, as far as is known.
func (o *original) has(name string) bool {
	method := o.methods[name]
	return method != nil && !method.missing.Load()
}

// fields are the fields of a request, by name, each something that encoding/json can encode.
type fields map[string]any

// fill makes a request of the driver's type.
func (m *method) fill(in fields) (reflect.Value, error) {
	request := reflect.New(m.request)
	for field, value := range in {
		at := request.Elem().FieldByName(field)
		if !at.IsValid() {
			continue
		}
		text, err := json.Marshal(value)
		if err == nil {
			err = json.Unmarshal(text, at.Addr().Interface())
		}
		if err != nil {
			return request, fmt.Errorf("%s does not fit the driver's type: %w", field, err)
		}
	}
	return request, nil
}

// call calls. The reply counts beside an error, too: the original's drivers put both to use.
func (o *original) call(ctx context.Context, name string, in fields) (out reply, failed *failure) {
	method := o.methods[name]
	if method == nil {
		return reply{}, &failure{code: codeUnimplemented, message: "the driver has no " + name}
	}
	request, err := method.fill(in)
	if err != nil {
		return reply{}, &failure{code: codeInvalidArgument, message: err.Error()}
	}
	defer func() {
		if cause := recover(); cause != nil { // the cause may hold a request, with its Secret: it stays out of the log and the message
			slog.Error("the driver panicked", "call", name, "stack", string(debug.Stack()))
			failed = &failure{code: codePanic, message: "the driver panicked; its log says where"}
		}
	}()
	if o.serial != nil {
		select {
		case o.serial <- struct{}{}:
			defer func() { <-o.serial }()
		case <-ctx.Done():
			return reply{}, &failure{code: codeUnknown, message: "another call has not left the driver, which takes one at a time"}
		}
	}
	results := method.function.Call([]reflect.Value{reflect.ValueOf(ctx), request})
	out = readReply(results[0])
	if err, _ := results[1].Interface().(error); err != nil {
		failed = readError(err)
	}
	if failed != nil && failed.code == codeUnimplemented {
		method.missing.Store(true)
	}
	return out, failed
}
