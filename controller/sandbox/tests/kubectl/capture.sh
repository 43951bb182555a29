#!/bin/bash
# Captures the sessions of this folder from a real kube-apiserver, started for it and ended after it.
#
#     MILLWRIGHT_KUBE_APISERVER=… MILLWRIGHT_ETCD=… tests/kubectl/capture.sh
#
# A new session needs a file with its commands behind "$ " and a test in kubectl_speaks_to_the_sandbox.rs.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d)
trap 'kill -KILL $(jobs -p) 2>/dev/null; wait 2>/dev/null; rm -rf "$dir"' EXIT
cd "$dir"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
echo "captured,admin,admin,system:masters" > tokens.csv
"$MILLWRIGHT_ETCD" --name=default --data-dir=data --log-level=warn --unsafe-no-fsync \
    --listen-client-urls=unix://etcd:1 --advertise-client-urls=unix://etcd:1 --listen-peer-urls=unix://etcd:2 \
    --initial-advertise-peer-urls=http://localhost:2380 --initial-cluster=default=http://localhost:2380 > etcd.log 2>&1 &
"$MILLWRIGHT_KUBE_APISERVER" --etcd-servers=unix://etcd:1 --bind-address=127.0.0.1 --advertise-address=127.0.0.1 \
    --endpoint-reconciler-type=none --secure-port="$port" --service-cluster-ip-range=10.0.0.0/24 --cert-dir=certificates \
    --service-account-issuer=https://localhost --service-account-key-file=certificates/apiserver.key \
    --service-account-signing-key-file=certificates/apiserver.key --token-auth-file=tokens.csv --authorization-mode=RBAC \
    --disable-admission-plugins=ServiceAccount > apiserver.log 2>&1 &
cat > kubeconfig <<CONFIG
apiVersion: v1
kind: Config
clusters: [{name: real, cluster: {server: "https://127.0.0.1:$port", insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: captured}}]
contexts: [{name: real, context: {cluster: real, user: admin}}]
current-context: real
CONFIG
export KUBECONFIG=$dir/kubeconfig
until kubectl get namespace default > /dev/null 2>&1; do
    jobs -r | grep -q apiserver || { tail apiserver.log; exit 1; }
    sleep 0.2
done
kubectl apply -f "$here/../../../../deploy/crds" > /dev/null
kubectl wait --for=condition=Established crd --all > /dev/null
cd "$here/../.."
MILLWRIGHT_KUBECTL_CAPTURE=$dir/kubeconfig cargo test -p millwright-sandbox --test served kubectl_ -- --test-threads=4
