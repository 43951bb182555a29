#!/usr/bin/env python3
"""Writes src/protobuf/numbers.txt: the numbers by which protobuf calls the fields that src/openapi/builtins.json names.

    tests/face/numbers.py ~/.cargo/registry/src/*/k8s-pb-0.9.0/src > src/protobuf/numbers.txt

k8s-pb is made from the .proto files of Kubernetes; `cargo fetch` in any crate that depends on it brings its source. It is not
depended on here: it is much to compile, and none of its messages can be told in JSON.

One message a line. `2.1` is field 1 of what is embedded as field 2; a question mark follows the scalars whose zero is not the same
as none, which are pointers in Go: no schema says so. Left out: definitions of custom kinds, lists, and what that crate, which is a
version behind, does not know yet.
"""
import json, pathlib, re, sys

SOURCE = pathlib.Path(sys.argv[1])
BUILTINS = pathlib.Path(__file__).parent / "../../src/openapi/builtins.json"
# Numbers and switches that are no pointers in Go; all others without a default are.
PLAIN = set("""chapAuthDiscovery chapAuthSession code count denied deprecatedCount failureThreshold generation hostIPC hostNetwork
    hostPID hostPort initialDelaySeconds observedGeneration partition periodSeconds readOnly retryAfterSeconds signal sizeBytes sslEnabled
    stdin stdinOnce successThreshold timeoutSeconds tty unschedulable""".split())
# Exceptions, and texts that are pointers and of which an empty one says something.
POINTERS = {"CSIVolumeSource.readOnly", "DeleteOptions.propagationPolicy", "HostPathVolumeSource.type", "LeaseSpec.holderIdentity",
            "PersistentVolumeClaimSpec.storageClassName", "Preconditions.resourceVersion", "Preconditions.uid"}


def flat(name):
    return name.rstrip("_").replace("_", "").lower()


def fields(module, message):
    """Field name without case -> path of numbers, what is embedded included."""
    found = re.search(rf"pub struct {message} \{{(.*?)\n\}}", (SOURCE / module / "mod.rs").read_text(), re.S | re.I)
    out = {}
    for tag, name, kind in re.findall(r'tag\s*=\s*"(\d+)"[^\]]*\]\s*pub (?:r#)?(\w+):\s*([^\n]*)', found[1] if found else ""):
        out[flat(name)] = (tag, kind.rstrip(",").rstrip(">").split("<")[-1])
    return out


def line(name, schema):
    *module, message = name.removeprefix("io.k8s.").split(".")
    module, known = "/".join(module), {}
    wanted = {flat(name): name for name in schema.get("properties", {})}
    for own, (tag, kind) in fields(module, message).items():
        if own in wanted:
            known[wanted[own]] = tag
            continue
        for inner, (number, _) in fields(module, kind).items():
            if inner in wanted:
                known.setdefault(wanted[inner], f"{tag}.{number}")
    if not known:
        return None
    said = []
    for field, number in sorted(known.items(), key=lambda pair: [int(part) for part in pair[1].split(".")]):
        of = schema["properties"][field]
        is_number = of.get("type") in ("boolean", "integer") and "default" not in of
        mark = "?" if is_number and field not in PLAIN or f"{message}.{field}" in POINTERS else ""
        said.append(f"{field}={number}{mark}")
    return f"{name.removeprefix('io.k8s.')}: {' '.join(said)}"


for name, schema in json.loads(BUILTINS.read_text()).items():
    is_left_out = name.endswith("List") or "apiextensions" in name
    told = None if is_left_out else line(name, schema)
    if told:
        print(told)
