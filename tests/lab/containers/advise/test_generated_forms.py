"""Advice on generated histories is valid in every form, by the rules of those who read it."""

import argparse
import re
import shlex

import jsonschema
import kubernetes_validate
import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from lab.connect.kubernetes import amount
from lab.containers.advise import forms
from lab.containers.advise.advising import Wanted, advise
from lab.containers.advise.forms.common import API, LEAST_BYTES, resources
from lab.containers.advise.histories import of_cluster
from lab.containers.advise.model import Advice
from lab.containers.calibrate.values import load_calibration
from tests.lab.containers.advise.histories import history, trace
from tests.lab.containers.advise.test_forms import VERSION, merged, whole
from traces.prometheus.workloads import Owner

MACHINE = load_calibration().machine()
SAMPLES = 150

CORES = (0.0, 1e-7, 0.004, 0.25, 3.0, 700.0)
BYTES = (0.0, 1.0, 5e3, 3e6, 4e8, 9e12)
KINDS = (*API, "Job", "Pod", "Rollout")
NAMES = st.one_of(
    st.sampled_from(
        ["web", "db.main", "x" * 63, ".".join(["a" * 60] * 4), "web-deployment", "1", "null", "~"]
    ),
    st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True),
    st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=8),
)
"""Names of Kubernetes' objects, texts that YAML reads as something else, and texts of other systems."""


@st.composite
def told(draw):
    """A history of a few workloads: replicas, several containers, init containers, odd names, all sizes."""
    random = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    owners, cores, held, facts = [], [], [], {name: [] for name in ("request", "limit", "memory")}
    names = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    for workload in names:
        namespace, kind = draw(st.sampled_from(["shop", "", "kube-system"])), draw(st.sampled_from(KINDS))
        for container in draw(st.lists(NAMES, min_size=1, max_size=3, unique=True)):
            level, size = draw(st.sampled_from(CORES)), draw(st.sampled_from(BYTES))
            is_init, spread = draw(st.booleans()), draw(st.sampled_from([0.0, 0.5, 2.0]))
            told = draw(st.sampled_from([np.nan, 0.0, 0.5, 64.0])), draw(st.sampled_from([np.nan, 0.0, 2e9]))
            for replica in range(draw(st.integers(1, 2))):
                owners.append(Owner(namespace, f"{workload}-{replica}", container, kind, workload, is_init))
                cores.append(level * random.lognormal(0, spread, SAMPLES))
                held.append(np.rint(size * random.uniform(0.5, 1.0, SAMPLES)))
                for name, value in zip(facts, (told[0], told[0], told[1]), strict=True):
                    facts[name].append(value)
    columns = [f"{owner.namespace}/{owner.pod}/{owner.container}" for owner in owners]
    assume(len(set(columns)) == len(columns))
    assume(len({"/".join((o.namespace, o.workload, o.container)) for o in owners}) == len(
        {(o.namespace, o.kind, o.workload, o.container) for o in owners}
    ))  # fmt: skip
    own = trace(cores, held, names=columns)
    return of_cluster("test", history(
        own, owners, cpu_request_cores=facts["request"], cpu_limit_cores=facts["limit"],
        memory_limit_bytes=facts["memory"],
    ))  # fmt: skip


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(own=told(), policy=st.sampled_from(["requests-only", "limits", "krr", "vpa"]))
def test_every_form_of_every_advice_is_valid(own, policy):
    advice = advise([own], Wanted(policies=(policy,), seeds=(0,)), MACHINE)
    rows = [row for row in advice.rows if row.verdict != "leave"]
    for row in rows:
        check_row(row)
    if not rows:
        return
    for form in ("compose", "docker", "systemd"):
        CHECKS[form](advice, forms.texts(advice, form))
    if any(row.kind in API for row in rows):
        for form in ("kubernetes", "vpa", "helm"):
            CHECKS[form](advice, forms.texts(advice, form))


def check_row(row):
    own = row.advised
    assert own.cpu_request_cores >= 0.01
    for request, limit in (
        (own.cpu_request_cores, own.cpu_limit_cores), (own.memory_request_bytes, own.memory_limit_bytes),
    ):  # fmt: skip
        assert None in (request, limit) or limit == "none" or request <= limit
    if own.memory_request_bytes is not None:
        assert own.memory_request_bytes >= row.peak_bytes


def workloads(advice: Advice):
    found = {}
    for row in advice.rows:
        if row.verdict != "leave" and row.kind in API:
            found.setdefault((row.namespace, row.kind, row.workload), []).append(row)
    return found


def check_kubernetes(advice, texts):
    expected = workloads(advice)
    assert len(texts) == len(expected)
    for text in texts.values():
        (patch,) = yaml.safe_load_all(text)
        key = patch["metadata"].get("namespace", ""), patch["kind"], patch["metadata"]["name"]
        rows = expected.pop(key)
        parts = [[row.container for row in rows if row.is_init is init] for init in (False, True)]
        base = whole(patch["kind"], parts[0] or ["other"], parts[1])
        now = {
            row.container: merged({}, resources(row.model_copy(update={"advised": row.current})))
            for row in rows
        }
        for entry in entries(base):
            entry["resources"] = now.get(entry["name"], {})
        found = merged(base, patch)
        for entry in entries(found):
            check_resources(entry["resources"])
        found["metadata"] = {"name": "web"}
        kubernetes_validate.validate(found, VERSION, strict=True)
    assert not expected


def entries(made):
    spec = made["spec"]
    pods = (spec["jobTemplate"]["spec"] if made["kind"] == "CronJob" else spec)["template"]["spec"]
    return [*pods["containers"], *pods.get("initContainers", [])]


def check_resources(own):
    for name, request in own.get("requests", {}).items():
        limit = own.get("limits", {}).get(name)
        assert request is not None
        assert limit is None or amount(request) <= amount(limit)


QUANTITY = {"type": "string", "pattern": r"^[1-9][0-9]*(m|Mi)$"}
AMOUNTS = {
    "type": "object",
    "properties": {"cpu": QUANTITY, "memory": QUANTITY},
    "required": ["cpu"],
    "additionalProperties": False,
}
SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"


def closed(**properties):
    """The schema of an object that has all of these fields and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


POLICY = closed(
    containerName={"type": "string"},
    minAllowed=AMOUNTS,
    maxAllowed=AMOUNTS,
    controlledResources={"type": "array", "items": {"enum": ["cpu", "memory"]}, "minItems": 1},
    controlledValues={"enum": ["RequestsAndLimits", "RequestsOnly"]},
)
AUTOSCALER = closed(
    apiVersion={"const": "autoscaling.k8s.io/v1"},
    kind={"const": "VerticalPodAutoscaler"},
    metadata={
        **closed(name={"type": "string", "maxLength": 253, "pattern": SUBDOMAIN}),
        "additionalProperties": {"type": "string"},
    },
    spec=closed(
        targetRef=closed(apiVersion={"type": "string"}, kind={"enum": list(API)}, name={"type": "string"}),
        updatePolicy=closed(updateMode={"const": "Off"}),
        resourcePolicy=closed(containerPolicies={"type": "array", "items": POLICY, "minItems": 1}),
    ),
)
"""What an advice uses of the VerticalPodAutoscaler's own definition (vpa-v1-crd-gen.yaml), closed."""


def check_vpa(advice, texts):
    made = [yaml.safe_load(text) for text in texts.values()]
    assert len(made) == len(workloads(advice))
    names = {(entry["metadata"].get("namespace"), entry["metadata"]["name"]) for entry in made}
    assert len(names) == len(made)
    for entry in made:
        jsonschema.validate(entry, AUTOSCALER)
        for policy in entry["spec"]["resourcePolicy"]["containerPolicies"]:
            assert list(policy["minAllowed"]) == policy["controlledResources"] == list(policy["maxAllowed"])
            for name, least in policy["minAllowed"].items():
                assert amount(least) <= amount(policy["maxAllowed"][name])


def check_helm(advice, texts):
    found = []
    for text in texts.values():
        for values in yaml.safe_load(text).values():
            is_alone = list(values) == ["resources"] and set(values["resources"]) <= {"requests", "limits"}
            found += [values] if is_alone else values.values()
    assert len(found) == sum(map(len, workloads(advice).values()))
    for entry in found:
        own = {"resources": merged({}, entry["resources"])}
        check_resources(own["resources"])
        containers = [{"name": "app", "image": "web:1", **own}]
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "a"},
            "spec": {"containers": containers},
        }
        kubernetes_validate.validate(pod, VERSION, strict=True)


class Loader(yaml.SafeLoader):
    """Reads Compose's `!reset`."""


Loader.add_constructor("!reset", lambda loader, node: None)


def check_compose(advice, texts):
    (text,) = texts.values()
    services = yaml.load(text, Loader)["services"]
    assert len(services) == sum(row.verdict != "leave" for row in advice.rows)
    for name, service in services.items():
        assert re.fullmatch(r"[a-zA-Z0-9._-]+", name)
        for own in service["deploy"]["resources"].values():
            assert own.get("cpus") is None or float(own["cpus"]) >= 0.01
            assert own.get("memory") is None or int(own["memory"].removesuffix("b")) >= LEAST_BYTES


def check_docker(advice, texts):
    parser = argparse.ArgumentParser(exit_on_error=False)
    for flag in ("cpus", "cpu-shares", "memory-reservation", "memory", "memory-swap"):
        parser.add_argument(f"--{flag}")
    parser.add_argument("members", nargs="+")
    script = shlex.split(*texts.values())
    assert script[:3] == ["#!/bin/sh", "set", "-eu"]
    lines = " ".join(map(shlex.quote, script)).split("docker update ")[1:]
    rows = [row for row in advice.rows if row.verdict != "leave"]
    for row, line in zip(rows, lines, strict=True):
        said = parser.parse_args(shlex.split(line))
        assert said.members == row.members
        assert (said.cpus is None) == (row.advised.cpu_limit_cores is None)
        assert said.cpus in (None, "$(nproc)") or float(said.cpus) >= 0.01
        assert 2 <= int(said.cpu_shares) <= 262_144
        assert (said.memory is None) == (row.advised.memory_limit_bytes is None)
        if row.advised.memory_limit_bytes == "none":
            assert "MemTotal" in said.memory
            assert said.memory_swap == "-1"
        elif said.memory is not None:
            assert LEAST_BYTES <= int(said.memory_reservation) <= int(said.memory) < int(said.memory_swap)


UNIT = {"CPUQuota": r"|[0-9]+\.[0-9]%", "CPUWeight": r"[1-9][0-9]{0,4}", "MemoryMax": r"infinity|[1-9][0-9]*"}
UNIT["MemoryHigh"] = r"[1-9][0-9]*"


def check_systemd(advice, texts):
    for path, text in texts.items():
        unit, name = path.split("/")
        assert re.fullmatch(r"([A-Za-z0-9:_.@-]|\\x[0-9a-f]{2})+\.(service|slice|scope)\.d", unit), unit
        assert len(unit) <= 255
        assert name == "50-twinbed.conf"
        head, *lines = text.splitlines()
        assert head in ("[Service]", "[Slice]", "[Scope]")
        said = dict(line.split("=", 1) for line in lines)
        for key, value in said.items():
            assert re.fullmatch(UNIT[key], value), (key, value)
        assert said.get("CPUQuota") != "0.0%"
        assert int(said.get("CPUWeight", 1)) <= 10_000
        if said.get("MemoryMax", "infinity") != "infinity":
            assert int(said["MemoryHigh"]) <= int(said["MemoryMax"])


CHECKS = {
    "kubernetes": check_kubernetes,
    "vpa": check_vpa,
    "helm": check_helm,
    "compose": check_compose,
    "docker": check_docker,
    "systemd": check_systemd,
}


def test_the_checks_find_what_is_wrong():
    with pytest.raises(AssertionError):
        check_resources({"requests": {"cpu": "2"}, "limits": {"cpu": "500m"}})
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"minAllowed": {"cpu": "0m"}}, POLICY)
