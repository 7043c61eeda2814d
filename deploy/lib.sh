# lib.sh - what deploy/up, deploy/down and test/run share: packages, Zig, the build, processes.
# Sourced by bash with `set -euo pipefail`, from anywhere; all paths are the checkout's own.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
state=$root/.holdfast
run=$state/run
logs=$state/log
holdfast=$root/zig-out/bin/holdfast
downstream=$root/deploy/examples/downstream/downstream.py
zig_version=0.17.1
python=/usr/bin/python3
postgres_bin=/usr/lib/postgresql/15/bin
socket_path_bytes_max=107
stop_seconds_max=15
ready_seconds_max=30

packages=(ca-certificates curl gcc groff-base libc6-dev libcairo2-dev libcjson-dev libcriterion-dev
	libcurl4-openssl-dev libev-dev libmsgpack-dev libpcre2-dev libpq-dev libssl-dev node-llhttp
	pkg-config postgresql-15 procps python3 python3-psycopg python3-venv util-linux)

say() { printf '%s\n' "$*" >&2; }
die() {
	say "$*"
	exit 1
}

# --- what must be installed -----------------------------------------------------------------------

missing_packages() {
	local package
	for package in "${packages[@]}"; do
		# shellcheck disable=SC2016 # dpkg's own variable
		[ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] ||
			printf '%s\n' "$package"
	done
}

# Root installs what is missing; anybody else is told the one line and gets exit code 2.
install_packages() {
	local missing
	mapfile -t missing < <(missing_packages)
	[ "${#missing[@]}" -eq 0 ] && return
	if [ "$(id -u)" -ne 0 ]; then
		say "Missing packages. As root:"
		say "  apt-get install --no-install-recommends ${missing[*]}"
		exit 2
	fi
	say "installing ${#missing[@]} packages: ${missing[*]}"
	keep_debian_cluster_away
	mkdir -p "$logs"
	{
		DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=3 update &&
			DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o Acquire::Retries=3 \
				--no-install-recommends install "${missing[@]}"
	} >"$logs/apt.log" 2>&1 </dev/null || {
		tail -n 20 "$logs/apt.log" >&2
		die "apt-get failed; all of it is in $logs/apt.log"
	}
}

# Debian's package would make and start a cluster of its own; ours is private.
keep_debian_cluster_away() {
	local conf=/etc/postgresql-common/createcluster.conf
	[ -e "$conf" ] && return
	mkdir -p "${conf%/*}"
	printf 'create_main_cluster = false\n' >"$conf"
}

zig() { "$state/zig/bin/python" -m ziglang "$@"; }

install_zig() {
	local found
	found=$(zig version 2>/dev/null || true)
	[ "$found" = "$zig_version" ] && return
	say "installing Zig $zig_version into .holdfast/zig"
	mkdir -p "$logs"
	rm -rf "$state/zig"
	{
		"$python" -m venv "$state/zig" &&
			"$state/zig/bin/pip" install --disable-pip-version-check "ziglang==$zig_version"
	} >"$logs/zig.log" 2>&1 </dev/null || {
		tail -n 20 "$logs/zig.log" >&2
		die "Zig could not be installed; all of it is in $logs/zig.log"
	}
}

install_all() {
	install_packages
	install_zig
}

# Quiet when it works; the whole output when it does not. Twice the processors: Zig counts who only
# waits for others.
build() {
	mkdir -p "$logs"
	(cd "$root" && zig build -j$(($(nproc) * 2)) "$@") >"$logs/build.log" 2>&1 </dev/null || {
		cat "$logs/build.log" >&2
		die "the build failed"
	}
}

# --- processes ------------------------------------------------------------------------------------
# A pid file holds the pid and its start time in clock ticks, so that a pid which another program
# has by now is never taken for ours.

start_time() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 20; }

# The pid of a process of ours that lives, or nothing.
pid_of() {
	local pid started
	[ -r "$run/$1.pid" ] || return 0
	read -r pid started <"$run/$1.pid" || return 0
	[ -n "$started" ] && [ "$(start_time "$pid")" = "$started" ] || return 0
	# A zombie has died already.
	[ "$(sed 's/.*) //' "/proc/$pid/stat" 2>/dev/null | cut -d ' ' -f 1)" = Z ] || printf '%s' "$pid"
}

# start_process NAME COMMAND...: in a session of its own, with nothing of our environment but what
# it needs; HOLDFAST_ and other variables come in the array process_env.
start_process() {
	local name=$1 pid
	shift
	[ -z "$(pid_of "$name")" ] || return 0
	# setsid runs in the background of this shell, so it does not fork and keeps its pid.
	setsid env -i PATH="$PATH" HOME="${HOME:-/}" LANG=C.UTF-8 "${process_env[@]}" "$@" \
		>>"$logs/$name.log" 2>&1 </dev/null &
	pid=$!
	printf '%s %s\n' "$pid" "$(start_time "$pid")" >"$run/$name.pid"
	disown "$pid"
}

# stop_processes NAME...: SIGTERM to all, then SIGKILL to who is still there.
stop_processes() {
	local name pid end=$((SECONDS + stop_seconds_max))
	for name in "$@"; do
		pid=$(pid_of "$name")
		[ -z "$pid" ] || kill -TERM "$pid" 2>/dev/null || true
	done
	for name in "$@"; do
		while [ -n "$(pid_of "$name")" ] && [ $SECONDS -lt $end ]; do sleep 0.05; done
		pid=$(pid_of "$name")
		if [ -n "$pid" ]; then
			say "$name did not stop within $stop_seconds_max s: killed"
			kill -KILL "$pid" 2>/dev/null || true
		fi
		rm -f "$run/$name.pid"
	done
}

# wait_for NAME URL: until the process answers there; at once an error when it has ended.
wait_for() {
	local end=$((SECONDS + ready_seconds_max))
	until http_ok "$2"; do
		[ -n "$(pid_of "$1")" ] && [ $SECONDS -lt $end ] || {
			tail -n 3 "$logs/$1.log" >&2
			die "$1 is not ready; all of its log is in $logs/$1.log"
		}
		sleep 0.1
	done
}

# still_runs NAME...: an error when one has ended.
still_runs() {
	local name
	for name in "$@"; do
		[ -n "$(pid_of "$name")" ] || {
			tail -n 3 "$logs/$name.log" >&2
			die "$name ended; all of its log is in $logs/$name.log"
		}
	done
}

# wanted port if nobody listens there, else a free one.
free_port() {
	"$python" -c '
import socket, sys
for port in (int(sys.argv[1]), 0):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        print(probe.getsockname()[1])
        break' "$1"
}

http_ok() { curl -sf --noproxy '*' --max-time 2 -o /dev/null "$1"; }

# --- the private Postgres -------------------------------------------------------------------------
# initdb and postgres refuse root. As root they run as user postgres, who may then read through a
# home folder of mode 0700 (CAP_DAC_READ_SEARCH) but write only what is its own.

as_postgres() {
	if [ "$(id -u)" -eq 0 ]; then
		setpriv --reuid postgres --regid postgres --clear-groups \
			--inh-caps +dac_read_search --ambient-caps +dac_read_search -- "$@"
	else
		"$@"
	fi
}

# Where the socket lies: .holdfast/run/pg, or a temporary folder where that path is too long.
socket_folder() {
	local folder=$run/pg socket=/.s.PGSQL.5432
	if [ $((${#folder} + ${#socket})) -gt "$socket_path_bytes_max" ]; then
		[ -r "$run/socket-folder" ] && folder=$(cat "$run/socket-folder") || folder=
		[ -d "$folder" ] || folder=$(mktemp -d /tmp/holdfast-XXXXXX)
	fi
	mkdir -p "$folder"
	chmod 700 "$folder"
	[ "$(id -u)" -ne 0 ] || chown postgres: "$folder"
	printf '%s' "$folder" | tee "$run/socket-folder"
}

postgres_runs() { as_postgres "$postgres_bin/pg_ctl" -D "$state/pg" status >/dev/null 2>&1; }

start_postgres() {
	local folder
	postgres_runs && return
	folder=$(socket_folder)
	if [ ! -s "$state/pg/PG_VERSION" ]; then
		say "making a private Postgres in .holdfast/pg"
		rm -rf "$state/pg"
		mkdir -p -m 700 "$state/pg"
		[ "$(id -u)" -ne 0 ] || chown postgres: "$state/pg"
		(cd / && as_postgres "$postgres_bin/initdb" -D "$state/pg" -U postgres -A trust \
			-E UTF8 --locale=C.UTF-8 >"$logs/initdb.log" 2>&1) || {
			cat "$logs/initdb.log" >&2
			rm -rf "$state/pg"
			die "initdb failed"
		}
	fi
	: >>"$logs/postgres.log"
	[ "$(id -u)" -ne 0 ] || chown postgres: "$logs/postgres.log"
	# On the socket alone, in a folder that only its owner may enter: that is the authentication.
	(cd / && as_postgres "$postgres_bin/pg_ctl" -D "$state/pg" -w -t 60 -l "$logs/postgres.log" \
		-o "-c listen_addresses= -c unix_socket_directories='$folder' -c max_connections=200" \
		start >/dev/null 2>&1 </dev/null) || {
		tail -n 20 "$logs/postgres.log" >&2
		die "Postgres did not start; see $logs/postgres.log"
	}
}

stop_postgres() {
	[ -d "$state/pg" ] && postgres_runs || return 0
	(cd / && as_postgres "$postgres_bin/pg_ctl" -D "$state/pg" -w -m fast stop >/dev/null)
}

admin_dsn() { printf "host='%s' dbname=holdfast user=postgres" "$(cat "$run/socket-folder")"; }

make_database() {
	local psql=(psql -X -q -A -t -h "$(cat "$run/socket-folder")" -U postgres -d postgres)
	[ "$("${psql[@]}" -c "SELECT 1 FROM pg_database WHERE datname = 'holdfast'")" = 1 ] ||
		"${psql[@]}" -c 'CREATE DATABASE holdfast'
}
