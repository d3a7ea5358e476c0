"""An sbatch script that starts Ray on the nodes of an allocation and runs a job there."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from roost.bringup.job_start import JobStart, ShapedNodes, node_variables, options_text, ray_resources
from roost.errors import counted
from roost.inventory.accelerators import AcceleratorType

NO_GRES = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmOptions:
    time: str | None = None
    partition: str | None = None
    account: str | None = None
    gres: str | None = None  # Slurm's name of the accelerators; NO_GRES: do not ask for them
    directives: tuple[str, ...] = ()  # further ones, such as --qos=high

    @property
    def everywhere(self) -> Iterator[str]:
        """The directives that each part of a heterogeneous job needs."""
        for name in ("partition", "account", "time"):
            if value := getattr(self, name):
                yield f"--{name}={value}"
        yield from self.directives


def sbatch_script(start: JobStart, options: SlurmOptions) -> str:
    runs = start.runs()
    setup = "\n".join(start.setup) + "\n\n" if start.setup else ""
    steps = f"--het-group=0-{len(runs) - 1}" if len(runs) > 1 else f"--nodes={len(start.nodes)}"
    return (
        (
            f"#!/bin/bash\n{_header(start, options, runs)}\n"
            f"# Written by `roost up slurm`: starts Ray on {counted(len(start.nodes), 'node')}, runs the job on the first one, and ends Ray.\n"
            "# Only this allocation is touched. The exit code is the job's.\n"
            f"set -u\ntimeout={start.timeout:.0f}  # seconds that the nodes may take to be there\n\n"
            f"{setup}{_BEFORE}\n{_start_node(start, runs)}\n{_AFTER}"
        )
        .replace("@STEPS@", steps)
        .replace("@COMMAND@", start.waiting_command)
    )


def _header(start: JobStart, options: SlurmOptions, runs: tuple[ShapedNodes, ...]) -> str:
    first = [
        f"--job-name={start.name}",
        "--output=%x-%j.log",
        "--open-mode=append",  # a requeued job keeps its earlier output
        "--signal=B:TERM@60",  # the script ends the job in order before the time limit
    ]
    parts = []
    for run in runs:
        parts.append([*first, *_asked(run, options), *options.everywhere])
        first = []
    return "#SBATCH hetjob\n".join("".join(f"#SBATCH {one}\n" for one in part) for part in parts)


def _asked(run: ShapedNodes, options: SlurmOptions) -> Iterator[str]:
    """The directives that ask for nodes of a shape."""
    shape = run.shape
    yield f"--nodes={len(run.ranks)}"
    yield "--ntasks-per-node=1"
    if shape.cpus is not None:
        yield f"--cpus-per-task={shape.cpus}"
    if shape.accelerators.count and options.gres != NO_GRES:
        is_npu = shape.accelerators.type == AcceleratorType.ASCEND_NPU.value
        yield f"--gres={options.gres or ('npu' if is_npu else 'gpu')}:{shape.accelerators.count}"
    if shape.selections:
        yield f"--constraint={'&'.join(shape.selections)}"
    if shape.host:
        yield f"--nodelist={shape.host}"


def _start_node(start: JobStart, runs: tuple[ShapedNodes, ...]) -> str:
    """The shell function that each node runs."""
    lines = []
    for run in runs:
        options = options_text(ray_resources(run.shape, start.declare)).strip()
        variables = node_variables(run.shape, start.declare)
        settings = [f"export {name}={shlex.quote(value)}" for name, value in variables.items()]
        settings += [f"resources=({options})"] if options else []
        if settings:
            condition = f"SLURM_PROCID >= {run.ranks[0]} && SLURM_PROCID <= {run.ranks[-1]}"
            lines.append(f"    if (({condition})); then {'; '.join(settings)}; fi\n")
    return _START_NODE.replace("@RESOURCES@", "".join(lines))


_BEFORE = """\
# This script runs on the first node, which is Ray's head. ROOST_HEAD_ADDRESS names another network of that node.
head=${ROOST_HEAD_ADDRESS:-$(getent ahostsv4 "$SLURMD_NODENAME" | awk '$1 !~ /^127[.]/ {print $1; exit}')}
head=${head:-$(hostname -I | awk '{print $1}')}

# Each allocation has a block of 128 ports by its job id: allocations that share a machine do not meet.
for ((try = 0; try < 99; try++)); do
    port=$((20000 + (SLURM_JOB_ID + try) % 99 * 128))
    (exec 3<>"/dev/tcp/$head/$port") 2>/dev/null || break  # taken: another job's Ray, or another program
done
export ROOST_RAY=$head:$port timeout
export ROOST_PORT_RANGE=${ROOST_PORT_RANGE:-$((port + 1))-$((port + 127))}

# Ray takes commands only from who has the token: your own, or else one of this job that nobody else knows.
export RAY_AUTH_MODE=${RAY_AUTH_MODE:-token}
if [[ $RAY_AUTH_MODE == token && -z ${RAY_AUTH_TOKEN:-}${RAY_AUTH_TOKEN_PATH:-} && ! -s ~/.ray/auth_token ]]; then
    RAY_AUTH_TOKEN=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \\n')
    export RAY_AUTH_TOKEN
fi

unset RAY_ADDRESS  # of another Ray of yours

# Ray's files are on each node's own disk, apart from every other Ray of yours. They are removed at the end,
# unless Ray ended by itself, scancel left no time, or KEEP_RAY_FILES=1 is in the environment of sbatch.
export RAY_TMPDIR=/tmp/roost-$SLURM_JOB_ID
"""

_START_NODE = """\
start_node() {  # runs on every node at once; SLURM_PROCID counts the nodes in the order of the allocation
    export ROOST_NODE_RANK=$SLURM_PROCID
    export RAY_raylet_start_wait_time_s=${RAY_raylet_start_wait_time_s:-120}
    local head=${ROOST_RAY%:*} port=${ROOST_RAY##*:} ray= ending=0 code try resources=()
    local name="node $ROOST_NODE_RANK ($SLURMD_NODENAME)"
    trap 'ending=1; [[ -z $ray ]] || kill -TERM "$ray" 2>/dev/null' TERM USR1
@RESOURCES@    mkdir -m 700 -p "$RAY_TMPDIR"
    if [[ -L $RAY_TMPDIR || ! -O $RAY_TMPDIR ]]; then
        echo "$name: $RAY_TMPDIR is another user's" >&2
        return 1
    fi
    # Ports that are not named are any free ones. A port of 0 means that too.
    local ports=(--min-worker-port=0 --max-worker-port=0 --dashboard-agent-listen-port=0)
    local log=$RAY_TMPDIR/start-$SLURM_PROCID.log
    local where=(--head --node-ip-address="$head" --port="$port" --include-dashboard=false --temp-dir="$RAY_TMPDIR")
    if ((SLURM_PROCID)); then
        where=(--address="$ROOST_RAY")
        until (exec 3<>"/dev/tcp/$head/$port") 2>/dev/null; do
            if ((ending || SECONDS > timeout)); then
                echo "$name: no Ray at $ROOST_RAY after $SECONDS s" >&2
                rm -rf "$RAY_TMPDIR"
                return 1
            fi
            sleep 0.5
        done
    fi
    # Nodes may be one machine, where two that start at once would take the same socket.
    exec 9>"$RAY_TMPDIR/lock"
    flock --timeout "$timeout" 9
    for try in 3 2 1; do  # a busy machine can be too slow for the limits that Ray has for its own start
        # The script sends SIGUSR1 to this shell, and Slurm to everything that it started.
        (trap '' USR1; exec ray start --block --disable-usage-stats "${where[@]}" "${ports[@]}" \\
            ${resources[@]+"${resources[@]}"} >"$log" 2>&1 9>&-) &
        ray=$!
        until ((ending || SECONDS > timeout)) || grep -qs "runtime started" "$log" || ! kill -0 "$ray" 2>/dev/null; do
            sleep 0.2
        done
        ((!ending)) || kill -TERM "$ray" 2>/dev/null  # the signal may have come before there was a Ray to end
        if ((ending || try == 1 || SECONDS > timeout)) || kill -0 "$ray" 2>/dev/null; then break; fi
        wait "$ray"
        echo "$name: Ray did not start (exit code $?), trying again" >&2
    done
    exec 9>&-
    while :; do
        wait "$ray"
        code=$?
        kill -0 "$ray" 2>/dev/null || break  # else a signal interrupted the wait
    done
    if ((!ending)); then
        echo "$name: Ray ended with exit code $code; its files are in $RAY_TMPDIR" >&2
        tail -n 20 "$log" >&2
        touch "$RAY_TMPDIR/ended-$SLURM_PROCID"
        return 1
    fi
    [[ ${KEEP_RAY_FILES:-0} == 1 ]] || rm -rf "$RAY_TMPDIR"
}
"""

_AFTER = """\
# One task a node, with all that the allocation has there.
srun @STEPS@ --ntasks-per-node=1 --overlap --cpu-bind=none --kill-on-bad-exit=0 \\
    bash -c "$(declare -f start_node); start_node" &
ray=$!

job=
stop() {  # scancel, or a minute before the time limit
    echo "ending the job" >&2
    if [[ -n $job ]]; then kill -TERM -- "-$job" 2>/dev/null; fi
}
trap stop TERM INT

wait_at_most() {  # SECONDS PROCESS
    local tenth
    for ((tenth = 0; tenth < 10 * $1; tenth++)); do
        kill -0 "$2" 2>/dev/null || break
        sleep 0.1
    done
}

run_job() {
    local stopping=0
    trap 'stopping=1' TERM INT  # the command is sent the signal too, and this shell waits for its end
    until (exec 3<>"/dev/tcp/$head/$port") 2>/dev/null; do
        if [[ -e $RAY_TMPDIR/ended-0 ]] || ((SECONDS > timeout)); then
            echo "Ray's head did not start at $ROOST_RAY" >&2
            return 4
        fi
        ((stopping)) && return 143
        sleep 0.5
    done
    export RAY_ADDRESS=$ROOST_RAY
    @COMMAND@
}
set -m  # in a process group of its own
run_job &
job=$!
set +m

while :; do
    wait -n "$job" "$ray"
    code=$?
    if ! kill -0 "$job" 2>/dev/null; then
        wait "$job"
        code=$?
        break
    elif ! kill -0 "$ray" 2>/dev/null; then
        echo "Ray has ended on every node: ending the job" >&2
        kill -TERM -- "-$job" 2>/dev/null
        wait_at_most 60 "$job"
        code=5
        break
    fi
done

trap '' TERM INT
kill -USR1 "$ray" 2>/dev/null  # srun passes it to every node, where Ray is ended and its files are removed
wait_at_most 20 "$ray"
exit "$code"  # Slurm kills what is left
"""
