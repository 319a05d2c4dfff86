"""The forms of an advice, checked by the systems' own rules, for names that other people chose."""

import copy
import shlex
import subprocess

import kubernetes_validate
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.containers.advise import forms
from lab.containers.advise.forms import common, kubernetes
from lab.containers.advise.model import Setting
from tests.lab.containers.advise.histories import MIB, advice, row
from twinbed import BackendError, ScenarioError

VERSION = "1.37"
HOSTILE = "a'; rm -rf /tmp/x #\n---\n`id`$(id): {{x}} \\ \N{SNOWMAN} ]]>"
LIMITED = Setting(
    cpu_request_cores=0.1234,
    cpu_limit_cores=0.5,
    memory_request_bytes=100 * MIB + 1,
    memory_limit_bytes=200 * MIB,
)


def whole(kind, containers, inits=()):
    """A full object of a kind, with these containers and init containers."""
    spec = {
        group: [
            {"name": name, "image": "web:1", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}
            for name in names
        ]
        for group, names in (("containers", containers), ("initContainers", inits))
        if names
    }
    pods = {"metadata": {"labels": {"app": "web"}}, "spec": spec}
    spec = {"selector": {"matchLabels": {"app": "web"}}, "template": pods}
    if kind == "StatefulSet":
        spec["serviceName"] = "web"
    if kind == "ReplicationController":
        spec["selector"] = {"app": "web"}
    if kind == "CronJob":
        pods["spec"]["restartPolicy"] = "Never"
        spec = {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": pods}}}
    return {
        "apiVersion": common.API[kind],
        "kind": kind,
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": spec,
    }


def merged(base, patch):
    """Strategic merge: maps by key, containers by name, null removes."""
    if isinstance(base, dict) and isinstance(patch, dict):
        made = dict(base)
        for key, value in patch.items():
            if value is None:
                made.pop(key, None)
            else:
                made[key] = merged(base.get(key), value)
        return made
    if isinstance(base, list) and isinstance(patch, list):
        by_name = {entry["name"]: entry for entry in base}
        assert {entry["name"] for entry in patch} <= set(by_name)
        changes = {entry["name"]: entry for entry in patch}
        return [merged(entry, changes.get(name, {})) for name, entry in by_name.items()]
    if isinstance(patch, dict):
        return merged({}, patch)
    return copy.deepcopy(patch)


@pytest.mark.parametrize("kind", common.API)
def test_a_patched_object_is_valid_and_has_the_advice(kind):
    rows = [row("shop/web/app", kind=kind), row("shop/web/side", kind=kind, advised=LIMITED)]
    (text,) = kubernetes.files(rows).values()
    (patch,) = yaml.safe_load_all(text)
    found = merged(whole(kind, ["app", "side", "other"]), patch)
    kubernetes_validate.validate(found, VERSION, strict=True)
    spec = found["spec"]
    pods = (spec["jobTemplate"]["spec"] if kind == "CronJob" else spec)["template"]["spec"]
    by_name = {entry["name"]: entry["resources"] for entry in pods["containers"]}
    assert by_name["app"] == {"limits": {"memory": "384Mi"}, "requests": {"cpu": "250m", "memory": "256Mi"}}
    assert by_name["side"] == {
        "limits": {"cpu": "500m", "memory": "200Mi"},
        "requests": {"cpu": "124m", "memory": "101Mi"},
    }
    assert by_name["other"] == {"limits": {"cpu": "1", "memory": "1Gi"}}


def test_init_containers_are_patched_where_they_stand():
    rows = [row("shop/web/app"), row("shop/web/proxy", is_init=True, advised=LIMITED)]
    (text,) = kubernetes.files(rows).values()
    found = merged(whole("Deployment", ["app"], ["proxy"]), yaml.safe_load(text))
    kubernetes_validate.validate(found, VERSION, strict=True)
    (proxy,) = found["spec"]["template"]["spec"]["initContainers"]
    assert proxy["resources"]["limits"] == {"cpu": "500m", "memory": "200Mi"}


def test_the_wrong_field_of_a_patch_would_be_found():
    wrong = merged(whole("Deployment", ["app"]), {"spec": {"template": {"spec": {"resource": {}}}}})
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSION, strict=True)


def test_an_autoscaler_stays_inside_the_advice_and_is_off():
    (text,) = forms.texts(advice(row()), "vpa").values()
    (made,) = yaml.safe_load_all(text)
    assert made["apiVersion"] == "autoscaling.k8s.io/v1"
    assert made["spec"]["targetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    assert made["spec"]["updatePolicy"] == {"updateMode": "Off"}
    (policy,) = made["spec"]["resourcePolicy"]["containerPolicies"]
    assert policy["minAllowed"] == {"cpu": "250m", "memory": "256Mi"}
    assert policy["maxAllowed"] == {"cpu": "400m", "memory": "384Mi"}
    assert policy["controlledValues"] == "RequestsOnly"


def test_helm_has_values_by_workload_and_by_container_where_there_are_several():
    own = advice(row("shop/web/app"), row("shop/db/main"), row("shop/db/side"), row("other/web/app"))
    texts = forms.texts(own, "helm")
    assert sorted(texts) == ["values-other.yaml", "values-shop.yaml"]
    values = yaml.safe_load(texts["values-shop.yaml"])
    assert values["web"]["resources"]["requests"]["cpu"] == "250m"
    assert set(values["db"]) == {"main", "side"}


def test_compose_resets_a_limit_and_has_all_sizes():
    (text,) = forms.texts(advice(row(), row("shop/db/db", advised=LIMITED)), "compose").values()
    assert "cpus: !reset 'null'" in text
    assert text.startswith("# Services have their containers' names")
    found = yaml.load(text.replace("!reset 'null'", "null"), yaml.SafeLoader)["services"]
    assert found["db"]["deploy"]["resources"]["limits"] == {"cpus": "0.500", "memory": "209715200b"}
    assert found["app"]["deploy"]["resources"]["reservations"] == {"cpus": "0.250", "memory": "268435456b"}
    # Compose passes the CPU of reservations to Docker's swarms only: what sets a container's weight is this.
    assert (found["app"]["cpu_shares"], found["db"]["cpu_shares"]) == (256, 126)


def test_names_that_become_the_same_stay_apart():
    own = [row(name) for name in ("shop/web/app", "shop/db/app", "shop/a b/x y", "shop/a-b/x-y")]
    services = yaml.load(
        forms.joined(advice(*own), "compose").replace("!reset 'null'", "null"), yaml.SafeLoader
    )
    assert list(services["services"]) == ["app", "app-2", "x-y", "x-y-2"]
    kinds = [row(f"shop/{name}/app", kind=kind) for name, kind in (
        ("web-statefulset", "Deployment"), ("web", "Deployment"), ("web", "StatefulSet"),
    )]  # fmt: skip
    values = yaml.safe_load(forms.joined(advice(*kinds), "helm"))
    assert list(values) == ["web-statefulset", "web", "web-statefulset-2"]


def test_docker_gets_no_less_memory_than_it_takes():
    small = Setting(memory_request_bytes=MIB, memory_limit_bytes=2 * MIB)
    assert "--memory-reservation 6291456 --memory 6291456 --memory-swap 12582912" in forms.joined(
        advice(row(advised=small)), "docker"
    )
    limits = forms.joined(advice(row(advised=small)), "compose")
    assert limits.count("6291456b") == 2


def test_systemd_units_get_drop_ins_of_their_kind():
    own = advice(
        row("web.service", advised=LIMITED),
        row("jobs.slice", namespace="", workload="jobs.slice"),
        row("../../etc/x"),
    )
    texts = forms.texts(own, "systemd")
    assert texts["web.service.d/50-twinbed.conf"].splitlines() == [
        "[Service]", "CPUQuota=50.0%", "CPUWeight=5", "MemoryMax=209715200", "MemoryHigh=157286400",
    ]  # fmt: skip
    assert texts["jobs.slice.d/50-twinbed.conf"].startswith("[Slice]\nCPUQuota=\n")
    assert all(name.count("/") == 1 and not name.startswith((".", "/")) for name in texts)


def test_docker_lines_are_words_of_a_shell(tmp_path):
    own = advice(row("shop/web/app", members=[HOSTILE, "--rm"]), row("shop/db/db", advised=LIMITED))
    text = forms.joined(own, "docker")
    script = "docker() { printf '%s\\n' \"$@\" | tail -n 4; }\nnproc() { echo 4; }\n" + text
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert "--rm\n" in done.stdout
    line = next(line for line in text.splitlines() if "0.500" in line)
    words = shlex.split(line)
    assert words[:4] == ["docker", "update", "--cpus", "0.500"]
    assert words[-2:] == ["--", "shop/db/db"]
    assert not list(tmp_path.iterdir())


def test_names_that_docker_cannot_know_are_to_be_replaced():
    text = forms.joined(advice(row("shop/web/app", members=["shop/web-1/app"])), "docker")
    assert text.startswith("#!/bin/sh\nset -eu\n# Some names after -- are no names of Docker containers")
    assert "docker ps --format '{{.Names}}'" in text
    assert "Replace" not in forms.joined(advice(row("web", members=["web_1", "web.2"])), "docker")


def test_no_memory_limit_is_all_memory_of_the_machine_for_docker():
    free = Setting(memory_limit_bytes="none")
    text = forms.joined(advice(row(advised=free)), "docker")
    script = 'docker() { echo "$@"; }\n' + text
    said = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert said[:2] == ["update", "--memory"]
    assert int(said[2].removesuffix("k")) > 1 << 10
    assert said[3:5] == ["--memory-swap", "-1"]


@settings(max_examples=60, deadline=None)
@given(names=st.lists(st.text(min_size=1, max_size=30), min_size=3, max_size=3))
def test_any_name_is_quoted_in_every_form(names):
    namespace, workload, container = names
    own = advice(row(namespace=namespace, workload=workload, container=container, members=[workload]))
    for form in ("kubernetes", "vpa"):
        ((name, text),) = forms.texts(own, form).items()
        (made,) = yaml.safe_load_all(text)
        assert made["metadata"].get("namespace") == namespace
        assert "/" not in name
        assert not name.startswith(".")
    patch = next(yaml.safe_load_all(forms.joined(own, "kubernetes")))
    assert patch["spec"]["template"]["spec"]["containers"][0]["name"] == container
    (drop_in,) = forms.texts(own, "systemd")
    assert drop_in.count("/") == 1
    assert drop_in.isascii()


def test_rows_to_be_left_alone_are_not_written_and_nothing_is_a_message():
    own = advice(row("shop/web/app"), row("shop/db/app", verdict="leave"))
    assert sorted(forms.texts(own, "kubernetes")) == ["shop-deployment-web.yaml"]
    other = advice(row("shop/web/app"), row("shop/once/app", kind="Job"))
    assert forms.joined(other, "vpa").startswith("# 1 rows are not written: no template of their pods")
    assert forms.left_out(other, "docker") == ""
    with pytest.raises(ScenarioError, match="the advice changes nothing"):
        forms.texts(advice(row(verdict="leave")), "docker")
    with pytest.raises(ScenarioError, match="no row is of a Kubernetes workload"):
        forms.texts(advice(row(kind="Job")), "vpa")


def test_files_are_written_into_a_folder_and_a_missing_parent_is_named(tmp_path):
    paths = forms.write(
        advice(row("a/b/c"), row("a/b-/c"), row("a/b/c2")), "kubernetes", tmp_path / "patches"
    )
    assert sorted(path.name for path in paths) == ["a-deployment-b-2.yaml", "a-deployment-b.yaml"]
    with pytest.raises(BackendError, match="no/such"):
        forms.write(advice(), "systemd", tmp_path / "no" / "such")
