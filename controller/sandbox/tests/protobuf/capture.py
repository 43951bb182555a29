#!/usr/bin/env python3
"""Writes captured.json: what a kube-apiserver says in protobuf (base64) and in JSON of the objects below, and how it refuses bodies.

    tests/protobuf/capture.py https://127.0.0.1:PORT TOKEN > tests/protobuf/captured.json

The objects say what protobuf and JSON do not say alike: zeros that count and zeros that do not, times, quantities, numbers that may
be texts, bytes, what is embedded.
"""
import base64, json, ssl, sys, urllib.error, urllib.request

BASE, TOKEN = sys.argv[1], sys.argv[2]
PROTOBUF = "application/vnd.kubernetes.protobuf"
NAMESPACE = "protobuf"
PROBE = {"httpGet": {"path": "/", "port": "http", "httpHeaders": [{"name": "a", "value": ""}]}, "initialDelaySeconds": 0}
CONTAINER = {
    "name": "c", "image": "i:1", "command": ["a", ""], "ports": [{"containerPort": 80, "name": "http"}],
    "env": [{"name": "A", "value": ""}, {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": False}}},
            {"name": "C", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}}],
    "envFrom": [{"configMapRef": {"name": "m", "optional": True}}],
    "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "1"}},
    "livenessProbe": PROBE, "readinessProbe": {"exec": {"command": ["x"]}, "terminationGracePeriodSeconds": None},
    "startupProbe": {"tcpSocket": {"port": 80}}, "lifecycle": {"preStop": {"exec": {"command": ["x"]}}},
    "securityContext": {"runAsUser": 0, "privileged": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}},
    "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, {"name": "host", "mountPath": "/host", "readOnly": True}],
}
POD = {
    "nodeName": "n", "serviceAccountName": "a", "hostNetwork": False, "terminationGracePeriodSeconds": 0, "enableServiceLinks": False,
    "automountServiceAccountToken": False, "shareProcessNamespace": False, "activeDeadlineSeconds": 5,
    "nodeSelector": {"a": ""}, "securityContext": {"runAsUser": 0, "fsGroup": 0, "supplementalGroups": [1, 0]},
    "containers": [CONTAINER], "initContainers": [{"name": "i", "image": "i", "restartPolicy": "Always"}],
    "tolerations": [{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0}],
    "affinity": {
        "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 1, "preference": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}]},
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": "z", "labelSelector": {"matchLabels": {"a": "b"}}}]}},
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}],
    "volumes": [
        {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}}, {"name": "host", "hostPath": {"path": "/", "type": ""}},
        {"name": "s", "secret": {"secretName": "s", "defaultMode": 0, "items": [{"key": "k", "path": "p", "mode": 0}]}},
        {"name": "m", "configMap": {"name": "m", "optional": False}}, {"name": "csi", "csi": {"driver": "d", "readOnly": False}},
        {"name": "claim", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "nfs", "nfs": {"server": "s", "path": "/"}},
        {"name": "all", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}, {"downwardAPI": {"items": [
            {"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]}}]}},
        {"name": "own", "ephemeral": {"volumeClaimTemplate": {"spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}},
    ],
}
TIME, MICRO = "2020-01-01T00:00:00Z", "2020-01-01T00:00:00.000001Z"
RBAC = "rbac.authorization.k8s.io"
OBJECTS = [
    ("v1", "namespaces", "Namespace", {"metadata": {"annotations": {"a": ""}, "labels": {"l": "x"}}}, None),
    ("v1", "configmaps", "ConfigMap", {"data": {"a": "b", "c": ""}, "binaryData": {"r": "/w=="}, "immutable": False}, None),
    ("v1", "secrets", "Secret", {"data": {"a": "/w==", "e": ""}, "type": "x/y"}, None),
    ("v1", "serviceaccounts", "ServiceAccount", {"automountServiceAccountToken": False, "imagePullSecrets": [{"name": "a"}]}, None),
    ("v1", "pods", "Pod", {"metadata": {"finalizers": ["example.com/a"], "ownerReferences": [
        {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u", "controller": False}]}, "spec": POD}, {
            "phase": "Running", "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": TIME}],
            "podIPs": [{"ip": "10.0.0.1"}], "startTime": TIME, "containerStatuses": [
                {"name": "c", "image": "i", "imageID": "", "ready": False, "restartCount": 0, "started": False,
                 "state": {"terminated": {"exitCode": 0, "startedAt": TIME}}, "lastState": {"waiting": {"reason": "r"}}}]}),
    ("v1", "nodes", "Node", {"spec": {"podCIDR": "10.0.0.0/24", "taints": [{"key": "a", "effect": "NoExecute", "timeAdded": TIME}],
                             "unschedulable": True, "providerID": "x:///1"}}, {
        "capacity": {"cpu": "2", "memory": "1Gi"}, "addresses": [{"type": "Hostname", "address": "n"}],
        "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": TIME}],
        "images": [{"names": ["i"], "sizeBytes": 5}], "nodeInfo": {"kubeletVersion": "v1"}, "volumesInUse": ["v"]}),
    ("v1", "persistentvolumes", "PersistentVolume", {"spec": {
        "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "",
        "csi": {"driver": "d", "volumeHandle": "h", "volumeAttributes": {"a": "b"}},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]}},
        "claimRef": {"kind": "PersistentVolumeClaim", "namespace": NAMESPACE, "name": "a"}}}, None),
    ("v1", "persistentvolumeclaims", "PersistentVolumeClaim", {"spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}}}, None),
    ("v1", "events", "Event", {"involvedObject": {"kind": "Pod", "name": "a", "namespace": NAMESPACE}, "reason": "R", "message": "m",
                               "count": 2, "firstTimestamp": TIME, "lastTimestamp": TIME, "type": "Normal", "source": {"component": "c"}}, None),
    ("events.k8s.io/v1", "events", "Event", {"metadata": {"name": "b"}, "eventTime": MICRO, "action": "A", "reason": "R", "note": "n",
        "type": "Normal", "reportingController": "c/d", "reportingInstance": "i", "series": {"count": 2, "lastObservedTime": MICRO},
        "regarding": {"kind": "Pod", "name": "a", "namespace": NAMESPACE}}, None),
    ("coordination.k8s.io/v1", "leases", "Lease", {"spec": {"holderIdentity": "", "leaseDurationSeconds": 15, "leaseTransitions": 0,
                                                            "acquireTime": MICRO}}, None),
    ("policy/v1", "poddisruptionbudgets", "PodDisruptionBudget", {"spec": {"minAvailable": "50%", "selector": {"matchExpressions": [
        {"key": "a", "operator": "In", "values": ["b"]}]}}}, None),
    ("policy/v1", "poddisruptionbudgets", "PodDisruptionBudget", {"metadata": {"name": "b"}, "spec": {"maxUnavailable": 0, "selector": {}}}, {
        "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 0, "expectedPods": 1, "disruptedPods": {"p": TIME},
        "conditions": [{"type": "A", "status": "True", "reason": "R", "message": "", "lastTransitionTime": TIME}]}),
    ("storage.k8s.io/v1", "volumeattachments", "VolumeAttachment", {"spec": {
        "attacher": "a", "nodeName": "n", "source": {"persistentVolumeName": "v"}}}, {
            "attached": False, "attachError": {"time": TIME, "message": "m", "errorCode": 0}}),
    (RBAC + "/v1", "roles", "Role", {"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]}]}, None),
    (RBAC + "/v1", "rolebindings", "RoleBinding", {"roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "a"}, "subjects": [
        {"kind": "ServiceAccount", "name": "a", "namespace": "b"}, {"kind": "User", "apiGroup": RBAC, "name": "u"}]}, None),
    (RBAC + "/v1", "clusterroles", "ClusterRole", {"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}}, None),
    (RBAC + "/v1", "clusterrolebindings", "ClusterRoleBinding", {"roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "a"}}, None),
    ("apps/v1", "controllerrevisions", "ControllerRevision", {"revision": 0, "data": {"a": [1, None, {"b": ""}]}}, None),
]
CLUSTERED = {"namespaces", "nodes", "persistentvolumes", "volumeattachments", "clusterroles", "clusterrolebindings"}
REVIEWS, WHOAMI = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "/apis/authentication.k8s.io/v1/selfsubjectreviews"
SELECTOR = {"requirements": [{"key": "a", "operator": "In", "values": ["b"]}]}
ASKED = [
    {"resourceAttributes": {"namespace": "a", "verb": "list", "group": "apps", "version": "v1", "resource": "b", "subresource": "c", "name": "d"}},
    {"resourceAttributes": {"verb": "*", "resource": "pods", "labelSelector": SELECTOR, "fieldSelector": {"rawSelector": "a=b"}}},
    {"nonResourceAttributes": {"path": "/metrics", "verb": "get"}}, {"nonResourceAttributes": {}},
]
MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
HEAD = b"k8s\0\n\x0f\n\x02v1\x12\x09ConfigMap"
# Method, path and body; a map named a is there.
REFUSED = [
    ("POST", MAPS, b""), ("POST", MAPS, b'{"kind":"ConfigMap"}'), ("POST", MAPS, b"k8s\0"), ("POST", MAPS, b"k8s\0\xff"),
    ("POST", MAPS, b"k8s\0\x08\x03"), ("POST", MAPS, HEAD + b"\x12\x01\xff"), ("POST", MAPS, HEAD + b"\x12\x04\n\x20ab"),
    ("POST", MAPS, HEAD + b"\x12\x02\x08\x04"), ("POST", MAPS, HEAD + b"\x12\x05\n\x03:\x01x"),
    ("POST", MAPS, HEAD.replace(b"v1", b"v2")), ("POST", MAPS, HEAD.replace(b"ConfigMap", b"SomeThing")),
    ("POST", MAPS.replace("configmaps", "secrets"), HEAD), ("POST", MAPS, HEAD + b"\x12\x05\n\x03\n\x01a"),
    ("PUT", MAPS + "/a", HEAD + b"\x12\x05\n\x03\n\x01b"), ("PATCH", MAPS + "/a", HEAD),
    ("DELETE", MAPS + "/a", b"{}"), ("DELETE", MAPS + "/a", b"k8s\0\xff"), ("DELETE", MAPS + "/a", HEAD),
    ("DELETE", MAPS + "/a", b"k8s\0\x12\x02\x22\x00"), ("DELETE", MAPS + "/a", b"k8s\0\x12\x03\x22\x01N"),
    ("DELETE", MAPS + "/a", b"k8s\0\x12\x05\x12\x03\n\x01x"),
    ("POST", f"/api/v1/namespaces/{NAMESPACE}/pods/missing/eviction", b"k8s\0\xff"),
    ("POST", REVIEWS, b"k8s\0\xff"), ("POST", REVIEWS, b"k8s\0\x12\x01\xff"), ("POST", REVIEWS, b"k8s\0\x12\x04\x12\x02\x08\x01"),
    ("POST", WHOAMI, b"k8s\0\x12\x01\xff"), ("POST", WHOAMI, b"{}"),
]


def ask(method, path, body=None, media="application/json", accept="application/json"):
    headers = {"Authorization": f"Bearer {TOKEN}", "Accept": accept, "Content-Type": media, "User-Agent": "capture/1"}
    request = urllib.request.Request(BASE + path, data=body, method=method, headers=headers)
    try:
        answer = urllib.request.urlopen(request, context=ssl._create_unverified_context())
    except urllib.error.HTTPError as error:
        answer = error
    return answer.status, answer.read()


def made(version, plural, kind, content, status):
    root = f"/apis/{version}" if "/" in version else f"/api/{version}"
    inside = "" if plural in CLUSTERED else f"/namespaces/{NAMESPACE}"
    name = content.get("metadata", {}).get("name", NAMESPACE if kind == "Namespace" else "a")
    whole = {**content, "apiVersion": version, "kind": kind, "metadata": {**content.get("metadata", {}), "name": name}}
    path = f"{root}{inside}/{plural}"
    code, said = ask("POST", path, json.dumps(whole).encode())
    assert code == 201, said
    if status:
        whole["status"] = status
        whole["metadata"].pop("ownerReferences", None)
        code, said = ask("PATCH", f"{path}/{name}/status", json.dumps({"status": status}).encode(), "application/merge-patch+json")
        assert code == 200, said
    raw = ask("GET", f"{path}/{name}", accept=PROTOBUF)[1]
    return {"protobuf": base64.b64encode(raw).decode(), "json": json.loads(ask("GET", f"{path}/{name}")[1])}


def asked(path, content):
    raw = ask("POST", path, json.dumps(content).encode(), accept=PROTOBUF)[1]
    return {"protobuf": base64.b64encode(raw).decode(), "json": json.loads(ask("POST", path, json.dumps(content).encode())[1])}


def refused(method, path, body):
    code, said = ask(method, path, body, PROTOBUF)
    said = json.loads(said)
    return {"method": method, "path": path, "body": base64.b64encode(body).decode(), "code": code,
            "reason": said.get("reason", ""), "message": said.get("message", "")}


objects = [made(*one) for one in OBJECTS] + [asked(REVIEWS, {"spec": spec}) for spec in ASKED] + [asked(WHOAMI, {})]
print("{\"objects\": [")
print(",\n".join(json.dumps(one) for one in objects))
print("], \"refused\": [")
print(",\n".join(json.dumps(refused(*one)) for one in REFUSED))
print("]}")
