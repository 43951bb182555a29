#!/usr/bin/env python3
"""Asks a real kube-apiserver what the scenarios of this folder come to, and writes the answers beside them.

    tests/patch/capture.py https://127.0.0.1:PORT TOKEN

The server needs the CRDs of deploy/crds. Each FILE.scenarios.json is a list of {name, steps}; a step is {verb, type, path,
query, manager, body}. FILE.answers.json holds the same steps with the server's {code, answer}. Objects are removed before
and after each scenario. schemas.json holds the schemas of our kinds as the server has them, without prose. "$rv" in a body stands for the object's version at that moment.
"""
import glob, json, os, ssl, sys, urllib.error, urllib.parse, urllib.request

BASE, TOKEN = sys.argv[1], sys.argv[2]
TYPES = {"json": "application/json-patch+json", "merge": "application/merge-patch+json",
         "strategic": "application/strategic-merge-patch+json", "apply": "application/apply-patch+yaml"}
HERE = os.path.dirname(os.path.abspath(__file__))
CONTEXT = ssl._create_unverified_context()


def ask(verb, path, query, content_type, body):
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": content_type}
    url = f"{BASE}{path}" + (f"?{urllib.parse.urlencode(query)}" if query else "")
    try:
        answer = urllib.request.urlopen(urllib.request.Request(url, data, headers, method=verb), context=CONTEXT)
        return answer.status, json.load(answer)
    except urllib.error.HTTPError as refused:
        return refused.code, json.loads(refused.read())


def put_version(value, version):
    if isinstance(value, dict):
        return {k: put_version(v, version) for k, v in value.items()}
    if isinstance(value, list):
        return [put_version(v, version) for v in value]
    return version if value == "$rv" else value


def object_path(step):
    return step["path"] + "/" + step["body"]["metadata"]["name"] if step["verb"] == "POST" else step["path"].removesuffix("/status")


def remove(path):
    ask("PATCH", path, {}, TYPES["merge"], {"metadata": {"finalizers": None}})
    ask("DELETE", path, {"gracePeriodSeconds": 0}, "application/json", None)


def run(scenario):
    paths = {object_path(step) for step in scenario["steps"]}
    for path in paths:
        remove(path)
    for step in scenario["steps"]:
        version = ask("GET", object_path(step), {}, "application/json", None)[1].get("metadata", {}).get("resourceVersion", "")
        query = dict(step.get("query", {}))
        if step.get("manager"):
            query["fieldManager"] = step["manager"]
        content_type = TYPES.get(step.get("type"), "application/json")
        step["code"], step["answer"] = ask(step["verb"], step["path"], query, content_type, put_version(step["body"], version))
    for path in paths:
        remove(path)
    return scenario


def without_prose(schema):
    if isinstance(schema, dict):
        return {k: without_prose(v) for k, v in schema.items() if k != "description" or not isinstance(v, str)}
    return [without_prose(item) for item in schema] if isinstance(schema, list) else schema


crds = ask("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", {}, "application/json", None)[1]["items"]
schemas = {crd["spec"]["names"]["kind"]: without_prose(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]) for crd in crds}
with open(os.path.join(HERE, "schemas.json"), "w") as out:
    out.write("{\n" + ",\n".join(f"{json.dumps(k)}:{json.dumps(v, sort_keys=True)}" for k, v in sorted(schemas.items())) + "\n}\n")

for source in sorted(glob.glob(os.path.join(HERE, "*.scenarios.json"))):
    scenarios = [run(scenario) for scenario in json.load(open(source))]
    with open(source.replace(".scenarios.", ".answers."), "w") as out:
        out.write("[\n" + ",\n".join(json.dumps(s, sort_keys=True) for s in scenarios) + "\n]\n")
