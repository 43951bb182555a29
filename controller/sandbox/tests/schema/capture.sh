#!/usr/bin/env bash
# Asks a real kube-apiserver every case of cases.yaml and writes what it answered to answers.json.
#   capture.sh KUBECONFIG > answers.json
# The server has deploy/crds and the other manifests of this folder. Needs kubectl, curl, jq, python3 with PyYAML.
# The server and the token are read from the kubeconfig's only cluster and user.
set -euo pipefail
cd "$(dirname "$0")"
config=$(kubectl --kubeconfig "$1" config view --raw -o json)
server=$(jq -r '.clusters[0].cluster.server' <<<"$config")
token=$(jq -r '.users[0].user.token' <<<"$config")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# ask METHOD PATH BODY: status code in $code, body in $work/body, headers in $work/head.
ask() {
    code=$(curl -sk -X "$1" -H "Authorization: Bearer $token" -H 'Content-Type: application/json' \
        -D "$work/head" -o "$work/body" -w '%{http_code}' --data-binary "$3" "$server$2")
}

python3 -c 'import json,sys,yaml; [print(json.dumps([k,v])) for k,v in yaml.safe_load(sys.stdin).items()]' <cases.yaml |
while IFS= read -r line; do
    name=$(jq -r '.[0]' <<<"$line")
    kind=$(jq -r '.[1].kind' <<<"$line")
    group=machine.sapcloud.io/v1alpha1
    case $kind in Thing | Rule | Loose | Probe) group=test.millwright.dev/v1 ;; esac
    plural=$(tr 'A-Z' 'a-z' <<<"$kind")s
    [ "$kind" = MachineClass ] && plural=machineclasses
    all=/apis/$group/namespaces/default/$plural
    one=$all/case
    shell=$(jq -cn --arg g "$group" --arg k "$kind" '{apiVersion:$g,kind:$k,metadata:{name:"case"}}')
    ask DELETE "$one" ''
    validation=$(jq -r '.[1].fieldValidation // "Warn"' <<<"$line")
    if jq -e '.[1].old' <<<"$line" >/dev/null; then
        stored=v1
        [ "$kind" = Loose ] && stored=v1loose
        # What the strict version of Loose would refuse is stored through its loose one.
        ask POST "${all/dev\/v1\//dev/$stored/}" "$(jq -c --argjson s "$shell" '$s * .[1].old' <<<"$line" | sed "s|dev/v1\"|dev/$stored\"|")"
        [ "$code" = 201 ] || { echo "$name: old was not stored: $(cat "$work/body")" >&2; exit 1; }
        version=$(jq -r .metadata.resourceVersion "$work/body")
        ask PUT "$one$(jq -r '.[1].subresource // empty | "/" + .' <<<"$line")?fieldValidation=$validation" \
            "$(jq -c --argjson s "$shell" --arg v "$version" '$s * .[1].new * {metadata:{resourceVersion:$v}}' <<<"$line")"
    elif jq -e '.[1].raw' <<<"$line" >/dev/null; then
        ask POST "$all?fieldValidation=$validation" "$(jq -r '.[1].raw' <<<"$line")"
    else
        ask POST "$all?fieldValidation=$validation" "$(jq -c --argjson s "$shell" '$s * .[1].new' <<<"$line")"
    fi
    warnings=$(sed -n 's/^[Ww]arning: 299 - "\(.*\)"\r$/"\1"/p' "$work/head" | jq -cs .)
    jq -c --arg name "$name" --argjson code "$code" --argjson warnings "$warnings" '
        {name: $name, code: $code, warnings: $warnings} +
        if .kind == "Status" then {message, causes: (.details.causes // [] | sort)}
        else {stored: del(.metadata.uid, .metadata.resourceVersion, .metadata.creationTimestamp, .metadata.generation, .metadata.managedFields, .metadata.namespace, .apiVersion, .kind)} end' "$work/body"
done
