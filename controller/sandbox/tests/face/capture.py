#!/usr/bin/env python3
"""Creates objects.json on a real kube-apiserver, asks it every question of questions.txt, writes answers.json.

    capture.py https://127.0.0.1:PORT TOKEN

The server must be fresh and hold the CRDs of deploy/crds. A question is `PATH` or `PATH<two spaces>ACCEPT`, where the
word TABLE stands for the media type of tables and AGGREGATED for that of aggregated discovery.
"""
import json, os, re, ssl, sys, time, urllib.error, urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
TYPES = {
    "TABLE": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
    "AGGREGATED": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json",
}
PLURALS = {"MachineClass": "machineclasses"}


def ask(base, token, method, path, accept, body=None):
    request = urllib.request.Request(base + path, method=method, data=None if body is None else json.dumps(body).encode())
    request.add_header("Authorization", "Bearer " + token)
    request.add_header("Accept", accept)
    request.add_header("User-Agent", "curl/1")
    if body is not None:
        request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, context=ssl._create_unverified_context(), timeout=20) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Content-Type"], error.read().decode()


def collection(thing):
    version, kind = thing["apiVersion"], thing["kind"]
    plural = PLURALS.get(kind, kind.lower() + "s")
    root = "/apis/" if "/" in version else "/api/"
    apart = "" if kind in ("Node", "PersistentVolume", "VolumeAttachment", "ClusterRole", "ClusterRoleBinding") else "namespaces/default/"
    return root + version + "/" + apart + plural


def main():
    base, token = sys.argv[1], sys.argv[2]
    for thing in json.load(open(HERE + "/objects.json")):
        code, _, text = ask(base, token, "POST", collection(thing), "application/json", thing)
        assert code in (201, 409), text
    time.sleep(1)
    answers = []
    for line in open(HERE + "/questions.txt").read().splitlines():
        if not line or line.startswith("#"):
            continue
        path, _, accept = line.partition("  ")
        code, kind, text = ask(base, token, "GET", path, TYPES.get(accept, accept or "application/json"))
        try:
            streamed = "watch=" in path and code == 200
            body = [json.loads(part) for part in text.splitlines()] if streamed else json.loads(text)
        except ValueError:
            body = text
        answers.append({"path": path, "accept": TYPES.get(accept, accept or "application/json"), "code": code, "type": kind, "body": body})
    # Not compared: the owners of fields, and the texts that describe fields.
    kept = lambda key, value: key != "managedFields" and not (key == "description" and isinstance(value, str))
    answers = json.loads(json.dumps(answers), object_hook=lambda o: {k: v for k, v in o.items() if kept(k, v)})
    with open(HERE + "/answers.json", "w") as out:
        out.write("[\n" + ",\n".join(json.dumps(a, sort_keys=True) for a in answers) + "\n]\n")


main()
