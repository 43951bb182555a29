#!/usr/bin/env python3
"""Asks a real kube-apiserver every question of the given .cases files as the users named there, and writes its answers into them.

    capture.py https://127.0.0.1:PORT TOKEN FILE...

The server must be fresh, decide by RBAC and hold the CRDs of deploy/crds; the token must be that of a member of
system:masters, who speaks as others by impersonation. A line `@ USER GROUP…` says who asks from there on, `@` alone that the
administrator does. A question is a line `> METHOD PATH [content type]`, an optional line `| body`, and the answer
`< CODE MESSAGE DETAILS`, which this script replaces: of a Status its message and details, of a review its status, of other
objects only that there was one. The server learns of new roles a moment after they are stored: after the administrator's
questions it is asked until it knows.
"""
import http.client, json, ssl, sys, time, urllib.parse


def ask(base, token, who, method, path, kind, body):
    address = urllib.parse.urlsplit(base).netloc
    link = http.client.HTTPSConnection(address, context=ssl._create_unverified_context(), timeout=20)
    link.putrequest(method, path)
    link.putheader("Authorization", "Bearer " + token)
    if kind:
        link.putheader("Content-Type", kind)
    if who:
        link.putheader("Impersonate-User", who[0])
        for group in who[1:]:
            link.putheader("Impersonate-Group", group)
    body = (body or "").encode()
    link.putheader("Content-Length", str(len(body)))
    link.endheaders(body)
    answer = link.getresponse()
    return answer.status, answer.read().decode()


def shown(text):
    try:
        body = json.loads(text)
    except ValueError:
        return '""'
    if body.get("kind") == "Status":
        (body.get("details") or {}).pop("uid", None)
        return json.dumps([body.get("message", ""), body.get("reason", ""), body.get("details")], sort_keys=True)
    if body.get("kind", "").endswith("AccessReview"):
        return json.dumps(body["status"], sort_keys=True)
    return '""'


def main():
    base, token = sys.argv[1], sys.argv[2]
    for name in sys.argv[3:]:
        lines = [line for line in open(name).read().split("\n") if not line.startswith("< ")]
        out, who, learnt = [], [], True
        for at, line in enumerate(lines):
            out.append(line)
            if line.startswith("@"):
                who = line[1:].split()
                if who and not learnt:
                    time.sleep(1.5)  # the informers of the authorizer
                    learnt = True
            question, body = line, None
            if line.startswith("| "):
                question, body = lines[at - 1], line[2:]
            elif not line.startswith("> ") or lines[at + 1 : at + 2] and lines[at + 1].startswith("| "):
                continue
            method, path, *kind = question[2:].split(" ")
            kind = kind[0] if kind else ("application/json" if body is not None else None)
            code, text = ask(base, token, who, method, path, kind, body)
            learnt = learnt and bool(who)
            out.append("< %d %s" % (code, shown(text)))
        open(name, "w").write("\n".join(out).rstrip("\n") + "\n")


main()
