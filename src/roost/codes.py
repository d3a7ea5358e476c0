"""The stable codes of findings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]
Kind = Literal["config", "fit", "advice", "run"]


@dataclass(frozen=True, slots=True)
class Code:
    """The meaning of a code. `fit` problems depend on the cluster, `config` problems do not."""

    title: str
    kind: Kind = "config"

    @property
    def severity(self) -> Severity:
        return "warning" if self.kind == "advice" else "error"


CODES: dict[str, Code] = {
    # RC0xx: reading a file
    "RC001": Code("the file cannot be read"),
    "RC002": Code("the YAML is malformed"),
    "RC003": Code("a key is written twice"),
    "RC004": Code("the file is too large, too deep, or expands too far"),
    "RC005": Code("a YAML feature roost refuses"),
    "RC006": Code("an interpolation cannot be resolved"),
    "RC007": Code("a malformed override"),
    "RC008": Code("a job that Hydra cannot compose"),
    # RC1xx: the schema
    "RC101": Code("an unknown key"),
    "RC102": Code("a required key is missing"),
    "RC103": Code("a value of the wrong type"),
    "RC104": Code("a value out of its range"),
    "RC105": Code("a name that is not allowed"),
    "RC106": Code("a component is placed twice"),
    "RC107": Code("a class or a driver that cannot be used"),
    # RL1xx: the rank language
    "RL101": Code("a placement that cannot be parsed"),
    "RL102": Code("a range written backwards"),
    "RL103": Code("resource ranks that do not ascend"),
    "RL104": Code("process ranks that are not 0..N-1 in order"),
    "RL105": Code("`all` where ranks are needed"),
    "RL106": Code("an absurd rank or count"),
    # RI1xx: nodes and node groups
    "RI101": Code("a malformed inventory"),
    "RI102": Code("a reserved or repeated node group label"),
    "RI103": Code("an unknown node group"),
    "RI104": Code("a node that does not exist", "fit"),
    "RI105": Code("a node outside its group"),
    "RI106": Code("a variable or interpreter set twice on one node"),
    "RI107": Code("a hardware entry that does not fit its type"),
    "RI108": Code("fewer nodes than the job asks for", "fit"),
    "RI109": Code("a node rank listed twice"),
    "RI110": Code("one piece of hardware declared by two node groups"),
    # RP1xx: placing
    "RP101": Code("resource ranks that do not exist", "fit"),
    "RP102": Code("a process that would span nodes", "fit"),
    "RP103": Code("counts that do not divide", "fit"),
    "RP104": Code("nothing to place on", "fit"),
    "RP105": Code("a malformed strategy"),
    "RP106": Code("an unknown component"),
    "RP107": Code("one device counted twice through two groups", "fit"),
    "RP108": Code("a number YAML may have rewritten", "fit"),
    "RP109": Code("two kinds of hardware in one process", "fit"),
    "RP110": Code("engines that do not tile the nodes", "fit"),
    "RP111": Code("shares of one accelerator that do not add up", "fit"),
    "RP112": Code("a layout that needs more accelerators than there are", "fit"),
    "RP113": Code("no arrangement has enough accelerators", "fit"),
    "RP114": Code("no arrangement has enough memory", "fit"),
    # RF1xx: profiles
    "RF101": Code("a flow or weights of a profile that make no sense"),
    "RF102": Code("a measured size that cannot be used"),
    "RF103": Code("widths that do not divide each other, or the nodes"),
    "RF104": Code("node groups that a profile cannot be solved on"),
    "RF105": Code("a job that cannot be measured as asked"),
    # RM1xx: model-parallel placement
    "RM101": Code("a component the model-parallel placement needs or does not know"),
    "RM102": Code("accelerators that are not consecutive", "fit"),
    "RM103": Code("actor and rollout overlap in part", "fit"),
    "RM104": Code("parallel sizes that do not fit"),
    "RM105": Code("inference where it cannot be"),
    # RS1xx: saved plans and other files written
    "RS101": Code("a saved plan that cannot be used"),
    "RS102": Code("a file that cannot be written"),
    "RS103": Code("secrets that a saved plan left out and that are nowhere to be found"),
    "RS104": Code("a source of samples, or a saved data buffer, that cannot be used"),
    "RS105": Code("a suggestion that does not hold"),
    # RE1xx: the live cluster
    "RE101": Code("the cluster cannot be reached", "run"),
    "RE102": Code("an unsupported Ray", "run"),
    "RE103": Code("a Ray connection that does not fit", "run"),
    "RE104": Code("nodes that did not join in time", "run"),
    "RE105": Code("node ranks that contradict each other", "run"),
    "RE106": Code("no running job, or several", "run"),
    "RE107": Code("accelerators that cannot be reserved", "fit"),
    "RE108": Code("a worker that could not start", "run"),
    "RE109": Code("a worker that is not where it should be", "run"),
    "RE110": Code("a worker raised an exception", "run"),
    "RE111": Code("a worker died", "run"),
    "RE112": Code("a wait that ran out of time", "run"),
    "RE113": Code("a call that does not fit its group", "run"),
    "RE114": Code("an unknown node or accelerator", "run"),
    "RE115": Code("a name that is taken or not allowed", "run"),
    "RE116": Code("an unknown worker group", "run"),
    "RE117": Code("ports have run out", "run"),
    "RE118": Code("a lock that was not had in time", "run"),
    "RE119": Code("an outdated fencing number", "run"),
    "RE120": Code("an engine that did not become ready", "run"),
    "RE121": Code("a plan that was made for another cluster", "fit"),
    "RE122": Code("components without workers, or workers without a component", "run"),
    "RE123": Code("a channel that was full or empty for too long", "run"),
    "RE124": Code("a closed channel", "run"),
    "RE125": Code("a channel or data buffer that another process has opened differently", "run"),
    "RE126": Code("items of a channel, or the place of a data buffer, that were lost", "run"),
    "RE127": Code("a component that was given up after too many failures", "run"),
    "RE128": Code("the cluster itself is gone", "run"),
    "RE129": Code("a router that cannot be had, or does not answer", "run"),
    "RE140": Code("a live page that cannot be served", "run"),
    "RE150": Code("a job that was taken down", "run"),
    "RE151": Code("part of a job that cannot be read or ended", "run"),
    "RE152": Code("nodes with different versions", "run"),
    "RE153": Code("nodes that do not authenticate alike", "run"),
    "RE154": Code("other accelerators on a node than Ray counts", "run"),
    # RW1xx: advice of the plan
    "RW101": Code("processes split unevenly over nodes", "advice"),
    "RW102": Code("accelerators left idle", "advice"),
    "RW103": Code("a component on more than one accelerator model", "advice"),
    "RW104": Code("more processes than CPUs on a node", "advice"),
    "RW105": Code("nodes the job does not ask for", "advice"),
    "RW106": Code("a key of the older system that does nothing here", "advice"),
    "RW107": Code("process ranks that model-parallel placement does not use", "advice"),
    "RW108": Code("two components that share only where one range ends and the other begins", "advice"),
    "RW109": Code("a restart policy that is not carried out", "advice"),
    "RW110": Code("a flag that may be a misspelt flag of a layout", "advice"),
    "RW111": Code("a piece of hardware listed twice", "advice"),
    "RW112": Code("machines that a scheduler is not told apart", "advice"),
    # RW2xx: advice about the live cluster
    "RW201": Code("a cluster on the network without authentication", "advice"),
    "RW202": Code("other accelerators granted than planned", "advice"),
    "RW203": Code("more nodes than the job asks for", "advice"),
    "RW204": Code("accelerators others hold at the moment", "advice"),
    "RW220": Code("clocks of nodes that differ", "advice"),
    "RW221": Code("few ports to lease", "advice"),
    "RW222": Code("a low limit on open files", "advice"),
    "RW223": Code("little shared memory", "advice"),
    "RW224": Code("leftovers of jobs that have ended", "advice"),
}
