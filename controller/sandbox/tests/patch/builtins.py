#!/usr/bin/env python3
"""Writes src/topology/builtins.json: what a kube-apiserver says of the shape of the kinds that it brings itself.

    tests/patch/builtins.py https://127.0.0.1:PORT TOKEN > src/topology/builtins.json

Kept of each schema: types, field names, list and map types, merge keys, defaults. Everything else is dropped.
"""
import json, ssl, sys, urllib.request

BASE, TOKEN = sys.argv[1], sys.argv[2]
GROUPS = {
    "api/v1": ["Secret", "Node", "Pod", "PersistentVolume", "PersistentVolumeClaim", "Event", "Namespace", "ServiceAccount", "ConfigMap"],
    "apis/policy/v1": ["PodDisruptionBudget"],
    "apis/storage.k8s.io/v1": ["VolumeAttachment"],
    "apis/events.k8s.io/v1": ["Event"],
    "apis/coordination.k8s.io/v1": ["Lease"],
    "apis/apiextensions.k8s.io/v1": ["CustomResourceDefinition"],
    "apis/rbac.authorization.k8s.io/v1": ["Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"],
}
KEPT = {"type", "format", "default", "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type",
        "x-kubernetes-patch-strategy", "x-kubernetes-patch-merge-key"}
PREFIX = "#/components/schemas/"
# Definitions that are one scalar on the wire, whatever OpenAPI calls them.
SCALARS = {"io.k8s.apimachinery.pkg.apis.meta.v1.Time", "io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime",
           "io.k8s.apimachinery.pkg.api.resource.Quantity", "io.k8s.apimachinery.pkg.util.intstr.IntOrString"}


def get(path):
    request = urllib.request.Request(f"{BASE}/{path}", headers={"Authorization": f"Bearer {TOKEN}"})
    return json.load(urllib.request.urlopen(request, context=ssl._create_unverified_context()))


def trim(schema):
    """One schema without prose. A reference wrapped in allOf (to carry a default) is unwrapped."""
    if "allOf" in schema:
        schema = {**schema, **schema["allOf"][0]}
    kept = {k: v for k, v in schema.items() if k in KEPT}
    if "$ref" in schema:
        name = schema["$ref"][len(PREFIX):]
        return {**{k: v for k, v in kept.items() if k != "default" or v != {}}, "$ref": name} if name not in SCALARS else {"type": "scalar"}
    if "properties" in schema:
        kept["properties"] = {k: trim(v) for k, v in schema["properties"].items()}
    if isinstance(schema.get("additionalProperties"), dict):
        kept["additionalProperties"] = trim(schema["additionalProperties"])
    if "items" in schema:
        kept["items"] = trim(schema["items"])
    return kept


def references(schema):
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"]
        for value in schema.values():
            yield from references(value)


kinds, definitions = {}, {}
for path, wanted in GROUPS.items():
    schemas = get(f"openapi/v3/{path}")["components"]["schemas"]
    group_version = path.split("/", 1)[1]
    for name, schema in schemas.items():
        for gvk in schema.get("x-kubernetes-group-version-kind", []):
            found = f"{gvk['group']}/{gvk['version']}".lstrip("/")
            if len(schema.get("x-kubernetes-group-version-kind")) == 1 and found == group_version and gvk["kind"] in wanted:
                kinds[f"{found}/{gvk['kind']}"] = name
    todo = list(kinds.values())
    while todo:
        name = todo.pop()
        if name in definitions or name not in schemas:
            continue
        definitions[name] = trim(schemas[name])
        todo.extend(references(definitions[name]))
# One definition a line: readable in a diff.
lines = ",\n".join(f"{json.dumps(k)}:{json.dumps(v, separators=(',', ':'), sort_keys=True)}" for k, v in sorted(definitions.items()))
print(f"{{\"kinds\":{json.dumps(kinds, sort_keys=True)},\n\"definitions\":{{\n{lines}\n}}}}")
