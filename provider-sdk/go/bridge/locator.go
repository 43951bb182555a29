package bridge

import (
	"encoding/json"
	"maps"
	"regexp"

	"google.golang.org/protobuf/types/known/structpb"
)

// The contract's limit, with room for another way to write JSON.
const locatorMax = 3800

// Texts that may be secret: the manager keeps a locator where many may read it.
var notPlaces = regexp.MustCompile(`(?i)password|passphrase|secret|token|private_?key|credential|userdata|customdata|user-data|ignition`)

// omitted is put for a text that is left out: drivers check in every call that a text is there, also where they read none.
const omitted = "omitted"

// locatorOf is what the driver needs of a class to find and delete its VMs: the whole spec where it is short, else without its
// long texts and then without what is deeply nested. The marks stay in any case: without them no VM is found.
func (p profile) locatorOf(r *request) (*structpb.Struct, error) {
	tags := p.tagPath(r.spec, inTags)
	for _, longest := range []int{1 << 20, 256, 64} {
		out := map[string]any{"spec": pruned(r.spec, longest, 8), "labels": anyMap(r.labels), "class": r.className}
		if text, err := json.Marshal(out); err != nil || len(text) <= locatorMax {
			return structOf(out, err)
		}
	}
	essentials := pruned(r.spec, 64, 1)
	if nested, ok := r.spec["spec"].(map[string]any); ok {
		essentials["spec"] = pruned(nested, 64, 1)
	}
	if own, ok := at(r.spec, tags).(map[string]any); ok && r.marks.cluster != "" {
		kept := map[string]any{r.marks.cluster: own[r.marks.cluster]}
		if r.marks.role != "" {
			kept[r.marks.role] = own[r.marks.role]
		}
		essentials = replaced(essentials, tags, func(any) any { return kept })
	}
	return structOf(map[string]any{"spec": essentials, "labels": anyMap(r.labels), "class": r.className}, nil)
}

func structOf(out map[string]any, err error) (*structpb.Struct, error) {
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(out)
	if err != nil || len(text) > locatorMax { // none is better than one that is refused: the manager keeps short fields then
		return nil, err
	}
	made := &structpb.Struct{}
	return made, made.UnmarshalJSON(text)
}

// pruned is a spec without long and secret texts, and without what is nested deeper.
func pruned(spec map[string]any, longest, depth int) map[string]any {
	out := map[string]any{}
	for key, value := range spec {
		if _, isText := value.(string); isText && notPlaces.MatchString(key) {
			value = omitted
		}
		if kept, ok := prunedValue(value, longest, depth-1); ok {
			out[key] = kept
		}
	}
	return out
}

func prunedValue(value any, longest, depth int) (any, bool) {
	switch of := value.(type) {
	case string:
		if len(of) > longest {
			return omitted, true
		}
	case map[string]any:
		return pruned(of, longest, depth), depth > 0
	case []any:
		kept := []any{}
		for _, item := range of {
			if inner, ok := prunedValue(item, longest, depth-1); ok {
				kept = append(kept, inner)
			}
		}
		return kept, depth > 0
	}
	return value, true
}

// locate puts what a locator says over the spec: where both say something, the VM is where the locator says.
func (r *request) locate(locator map[string]any) {
	if spec, ok := locator["spec"].(map[string]any); ok {
		r.spec = overlaid(r.spec, spec)
	}
	if labels, ok := locator["labels"].(map[string]any); ok && len(labels) > 0 {
		r.labels = map[string]string{}
		for key, value := range labels {
			r.labels[key], _ = value.(string)
		}
	}
	if name, _ := locator["class"].(string); name != "" {
		r.className = name
	}
}

// overlaid goes into nested objects, so that what a locator leaves out stays as the class has it. Tags are taken whole: the
// class's new marks beside the old ones would make the driver choose.
func overlaid(under, over map[string]any) map[string]any {
	out := maps.Clone(under)
	if out == nil {
		out = map[string]any{}
	}
	for key, value := range over {
		if _, known := out[key]; known && value == omitted {
			continue
		}
		inner, isMap := value.(map[string]any)
		below, wasMap := out[key].(map[string]any)
		if isMap && wasMap && key != "tags" && key != "labels" {
			value = overlaid(below, inner)
		}
		out[key] = value
	}
	return out
}
