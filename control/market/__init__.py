"""Where and when to run on a market: policies that finish a job by a deadline on machines that may be taken
away.

For: the table of policies and `make`, which builds one from its name. Not for: carrying decisions out
(twin/cloud/deadline.py), nor prices and availability, which come with each step. Policies are imported when
one is made, so that the command line can list them without waiting for NumPy.
"""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING

from twinbed import ScenarioError

if TYPE_CHECKING:
    from control.market.ports import Policy, Terms

POLICIES: dict[str, tuple[str, str]] = {
    "planned": ("planned:Planned", "plans on how long spot machines and outages have lasted so far (ours)"),
    "uniform-progress": (
        "rules:UniformProgress",
        "keeps progress above the straight line to the deadline; leaves on-demand late (hysteresis)",
    ),
    "plain-progress": ("rules:PlainProgress", "uniform-progress without hysteresis"),
    "greedy": ("rules:Greedy", "spot when available, else waits as long as the deadline allows"),
    "sky-nomad": ("nomad:SkyNomad", "goes where an hour is worth most; pays to probe zones"),
    "available-progress": (
        "nomad:AvailableProgress",
        "uniform-progress that starts where most of the last probes found spot",
    ),
    "value-progress": ("nomad:ValueProgress", "available-progress by availability over price"),
    "on-demand": ("rules:OnDemand", "on demand from start to end"),
}
"""Policies by the name that users give: `module:class` in this package, and how the policy decides."""


def make(name: str, terms: Terms) -> Policy:
    """Return a new policy for jobs on these terms. Raises ScenarioError for an unknown name."""
    if name not in POLICIES:
        raise ScenarioError(f"no policy {name!r}; there are {', '.join(POLICIES)}")
    policy: Policy = resolve_name(f"{__name__}.{POLICIES[name][0]}")(terms)
    return policy
