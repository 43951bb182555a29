#!/usr/bin/env python3
"""Writes src/openapi/builtins.json: what a kube-apiserver publishes of the kinds that it brings itself and that are served here.

    tests/face/openapi.py https://127.0.0.1:PORT TOKEN > src/openapi/builtins.json

Kept: the schemas of these kinds, of the reviews that are answered, and of all that they mention, with the first sentence of each
description. Left out: paths, which are made from the registry of kinds, and the groups of kinds that every group has, as
DeleteOptions.

    tests/face/openapi.py https://127.0.0.1:PORT TOKEN operations > tests/face/operations.txt

writes what the server says can be done with these kinds: one operation a line.
"""
import json, re, ssl, sys, urllib.request

BASE, TOKEN = sys.argv[1], sys.argv[2]
SERVED = {
    "api/v1": {"namespaces": "Namespace", "secrets": "Secret", "configmaps": "ConfigMap", "serviceaccounts": "ServiceAccount",
               "nodes": "Node", "pods": "Pod", "persistentvolumes": "PersistentVolume",
               "persistentvolumeclaims": "PersistentVolumeClaim", "events": "Event"},
    "apis/events.k8s.io/v1": {"events": "Event"},
    "apis/coordination.k8s.io/v1": {"leases": "Lease"},
    "apis/policy/v1": {"poddisruptionbudgets": "PodDisruptionBudget"},
    "apis/storage.k8s.io/v1": {"volumeattachments": "VolumeAttachment"},
    "apis/rbac.authorization.k8s.io/v1": {"roles": "Role", "rolebindings": "RoleBinding", "clusterroles": "ClusterRole",
                                          "clusterrolebindings": "ClusterRoleBinding"},
    "apis/apiextensions.k8s.io/v1": {"customresourcedefinitions": "CustomResourceDefinition"},
    "apis/apps/v1": {"controllerrevisions": "ControllerRevision"},
}
# What may only be asked. Their schemas are told to nobody: bodies in protobuf are read by them.
ASKED = {"apis/authorization.k8s.io/v1": {"selfsubjectaccessreviews": "SelfSubjectAccessReview"},
         "apis/authentication.k8s.io/v1": {"selfsubjectreviews": "SelfSubjectReview"}}
SUBRESOURCES = {"status", "eviction"}
# What subresources speak, and what every group has.
SHARED = ["io.k8s.api.autoscaling.v1.Scale", "io.k8s.api.policy.v1.Eviction"] + [
    "io.k8s.apimachinery.pkg.apis.meta.v1." + name for name in ["Status", "DeleteOptions", "Patch"]]


def get(path):
    request = urllib.request.Request(f"{BASE}/openapi/v3/{path}", headers={"Authorization": f"Bearer {TOKEN}", "Accept": "application/json"})
    return json.load(urllib.request.urlopen(request, context=ssl._create_unverified_context()))


def references(schema):
    if isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"].rsplit("/", 1)[1]
        schema = list(schema.values())
    if isinstance(schema, list):
        for value in schema:
            yield from references(value)


def trim(schema):
    if isinstance(schema, list):
        return [trim(value) for value in schema]
    if not isinstance(schema, dict):
        return schema
    out = {}
    for key, value in schema.items():
        if key == "description" and isinstance(value, str):
            value = re.split(r"(?<=[.!?])\s", value.strip())[0]
        out[key] = trim(value)
    return out


def definitions():
    found = {}
    for path, kinds in {**SERVED, **ASKED}.items():
        schemas = get(path)["components"]["schemas"]
        wanted = set(kinds.values()) | {kind + "List" for kind in kinds.values()}
        group, version = ("/" + path.removeprefix("api").removeprefix("s/").removeprefix("/")).rsplit("/", 1)
        todo = list(SHARED)
        for name, schema in schemas.items():
            gvks = schema.get("x-kubernetes-group-version-kind", [])
            if len(gvks) == 1 and gvks[0] in [{"group": group.lstrip("/"), "version": version, "kind": kind} for kind in wanted]:
                todo.append(name)
        while todo:
            name = todo.pop()
            if name not in found and name in schemas:
                found[name] = trim(schemas[name])
                todo.extend(references(schemas[name]))
    for schema in found.values():
        if len(schema.get("x-kubernetes-group-version-kind", [])) > 1:
            del schema["x-kubernetes-group-version-kind"]
    # One definition a line: readable in a diff.
    lines = ",\n".join(f"{json.dumps(k)}:{json.dumps(v, separators=(',', ':'), sort_keys=True)}" for k, v in sorted(found.items()))
    print("{\n" + lines + "\n}")


def named(content):
    types = ",".join(sorted(content)).replace("application/", "").replace("vnd.kubernetes.", "")
    refs = sorted({body["schema"]["$ref"].rsplit(".", 1)[1] for body in content.values() if "$ref" in body["schema"]})
    return f"{types} {' '.join(refs)}".strip()


def operations():
    lines = []
    for path, kinds in SERVED.items():
        for url, item in get(path)["paths"].items():
            rest = url.removeprefix(f"/{path}/").removeprefix("namespaces/{namespace}/").split("/")
            if rest[0] not in kinds or (len(rest) > 2 and rest[2] not in SUBRESOURCES):
                continue
            shared = [parameter["name"] for parameter in item.get("parameters", [])]
            for method, said in item.items():
                if method == "parameters":
                    continue
                gvk = said["x-kubernetes-group-version-kind"]
                own = [parameter["name"] for parameter in said.get("parameters", [])]
                answers = [f"{code} {named(answer.get('content', {}))}".strip() for code, answer in sorted(said["responses"].items())]
                lines.append(" | ".join([
                    f"{method} {url}", said["operationId"], said["x-kubernetes-action"], "/".join([gvk["group"], gvk["version"], gvk["kind"]]),
                    said["description"], ",".join(said["tags"]), "path: " + ",".join(shared), "query: " + ",".join(own),
                    "takes " + named(said.get("requestBody", {}).get("content", {})), "gives " + "; ".join(answers)]))
    print("\n".join(sorted(lines)))


operations() if sys.argv[3:] == ["operations"] else definitions()
