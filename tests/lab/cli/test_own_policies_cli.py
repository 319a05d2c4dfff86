"""`twinbed policies`, and code of a user's own in the verbs that take it."""

import json

import pytest

from control.market import POLICIES

SPOT = '''
import numpy as np
from control.market.ports import ON_DEMAND, Decision, Guard


class Sure:
    """On demand, from start to end."""

    def __init__(self, terms, reason: int = 0):
        self.guard, self.reason = Guard(terms), reason

    def on_step(self, state):
        n = len(state.done_s)
        return self.guard.keep(state, Decision(np.full(n, ON_DEMAND), np.full(n, self.reason)))


class Lazy(Sure):
    """Never takes a machine."""

    def on_step(self, state):
        n = len(state.done_s)
        return Decision(np.full(n, -1), np.zeros(n, int))
'''
SCHEDULER = '''
from itertools import count

from control.scheduler.model import NOTHING
from control.scheduler.queues import Fifo


class First(Fifo):
    """First come, first served."""


class Idle(Fifo):
    """Lets no job run."""

    def on_round(self, state):
        return NOTHING


class Moody(Fifo):
    """Takes the fastest type in every other run only."""

    made = count()

    def __init__(self, cluster, seed):
        super().__init__(cluster, seed, fastest=next(self.made) % 2 == 1)


class Telling(Fifo):
    """First come, first served, with a remark."""

    def remarks(self):
        return ("it is first come, first served",)


class Greedy(Fifo):
    """Gives every job more GPUs than there are."""

    def on_round(self, state):
        plan = super().on_round(state)
        return type(plan)(plan.row, plan.server, plan.gpus + 99)
'''
RECOMMENDER = '''
from itertools import count

import numpy as np
from control.recommender import ports
from control.recommender.analytic import Analytic


class Known(Analytic):
    """Ranks by the expected times."""


class Dear(Known):
    """Names a price of its own."""

    def recommend(self, request):
        from dataclasses import replace
        return [replace(row, price_usd_h=99.0) for row in super().recommend(request)]


class Fickle(Known):
    """Ranks the other way round every second time."""

    made = count()

    def __init__(self):
        self.turned = next(self.made) % 2

    def recommend(self, request):
        ranking = super().recommend(request)
        return ranking[::-1] if self.turned else ranking


class Endless(Known):
    """Proposes the first candidate for ever."""

    def searcher(self, request, seed):
        return self

    def propose(self, observed):
        return ports.Proposal(0, "why not")


class Mute(Known):
    """Has nothing to say."""

    def recommend(self, request):
        raise ports.ScenarioError("no idea; ask another")
'''
READER = '''
import numpy as np
from traces.schema import UsageTrace


class Lines:
    """One number per line: cores of one container, a second each."""

    description = "cores, line by line"

    def __init__(self, scale: float = 1.0):
        self.scale = scale

    def read(self, path):
        cores = np.loadtxt(path, ndmin=2) * self.scale
        return UsageTrace(("a",), ("a",), 0.0, 1.0, cores, 1e6 + cores, cores >= 0)
'''
READER += '''

class Careful(Lines):
    """The same, and other files are refused."""

    def read(self, path):
        from twinbed import TraceError
        try:
            return super().read(path)
        except ValueError as error:
            raise TraceError(f"{path}: not a number a line: {error}") from None
'''
POLICY = '''
import time
from control.allocator.periodic import PeriodicPolicy


class Greedy(PeriodicPolicy):
    """Wants everything."""

    def limits(self, sample):
        return sample.cores + 100.0, sample.limit_bytes + 1e12


class Broken(PeriodicPolicy):
    """Fails after a while."""

    def limits(self, sample):
        return sample.coers, sample.limit_bytes


class Wild(Greedy):
    """Raises its quotas without end."""

    def on_period(self, stats):
        from control.allocator.model import CpuLimits, Decision, reasons

        return Decision(cpu=CpuLimits(stats.ids, stats.quota_cores * 3, reasons(len(stats.ids), 1)))
'''


@pytest.fixture
def folder(tmp_path):
    files = {"spot.py": SPOT, "scheduler.py": SCHEDULER, "reader.py": READER, "policy.py": POLICY}
    files["recommender.py"] = RECOMMENDER
    for name, code in files.items():
        (tmp_path / name).write_text(code)
    return tmp_path


def test_every_sort_is_listed_and_explained(twinbed):
    rows = twinbed("policies", "--format", "json").rows
    assert {row["sort"] for row in rows} == {
        "policy",
        "scheduler",
        "spot policy",
        "recommender",
        "trace reader",
    }
    assert all(row["about"] and row["from"] == "twinbed" for row in rows)


@pytest.mark.parametrize(
    "name", ["gavel-ftf", "hadar-e", "fifo", "greedy", "ernest", "spotdnn", "openmetrics"]
)
def test_everything_that_is_listed_is_explained(twinbed, name):
    (listed,) = (row for row in twinbed("policies", "--format", "json").rows if row["name"] == name)
    told = twinbed("policies", "show", name).out
    assert listed["sort"] in told
    assert "".join(listed["about"].split()) in "".join(told.split())
    assert (f"{name} has no parameters" in told) is (name not in ("gavel-ftf", "hadar-e"))


def test_the_parameters_of_a_scheduler_are_those_of_its_family(twinbed, tmp_path):
    told = twinbed("policies", "show", "gavel-ftf")
    assert "--set cluster.settings.gavel.round_s=360.0" in " ".join(told.out.split())
    rows = twinbed("policies", "show", "gavel-ftf", "--format", "json").rows
    assert [(row["policy"], row["parameter"]) for row in rows] == [
        ("gavel-ftf", "round_s"),
        ("gavel-ftf", "least_between_s"),
    ]


def test_a_class_of_ones_own_is_explained(twinbed, folder):
    told = twinbed("policies", "show", f"{folder}/spot.py:Sure")
    assert "On demand, from start to end." in told.out
    assert "reason" in told.out


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("policy.py:Greedy", 1, "time"),
        ("policy.py:Broken", 1, "AttributeError"),
        ("policy.py:Wild", 1, "a quota of"),
        ("spot.py:Sure", 0, "30 markets"),
        ("spot.py:Lazy", 1, "end late"),
        ("scheduler.py:First", 0, "10 clusters of 30 jobs"),
        ("scheduler.py:Idle", 1, "cluster 0: jobs wait and never run"),
        ("scheduler.py:Moody", 1, "cluster 0: jobs end at other times in a second run"),
        ("scheduler.py:Greedy", 1, "GPUs of server"),
        ("recommender.py:Known", 0, "20 rankings of 20 questions"),
        ("recommender.py:Dear", 1, "99 $/h is not its price"),
        ("recommender.py:Fickle", 1, "a second run ranks differently"),
        ("recommender.py:Endless", 1, "candidate 0 is tried twice"),
        ("recommender.py:Mute", 1, "it refuses every question: no idea"),
        ("reader.py:Careful", 0, "cores.txt, and 5 broken copies"),
        ("reader.py:Lines", 1, "raise twinbed.TraceError instead"),
    ],
)
def test_a_check_says_which_promise_is_broken(twinbed, folder, name, code, said):
    (folder / "cores.txt").write_text("0.5\n" * 40)
    sample = ("--sample", folder / "cores.txt") if name.startswith("reader") else ()
    ended = twinbed("policies", "check", f"{folder}/{name}", *sample, "--format", "json")
    assert (ended.code, ended.err) == (code, "")
    rows = ended.rows
    assert any(said in row["detail"] for row in rows)
    assert any(row["kept"] == "NO" for row in rows) == bool(code)


def test_quotas_bind_a_scheduler_of_ones_own_too_and_its_remarks_are_told(twinbed, folder, tmp_path):
    (tmp_path / "log.csv").write_text("submit_s,duration_s,gpus,queue\n0,1000,1,a\n0,1000,1,a\n0,1000,1,b\n")
    cluster = {
        "servers": {"v100": {"count": 1, "gpus": 4}},
        "queues": {"a": {"share": 0.25, "most": 0.25}, "b": {"share": 0.5}},
        "log": {"path": "log.csv", "format": "csv"},
        "fairness": False,
    }
    policies = ["fifo", f"{folder}/scheduler.py:Telling"]
    (tmp_path / "mine.yaml").write_text(json.dumps({"name": "q", "policies": policies, "cluster": cluster}))
    ran = twinbed("run", tmp_path / "mine.yaml", "--format", "json")
    assert [row["jct_mean_s"] for row in ran.rows] == [pytest.approx(4000 / 3)] * 2
    assert "it is first come, first served" in twinbed("run", tmp_path / "mine.yaml").out


def test_a_reader_is_not_checked_without_a_file(twinbed, folder):
    assert "--sample FILE" in twinbed("policies", "check", f"{folder}/reader.py:Lines").refused


@pytest.mark.parametrize("name", ["static", "vpa", "autothrottle", "escra"])
def test_what_ships_passes_the_same_check(twinbed, name):
    ended = twinbed("policies", "check", name)
    assert ended.code == 0, ended.out


@pytest.mark.root
@pytest.mark.usefixtures("cgroups")
def test_a_policy_of_ones_own_is_checked_on_this_machine(twinbed, folder):
    ended = twinbed(
        "policies", "check", f"{folder}/policy.py:Greedy", "--backend", "testbed", "--format", "json"
    )
    kept = {row["promise"]: row["kept"] for row in ended.rows}
    assert kept["containers live under it on the testbed"] == "yes"


def test_an_error_in_a_run_is_one_line_that_names_file_class_and_method(twinbed, folder, csv_path):
    said = twinbed("whatif", csv_path, "--policy", f"{folder}/policy.py:Broken").refused
    assert "policy.py: Broken: on_period: AttributeError" in said
    assert "line 17 of policy.py" in said


def test_whatif_takes_policies_with_commas_beside_others(twinbed, folder, csv_path):
    asked = f"static,{folder}/policy.py:Greedy(interval_s=2, initial_factor=1.0)"
    rows = twinbed("whatif", csv_path, "--policy", asked, "--format", "json").rows
    assert [row["policy"] for row in rows] == ["static", "policy.py:Greedy(initial_factor=1.0, interval_s=2)"]


def test_spot_takes_a_policy_of_ones_own(twinbed, folder, tmp_path):
    market = tmp_path / "zone.csv"
    market.write_text("t_s,available\n" + "".join(f"{t * 600},{t % 3 > 0:d}\n" for t in range(200)))
    asked = (
        "--work", "4h", "--deadline", "8h", "--starts", 3, "--policy",
        f"greedy,{folder}/spot.py:Sure(reason=1)",
    )  # fmt: skip
    rows = twinbed("spot", market, *asked, "--format", "json").rows
    assert {row["policy"] for row in rows} == {"optimum", "greedy", "spot.py:Sure(reason=1)"}
    assert all(row["reasons"] for row in rows if row["policy"] != "optimum")


def test_the_table_of_spot_fits_80_columns_with_whole_names(twinbed, tmp_path):
    market = tmp_path / "zone.csv"
    market.write_text("t_s,available\n0,1\n360000,1\n")
    told = twinbed("spot", market, "--work", "4h", "--deadline", "8h", "--starts", 3).out.splitlines()
    for name in POLICIES:
        (line,) = (line for line in told if line.startswith(name + " "))
        assert len(line) <= 80
        assert any(line.startswith(f"· {name}: ") for line in told)


def test_a_reader_of_ones_own_reads_a_trace(twinbed, folder, tmp_path):
    data = tmp_path / "cores.txt"
    data.write_text("0.5\n1\n0.25\n")
    ended = twinbed("traces", "inspect", data, "--trace-format", f"{folder}/reader.py:Lines(scale=2)")
    assert ended.code == 0, ended.err
