# Sourced by the scripts next to it: where things are, how they speak, how a server with the shipped configuration starts.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}
# shellcheck disable=SC2034 # for the scripts
venv=$target/venv venv_oldest=$target/venv-oldest
cd "$root" || exit

# rustup installs here without touching the shell's profile.
PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH

case $(uname -s) in
Darwin) module=$target/release/libredis_seat.dylib ;;
*) module=$target/release/libredis_seat.so ;;
esac

say() { printf '%s\n' "$*" >&2; }
die() {
  say "error: $*"
  exit 1
}

# Which server a binary is, such as `redis-7.0.15` or `valkey-8.1.8`. A link may give it any name,
# so it is asked.
name_of() { "$1" --version | sed 's/^\([^ ]*\) .* v=\([^ ]*\).*/\1-\2/' | tr '[:upper:]' '[:lower:]'; }

# The shipped redis.conf with the two paths that differ on each machine: this checkout's module, and a data folder.
write_conf() { # file data-dir
  sed -e "s|^loadmodule [^ ]*|loadmodule \"$module\"|" -e "s|^dir .*|dir \"$2\"|" redis.conf >"$1"
}

# A temporary folder, `dir`, for a private server. Both go when the script ends, however it ends: a
# subshell reads from this script until its input ends, which is when the script has ended, and each
# command that it ran. So one that runs for long must not have descriptor 9.
private_dir() {
  dir=$(mktemp -d)
  server_pid=
  exec 9> >(
    trap '' INT TERM HUP
    last=
    while read -r pid; do last=$pid; done
    [ -z "$last" ] || kill "$last" 2>/dev/null
    rm -rf "$dir"
  )
  trap 'kill $server_pid 2>/dev/null || true; wait $server_pid 2>/dev/null || true; rm -rf "$dir"' EXIT
  # Without these bash takes no notice of an INT that the command it waits for has survived.
  trap 'exit 130' INT
  trap 'exit 143' TERM
  trap 'exit 129' HUP
}

# Runs a command in a process group of its own, which ends when a signal ends the script.
in_group() { # command [argument ...]
  local status=0
  set -m
  "$@" &
  group=$!
  set +m
  trap 'end_group 130' INT
  trap 'end_group 143' TERM
  trap 'end_group 129' HUP
  wait "$group" || status=$?
  trap - INT TERM HUP
  return $status
}

end_group() { # status
  # What a shell starts in the background may heed no other.
  kill -s TERM -- "-$group" 2>/dev/null || true
  wait "$group" || true
  exit "$1"
}

# Starts `server` in the background on a socket in `dir`, and returns once it answers.
start_server() { # server conf [option ...]
  local server=$1 conf=$2
  shift 2
  "$server" "$conf" --port 0 --unixsocket "$dir/sock" --unixsocketperm 700 --logfile "$dir/log" "$@" >"$dir/out" 2>&1 9>&- &
  server_pid=$!
  echo "$server_pid" >&9
  local tries
  for ((tries = 0; tries < 600; tries++)); do
    [ "$(redis-cli -s "$dir/sock" ping 2>&1)" = PONG ] && return
    kill -0 "$server_pid" 2>/dev/null || break
    sleep 0.05
  done
  cat "$dir/out" "$dir/log" 2>/dev/null >&2 || true
  die "$server did not start with $conf"
}
