package bridge

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// code is one of the original's machine codes, by its name.
type code string

const (
	codeInvalidArgument code = "InvalidArgument"
	codeUnimplemented   code = "Unimplemented"
	codeNotFound        code = "NotFound"
	codeUninitialized   code = "Uninitialized"
	codeUnknown         code = "Unknown"
	codePanic           code = "Panic" // ours
)

// The numbers of the machine codes are gRPC's, and one more.
var codeNumbers = strings.Fields("OK Canceled Unknown InvalidArgument DeadlineExceeded NotFound AlreadyExists PermissionDenied " +
	"ResourceExhausted FailedPrecondition Aborted OutOfRange Unimplemented Internal Unavailable DataLoss Unauthenticated Uninitialized")

// failure is an error of the original's driver.
type failure struct {
	code    code
	message string
}

// readError reads the machine code of an error: of the first in its chain that has one, else of its text, as the original does.
func readError(err error) *failure {
	for at := err; at != nil; at = errors.Unwrap(at) {
		found, ok := codeOf(at)
		if !ok {
			continue
		}
		message := at.Error()
		if text, ok := at.(interface{ Message() string }); ok {
			message = text.Message()
		} else if parts := bracketed(message); len(parts) >= 2 && parts[0] == string(found) {
			message = parts[1]
		}
		return &failure{code: found, message: message}
	}
	if parts := bracketed(err.Error()); len(parts) >= 2 && slices.Contains(codeNumbers, parts[0]) {
		return &failure{code: code(parts[0]), message: parts[1]}
	}
	return &failure{code: codeUnknown, message: err.Error()}
}

func codeOf(err error) (code, bool) {
	function := reflect.ValueOf(err).MethodByName("Code")
	if !function.IsValid() || function.Type().NumIn() != 0 || function.Type().NumOut() != 1 {
		return "", false
	}
	value := function.Call(nil)[0]
	if text, ok := value.Interface().(fmt.Stringer); ok && slices.Contains(codeNumbers, text.String()) {
		return code(text.String()), true
	}
	number := -1
	switch {
	case value.CanUint():
		number = int(value.Uint())
	case value.CanInt():
		number = int(value.Int())
	}
	if number < 0 || number >= len(codeNumbers) {
		return "", false
	}
	return code(codeNumbers[number]), true
}

// bracketed are the texts within outermost square brackets.
func bracketed(text string) (parts []string) {
	depth, begin := 0, 0
	for at, letter := range text {
		switch letter {
		case '[':
			if depth == 0 {
				begin = at + 1
			}
			depth++
		case ']':
			if depth == 1 {
				parts = append(parts, text[begin:at])
			}
			depth = max(0, depth-1)
		}
	}
	return parts
}
