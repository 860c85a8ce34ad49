#!/usr/bin/env bash
# The gateway beside its peers and limits in one run, every process tree on one core, the load on the
# other. KIT is a folder with run.py, table.py and setup.sh (mock upstream, load generator, peers);
# run its setup.sh once. OUT gets the rows. ONLY names targets, e.g. ONLY=envoy,haproxy,product.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
kit=${KIT:?name the folder that holds run.py, table.py and setup.sh}
lab=${LAB:-/tmp/tiffin-bench/gateway}
out=${OUT:-$lab/tiffin.json}
rm -rf /tmp/tiffin-bench-data
export LAB=$lab
export PRODUCT_CMD="$here/../.venv/bin/tiffin serve --config $here/gateway.toml"
export PRODUCT_PORT=18081 PRODUCT_HEALTH=/readyz
export PRODUCT_HEADERS="Authorization: Bearer sk-bench-0123456789abcdef"
if [ -n "${ONLY:-}" ]; then
  python3 "$kit/run.py" --only "$ONLY" --dur "${DUR:-3}" --out "$out" --hold 300
else
  python3 "$kit/run.py" --kind limit,peer,product --dur "${DUR:-3}" --out "$out" --hold 300
fi
python3 "$kit/table.py" "$out"
