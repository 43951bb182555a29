package sdk

import (
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// mended is an answer whose texts can be encoded: providers' texts are not always UTF-8, and one such byte would cost the whole
// answer. It is copied where it has to change, since callers may share it.
func mended(answer any) any {
	message, ok := answer.(proto.Message)
	if !ok || mend(message.ProtoReflect(), false) {
		return answer
	}
	copied := proto.Clone(message)
	mend(copied.ProtoReflect(), true)
	return copied
}

// mend says whether all texts are UTF-8, and makes them so.
func mend(message protoreflect.Message, change bool) (good bool) {
	good = true
	message.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		switch {
		case field.IsMap():
			good = mendMap(field, value.Map(), change) && good
		case field.IsList():
			for at := range value.List().Len() {
				fresh, fine := mendValue(field, value.List().Get(at), change)
				if good = good && fine; !fine && change {
					value.List().Set(at, fresh)
				}
			}
		default:
			fresh, fine := mendValue(field, value, change)
			if good = good && fine; !fine && change {
				message.Set(field, fresh)
			}
		}
		return good || change
	})
	return good
}

func mendMap(field protoreflect.FieldDescriptor, of protoreflect.Map, change bool) (good bool) {
	good = true
	type pair struct{ old, key, value protoreflect.Value }
	var wrong []pair
	of.Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
		freshKey, fineKey := mendValue(field.MapKey(), key.Value(), change)
		fresh, fine := mendValue(field.MapValue(), value, change)
		if !fineKey || !fine {
			good, wrong = false, append(wrong, pair{key.Value(), freshKey, fresh})
		}
		return good || change
	})
	for _, at := range wrong {
		if change {
			of.Clear(at.old.MapKey())
			of.Set(at.key.MapKey(), at.value)
		}
	}
	return good
}

func mendValue(field protoreflect.FieldDescriptor, value protoreflect.Value, change bool) (protoreflect.Value, bool) {
	switch field.Kind() {
	case protoreflect.StringKind:
		if !utf8.ValidString(value.String()) {
			return protoreflect.ValueOfString(strings.ToValidUTF8(value.String(), "?")), false
		}
	case protoreflect.MessageKind:
		return value, mend(value.Message(), change)
	}
	return value, true
}
