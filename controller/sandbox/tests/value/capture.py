#!/usr/bin/env python3
"""Asks a real kube-apiserver every question of the given .cases files and writes its answers into them.

    capture.py https://127.0.0.1:PORT TOKEN FILE...

The server must be fresh and hold the CRDs of deploy/crds. A question is a line `> METHOD PATH [content type]`, an optional
line `| body`, and the answer `< CODE JSON`, which this script replaces. `{{rv}}`, `{{uid}}`, `{{continue}}` in a path or
body stand for what the last answer that had one said; `{{rv:NAME}}` for what a line `! NAME` kept.
"""
import json, re, ssl, sys, urllib.request, urllib.error

HIDDEN = {"uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "continue", "time"}

SHOW_OWNERS = False  # only in apply.cases


def normal(value):
    if isinstance(value, dict):
        out = {}
        for key, inner in value.items():
            if key == "managedFields" and not SHOW_OWNERS:
                continue
            if key == "name" and "generateName" in value:
                inner = value["generateName"] + "*"
            out[key] = "*" if key in HIDDEN and isinstance(inner, str) and inner != "" else normal(inner)
        return out
    if isinstance(value, list):
        return [normal(v) for v in value]
    if isinstance(value, str):
        value = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "*uid*", value)
        value = re.sub(r"20[2-9][0-9]-[0-9-]+T[0-9:.]+Z", "*time*", value)
        value = re.sub(r"(in record \(|current: |version: 1 \()[0-9]+", r"\1*", value)
    return value


def ask(base, token, method, path, kind, body):
    request = urllib.request.Request(base + path, method=method, data=None if body is None else body.encode())
    request.add_header("Authorization", "Bearer " + token)
    request.add_header("Accept", "application/json")
    request.add_header("User-Agent", "curl/1")
    if kind:
        request.add_header("Content-Type", kind)
    context = ssl._create_unverified_context()
    try:
        with urllib.request.urlopen(request, context=context, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def main():
    base, token = sys.argv[1], sys.argv[2]
    for name in sys.argv[3:]:
        global SHOW_OWNERS
        SHOW_OWNERS = name.endswith("apply.cases")
        lines = [l for l in open(name).read().split("\n") if not l.startswith("< ")]
        out, last, kept, pending = [], {}, {}, None

        def fill(text):
            def one(match):
                key, _, mark = match.group(1).partition(":")
                return kept[mark][key] if mark else last.get(key, "")
            return re.sub(r"\{\{([a-z:A-Z0-9]+)\}\}", one, text)

        def flush():
            nonlocal pending
            if pending is None:
                return
            method, path, kind, body = pending
            pending = None
            if body is not None and not kind:
                kind = "application/json"
            code, text = ask(base, token, method, fill(path), kind, None if body is None else fill(body))
            try:
                streamed = "watch=" in path and code == 200 and text[:9] != '{\n  "kind'
                found = [json.loads(l) for l in text.splitlines()] if streamed else [json.loads(text)]
                meta = (found[0].get("metadata") if found else None) or {}
                for key, value in (("rv", meta.get("resourceVersion")), ("uid", meta.get("uid")), ("continue", meta.get("continue"))):
                    if value:
                        last[key] = value
                shown = [normal(f) for f in found] if streamed else normal(found[0])
            except ValueError:
                shown = text
            out.append("< %d %s" % (code, json.dumps(shown, sort_keys=True)))

        for line in lines:
            if line.startswith("| "):
                pending[3] = line[2:]
                out.append(line)
                flush()
                continue
            flush()
            if line.startswith("> "):
                method, path, *kind = line[2:].split(" ")
                pending = [method, path, kind[0] if kind else None, None]
            elif line.startswith("! "):
                kept[line[2:]] = dict(last)
            out.append(line)
        flush()
        text = "\n".join(out)
        open(name, "w").write(text if text.endswith("\n") else text + "\n")


main()
