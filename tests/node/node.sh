#!/usr/bin/env bash
# A real Kubernetes cluster on one Linux machine, without Docker, registry, systemd or virtual machines.
#
#   node.sh up [N]             control plane, and nodes n1 to nN (default 1); it stays until `down`
#   node.sh add NAME           one more node, or the second boot of one that was cut off; waits until it is Ready
#   node.sh cut NAME           power cut: every process of the node is gone at once, its disk stays
#   node.sh rm NAME            power cut, and the disk is wiped
#   node.sh cordon NAME        no new pods there            node.sh uncordon NAME    again
#   node.sh load TAR...        imports images into every node that runs
#   node.sh kubectl ARGS...    kubectl as administrator     node.sh run COMMAND...   a command in the cluster's network
#   node.sh beside COMMAND...  a command of the machine with NODE_SH, NODE_DIR and NODE_KIT: a program that starts nodes itself
#   node.sh status             nodes as Kubernetes and as the machine sees them
#   node.sh power              names of the nodes whose power is on
#   node.sh down               everything goes
#   node.sh hold               for tests: a place with nothing in it yet, which lasts until standard input ends
#
# All of it is below one process, a child of the holder (`hold`): PID 1 of a PID namespace with a network and mounts of its own, here called
# the place. The control plane is processes in the place. A node is one more PID namespace in the place, with a root made of this machine's
# /usr, whose PID 1 starts a real containerd, kubelet and kube-proxy. When a PID 1 ends, the kernel ends everything below it. The machine
# itself has $NODE_DIR and the nodes' cgroups (millwright-ID-NAME), which the holder removes: no address, bridge, rule, mount or sysctl.
#
# From outside: NODE_DIR, the cluster's files; NODE_KIT, what kit.sh printed. millwright-node, the program of this folder, sets them.
# With up: NODE_GRACE, how long a node may be silent (20s); APISERVER_EXTRA, more flags.
# With up and add: NODE_WAIT=0, do not wait for Ready; NODE_TOKEN, another bootstrap token; NODE_LABELS, a=b,c=d; NODE_TAINTS and
# NODE_RESERVED, YAML; NODE_MEMORY, bytes; NODE_IMAGES, archives; PROVIDER_ID; KUBELET_EXTRA, more flags.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
D=${NODE_DIR:?the directory of the cluster}
KIT=${NODE_KIT:?what kit.sh printed}
export PATH=$KIT/kubernetes:$PATH:/usr/sbin:/sbin
# Nothing here is reached through a proxy, whatever the machine uses for the rest of the world.
unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY

# One network for each cluster, so the addresses can be the same in all of them.
HOST=10.200.0.1
BRIDGE=mw0
POOL=10.201.0.0/16    # pods: 10.201.I.0/24 on the node with index I, which is 10.200.0.(10+I)

die() { echo "node.sh: $*" >&2; exit 1; }
now() { date +%s.%N; }
took() { awk -v a="$1" -v b="$(now)" 'BEGIN{printf "%.1f s", b-a}'; }
kc() { kubectl --kubeconfig "$D/admin.kubeconfig" "$@"; }
# FILE WORD: the process whose pid is in FILE runs, has WORD in its command line (a pid may have gone to another process since), and is
# no zombie that its parent has not waited for yet.
alive() {
  local pid stat
  [ -s "$1" ] && pid=$(cat "$1") && grep -qzx -e "$2" -e ".*/$2" "/proc/$pid/cmdline" 2>/dev/null &&
    stat=$(cat "/proc/$pid/stat" 2>/dev/null) && case ${stat##*) } in Z*|X*) false;; esac
}
# Sets `outside` to the pid that this process has in the PID namespace of the /proc that is mounted here, which may be its parent's.
find_pid_outside() {
  local key pid
  while read -r key pid _; do [ "$key" != NSpid: ] || outside=$pid; done < /proc/self/status
}

# ---- the place: one process that everything is inside of ------------------------------------------------------------------------

check() {
  [ "$(uname -s)" = Linux ] || die "needs Linux"
  [ "$(id -u)" = 0 ] || die "needs root, for namespaces, mounts and cgroups"
  local tool missing=()
  for tool in ip unshare nsenter setpriv openssl kubectl; do
    command -v $tool >/dev/null || missing+=("$tool")
  done
  [ ${#missing[@]} = 0 ] || die "not on this machine: ${missing[*]}"
  [ -x "$KIT/kubernetes/kubelet" ] || die "$KIT is not what kit.sh makes"
}

hold() {
  check
  ! alive "$D/holder.pid" hold || die "there is a cluster in $D already"
  down    # what a holder that was killed has left
  [ -z "$(ls -A "$D" 2>/dev/null)" ] || die "$D is not empty, and not a cluster's: all in it would be removed in the end"
  mkdir -p "$D/log" "$D/nodes"
  echo $BASHPID > "$D/holder.pid"
  od -An -N4 -tx4 /dev/urandom | tr -d ' ' > "$D/id"
  trap '' PIPE    # whoever reads what this says may have died, which is no reason to stop in the middle
  # The trap only takes a note: a holder whose trap called `exit`, and so `sweep` in the middle of `read`, once died without sweeping.
  local ended=
  trap 'ended=1' TERM INT HUP
  trap sweep EXIT
  # The holder killed by kill -9: the kernel kills unshare (setpriv), and with it the PID 1 (--kill-child).
  setpriv --pdeathsig KILL unshare --net --pid --mount --ipc --fork --kill-child --propagation private \
    bash "$HERE/node.sh" _first </dev/null >>"$D/log/first.log" 2>&1 &
  local unshare=$! answer
  while [ -z "$ended" ] && kill -0 $unshare 2>/dev/null; do
    answer=0; read -r -t 0.5 _ || answer=$?
    [ $answer -gt 128 ] || break    # more than 128 is the timeout; less is a line, or the end of the input
  done
}
# PID 1 of the place. It waits for nothing but its end, and bash waits for every process that lost its parent.
first() {
  find_pid_outside
  mount -t proc proc /proc
  ip link set lo up
  ip link add $BRIDGE type bridge
  # A bridge without an address of its own takes the lowest of its ports', so that each node added could change it under the others.
  ip link set $BRIDGE address 02:00:00:00:00:01
  ip addr add $HOST/24 dev $BRIDGE
  ip link set $BRIDGE up
  echo "$outside" > "$D/pid.new"; mv "$D/pid.new" "$D/pid"
  trap '' TERM INT HUP
  sleep infinity & wait $!
}
# Removes what is left when the place's PID 1 is dead or must die.
sweep() {
  trap '' TERM INT HUP
  local file
  if alive "$D/pid" _first; then
    kill -9 "$(cat "$D/pid")" 2>/dev/null || true
    for _ in $(seq 500); do alive "$D/pid" _first || break; sleep 0.02; done
  fi
  for file in "$D"/nodes/*/cgroups; do [ ! -f "$file" ] || remove_cgroups "$file"; done
  rm -rf "$D"
}
down() {
  [ -d "$D" ] || return 0
  if alive "$D/holder.pid" hold; then
    local holder; holder=$(cat "$D/holder.pid")
    kill -TERM "$holder" 2>/dev/null || true
    for _ in $(seq 3000); do [ -d "$D" ] && kill -0 "$holder" 2>/dev/null || break; sleep 0.02; done
    ! kill -0 "$holder" 2>/dev/null || [ ! -d "$D" ] || die "the cluster in $D does not end"
  fi
  [ ! -f "$D/id" ] || sweep    # the holder was killed
}
up() {
  if ! alive "$D/holder.pid" hold; then
    check; mkdir -p "$(dirname "$D")"
    # `hold` reads from a pipe that itself keeps open: its input never ends.
    local log=$D.log fifo; fifo=$(mktemp -u "$D.XXXX"); mkfifo "$fifo"
    setsid bash "$HERE/node.sh" hold 0<>"$fifo" >"$log" 2>&1 &
    for _ in $(seq 500); do [ ! -s "$D/pid" ] || break; kill -0 $! 2>/dev/null || break; sleep 0.02; done
    rm -f "$fifo"
    [ -s "$D/pid" ] || die "it did not start: $(tail -n 3 "$log" "$D/log/first.log" 2>/dev/null)"
    rm -f "$log"
  fi
  inside _up "${1:-1}"
}
# Carries on in the place. Relative paths would not survive it.
inside() {
  alive "$D/pid" _first || die "there is no cluster in $D; \`up\` starts one"
  nsenter --target "$(cat "$D/pid")" --net --pid --mount --ipc -- bash "$HERE/node.sh" "$@"
}
# A command of the machine with the cluster's network.
run() {
  alive "$D/pid" _first || die "there is no cluster in $D; \`up\` starts one"
  KUBECONFIG=$D/admin.kubeconfig exec nsenter --target "$(cat "$D/pid")" --net -- "$@"
}

# ---- keys -----------------------------------------------------------------------------------------------------------------------

new_key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1"; }
cert() { # NAME SUBJECT [NAMES]: a key and a certificate of the cluster's CA, for a server or a client
  new_key "$D/pki/$1.key"
  openssl req -new -key "$D/pki/$1.key" -subj "$2" -out "$D/pki/$1.csr"
  {
    printf 'basicConstraints=CA:FALSE\nkeyUsage=digitalSignature\nextendedKeyUsage=serverAuth,clientAuth\n'
    echo "${3:+subjectAltName=$3}"
  } > "$D/pki/$1.ext"
  openssl x509 -req -in "$D/pki/$1.csr" -CA "$D/pki/ca.crt" -CAkey "$D/pki/ca.key" -CAcreateserial -days 30 -out "$D/pki/$1.crt" \
    -extfile "$D/pki/$1.ext" 2>/dev/null
}
kubeconfig() { # FILE USER, a user as YAML
  cat > "$1" <<K
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://$HOST:6443", certificate-authority-data: $(base64 -w0 "$D/pki/ca.crt")}}]
users: [{name: u, user: $2}]
contexts: [{name: c, context: {cluster: c, user: u}}]
current-context: c
K
}
by_cert() { echo "{client-certificate-data: $(base64 -w0 "$D/pki/$1.crt"), client-key-data: $(base64 -w0 "$D/pki/$1.key")}"; }
keys() {
  local user
  mkdir -p "$D/pki"
  new_key "$D/pki/ca.key"
  openssl req -x509 -key "$D/pki/ca.key" -subj /CN=millwright-node -days 30 -out "$D/pki/ca.crt"
  openssl genrsa -out "$D/pki/sa.key" 2048 2>/dev/null    # signs tokens of service accounts
  openssl rsa -in "$D/pki/sa.key" -pubout -out "$D/pki/sa.pub" 2>/dev/null
  cert apiserver /CN=kube-apiserver \
    "IP:$HOST,IP:127.0.0.1,IP:10.96.0.1,DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc"
  cert kubelet-client /O=system:masters/CN=kube-apiserver-kubelet-client
  cert admin /O=system:masters/CN=admin
  cert controllers /CN=system:kube-controller-manager
  cert scheduler /CN=system:kube-scheduler
  cert proxy /CN=system:kube-proxy
  for user in admin controllers scheduler proxy; do kubeconfig "$D/$user.kubeconfig" "$(by_cert $user)"; done
  printf '%s.%s' "$(openssl rand -hex 3)" "$(openssl rand -hex 8)" > "$D/token"    # bootstrap token: id and secret
  chmod 600 "$D"/*.kubeconfig "$D/token"
}

# ---- control plane --------------------------------------------------------------------------------------------------------------

start() { # NAME COMMAND...: in a session of its own, log and pid below $D
  local name=$1; shift
  ! alive "$D/$name.pid" "$name" || return 0
  setsid "$@" >>"$D/log/$name.log" 2>&1 </dev/null &
  echo $! > "$D/$name.pid"
}
control_up() {
  local began; began=$(now)
  [ -f "$D/token" ] || keys
  start etcd etcd --data-dir "$D/etcd" --unsafe-no-fsync --log-level warn \
    --listen-client-urls "http://$HOST:2379" --advertise-client-urls "http://$HOST:2379" \
    --listen-peer-urls "http://$HOST:2380" --initial-advertise-peer-urls "http://$HOST:2380" --initial-cluster "default=http://$HOST:2380"
  # shellcheck disable=SC2086 # more flags are words
  start kube-apiserver kube-apiserver --etcd-servers "http://$HOST:2379" --bind-address "$HOST" --advertise-address "$HOST" \
    --secure-port 6443 --cert-dir "$D/pki" --client-ca-file "$D/pki/ca.crt" \
    --tls-cert-file "$D/pki/apiserver.crt" --tls-private-key-file "$D/pki/apiserver.key" \
    --kubelet-client-certificate "$D/pki/kubelet-client.crt" --kubelet-client-key "$D/pki/kubelet-client.key" \
    --kubelet-preferred-address-types InternalIP --service-account-issuer https://kubernetes.default.svc \
    --service-account-key-file "$D/pki/sa.pub" --service-account-signing-key-file "$D/pki/sa.key" --service-cluster-ip-range 10.96.0.0/24 \
    --authorization-mode Node,RBAC --enable-admission-plugins NodeRestriction --enable-bootstrap-token-auth --allow-privileged \
    --profiling=false ${APISERVER_EXTRA:-}
  for _ in $(seq 480); do
    kc get --raw /readyz >/dev/null 2>&1 && break
    alive "$D/kube-apiserver.pid" kube-apiserver || die "kube-apiserver ended: $(tail -n 1 "$D/log/kube-apiserver.log")"
    sleep 0.25
  done
  kc get --raw /readyz >/dev/null || die "kube-apiserver is not ready after minutes: $(tail -n 1 "$D/log/kube-apiserver.log")"
  start kube-controller-manager kube-controller-manager --kubeconfig "$D/controllers.kubeconfig" --bind-address "$HOST" \
    --leader-elect=false --use-service-account-credentials --service-account-private-key-file "$D/pki/sa.key" \
    --root-ca-file "$D/pki/ca.crt" --cluster-signing-cert-file "$D/pki/ca.crt" --cluster-signing-key-file "$D/pki/ca.key" \
    --controllers '*,bootstrap-signer-controller,token-cleaner-controller' \
    --node-monitor-period 2s --node-monitor-grace-period "${NODE_GRACE:-20s}" --profiling=false
  start kube-scheduler kube-scheduler --kubeconfig "$D/scheduler.kubeconfig" --bind-address "$HOST" --leader-elect=false --profiling=false
  grants | kc apply -f - >/dev/null
  echo "control plane ready in $(took "$began"): https://$HOST:6443 in its own network"
}
# What kubeadm would grant: bearers of a bootstrap token may ask for a node's certificate and get it; nodes may renew theirs.
grants() {
  cat <<K
apiVersion: v1
kind: Secret
metadata: {name: bootstrap-token-$(cut -d. -f1 "$D/token"), namespace: kube-system}
type: bootstrap.kubernetes.io/token
stringData:
  token-id: "$(cut -d. -f1 "$D/token")"
  token-secret: "$(cut -d. -f2 "$D/token")"
  usage-bootstrap-authentication: "true"
  auth-extra-groups: "system:bootstrappers:millwright"
K
  binding mw-bootstrap system:node-bootstrapper system:bootstrappers
  binding mw-approve system:certificates.k8s.io:certificatesigningrequests:nodeclient system:bootstrappers
  binding mw-renew system:certificates.k8s.io:certificatesigningrequests:selfnodeclient system:nodes
}
binding() { # NAME ROLE GROUP
  cat <<K
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: $1}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "$2"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "$3"}]
K
}

# ---- cgroups --------------------------------------------------------------------------------------------------------------------

# With cgroup v1 a node's cgroups are below those of the caller, so that the caller's limits hold for nodes, too.
cgroups_of() { # NODE: lines of hierarchy, tab, directory; one line with cgroup v2
  local controllers path name; name=millwright-$(cat "$D/id")-$1
  if [ -f /sys/fs/cgroup/cgroup.controllers ]; then printf 'cgroup2\t/sys/fs/cgroup/%s\n' "$name"; return; fi
  while IFS=: read -r _ controllers path; do
    [ -n "$controllers" ] || continue
    # name=systemd comes along: containerd looks for it when the kernel has killed a process for memory.
    printf '%s\t/sys/fs/cgroup/%s%s/%s\n' "$controllers" "${controllers#name=}" "${path%/}" "$name"
  done < /proc/self/cgroup
}
make_cgroups() { # NODE FILE
  local dir
  cgroups_of "$1" > "$2"
  cut -f2 "$2" | while read -r dir; do
    mkdir -p "$dir"
    case $dir in */cpuset/*)    # begins without any, and takes no process then
      cat "${dir%/*}/cpuset.cpus" > "$dir/cpuset.cpus"; cat "${dir%/*}/cpuset.mems" > "$dir/cpuset.mems";;
    esac
    [ -z "${NODE_MEMORY:-}" ] || [ ! -f "$dir/memory.limit_in_bytes" ] || echo "$NODE_MEMORY" > "$dir/memory.limit_in_bytes"
    [ -z "${NODE_MEMORY:-}" ] || [ ! -f "$dir/memory.max" ] || echo "$NODE_MEMORY" > "$dir/memory.max"
  done
}
remove_cgroups() { # FILE; bottom up, and processes that just died may hold them for a moment
  local dir
  cut -f2 "$1" | while read -r dir; do
    for _ in $(seq 150); do
      [ -d "$dir" ] || break
      find "$dir" -depth -type d -exec rmdir {} + 2>/dev/null && break
      sleep 0.03
    done
    [ ! -d "$dir" ] || echo "node.sh: left behind: $dir" >&2
  done
}

# ---- nodes ----------------------------------------------------------------------------------------------------------------------

node_files() { # what containerd, kubelet and kube-proxy read, in the node's /etc; written anew at each boot
  local name=$1 N=$2 ip=$3 pods=$4 nothing='{}'
  mkdir -p "$N"/var/{lib/kubelet,lib/containerd,lib/cni,log} "$N/root" "$N"/etc/{cni/net.d,containerd,kubernetes/pki}
  printf 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n' > "$N/etc/passwd"
  printf 'root:x:0:\nnogroup:x:65534:\n' > "$N/etc/group"
  echo "$name" > "$N/etc/hostname"
  printf '127.0.0.1 localhost\n%s %s\n' "$ip" "$name" > "$N/etc/hosts"
  : > "$N/etc/resolv.conf"
  [ -f "$N/etc/machine-id" ] || tr -d - < /proc/sys/kernel/random/uuid > "$N/etc/machine-id"
  cp "$D/pki/ca.crt" "$N/etc/kubernetes/pki/"
  cp "$D/proxy.kubeconfig" "$N/etc/kubernetes/"
  kubeconfig "$N/etc/kubernetes/bootstrap.kubeconfig" "{token: ${NODE_TOKEN:-$(cat "$D/token")}}"
  chmod 600 "$N/etc/kubernetes/bootstrap.kubeconfig"
  cat > "$N/etc/cni/net.d/10-mw.conflist" <<K
{"cniVersion": "1.0.0", "name": "mw", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "$pods"}]], "routes": [{"dst": "0.0.0.0/0"}], "dataDir": "/run/cni"}}]}
K
  cat > "$N/etc/containerd/config.toml" <<'K'
version = 2
oom_score = 0
disabled_plugins = [
  "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.aufs", "io.containerd.internal.v1.opt",
]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "mw.local/pause:1"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
K
  cat > "$N/etc/kubernetes/kubelet.yaml" <<K
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $ip
healthzBindAddress: $ip
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: /etc/kubernetes/pki/ca.crt}}
authorization: {mode: Webhook}
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
failCgroupV1: false            # 1.35 and later refuse cgroup v1 unless told so
failSwapOn: false
oomScoreAdj: 0                 # a lower one needs CAP_SYS_RESOURCE, which a container may not have
makeIPTablesUtilChains: false
rotateCertificates: false      # true bootstraps beside the start, and registering backs off meanwhile: Ready 3 to 6 s later
serializeImagePulls: false
nodeStatusUpdateFrequency: 5s
nodeLeaseDurationSeconds: 20
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 50Mi, nodefs.available: "0%", imagefs.available: "0%", nodefs.inodesFree: "0%"}
clusterDomain: cluster.local
resolvConf: /etc/resolv.conf
providerID: ${PROVIDER_ID:-mw:///$name}
registerWithTaints: ${NODE_TAINTS:-[]}
systemReserved: ${NODE_RESERVED:-$nothing}    # capacity is that of the machine; this much of it is not allocatable
K
}
# kubelet would set sysctls that hold for the whole machine; it leaves one alone that reads as it wants. Each of these files is laid
# over one below /proc/sys. The boot's id is among them: by another id kubelet sees that the node was started again.
node_sysctls() {
  local sys=$1
  rm -rf "$sys"; mkdir -p "$sys"
  printf 1 > "$sys/vm.overcommit_memory"; printf 0 > "$sys/vm.panic_on_oom"
  printf 10 > "$sys/kernel.panic"; printf 1 > "$sys/kernel.panic_on_oops"
  printf 1000000 > "$sys/kernel.keys.root_maxkeys"; printf 25000000 > "$sys/kernel.keys.root_maxbytes"
  cat /proc/sys/kernel/random/uuid > "$sys/kernel.random.boot_id"
}
node_index() { # NODE: a number that no other node has, kept with its disk
  local N=$D/nodes/$1 i=1
  (
    flock 9
    [ ! -f "$N/index" ] || exit 0
    while grep -qsx "$i" "$D"/nodes/*/index; do i=$((i + 1)); done
    [ "$i" -le 240 ] || die "more than 240 nodes"
    echo "$i" > "$N/index"
  ) 9>"$D/lock"
}
node_add() {
  local name=$1 N=$D/nodes/$1 began i ip pods pid file; began=$(now)
  [[ $name =~ ^[a-z0-9]([a-z0-9-]{0,40}[a-z0-9])?$ ]] || die "bad name of a node: $name"
  [ -f "$D/token" ] || die "no control plane yet; \`up 0\` starts it"
  ! alive "$N/pid" _init || { echo "node $name runs already"; return; }
  [ ! -d "$N" ] || node_cut "$name"    # cgroups and network card of the boot before this
  mkdir -p "$N"; node_index "$name"; i=$(cat "$N/index")
  ip=10.200.0.$((10 + i)) pods=10.201.$i.0/24
  node_files "$name" "$N" "$ip" "$pods"
  node_sysctls "$N/sys"
  make_cgroups "$name" "$N/cgroups"
  rm -f "$N/pid" "$N/has-network"
  NODE=$name N=$N IP=$ip setsid bash "$HERE/node.sh" _enter >"$N/var/log/init.log" 2>&1 </dev/null &
  for _ in $(seq 500); do [ ! -s "$N/pid" ] || break; sleep 0.02; done
  [ -s "$N/pid" ] || die "node $name did not start: $(tail -n 2 "$N/var/log/init.log")"
  pid=$(cat "$N/pid")
  ip link add "mw-$i" type veth peer name eth0 netns "$pid"
  ip link set "mw-$i" master $BRIDGE up
  ip route replace "$pods" via "$ip"
  : > "$N/has-network"
  for _ in $(seq 600); do
    ! in_node "$name" ctr version >/dev/null 2>&1 || break
    alive "$N/pid" _init || die "node $name ended: $(tail -n 2 "$N/var/log/init.log")"
    sleep 0.05
  done
  for file in "$KIT/image.tar" ${NODE_IMAGES:-}; do import "$name" "$file"; done
  : > "$N/has-images"
  [ "${NODE_WAIT:-1}" = 1 ] || { echo "node $name runs after $(took "$began") ($ip)"; return; }
  await_ready "$name"
  echo "node $name Ready in $(took "$began") ($ip)"
}
# Ready, and said by this boot: before a second boot Kubernetes may not have noticed the power cut yet.
await_ready() {
  local N=$D/nodes/$1 boot wanted='{.status.nodeInfo.bootID} {.status.conditions[?(@.type=="Ready")].status}'
  boot=$(cat "$N/sys/kernel.random.boot_id")
  for _ in $(seq 900); do
    [ "$(kc get node "$1" -o "jsonpath=$wanted" 2>/dev/null)" != "$boot True" ] || return 0
    alive "$N/pid" _init || die "node $1 ended: $(tail -n 2 "$N/var/log/init.log")"
    sleep 0.1
  done
  die "node $1 is not Ready after 90 s; the end of kubelet's log: $(tail -n 3 "$N/var/log/kubelet.log")"
}
in_node() { # NODE COMMAND...
  local pid; pid=$(cat "$D/nodes/$1/pid"); shift
  nsenter --target "$pid" --mount --net --pid --ipc --uts -- "$@"
}
import() { in_node "$1" ctr -n k8s.io images import - < "$2" >/dev/null; }
load() {
  local dir
  for dir in "$D"/nodes/*/; do ! alive "$dir/pid" _init || import "$(basename "$dir")" "$1"; done
}
# In the node's cgroups, outside its namespaces yet. unshare forks: its child is PID 1 of the node.
node_enter() {
  local dir
  for dir in $(cut -f2 "$N/cgroups"); do echo $$ > "$dir/cgroup.procs"; done
  exec unshare --mount --net --uts --ipc --cgroup --pid --fork --kill-child --propagation private bash "$HERE/node.sh" _init
}
# PID 1 of the node: makes its root, waits for its network card, starts three programs; ends when one of them ends.
node_init() {
  local r=$N/root dir file
  find_pid_outside
  mount -t tmpfs -o size=64m,mode=755 root "$r"
  mkdir -p "$r"/{usr,etc,var,proc,sys,dev,run,tmp,root,opt/kubernetes,old}
  for dir in bin sbin lib lib32 lib64 libx32; do [ ! -L /$dir ] || ln -s "usr/$dir" "$r/$dir"; done
  mount -t overlay -o "ro,lowerdir=$KIT/usr:/usr" usr "$r/usr"
  mkdir -p "$N"/etc/{alternatives,ssl}
  mount --bind "$N/etc" "$r/etc"
  for dir in alternatives ssl; do [ ! -d /etc/$dir ] || mount --bind /etc/$dir "$r/etc/$dir"; done
  mount --bind "$N/var" "$r/var"; ln -sfn /run "$N/var/run"
  mount --rbind /dev "$r/dev"; mount -t proc proc "$r/proc"; mount -t sysfs sysfs "$r/sys"
  mount -t tmpfs -o mode=755 run "$r/run"; mount -t tmpfs tmp "$r/tmp"
  mount --bind "$KIT/kubernetes" "$r/opt/kubernetes"
  mount_cgroups "$r/sys/fs/cgroup"
  for file in "$N"/sys/*; do mount --bind "$file" "$r/proc/sys/$(basename "$file" | tr . /)"; done
  hostname "$NODE"
  echo "$outside" > "$N/pid.new"; mv "$N/pid.new" "$N/pid"
  while [ ! -e "$N/has-network" ]; do sleep 0.02; done
  ip link set lo up; ip addr add "$IP/24" dev eth0; ip link set eth0 up
  ip route add default via $HOST; ip route add $POOL dev eth0 scope link
  cd "$r"; pivot_root . old; cd /; umount -l /old; rmdir /old; mount --make-rshared /
  echo 1 > /proc/sys/net/ipv4/ip_forward             # of this network namespace only, as the next line
  echo 1 > /proc/sys/net/ipv4/conf/eth0/proxy_arp    # pods of all nodes are on one link: each node answers for its own
  export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root; ulimit -n "$(ulimit -Hn)"
  daemons
}
mount_cgroups() {
  local at=$1 hierarchy word
  if grep -q '^cgroup2' "$N/cgroups"; then    # this branch was never run: no machine of ours has cgroup v2
    mount -t cgroup2 cgroup2 "$at"
    mkdir -p "$at/init"    # a cgroup that hands controllers on may not hold processes itself
    while read -r word; do echo "$word" > "$at/init/cgroup.procs" 2>/dev/null || true; done < "$at/cgroup.procs"
    for word in $(cat "$at/cgroup.controllers"); do echo "+$word" > "$at/cgroup.subtree_control" || true; done
    return
  fi
  mount -t tmpfs -o mode=755 cgroup "$at"
  cut -f1 "$N/cgroups" | while read -r hierarchy; do
    mkdir "$at/${hierarchy#name=}"
    word=$hierarchy; case $hierarchy in name=*) word=none,$hierarchy;; esac
    mount -t cgroup -o "$word" cgroup "$at/${hierarchy#name=}"
  done
}
daemons() {
  local status=0
  containerd >/var/log/containerd.log 2>&1 &
  while [ ! -S /run/containerd/containerd.sock ]; do sleep 0.02; done
  # shellcheck disable=SC2086 # more flags are words
  /opt/kubernetes/kubelet --config /etc/kubernetes/kubelet.yaml --bootstrap-kubeconfig /etc/kubernetes/bootstrap.kubeconfig \
    --kubeconfig /var/lib/kubelet/kubeconfig --hostname-override "$NODE" --node-ip "$IP" ${NODE_LABELS:+--node-labels "$NODE_LABELS"} \
    --v=2 ${KUBELET_EXTRA:-} >/var/log/kubelet.log 2>&1 &
  /opt/kubernetes/kube-proxy --kubeconfig /etc/kubernetes/proxy.kubeconfig --hostname-override "$NODE" --oom-score-adj 0 \
    --proxy-mode nftables --cluster-cidr $POOL \
    --conntrack-max-per-core 0 --conntrack-tcp-timeout-established 0s --conntrack-tcp-timeout-close-wait 0s \
    --bind-address "$IP" --healthz-bind-address "$IP:10256" --metrics-bind-address "$IP:10249" >/var/log/kube-proxy.log 2>&1 &
  wait -n || status=$?
  echo "a program of the node ended with $status: the node goes down"
  exit 1
}
node_cut() {
  local N=$D/nodes/$1 i
  [ -d "$N" ] || die "no node $1"
  if alive "$N/pid" _init; then
    kill -9 "$(cat "$N/pid")" 2>/dev/null || true
    for _ in $(seq 500); do alive "$N/pid" _init || break; sleep 0.02; done
  fi
  rm -f "$N/pid"
  [ -f "$N/index" ] || return 0    # it never booted
  i=$(cat "$N/index")
  ip link del "mw-$i" 2>/dev/null || true
  ip route del "10.201.$i.0/24" 2>/dev/null || true
  [ ! -f "$N/cgroups" ] || { remove_cgroups "$N/cgroups"; rm -f "$N/cgroups"; }
}
node_rm() { node_cut "$1"; rm -rf "${D:?}/nodes/${1:?}"; }
power() {
  local dir
  for dir in "$D"/nodes/*/; do ! alive "$dir/pid" _init || basename "$dir"; done
}
status() {
  local dir
  kc get nodes -o wide
  for dir in "$D"/nodes/*/; do
    [ ! -d "$dir" ] || echo "$(basename "$dir"): power $(alive "$dir/pid" _init && echo on || echo off)"
  done
}

command=${1:-}; shift || true
export NODE_DIR NODE_KIT
name() { [ -n "${1:-}" ] || die "which node?"; }
case $command in
  hold) hold;;
  up) up "$@";;
  down) down;;
  add|cut|rm) name "$@"; inside "_$command" "$1";;
  cordon|uncordon) name "$@"; run kubectl "$command" "$1";;
  kubectl) run kubectl "$@";;
  run) run "$@";;
  beside) NODE_SH=$HERE/node.sh exec "$@";;
  status) inside _status;;
  power) inside _power;;
  load) for file; do files+=("$(realpath "$file")"); done; inside _load "${files[@]}";;
  _up) control_up; for i in $(seq "$1"); do node_add "n$i"; done;;
  _add) node_add "$1";;
  _cut) node_cut "$1";;
  _rm) node_rm "$1";;
  _status) status;;
  _power) power;;
  _load) for file; do load "$file"; done;;
  _first) first;;
  _enter) node_enter;;
  _init) node_init;;
  *) sed -n '2,/^set /{/^#/!d;s/^# \{0,1\}//;p}' "$0"; exit 2;;
esac
