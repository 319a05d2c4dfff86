"""The adapter for Google Cloud: what it refuses, what it asks for, and the script that instances run."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from control.provisioner import State
from testbed.cloud.gcloud import Answer, Gcloud, _call, _steps_of, script_of
from tests.contract.provisioner.compute import ZONE, Compute
from tests.contract.provisioner.provisioner_backends import OWNER, TRAINS, order
from tests.patience import PATIENCE_S
from twinbed import BackendError, ScenarioError


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"real": False, "cap_usd": 5.0}, "give --real and --cap"),
        ({"real": True, "cap_usd": float("inf")}, "limit it with --cap"),
        ({"real": True, "cap_usd": 0.0}, "limit it with --cap"),
        ({"real": True, "cap_usd": 5.0, "template": ""}, "--zone and --template"),
    ],
)
def test_no_money_without_permission_a_cap_and_a_template(given, message):
    with pytest.raises(ScenarioError, match=message):
        Gcloud(**{"zone": ZONE, "template": "mine", **given})


def adapter(call) -> Gcloud:
    return Gcloud(ZONE, "mine", real=True, cap_usd=1.0, call=call)


def test_every_instance_is_created_with_its_mark_and_a_lease_that_deletes_it():
    compute = Compute()
    adapter(compute).launch(order())
    creates = [call for call in compute.calls if "create" in call]
    assert [call[4] for call in creates] == list(order().names())
    for call in creates:
        wanted = {
            f"--zone={ZONE}",
            "--source-instance-template=mine",
            "--machine-type=n1-standard-4",
            f"--labels=twinbed-owner={OWNER},twinbed-token=t1",
            "--max-run-duration=600s",
            "--instance-termination-action=DELETE",
            "--provisioning-model=STANDARD",
        }
        assert wanted <= set(call)


def test_a_stopped_instance_still_counts_because_its_disk_is_billed():
    compute = Compute()
    cloud = adapter(compute)
    cloud.launch(order())
    for row in compute.instances.values():
        row["status"] = "TERMINATED"
    assert set(cloud.status(order()).values()) == {State.FAILED}
    assert len(cloud.held(OWNER)) == 2
    cloud.stop(OWNER, "t1")
    assert cloud.held(OWNER) == ()


def test_an_instance_that_is_taken_away_while_it_is_measured_is_a_reading():
    """A spot instance that Compute Engine deletes has no serial port any more."""
    compute = Compute()

    def call(arguments) -> Answer:
        if "get-serial-port-output" in arguments:
            compute.instances.clear()
            return Answer(1, "", "ERROR: (gcloud.compute.instances.get-serial-port-output) was not found\n")
        return compute(arguments)

    cloud = Gcloud(ZONE, "mine", real=True, cap_usd=1.0, call=call, clock=lambda: compute.now_s)
    cloud.launch(order())
    reading = cloud.measure(order(), 5)
    assert reading.problem == f"{order().names()[0]} was taken away"
    assert not reading.step_s.size
    assert not reading.revoked
    compute.instances.clear()
    spot = replace(order(), spot=True)
    cloud.launch(spot)
    assert cloud.measure(spot, 5).revoked


def test_a_serial_port_that_cannot_be_read_is_an_error_while_its_instance_runs():
    compute = Compute()

    def call(arguments) -> Answer:
        down = "get-serial-port-output" in arguments
        return Answer(1, "", "ERROR: quota of reads\n") if down else compute(arguments)

    cloud = adapter(call)
    cloud.launch(order())
    with pytest.raises(BackendError, match="quota of reads"):
        cloud.measure(order(), 5)


def test_instances_are_billed_from_their_creation():
    compute = Compute()
    compute.console = f"twinbed-steps 431 {' '.join(str(10**7 * number) for number in range(200))}\n"

    def call(arguments) -> Answer:
        compute.now_s += 40.0 * ("create" in arguments)
        return compute(arguments)

    cloud = Gcloud(ZONE, "mine", real=True, cap_usd=1.0, call=call, clock=lambda: compute.now_s)
    cloud.launch(order())
    reading = cloud.measure(order(), 5)
    assert (reading.held_s, reading.from_launch) == (80.0, True)


def test_an_error_of_gcloud_is_one_line_and_other_answers_are_refused():
    said = "WARNING: old\nERROR: (gcloud.compute.instances.list) Quota 'CPUS' exceeded. Limit: 8.0\n - more\n"
    with pytest.raises(BackendError, match=r"gcloud list: ERROR: .*Quota 'CPUS' exceeded. Limit: 8.0$"):
        adapter(lambda arguments: Answer(1, "", said)).held(OWNER)
    for text in ("", "Listed 0 items.", '{"name": 1}', "[1]"):
        with pytest.raises(BackendError, match="no list of instances"):
            adapter(lambda arguments, text=text: Answer(0, text, "")).held(OWNER)


def test_a_machine_without_gcloud_is_told_where_to_get_it(monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BackendError, match="gcloud: not installed"):
        _call(("gcloud", "version"))


def test_only_whole_lines_of_the_console_count():
    said = "boot\n[   9] twinbed-steps 2 1000 3000 \n[  14] twinbed-steps 4 1000 3000 50"
    done, ends_ns = _steps_of(said)
    assert (done, ends_ns.tolist()) == (2, [1000, 3000])
    assert _steps_of("[ 9] twinbed-steps 3 10 x\n")[0] == 0


@pytest.mark.slow
def test_the_script_of_an_instance_tells_steps_and_end_on_the_console(tmp_path):
    """The script itself, under sh, with a file in the place of the console."""
    console = tmp_path / "console"
    ends = (
        "import os, time; f = open(os.environ['TWINBED_STEPS'] + '/0.steps', 'wb', 0); "
        "[f.write(n.to_bytes(8, 'little')) for n in range(10**9, 9 * 10**9, 10**9)]; time.sleep(0.5); "
        "assert os.environ['WORLD_SIZE'] == '2'; assert 'sitecustomize' in __import__('sys').modules; "
        "raise SystemExit('out of data')"
    )
    command = (sys.executable, "-c", ends)
    script = script_of(order(command=command), 0, f">{console}", poll_s=0.1)
    done = subprocess.run(
        ["sh", "-c", script], env=os.environ, check=False, capture_output=True, timeout=PATIENCE_S
    )
    assert done.stderr == b""
    said = console.read_text()
    count, ends_ns = _steps_of(said)
    assert count == 8
    assert np.diff(ends_ns).tolist() == [10**9] * 7
    assert said.splitlines()[-1] == "twinbed-end 1 out of data"
    assert TRAINS[0] in script_of(order(), 1)


def test_a_type_that_was_named_with_its_provider_is_ordered_by_its_own_name():
    compute, asked = Compute(), order()
    adapter(compute).launch(replace(asked, kind=replace(asked.kind, name="gcp/n1-standard-4")))
    creates = [call for call in compute.calls if "create" in call]
    assert all("--machine-type=n1-standard-4" in call for call in creates)


def test_an_instance_that_ends_by_itself_as_it_is_deleted_is_gone():
    compute = Compute()

    def call(arguments) -> Answer:
        if "delete" in arguments:
            compute.instances.clear()
            return Answer(1, "", "ERROR: (gcloud.compute.instances.delete) The resource was not found\n")
        return compute(arguments)

    cloud = adapter(call)
    cloud.launch(order())
    cloud.stop(OWNER, "t1")
    assert cloud.held(OWNER) == ()


def test_an_instance_that_cannot_be_deleted_is_named_with_the_reason():
    compute = Compute()

    def call(arguments) -> Answer:
        return Answer(1, "", "ERROR: no permission\n") if "delete" in arguments else compute(arguments)

    cloud = adapter(call)
    cloud.launch(order())
    with pytest.raises(BackendError, match=rf"did not delete {OWNER}-t1-0, .*no permission"):
        cloud.stop(OWNER, "t1")
