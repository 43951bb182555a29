#!/usr/bin/env python3
"""Writes random.scenarios.json: writers who disagree about config maps, node status and our classes, from a fixed seed.

    tests/patch/random.py > tests/patch/random.scenarios.json
"""
import json, random

RANDOM = random.Random(7)
CUSTOM = "machine.sapcloud.io/v1alpha1"


def some(things):
    return RANDOM.sample(things, RANDOM.randint(0, len(things)))


def step(kind, path, body, force):
    made = {"verb": "PATCH", "type": kind, "path": path, "manager": RANDOM.choice(["one", "two", "three"]), "body": body}
    return {**made, "query": {"force": "true"}} if kind == "apply" and RANDOM.random() < force else made


def config_map(number):
    name, folder = f"rm{number}", "/api/v1/namespaces/default/configmaps"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {k: "0" for k in some("abc")}}
    steps = [{"verb": "POST", "path": folder, "manager": "maker", "body": body}]
    for _ in range(9):
        kind = RANDOM.choice(["apply", "apply", "apply", "merge", "strategic"])
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
        if RANDOM.random() < 0.7:
            body["data"] = {k: RANDOM.choice("01") for k in some("abcd")}
        if RANDOM.random() < 0.7:
            body["metadata"]["finalizers"] = ["x.io/" + k for k in some("abcde")]
        if RANDOM.random() < 0.5:
            owner = {"apiVersion": "v1", "kind": "ConfigMap"}
            body["metadata"]["ownerReferences"] = [{**owner, "name": RANDOM.choice("xy"), "uid": "u-" + k} for k in some("123")]
        if RANDOM.random() < 0.5:
            body["metadata"]["labels"] = {k: RANDOM.choice("01") for k in some("ab")}
        if kind != "apply" and RANDOM.random() < 0.3:
            body["metadata"]["labels"] = None
        steps.append(step(kind, f"{folder}/{name}", body, 0.5))
    return {"name": f"random config map {number}", "steps": steps}


def condition(name):
    made = {"type": name, "status": RANDOM.choice(["True", "False"])}
    return {**made, "reason": RANDOM.choice("rs")} if RANDOM.random() < 0.4 else made


def node(number):
    name = f"rn{number}"
    head = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    steps = [{"verb": "POST", "path": "/api/v1/nodes", "manager": "maker", "body": head}]
    for _ in range(9):
        kind = RANDOM.choice(["apply", "apply", "apply", "strategic", "strategic"])
        conditions = [condition(name) for name in some("ABCDE")]
        status = {"conditions": conditions}
        if RANDOM.random() < 0.4:
            names = some(["Hostname", "ExternalDNS", "InternalDNS"])
            status["addresses"] = [{"type": name, "address": RANDOM.choice(["h1", "h2"])} for name in names]
        if kind == "strategic" and RANDOM.random() < 0.3 and conditions:
            RANDOM.choice(conditions)["$patch"] = "delete"
        if kind == "strategic" and RANDOM.random() < 0.2 and conditions:
            conditions.insert(0, {"$patch": "replace"})
        if kind == "strategic" and RANDOM.random() < 0.4:
            status["$setElementOrder/conditions"] = [{"type": name} for name in some("ABCDEF")]
        steps.append(step(kind, f"/api/v1/nodes/{name}/status", {**head, "status": status}, 0.6))
    return {"name": f"random node {number}", "steps": steps}


def anything(depth=0):
    chance = RANDOM.random()
    if depth < 3 and chance < 0.45:
        return {k: anything(depth + 1) for k in some("abc")}
    if chance < 0.55:
        return [RANDOM.randint(0, 2) for _ in range(RANDOM.randint(0, 2))]
    return RANDOM.choice([0, 1, "s", True])


def machine_class(number):
    name, folder = f"rc{number}", f"/apis/{CUSTOM}/namespaces/default/machineclasses"

    def body():
        spec = {k: anything() for k in some("abcd")}
        return {"apiVersion": CUSTOM, "kind": "MachineClass", "metadata": {"name": name}, "providerSpec": spec}

    steps = [{"verb": "POST", "path": folder, "manager": "maker", "body": {**body(), "provider": "p"}}]
    for _ in range(8):
        steps.append(step(RANDOM.choice(["apply", "apply", "merge"]), f"{folder}/{name}", body(), 0.7))
    return {"name": f"random class {number}", "steps": steps}


scenarios = [config_map(n) for n in range(12)] + [node(n) for n in range(10)] + [machine_class(n) for n in range(10)]
print("[\n" + ",\n".join(json.dumps(scenario) for scenario in scenarios) + "\n]")
