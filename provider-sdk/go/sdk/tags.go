package sdk

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	pb "millwright.dev/provider-sdk/driverv1"
)

// Keys of the tags that say whose a VM is.
const (
	TagCluster   = "millwright/cluster"
	TagNamespace = "millwright/namespace"
	TagName      = "millwright/name"
	TagUID       = "millwright/uid"
	TagClass     = "millwright/machine-class"
	TagDigest    = "millwright/spec-digest"
)

// Tags are what the VM must bear from its first moment: those of the request, else the same ones made of key and class.
func Tags(request *pb.CreateMachineRequest) map[string]string {
	if len(request.Tags) > 0 {
		return request.Tags
	}
	key := request.GetKey()
	tags := map[string]string{
		TagCluster: key.GetClusterId(), TagNamespace: key.GetNamespace(), TagName: tagValue(key.GetName()), TagUID: key.GetUid(),
		TagClass: tagValue(request.GetMachineClass().GetName()),
	}
	if digest := request.SpecDigest; digest != "" {
		tags[TagDigest] = digest[:min(32, len(digest))]
	}
	return tags
}

// tagValue cuts a name to a label value: the uid is what identifies.
func tagValue(name string) string { return strings.TrimRight(Cut(name, 63), ".-") }

// KeyOf is the key that a VM's tags say.
func KeyOf(tags map[string]string) *pb.MachineKey {
	return &pb.MachineKey{ClusterId: tags[TagCluster], Namespace: tags[TagNamespace], Name: tags[TagName], Uid: tags[TagUID]}
}

// SameDigest says whether a VM was made of this spec, as far as is known: tags keep 32 characters of a digest.
func SameDigest(one, other string) bool {
	length := min(len(one), len(other))
	return length == 0 || length < 32 && one == other || length >= 32 && one[:length] == other[:length]
}

// SameName says whether two names may be of one machine, where either may have been read back from its tag, which holds the start of a longer
// name (CRE-6). Two whole names are compared as they are.
func SameName(one, other string) bool {
	isTagOf := func(tag, whole string) bool { return len(whole) > 63 && tag == tagValue(whole) }
	return one == other || isTagOf(one, other) || isTagOf(other, one)
}

// EncodeTag writes a key or a value in [a-z0-9_-] without loss, for providers that allow no more. "_" escapes a byte.
func EncodeTag(text string) string {
	var out strings.Builder
	for _, letter := range []byte(text) {
		if letter >= 'a' && letter <= 'z' || letter >= '0' && letter <= '9' || letter == '-' {
			out.WriteByte(letter)
		} else {
			fmt.Fprintf(&out, "_%02x", letter)
		}
	}
	return out.String()
}

// DecodeTag reads what EncodeTag wrote.
func DecodeTag(text string) (string, error) {
	var out []byte
	for at := 0; at < len(text); at++ {
		if text[at] != '_' {
			out = append(out, text[at])
			continue
		}
		if at+2 >= len(text) {
			return "", fmt.Errorf("%q ends within an escape", text)
		}
		letter, err := hex.DecodeString(text[at+1 : at+3])
		if err != nil {
			return "", fmt.Errorf("%q has a broken escape: %w", text, err)
		}
		out = append(out, letter[0])
		at += 2
	}
	return string(out), nil
}

// NodeName is a node's name for a Machine: at most 63 bytes, and unique though it was shortened (GEN-46). Machines of one name in two
// namespaces have the same one: it is for clusters whose Machines are in one namespace (GEN-51).
func NodeName(key *pb.MachineKey) string {
	if len(key.Name) <= 63 {
		return key.Name
	}
	sum := sha256.Sum256([]byte(key.Name))
	return strings.TrimRight(key.Name[:52], ".-") + "-" + hex.EncodeToString(sum[:5])
}
