#!/usr/bin/env bash
# kit.sh TARGET: makes what node.sh needs, once, below TARGET/node, and prints the directory that has it. It is made anew when this
# file or Kubernetes' pins change.
#
#   DIR/usr         containerd, runc, CNI plugins, nftables and busybox from Debian's archive. Nothing is installed: a package of
#                   containerd would start a service, and would replace the one of a machine with Docker. apt-get only downloads, and leaves
#                   out what the machine has; nodes see DIR/usr laid over the machine's /usr.
#   DIR/kubernetes  control plane, kubelet and kube-proxy, built from tests/kubernetes/go.mod with the flags that controller/dev builds a
#                   control plane with (apiserver/build.rs), so that Go compiles nothing twice.
#   DIR/image.tar   the only image: busybox, as the sandbox of every pod (mw.local/pause:1), and for the pods of tests (mw.local/box:1).
set -euo pipefail
target=${1:?the target directory}
here=$(cd "$(dirname "$0")" && pwd)
packages=(containerd runc containernetworking-plugins nftables busybox-static)

say() { echo "[node] $*" >&2; }

fetch() {
  # Lists and archives of our own: the machine's may be missing or years old, and stay as they are.
  local apt=(apt-get -qq -o "Dir::State::lists=$dir/apt/lists" -o "Dir::Cache=$dir/apt" -o APT::Sandbox::User=root)
  mkdir -p "$dir/apt/lists/partial" "$dir/apt/archives/partial"
  "${apt[@]}" update &&
    "${apt[@]}" install --yes --download-only --no-install-recommends "${packages[@]}"
}

unpack() {
  local package top
  for package in "$dir"/apt/archives/*.deb; do
    [ ! -f "$package" ] || dpkg-deb --extract "$package" "$dir"
  done
  mkdir -p "$dir/usr"
  for top in bin sbin lib; do   # packages of Debian 12 may still say /bin and /lib for what lies in /usr
    [ ! -d "$dir/$top" ] || { mkdir -p "$dir/usr/$top"; cp -a "$dir/$top/." "$dir/usr/$top/"; }
    rm -rf "${dir:?}/$top"
  done
  rm -rf "$dir/apt"
}

sha() { sha256sum "$1" | cut -d ' ' -f 1; }

# An archive as `docker save` writes it: a layer, a configuration and a manifest that names both.
image() {
  local busybox=$dir/usr/bin/busybox applet layer=$dir/layer
  [ -x "$busybox" ] || busybox=$(command -v busybox)   # installed on the machine, so that apt-get had nothing to download
  mkdir -p "$layer/bin" "$layer/tmp"; chmod 1777 "$layer/tmp"
  cp "$busybox" "$layer/bin/busybox"
  for applet in $("$busybox" --list); do
    [ "$applet" = busybox ] || ln -s busybox "$layer/bin/$applet"
  done
  mkdir "$dir/image"
  tar --owner=0 --group=0 -C "$layer" -cf "$dir/image/layer.tar" .
  cat > "$dir/image/config.json" <<JSON
{"architecture": "$(dpkg --print-architecture)", "os": "linux",
 "rootfs": {"type": "layers", "diff_ids": ["sha256:$(sha "$dir/image/layer.tar")"]},
 "config": {"Entrypoint": ["/bin/sleep", "infinity"], "Env": ["PATH=/bin"], "User": "65532:65532"}}
JSON
  echo '[{"Config": "config.json", "RepoTags": ["mw.local/pause:1", "mw.local/box:1"], "Layers": ["layer.tar"]}]' \
    > "$dir/image/manifest.json"
  tar -C "$dir/image" -cf "$dir/image.tar" manifest.json config.json layer.tar
  rm -rf "$layer" "$dir/image"
}

kubernetes() {
  local version program packages=(go.etcd.io/etcd/server/v3)
  for program in kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy; do
    packages+=("k8s.io/kubernetes/cmd/$program")
  done
  cd "$here/../kubernetes" || return
  version=$(go list -mod=readonly -m -f '{{.Version}}' k8s.io/kubernetes) || return
  CGO_ENABLED=0 GOFLAGS='-mod=readonly -trimpath' go build -ldflags="-s -w -X k8s.io/component-base/version.gitVersion=$version" \
    -o "$dir/kubernetes/" "${packages[@]}" || return
  mv "$dir/kubernetes/server" "$dir/kubernetes/etcd"    # Go names a program after the last directory of its package
}

name=$(cat "$here/kit.sh" "$here/../kubernetes/go.mod" "$here/../kubernetes/go.sum" | sha256sum | cut -c 1-12)
mkdir -p "$target/node"
done=$(realpath "$target/node")/kit-$name
dir=$done.making
exec 9>"$done.lock"
flock 9
if [ ! -d "$done" ]; then
  rm -rf "$dir"; mkdir -p "$dir/kubernetes"
  say "fetching ${packages[*]} with apt-get, once"
  fetch >&2 || { say "apt-get cannot fetch ${packages[*]}; see the lines above"; exit 1; }
  unpack
  image
  say "building Kubernetes' programs with Go, once: about 5 minutes on 2 cores, 2 where the tests' control plane was built before"
  (kubernetes) >&2 || { say "go build failed; see the lines above"; exit 1; }
  mv "$dir" "$done"
fi
echo "$done"
