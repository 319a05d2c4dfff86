"""Pods of an emulated API server, resized in place by `twinbed apply --kubernetes`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.cli.main import call
from lab.connect.kubernetes import amount
from lab.containers.advise import model
from lab.containers.advise.model import Setting
from tests.lab.connect.emulated_cluster import served
from tests.lab.containers.apply.apply_world import MIB, advice, row
from twinbed import BackendError

OLD = {"requests": {"cpu": "500m", "memory": "256Mi"}, "limits": {"cpu": "1", "memory": "256Mi"}}
WANTED = Setting(
    cpu_request_cores=0.2, cpu_limit_cores=0.5, memory_request_bytes=64 * MIB, memory_limit_bytes=64 * MIB
)
NEW = {"requests": {"cpu": "200m", "memory": "67108864"}, "limits": {"cpu": "500m", "memory": "67108864"}}


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    web = row("shop/web/app", namespace="shop", workload="web", container="app", advised=WANTED)
    model.write(advice(web), tmp_path / "advice.json")
    with served(tmp_path / "kubeconfig") as emulated:
        for name in ("web-7d4b9-a", "web-7d4b9-b"):
            emulated.add(name, **json.loads(json.dumps(OLD)))
        emulated.add("other-1", **json.loads(json.dumps(OLD)))
        yield emulated


def twinbed(folder: Path, *arguments: str) -> int:
    state = ["--state", str(folder / "state"), "--no-progress"]
    if "--undo" in arguments:
        return call(["apply", *state, *arguments])
    return call(["apply", str(folder / "advice.json"), "--kubernetes", *state, *arguments])


def test_pods_of_the_workload_are_resized_and_taken_back(cluster, tmp_path):
    assert twinbed(tmp_path) == 0
    assert cluster.patches == []
    assert twinbed(tmp_path, "--yes") == 0
    assert cluster.resources("web-7d4b9-a") == cluster.resources("web-7d4b9-b") == NEW
    assert cluster.resources("other-1") == OLD
    assert twinbed(tmp_path, "--undo") == 0
    assert cluster.resources("web-7d4b9-a") == cluster.resources("web-7d4b9-b") == OLD


def test_requests_never_exceed_limits_meanwhile_and_no_limit_is_removed(cluster, tmp_path, capsys):
    raised = Setting(
        cpu_request_cores=1.5, cpu_limit_cores=2, memory_request_bytes=512 * MIB, memory_limit_bytes=512 * MIB
    )
    unlimited = Setting(cpu_request_cores=0.3, cpu_limit_cores="none")
    web = {"namespace": "shop", "container": "app"}
    model.write(
        advice(
            row("shop/web/app", workload="web", advised=raised, **web),
            row("shop/other/app", workload="other", advised=unlimited, **web),
        ),
        tmp_path / "advice.json",
    )
    assert twinbed(tmp_path, "--yes") == 0
    assert "CPU limit: stays, because a cluster removes none" in " ".join(capsys.readouterr().out.split())
    assert cluster.resources("web-7d4b9-a")["requests"] == {"cpu": "1500m", "memory": "536870912"}
    assert cluster.resources("other-1") == OLD | {"requests": {"cpu": "300m", "memory": "256Mi"}}
    assert twinbed(tmp_path, "--undo") == 0
    assert cluster.resources("web-7d4b9-a") == cluster.resources("other-1") == OLD


@pytest.mark.parametrize("milli", [563, 750])
def test_a_raised_request_is_taken_back_whatever_its_decimals(cluster, tmp_path, milli):
    raised = row(
        "shop/web/app", namespace="shop", workload="web", container="app",
        advised=Setting(cpu_request_cores=milli / 1000),
    )  # fmt: skip
    model.write(advice(raised), tmp_path / "advice.json")
    assert twinbed(tmp_path, "--yes") == 0
    assert cluster.resources("web-7d4b9-a")["requests"]["cpu"] == f"{milli}m"
    assert twinbed(tmp_path, "--undo") == 0
    assert cluster.resources("web-7d4b9-a") == OLD


def test_a_conflict_is_tried_again_and_then_said(cluster, tmp_path, capsys):
    cluster.refusals = [(409, "the object has been modified")] * 2
    assert twinbed(tmp_path, "--yes") == 0
    twinbed(tmp_path, "--undo")
    cluster.refusals = [(409, "the object has been modified")] * 5
    capsys.readouterr()
    assert twinbed(tmp_path, "--yes") == 2
    said = capsys.readouterr().err
    assert "(409, the object has been modified); others change it all the time" in said
    assert said.count("\n") == 1
    assert cluster.resources("web-7d4b9-a") == OLD


@pytest.mark.parametrize("reason", ["Deferred", "Infeasible"])
def test_a_resize_that_does_not_fit_takes_everything_back(cluster, tmp_path, capsys, reason):
    pending = {"type": "PodResizePending", "status": "True", "reason": reason, "message": "no\x1b room"}
    cluster.condition = pending
    # Only the old values fit.
    resize = cluster._resize

    def fits_only_what_was_there(pod, wanted):
        (values,) = wanted[0]["resources"].values()
        cluster.condition = None if next(iter(values.values())) in ("500m", "1", "256Mi") else pending
        resize(pod, wanted)

    cluster._resize = fits_only_what_was_there  # type: ignore[method-assign]
    web = row(
        "shop/web/app", namespace="shop", workload="web", container="app",
        advised=Setting(memory_limit_bytes=512 * MIB),
    )  # fmt: skip
    model.write(advice(web), tmp_path / "advice.json")
    assert twinbed(tmp_path, "--yes") == 2
    said = capsys.readouterr().err
    assert f"the resize is {reason}: no\N{REPLACEMENT CHARACTER} room" in said
    assert said.count("\n") == 1
    assert cluster.resources("web-7d4b9-a") == OLD


def test_a_pod_that_vanished_is_said_and_the_others_are_taken_back(cluster, tmp_path, capsys):
    assert twinbed(tmp_path, "--yes") == 0
    del cluster.pods["shop", "web-7d4b9-a"]
    capsys.readouterr()
    assert twinbed(tmp_path, "--undo") == 0
    assert "shop/web-7d4b9-a/app: no longer exists" in capsys.readouterr().out
    assert cluster.resources("web-7d4b9-b") == OLD


def test_another_pod_that_takes_the_name_meanwhile_is_not_resized(cluster, tmp_path, capsys):
    serve = cluster.serve

    def replaced(request):
        if request.method.value.lower() == "patch":
            cluster.pods["shop", "web-7d4b9-a"]["metadata"]["uid"] = "another"
        return serve(request)

    cluster.serve = replaced  # type: ignore[method-assign]
    assert twinbed(tmp_path, "--yes") == 2
    assert "the UID in the precondition does not match" in capsys.readouterr().err
    assert cluster.resources("web-7d4b9-a") == cluster.resources("web-7d4b9-b") == OLD


def test_a_restart_in_the_watch_takes_everything_back(cluster, tmp_path, capsys):
    serve, looks = cluster.serve, []

    def crash(request):
        if len(cluster.patches) == 4:
            looks.append(request)
            if len(looks) == 3:
                for pod in cluster.pods.values():
                    status = pod["status"]["containerStatuses"][0]
                    status |= {"restartCount": 1, "containerID": "c://2"}
        return serve(request)

    cluster.serve = crash  # type: ignore[method-assign]
    watch = ("--canary", "50%", "--watch", "5s", "--abort-if", "restarts > 0")
    assert twinbed(tmp_path, "--yes", *watch) == 1
    assert "shop/web-7d4b9-a/app: restarts: 1, more than 0" in " ".join(capsys.readouterr().out.split())
    assert {name for name, _ in cluster.patches} == {"web-7d4b9-a"}
    assert cluster.resources("web-7d4b9-a") == OLD


@pytest.mark.parametrize(
    ("text", "value"),
    [("500m", 0.5), ("1", 1.0), ("64Mi", 64 * MIB), ("1e3", 1000.0), ("2k", 2000.0), ("1Ei", 2.0**60)],
)
def test_quantities_are_read(text, value):
    assert amount(text) == value


@pytest.mark.parametrize("text", ["", "x", "-1", "nan", "Mi", "1\x1bMi"])
def test_what_is_no_quantity_is_refused(text):
    with pytest.raises(BackendError, match="which is no quantity"):
        amount(text)


def test_no_cluster_is_one_line(tmp_path, monkeypatch, capsys):
    model.write(advice(row("a")), tmp_path / "advice.json")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert twinbed(tmp_path) == 2
    said = capsys.readouterr().err
    assert "kubeconfig" in said
    assert said.count("\n") == 1
