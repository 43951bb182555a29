#!/bin/sh
# Makes the stubs of this folder again from proto/machine/driver/v1/driver.proto. Run it after the proto has changed.
# The versions are pinned here, because the stubs are checked in: another version would change every line.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
tools="$root/target/go-tools"
buf="${BUF:-$root/target/buf/node_modules/.bin/buf}" # npm: @bufbuild/buf 1.74.0, as ./check installs it

mkdir -p "$tools"
GOBIN="$tools" GOFLAGS="-buildvcs=false" go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
GOBIN="$tools" GOFLAGS="-buildvcs=false" go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.0

"$buf" generate "$root/proto" --path "$root/proto/machine/driver/v1" --output "$here/.." --template "{
  \"version\": \"v2\",
  \"plugins\": [
    {\"local\": \"$tools/protoc-gen-go\", \"out\": \".\", \"opt\": \"module=millwright.dev/provider-sdk\"},
    {\"local\": \"$tools/protoc-gen-go-grpc\", \"out\": \".\", \"opt\": \"module=millwright.dev/provider-sdk\"}
  ]
}"
