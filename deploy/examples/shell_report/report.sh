#!/bin/sh
# What was sold in a month, by region. Each step is done once: after a crash only the rest is.
set -eu
args=$(cat) n=0 total=0 text=
arg() { printf %s "$args" | sed -n "s/.*\"$1\" *: *\"\{0,1\}\([0-9-]*\).*/\1/p"; }
for region in north east south west; do
	sold=$(holdfast step "$region" -- awk -F, -v month="$(arg month)" -v region="$region" \
		'$1 == month && $2 == region { sold += $4 } END { print sold + 0 }' \
		"$HOLDFAST_TOOL_DIR/sales.csv")
	n=$((n + 1)) total=$((total + sold)) text="$text$region $sold, "
	holdfast step --progress "0.$((n * 2))" "$region"
	sleep "0$(arg pace_s)"
done
[ "$total" -gt 0 ] || { echo "there are no sales of $(arg month)" >&2 && exit 1; }
printf '{"total": %d, "text": "%s"}\n' "$total" "${text%, }"
