"""`roost up`: writes what starts Ray for a job on Slurm, Kubernetes or plain hosts, and runs it where it can."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import click

from roost.bringup.hosts import endpoint, host_lines, hosts_text, run_line
from roost.bringup.job_start import JobStart, shell_words
from roost.bringup.kubernetes import KubernetesOptions, ray_job, ray_job_text
from roost.bringup.slurm import SlurmOptions, sbatch_script
from roost.cli.chosen_cluster import chosen_inventory, cluster_options, placement_class
from roost.cli.chosen_job import job_arguments
from roost.cli.chosen_plan import check_overrides
from roost.cli.ending import (
    FAILED,
    FINE,
    UNREACHABLE,
    code_for,
    emit,
    emit_result,
    refused,
    tell,
    tell_findings,
)
from roost.cli.options import all_of, seconds_option
from roost.cli.plan_output import check_files
from roost.cli.running_job import named_or_own
from roost.config.fields import NAME, NAME_RULE
from roost.config.job import Job, read_job
from roost.config.text_files import is_pipe
from roost.errors import RoostError, error_for, errors_in
from roost.planning.files import load_plan, write_file
from roost.planning.plan import Plan
from roost.planning.planner import plan

SUBMIT_WITHIN = 120.0  # seconds for sbatch and kubectl
# What Slurm and Kubernetes accept, as far as anybody means it: a memory of `64m` would be less than a byte.
SLURM_TIME = r"\d+(:\d+){0,2}|\d+-\d+(:\d+){0,2}|(?i:unlimited|infinite)"
MEMORY = r"(\d+\.?\d*|\.\d+)([KMGTPE]i|[kMGTPE]|[eE]\d+)?"
ADDRESS = r"[\w.-]+|\[?(?=.*:.*:)[0-9A-Fa-f.:]+(%\w+)?\]?"  # IPv6 has two colons at least
NAMESPACE = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
WORD = r"\S+"


def of_form(pattern: str, rule: str) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    """A callback of an option that takes only such texts."""

    def check(_context: click.Context, _option: click.Parameter, text: str | None) -> str | None:
        if text is not None and not re.fullmatch(pattern, text):
            raise click.BadParameter(f"{text!r}: {rule}")
        return text

    return check


one_word = of_form(WORD, "write one word")


class Targets(click.Group):
    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        limit = formatter.width - 6 - max(map(len, self.commands))
        with formatter.section("Targets"):
            formatter.write_dl(
                [(name, one.get_short_help_str(limit)) for name, one in sorted(self.commands.items())]
            )


@click.group("up", cls=Targets, subcommand_metavar="TARGET")
def command() -> None:
    """Write what starts Ray for a job, and run it where that is possible.

    CONFIG is the job's YAML file, or a saved plan (.json) together with --run.
    """


setup_option = click.option("--setup", multiple=True, metavar="LINE", help="A line of shell to run first.")


# The arguments and options that every target has.
start_options = all_of(
    job_arguments,
    cluster_options,
    click.option("--plan", "plan_file", metavar="FILE", type=click.Path(), help="Run this saved plan."),
    click.option("--run", metavar="COMMAND", help="Run this line of shell instead of `roost launch`."),
    click.option("--name", metavar="NAME", help="Of the job. Default: the name of its file."),
    seconds_option("--timeout", 300.0, "How long nodes may take to be there.", least=1),
    click.option(
        "--select",
        multiple=True,
        metavar="NAME=WHAT",
        help="How the cluster names the machines with an accelerator model, or of a node group.",
    ),
    click.option(
        "--declare-accelerators",
        "declare",
        is_flag=True,
        help="Tell Ray the plan's accelerators, instead of letting it count those that are there.",
    ),
    click.option("-o", "output", metavar="FILE", type=click.Path(), help="Write to this file."),
    click.option("--json", "as_json", is_flag=True, help="Print JSON."),
)


@command.command("slurm")
@start_options
@setup_option
@click.option(
    "--time",
    metavar="TIME",
    callback=of_form(SLURM_TIME, "write a time of Slurm, such as 2-00:00:00"),
    help="The time limit, such as 2-00:00:00.",
)
@click.option("--partition", metavar="NAME", callback=one_word, help="The partition.")
@click.option("--account", metavar="NAME", callback=one_word, help="The account.")
@click.option(
    "--gres",
    metavar="NAME",
    callback=one_word,
    help="Slurm's name of the accelerators, or `none`. Default: gpu, or npu.",
)
@click.option("--sbatch", "directives", multiple=True, metavar="OPTION", help="A further option of sbatch.")
@click.option("--submit", is_flag=True, help="Submit it with sbatch.")
def slurm(
    time: str | None,
    partition: str | None,
    account: str | None,
    gres: str | None,
    directives: tuple[str, ...],
    submit: bool,
    **given: Any,
) -> int:
    """Write an sbatch script that starts Ray on every node and runs the job on the first one.

    --select NAME=FEATURE asks for nodes with a feature of Slurm (--constraint).
    """
    for one in directives:
        _check_line(one)
    options = SlurmOptions(time=time, partition=partition, account=account, gres=gres, directives=directives)
    sbatch = ["sbatch"] if submit else []
    return _written(given, lambda start: sbatch_script(start, options), None, sbatch)


@command.command("kubernetes")
@start_options
@click.option(
    "--image",
    required=True,
    metavar="IMAGE",
    callback=one_word,
    help="The container image, with roost and the job in it.",
)
@click.option("--workdir", metavar="FOLDER", help="The folder of the image that holds CONFIG.")
@click.option(
    "--namespace",
    metavar="NAME",
    callback=of_form(NAMESPACE, "use small letters, digits and hyphens"),
    help="The namespace.",
)
@click.option(
    "--memory",
    metavar="SIZE",
    callback=of_form(MEMORY, "write a size of Kubernetes, such as 64Gi"),
    help="Memory of each pod, such as 64Gi.",
)
@click.option("--deadline", type=click.IntRange(1), metavar="SECONDS", help="How long the job may take.")
@click.option(
    "--resource", multiple=True, metavar="TYPE=NAME", help="What Kubernetes calls an accelerator type."
)
@click.option(
    "--ray-version",
    metavar="VERSION",
    callback=one_word,
    help="The Ray of the image. Default: the one that is installed here.",
)
@click.option("--apply", is_flag=True, help="Apply it with kubectl.")
def kubernetes(
    image: str,
    workdir: str | None,
    namespace: str | None,
    memory: str | None,
    deadline: int | None,
    resource: tuple[str, ...],
    ray_version: str | None,
    apply: bool,
    **given: Any,
) -> int:
    """Write a RayJob for KubeRay: node 0 is the head pod, other nodes are worker groups by their shape.

    --select NAME=LABEL=VALUE asks for nodes with a label of Kubernetes.
    """
    for one in given["select"]:
        if one.count("=") < 2:
            raise click.BadParameter(f"{one!r}: write NAME=LABEL=VALUE", param_hint="--select")
    options = KubernetesOptions(
        image=image,
        ray_version=ray_version or _installed_ray(),
        namespace=namespace,
        workdir=workdir,
        memory=memory,
        deadline=deadline,
        resources=_pairs(resource, "--resource"),
    )
    kubectl = ["kubectl", "create", "-f"] if apply else []
    return _written(
        given,
        lambda start: ray_job_text(start, options),
        lambda start: {"manifest": ray_job(start, options)},
        kubectl,
    )


@command.command("hosts")
@start_options
@setup_option
@click.option(
    "--head",
    metavar="ADDRESS",
    callback=of_form(ADDRESS, "write a host's name or address, without a port"),
    help="The address of node 0. Default: its address in the plan.",
)
@click.option("--port", type=click.IntRange(1024, 65535), default=6379, metavar="PORT", help="Default: 6379.")
def hosts(head: str | None, port: int, **given: Any) -> int:
    """Write the `ray start` line of each host, and what to run last."""

    def address(start: JobStart) -> str:
        found = head or start.nodes[0].ip or start.nodes[0].hostname
        if not found:
            raise click.UsageError("which address has node 0? Say it with --head, or in an inventory file.")
        return found.strip("[]")

    def data(start: JobStart) -> dict[str, Any]:
        lines = [asdict(line) for line in host_lines(start, address(start), port)]
        run = run_line(start, address(start), port)
        return {"address": endpoint(address(start), port), "nodes": lines, "run": run}

    return _written(given, lambda start: hosts_text(start, address(start), port), data, [])


@command.command("wait")
@click.option("--nodes", type=click.IntRange(1), required=True, metavar="COUNT", help="How many.")
@seconds_option("--timeout", 300.0, least=0)
@click.option(
    "--address", metavar="ADDRESS", help="The Ray. Default: RAY_ADDRESS, then yours on this machine."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def wait(nodes: int, timeout: float, address: str | None, as_json: bool) -> int:
    """Wait until Ray has this many nodes. `roost launch` does so by itself; other commands may need it."""
    from roost.engine.connection.discovery import wait_for_nodes
    from roost.engine.connection.ray_connection import connect

    connection = connect(named_or_own(address), None, may_start=False)
    try:
        found = wait_for_nodes(nodes, connection.address, timeout)
        tell(f"nodes: {len(found)} of {nodes}")
        if as_json:
            emit_result(nodes=len(found))
    finally:
        connection.close()
    return FINE


def _written(
    given: dict[str, Any],
    render: Callable[[JobStart], str],
    data: Callable[[JobStart], dict[str, Any]] | None,
    submit: list[str],
) -> int:
    """Plan, render, and write or print the result; then submit it, if that was asked for."""
    config, output, as_json = given["config"], given["output"], given["as_json"]
    check_overrides(given["overrides"])
    check_files([str(config), given["inventory"], given["plan_file"]], [output])
    if is_pipe(config.path) or is_pipe(Path(given["plan_file"] or "")):
        raise click.UsageError("the job starts later, so it must be in a file: a pipe is gone by then.")
    if given["name"] is not None and not NAME.fullmatch(given["name"]):
        raise click.BadParameter(f"{given['name']!r}: {NAME_RULE}", param_hint="--name")
    if submit and output is None:
        raise click.UsageError(f"{submit[0]} reads a file: say which with -o.")
    try:
        start = _job_start(given)
        findings = [*start.plan.findings, *start.problems()]
        text = render(start)
        if output is not None:
            write_file(output, text, private=True)  # overrides and commands may hold secrets
    except RoostError as error:
        return refused(error, str(config), as_json)
    if output is None and not as_json:
        emit(text)
    tell_findings(findings)
    if output is not None:
        tell(f"saved to {output}")
    code, answer = _submitted([*submit, str(output)]) if submit else (code_for(findings), "")
    if as_json:
        summary: dict[str, Any] = {"nodes": len(start.nodes)} if data is None else {}
        summary |= {"submitted": answer} if submit else {}
        emit_result(plan=start.plan.digest, **summary, **({"text": text} if data is None else data(start)))
    else:
        emit(answer)
    return code


def _job_start(given: dict[str, Any]) -> JobStart:
    config, overrides, timeout, run = (given[name] for name in ("config", "overrides", "timeout", "run"))
    planned, job, placing = _planned(given)
    hydra = ["--config-dir", config.config_dir] if config.config_dir is not None else []
    words = ["roost", "launch", str(config), *overrides, *hydra, *placing, "--timeout", f"{timeout:g}"]
    return JobStart(
        name=given["name"] or re.sub(r"[^A-Za-z0-9._-]+", "-", config.path.stem)[:64],
        plan=planned,
        command=shell_words(words) if run is None else _check_line(run),
        # `roost launch` waits for the nodes that the job or the plan asks for.
        waits=run is None and job is not None and (given["plan_file"] or job.num_nodes) is not None,
        timeout=timeout,
        declare=given["declare"],
        select=_pairs(given["select"], "--select"),
        setup=tuple(map(_check_line, given.get("setup", ()))),
    )


def _planned(given: dict[str, Any]) -> tuple[Plan, Job | None, list[str]]:
    """The plan, its job unless only a plan is given, and the options with which `roost launch` places it so."""
    config, plan_file, overrides = given["config"], given["plan_file"], given["overrides"]
    others = [name for name in ("on", "inventory", "model_parallel") if given[name]]
    is_plan = config.path.suffix == ".json"
    if (plan_file is not None or is_plan) and others:
        name = others[0].replace("_", "-")
        raise click.UsageError(f"the saved plan is placed already, so --{name} has no meaning with it.")
    if plan_file is None and is_plan:
        if given["run"] is None:
            what = "a saved plan does not say what to run"
            raise click.UsageError(f"{what}: give its job too (JOB --plan PLAN), or --run COMMAND.")
        return load_plan(config.path), None, []
    job, problems = read_job(config, overrides)
    if errors_in(problems):
        raise error_for(problems)
    if plan_file is not None:
        return load_plan(plan_file), job, ["--plan", plan_file]
    where = chosen_inventory(given["on"], given["inventory"])
    if where is None:
        ways = "with --on 2x8, with --inventory FILE, or with --plan FILE"
        raise click.UsageError(f"which nodes? Say it {ways}.")
    placement = placement_class(given["model_parallel"])
    placing = ["--model-parallel"] if given["model_parallel"] else []
    return plan(config, where, overrides=overrides, placement=placement), job, placing


def _submitted(words: list[str]) -> tuple[int, str]:
    """Run the command that submits a file. Its exit code for roost, and what it printed."""
    if shutil.which(words[0]) is None:
        tell(f"{words[0]} is not on this machine: run `{shell_words(words)}` where it is")
        return UNREACHABLE, ""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=SUBMIT_WITHIN)
    except subprocess.TimeoutExpired:
        tell(f"{words[0]} did not answer within {SUBMIT_WITHIN:g} s")
        return UNREACHABLE, ""
    if done.returncode:
        tell(f"{words[0]} refused it: {done.stderr.strip()[:2000]}")
    return FAILED if done.returncode else FINE, done.stdout


def _pairs(written: tuple[str, ...], option: str) -> dict[str, str]:
    for one in written:
        if not re.fullmatch(r"[^=\s]+=\S+", one):
            raise click.BadParameter(f"{one!r}: write NAME=VALUE, without spaces", param_hint=option)
    return dict(one.partition("=")[::2] for one in written)


def _check_line(text: str | None) -> str:
    if text is not None and (not text.strip() or re.search(r"[\r\n\0]", text)):
        raise click.UsageError(f"{text!r} is not one line.")
    return text or ""


def _installed_ray() -> str:
    try:
        return metadata.version("ray")
    except metadata.PackageNotFoundError:
        raise click.UsageError(
            "Ray is not installed here, so say which one the image has: --ray-version"
        ) from None
