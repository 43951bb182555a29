#!/usr/bin/env python3
"""How much an API server needs for many objects: the sandbox or a real kube-apiserver, which it does not tell apart.

    api.py URL TOKEN PID[,PID…] [COUNT]

Makes COUNT machines and as many nodes as they are in use (status, finalizer, owners of fields), and prints: objects made a
second, seconds for a whole LIST and one in pages of 500, for a WATCH to tell of all, for a change to reach a watch, the resident
memory of the processes, and the memory after each node has reported three times. The server must hold the CRDs of deploy/crds.

Measured on 2026-11-22 with 10,000, one after the other on two busy cores (other builds ran beside; CPU seconds are steadier than wall
times), the sandbox's release build and kube-apiserver 1.36 with etcd 3.6:

                              sandbox                     kube-apiserver and etcd
    memory                    69 MB                       1519 MB
    memory after reports      91 MB (peak 93 MB)          2167 MB
    a write of a machine      0.31 ms of CPU              4.31 ms of CPU
    LIST machines             0.15 s, 0.02 s of CPU       1.04 s, 1.08 s of CPU
    LIST machines in pages    1.44 s, 0.21 s of CPU       2.63 s, 1.21 s of CPU
    WATCH machines from 0     0.24 s, 0.02 s of CPU       1.82 s, 1.43 s of CPU
    LIST nodes                0.07 s, 0.02 s of CPU       0.87 s, 0.52 s of CPU
    LIST nodes in pages       1.09 s, 0.17 s of CPU       0.84 s, 0.25 s of CPU
    WATCH nodes from 0        0.20 s, 0.02 s of CPU       0.64 s, 0.64 s of CPU
    a change, watched         0.9 ms                      10.4 ms
"""
import concurrent.futures, http.client, json, os, ssl, statistics, sys, threading, time, urllib.parse

URL, TOKEN, PIDS = urllib.parse.urlsplit(sys.argv[1]), sys.argv[2], sys.argv[3].split(",")
COUNT = int(sys.argv[4]) if len(sys.argv) > 4 else 10_000
MACHINES = "/apis/machine.sapcloud.io/v1alpha1/namespaces/default/machines"
NODES = "/api/v1/nodes"
NOW = "2026-11-21T12:00:00Z"
LOCAL = threading.local()


def link():
    if URL.scheme == "https":
        return http.client.HTTPSConnection(URL.netloc, context=ssl._create_unverified_context(), timeout=120)
    return http.client.HTTPConnection(URL.netloc, timeout=120)


def ask(method, path, body=None, kind="application/json", agent="bench"):
    if not hasattr(LOCAL, "link"):
        LOCAL.link = link()
    headers = {"Authorization": "Bearer " + TOKEN, "Content-Type": kind, "Accept": "application/json", "User-Agent": agent}
    LOCAL.link.request(method, path, None if body is None else json.dumps(body), headers)
    answer = LOCAL.link.getresponse()
    text = answer.read()
    if answer.status >= 300:
        raise SystemExit("%s %s: %d %s" % (method, path, answer.status, text[:500]))
    return text


def machine(number):
    name = "workers-zd4f2-%05d" % number
    ask("POST", MACHINES, {
        "apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine",
        "metadata": {
            "name": name, "labels": {"name": "workers", "machine-template-hash": "zd4f2"},
            "finalizers": ["machine.sapcloud.io/machine-controller"],
        },
        "spec": {"class": {"kind": "MachineClass", "name": "small"},
                 "nodeTemplate": {"metadata": {"labels": {"worker.gardener.cloud/pool": "workers"}}, "spec": {}}},
    }, agent="millwright")
    ask("PATCH", MACHINES + "/" + name, {"spec": {"providerID": "virtual:///local/local-a/i-%017d" % number},
        "metadata": {"labels": {"node": name}}}, "application/merge-patch+json", "millwright")
    ask("PATCH", MACHINES + "/" + name + "/status", {"status": {
        "currentStatus": {"phase": "Running", "lastUpdateTime": NOW},
        "lastOperation": {"description": "The machine joined the cluster in 2s", "state": "Successful", "type": "Create",
                          "lastUpdateTime": NOW},
        "conditions": [condition("Ready")],
    }}, "application/merge-patch+json", "millwright")


def condition(kind):
    return {"type": kind, "status": "True", "reason": "KubeletReady", "message": "the simulated kubelet is ready",
            "lastHeartbeatTime": NOW, "lastTransitionTime": NOW}


def node(number):
    name = "workers-zd4f2-%05d" % number
    ask("POST", NODES, {
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
                     "node.kubernetes.io/instance-type": "small", "topology.kubernetes.io/zone": "local-a"}},
        "spec": {"providerID": "virtual:///local/local-a/i-%017d" % number},
        "status": {"capacity": {"cpu": "2", "memory": "4Gi", "pods": "110"},
                   "conditions": [condition(k) for k in ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")],
                   "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Hostname", "address": name}]},
    }, agent="kubelet")


def report(number):
    ask("PATCH", NODES + "/workers-zd4f2-%05d/status" % number, {"status": {"conditions": [
        {**condition("Ready"), "message": "at %f" % time.time()}]}}, "application/strategic-merge-patch+json", "kubelet")


def memory():
    total = 0
    for pid in PIDS:
        for line in open("/proc/%s/status" % pid):
            if line.startswith("VmRSS:"):
                total += int(line.split()[1]) // 1024
    return total


def cpu():
    """Seconds of processor time that the processes have used so far."""
    fields = [open("/proc/%s/stat" % pid).read().rsplit(")", 1)[1].split() for pid in PIDS]
    return sum(int(one[11]) + int(one[12]) for one in fields) / os.sysconf("SC_CLK_TCK")


def many(what, numbers, writes):
    began, used = time.time(), cpu()
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(what, numbers))
    taken = time.time() - began
    return "%.1f s, %d writes/s, %.2f ms of CPU each" % (taken, writes / taken, (cpu() - used) * 1000 / writes)


def timed(act, times=5):
    taken, used = [], cpu()
    for _ in range(times):
        began = time.time()
        size = act()
        taken.append(time.time() - began)
    each = (cpu() - used) / times
    return "%.2f s (median of %d), %.2f s of CPU, %.1f MB" % (statistics.median(taken), times, each, size / 1e6)


def listed(path):
    return len(ask("GET", path))


def paged(path):
    size, token = 0, ""
    while True:
        text = ask("GET", path + "?limit=500" + ("&continue=" + token if token else ""))
        size += len(text)
        token = json.loads(text)["metadata"].get("continue")
        if not token:
            return size


def told(path):
    line = link()
    line.request("GET", path + "?watch=true&resourceVersion=0&timeoutSeconds=60", headers={"Authorization": "Bearer " + TOKEN})
    answer, size = line.getresponse(), 0
    for _ in range(COUNT):
        size += len(answer.readline())
    line.close()
    return size


def reached(path):
    line = link()
    version = json.loads(ask("GET", path + "?limit=1"))["metadata"]["resourceVersion"]
    line.request("GET", path + "?watch=true&timeoutSeconds=60&resourceVersion=" + version, headers={"Authorization": "Bearer " + TOKEN})
    answer, taken = line.getresponse(), []
    for number in range(50):
        began = time.time()
        report(number)
        answer.readline()
        taken.append(time.time() - began)
    line.close()
    return "%.1f ms (median of 50, the write included)" % (statistics.median(taken) * 1000)


def main():
    print("memory, empty              %d MB" % memory())
    print("%d machines, 3 writes each  %s" % (COUNT, many(machine, range(COUNT), 3 * COUNT)))
    print("%d nodes, 1 write each      %s" % (COUNT, many(node, range(COUNT), COUNT)))
    print("memory                     %d MB" % memory())
    for what, path in ("machines", MACHINES), ("nodes", NODES):
        print("LIST %-9s             %s" % (what, timed(lambda: listed(path))))
        print("LIST %-9s in pages    %s" % (what, timed(lambda: paged(path), 3)))
        print("WATCH %-9s from 0     %s" % (what, timed(lambda: told(path), 3)))
    print("a node's change, watched   %s" % reached(NODES))
    print("memory after reading       %d MB" % memory())
    print("%d reports of nodes      %s" % (3 * COUNT, many(report, list(range(COUNT)) * 3, 3 * COUNT)))
    time.sleep(3)
    print("memory after reports       %d MB" % memory())


main()
