#!/usr/bin/env python3
"""Asks a server every bad question of questions.txt over HTTP and prints each answer on a line: code, media type, body.

    ask.py URL TOKEN QUESTIONS > answers.txt

From the real server this is the expectation of http_bad_input.rs, which asks the same of the sandbox. The server must hold the CRDs
of deploy/crds and nothing else; whatever a question changed is put back before the next one.
"""
import http.client, json, re, ssl, sys, urllib.parse

URL, TOKEN = urllib.parse.urlsplit(sys.argv[1]), sys.argv[2]
SHORT = {
    "CMS": "/api/v1/namespaces/default/configmaps", "CM": "/api/v1/namespaces/default/configmaps/cm",
    "MS": "/apis/machine.sapcloud.io/v1alpha1/namespaces/default/machines",
    "M": "/apis/machine.sapcloud.io/v1alpha1/namespaces/default/machines/m",
    "NS": "/api/v1/namespaces", "NODES": "/api/v1/nodes",
}
THERE = [
    ("CMS", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "cm"}, "data": {"a": "b"}}),
    ("MS", {"apiVersion": "machine.sapcloud.io/v1alpha1", "kind": "Machine", "metadata": {"name": "m"},
            "spec": {"class": {"kind": "MachineClass", "name": "c"}}}),
]


class Chunked(bytes):
    pass


def ask(method, path, kind=None, body=None):
    if URL.scheme == "https":
        line = http.client.HTTPSConnection(URL.netloc, context=ssl._create_unverified_context(), timeout=30)
    else:
        line = http.client.HTTPConnection(URL.netloc, timeout=30)
    headers = {"Authorization": "Bearer " + TOKEN, "Accept": "application/json", "User-Agent": "bad/1"}
    if kind:
        headers["Content-Type"] = kind
    try:
        line.putrequest(method, path, skip_accept_encoding=True)
        for name, value in headers.items():
            line.putheader(name, value)
        if isinstance(body, Chunked):
            line.putheader("Transfer-Encoding", "chunked")
        elif body is not None:
            line.putheader("Content-Length", str(len(body)))
        line.endheaders()
        try:
            if body is not None:
                line.send(body)
        except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
            pass  # who knows enough need not read on
        answer = line.getresponse()
        warnings = [text.encode("latin-1").decode() for text in answer.msg.get_all("Warning") or []]
        return answer.status, answer.getheader("Content-Type"), answer.read(), warnings
    except Exception as error:
        return 0, type(error).__name__, b"", []
    finally:
        line.close()


def path_of(word):
    word = word.replace("LONG", "x" * 129)
    found = re.match(r"[A-Z]+(?=$|[?/])", word)
    return SHORT[found[0]] + word[found.end():] if found else word


def body_of(text):
    what, _, rest = text.partition(":")
    if what == "BIG":
        return b"x" * int(rest)
    if what == "OBJECT":
        return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "big"}, "data": {"a": "x" * int(rest)}}).encode()
    if what == "FILL":
        number, _, text = rest.partition(":")
        return text.replace("@", "x" * int(number)).encode()
    if what == "DEEP":
        return b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"deep"},"data":' + b'{"a":' * int(rest) + b"1" + b"}" * int(rest) + b"}"
    if what == "CHUNKED":
        return Chunked(rest.replace("_", "\r\n").encode())
    if what == "LINES":
        return rest.replace("\\n", "\n").replace("\\t", "\t").encode()
    if what == "HEX":
        return bytes.fromhex(rest + "0" * (len(rest) % 2))
    return text.encode()


def put_back():
    for short, thing in THERE:
        names = {item["metadata"]["name"] for item in json.loads(ask("GET", SHORT[short])[2])["items"]}
        for name in names - {"kube-root-ca.crt"}:
            ask("PATCH", SHORT[short] + "/" + name, "application/merge-patch+json", b'{"metadata":{"finalizers":null}}')
            ask("DELETE", SHORT[short] + "/" + name)
        ask("POST", SHORT[short], "application/json", json.dumps(thing).encode())


def shown(body, warnings):
    text = body.decode("utf-8", "backslashreplace")
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "*uid*", text)
    text = re.sub(r"20[2-9][0-9]-[0-9-]+T[0-9:.]+Z", "*time*", text)
    text = re.sub(r'("resourceVersion": ?)"[0-9]*"', r'\1"*"', text)
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    if isinstance(value, dict) and value.get("kind") != "Status":
        # Good answers are other tests' affair: what matters here is that it is one.
        value = {"kind": value.get("kind"), "items": len(value["items"])} if "items" in value else {"kind": value.get("kind")}
    if warnings:
        value = {"answer": value, "warnings": warnings}
    return json.dumps(value, sort_keys=True)


def main():
    while any(ask("GET", SHORT[short])[0] != 200 for short in ("CMS", "MS")):
        pass  # a definition is served some time after it is established
    for line in open(sys.argv[3]):
        line = line.rstrip("\n")
        if not line or line.startswith("#"):
            continue
        put_back()
        asked, bar, body = line.partition(" |")
        words = asked.split(" ")
        kind = words[2] if len(words) > 2 else ("application/json" if bar and words[0] != "PATCH" else None)
        code, media, answer, warnings = ask(words[0], path_of(words[1]), kind, body_of(body[1:]) if bar else None)
        print("%d %s %s" % (code, media, shown(answer, warnings)), flush=True)


main()
