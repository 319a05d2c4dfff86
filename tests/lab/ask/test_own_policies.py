"""Policies of a user's own in scenarios: how they are named, changed, run and told apart."""

import json
from pathlib import Path

import pytest

from lab.ask import policy
from lab.ask.scenario import build, expand, load, with_overrides
from lab.engine.local import Local
from lab.runs.runner import files_of, make, run_scenario, units
from lab.runs.store import RunStore
from twinbed import ScenarioError

CODE = '''
from control.allocator.periodic import PeriodicPolicy


class Follow(PeriodicPolicy):
    """Follows the use."""

    def __init__(self, headroom: float = 1.5):
        super().__init__(interval_s=1.0)
        self.headroom = headroom

    def limits(self, sample):
        return sample.cores * self.headroom, sample.limit_bytes
'''
SCHEDULER = '''
from control.scheduler.queues import Fifo


class Mine(Fifo):
    """First come, first served, on the fastest type."""

    def __init__(self, cluster, seed, fastest=True):
        super().__init__(cluster, seed, fastest=fastest)
'''


@pytest.fixture
def scenario_file(tmp_path, trace_path):
    (tmp_path / "follow.py").write_text(CODE)
    path = tmp_path / "mine.yaml"
    policies = "['follow.py:Follow(headroom=2)', 'follow.py:Follow', static]"
    path.write_text(f"name: mine\ntrace: {{source: {trace_path}}}\npolicies: {policies}\n")
    return path


def test_a_scenario_names_a_file_beside_it_and_its_runs_say_so(scenario_file, tmp_path):
    scenario = load(scenario_file)
    assert str(tmp_path / "follow.py") in files_of(scenario)
    runs = run_scenario(scenario, RunStore(tmp_path / "store"), engine=Local(1))
    assert [run.policy for run in runs] == ["follow.py:Follow(headroom=2)", "follow.py:Follow", "static"]
    assert runs[0].id.startswith("mine-Follow-")
    told = runs[1].manifest["spec"]["policy"]
    assert (told["name"], told["parameters"]) == ("Follow", {"headroom": 1.5})
    assert len(told["code_sha256"]) == 64
    assert str(tmp_path) not in json.dumps(runs[0].manifest["spec"]["policy"])
    reserved = [run.manifest["metrics"]["mean_reserved_cores"] for run in runs]
    assert reserved[0] > reserved[1]


def test_workers_make_the_same_run_as_this_process(scenario_file, tmp_path):
    scenario = with_overrides(load(scenario_file), ["seeds=[0,1]"])
    stores = [RunStore(tmp_path / name) for name in ("here", "there")]
    here, there = (
        run_scenario(scenario, store, engine=Local(jobs)) for store, jobs in zip(stores, (1, 2), strict=True)
    )
    assert [run.manifest["metrics"] for run in here] == [run.manifest["metrics"] for run in there]
    assert [run.id for run in here] == [run.id for run in there]


def test_other_code_or_other_arguments_are_another_run_and_another_folder_is_not(scenario_file, tmp_path):
    def identities(path: Path) -> list[object]:
        return [spec.policy.identity() for spec in expand(load(path))]

    before = identities(scenario_file)
    assert before[0] != before[1]
    other = tmp_path / "other"
    other.mkdir()
    for name in ("mine.yaml", "follow.py"):
        (other / name).write_text((tmp_path / name).read_text())
    assert identities(other / "mine.yaml") == before
    (tmp_path / "follow.py").write_text(CODE.replace("sample.cores", "2 * sample.cores"))
    assert identities(scenario_file)[:2] != before[:2]


def test_a_parameter_is_set_by_the_class_name(scenario_file):
    text = load(scenario_file).policies[1]
    one = with_overrides(load(scenario_file), [f"policies=[{text!r}, static]", "Follow.headroom=3"])
    assert one.policies == [f"{text}(headroom=3)", "static"]


def test_a_varied_parameter_makes_a_run_for_each_value(scenario_file):
    one = with_overrides(load(scenario_file), ["policies=[static]"])
    text = load(scenario_file).policies[1]
    one = with_overrides(one, [f"policies=[{text!r}]", "vary.Follow.headroom=[1, 2.5]"])
    assert [spec.policy.resolved() for spec in expand(one)] == [{"headroom": 1}, {"headroom": 2.5}]


@pytest.mark.parametrize(
    ("assignment", "said"),
    [("Follow.hedroom=3", "no parameter 'hedroom'; known: headroom"), ("Other.headroom=3", "Other")],
)
def test_a_wrong_parameter_is_named(scenario_file, assignment, said):
    with pytest.raises(ScenarioError, match=said):
        with_overrides(load(scenario_file), [assignment])


def test_a_scheduler_of_ones_own_is_for_clusters_only(tmp_path, trace_path):
    (tmp_path / "mine.py").write_text(SCHEDULER)
    text = f"{tmp_path}/mine.py:Mine(fastest=True)"
    assert policy.parse(text).own.group == "schedulers"
    with pytest.raises(ScenarioError, match="is for scenarios with a cluster"):
        build({"name": "x", "trace": {"source": str(trace_path)}, "policies": [text]})
    raw = {
        "name": "x",
        "cluster": {"servers": {"v100": {"count": 2, "gpus": 2}}, "synthetic": {"count": 8, "per_hour": 4}},
    }
    mine, same = (
        run_scenario(build(raw | {"policies": [name]}), RunStore(tmp_path / "store"))[0]
        for name in (text, "fifo-fastest")
    )
    assert mine.policy == "mine.py:Mine(fastest=True)"
    assert mine.manifest["metrics"] == same.manifest["metrics"]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("Assignment(given.row, given.server, given.gpus + 99)", "GPUs of server"),
        ("Assignment(given.row[:0], given.server[:0], given.gpus[:0])", "never run"),
    ],
)
def test_a_scheduler_that_breaks_a_promise_ends_its_run_by_name(tmp_path, answer, said):
    imported = "from control.scheduler.model import Assignment"
    method = f"""
    def on_round(self, state):
        given = super().on_round(state)
        return {answer}
"""
    (tmp_path / "mine.py").write_text(imported + SCHEDULER + method)
    raw = {
        "name": "x",
        "policies": [f"{tmp_path}/mine.py:Mine"],
        "cluster": {"servers": {"v100": {"count": 2, "gpus": 2}}, "synthetic": {"count": 8, "per_hour": 4}},
    }
    with pytest.raises(ScenarioError, match=rf"mine\.py:Mine: .*{said}"):
        run_scenario(build(raw), RunStore(tmp_path / "store"))


def test_the_lines_of_an_own_schedulers_answer_may_have_any_order(tmp_path):
    method = """
    def on_round(self, state):
        given = super().on_round(state)
        # A line for each GPU, the last one first.
        lines = np.repeat(np.arange(given.row.size), given.gpus)[::-1]
        return Assignment(given.row[lines], given.server[lines], np.ones_like(lines))
"""
    imported = "import numpy as np\nfrom control.scheduler.model import Assignment"
    (tmp_path / "mine.py").write_text(imported + SCHEDULER + method)
    raw = {"name": "x", "cluster": {"servers": {"v100": {"count": 4, "gpus": 2}}}}
    raw["cluster"]["synthetic"] = {"count": 30, "per_hour": 4, "gpus": [1, 2, 3]}
    mine, same = (
        run_scenario(build(raw | {"policies": [name]}), RunStore(tmp_path / "store"))[0]
        for name in (f"{tmp_path}/mine.py:Mine", "fifo")
    )
    assert mine.manifest["metrics"] == same.manifest["metrics"]


def test_text_names_a_policy_and_its_parameters():
    spec = policy.parse("static:factor=0.75")
    assert (spec.name, spec.parameters) == ("static", (("factor", 0.75),))
    assert spec.text == "static:factor=0.75"


def test_parameters_are_in_canonical_order_so_that_equal_policies_are_equal():
    assert policy.parse("escra:window=5:kappa=0.5") == policy.parse("escra:kappa=0.5:window=5")


def test_resolved_writes_every_default_out():
    resolved = policy.parse("escra:kappa=0.5").resolved()
    assert resolved["kappa"] == 0.5
    assert len(resolved) > 3


def test_the_same_number_written_in_two_ways_is_the_same_policy():
    assert policy.parse("static:factor=1") == policy.parse("static:factor=1.0")


@pytest.mark.parametrize(
    "text", ["escra:stale_mean_guard=false", "static:factor=2", "static:factor=1e-01", "escra:window=5"]
)
def test_the_canonical_text_reads_back_to_the_same_policy(text):
    spec = policy.parse(text)
    assert policy.parse(spec.text) == spec
    assert policy.parse(spec.text).resolved() == spec.resolved()


@pytest.mark.parametrize("name", policy.names())
def test_every_policy_can_be_made_with_its_defaults(name):
    assert policy.parse(name).make().name


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("esrca", "esrca"),
        ("static:facto=1", "facto"),
        ("static:factor", "KEY=VALUE"),
        ("static:factor=", "KEY=VALUE"),
        ("static:factor=1:factor=2", "twice"),
        ("static:factor=-1", "factor"),
        ("static:factor=wide", "factor"),
        ("", "polic"),
    ],
)
def test_a_wrong_text_is_refused_in_one_line_that_names_it(text, said):
    with pytest.raises(ScenarioError, match=said) as caught:
        policy.parse(text)
    assert "\n" not in str(caught.value)


def test_a_value_that_no_sum_could_hold_is_refused_by_name():
    with pytest.raises(ScenarioError, match=r"^policy autopilot: update_interval_s: 1e\+308 is too large"):
        policy.parse("autopilot:update_interval_s=1e308")


READER = """
import numpy as np

from traces.schema import UsageTrace


class Lines:
    description = "lines of cores"

    def read(self, path):
        cores = np.loadtxt(path, ndmin=2)
        return UsageTrace(("a",), ("a",), 0.0, 0.1, cores, 1e6 + cores, cores >= 0)
"""


def test_a_reader_of_ones_own_is_among_the_files_and_may_lie_elsewhere(tmp_path):
    (tmp_path / "mine.py").write_text(READER)
    (tmp_path / "cores.txt").write_text("0.5\n" * 20)
    trace = {"source": str(tmp_path / "cores.txt"), "format": f"{tmp_path}/mine.py:Lines"}
    scenario = build({"name": "own", "trace": trace, "policies": ["static"]})
    assert files_of(scenario) == (trace["source"], str(tmp_path / "mine.py"))
    (tmp_path / "there").mkdir()
    files = [Path(file) for file in files_of(scenario)]
    places = {str(file): str(file.rename(tmp_path / "there" / file.name)) for file in files}
    [work] = units([expand(scenario)], RunStore(tmp_path / "store"), fresh=True)
    assert make(work.asked, places, lambda *_: None)
