"""The Python API: the same questions as the command line, answered as frames, charts and tables."""

import inspect
import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import twinbed as tb
from lab import answers, api


@pytest.fixture(scope="module")
def runs(trace_path, tmp_path_factory):
    store = tmp_path_factory.mktemp("api")
    return tb.whatif(trace_path, ["escra", "static:factor=1"], settings={"seeds": [0, 1]}, store=store), store


def test_the_leaf_names_the_api_and_loads_it_when_it_is_used():
    code = (
        "import sys, twinbed; assert 'lab' not in sys.modules; twinbed.Store; assert 'lab.api' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert {function.__name__ for function in api.FUNCTIONS} == set(tb._API) <= set(dir(tb))
    with pytest.raises(AttributeError, match="no attribute 'whatnot'"):
        tb.whatnot  # noqa: B018


def test_importing_the_leaf_loads_nothing_heavy():
    code = "import sys, twinbed; print(sorted({'numpy', 'pandas', 'lab', 'typer'} & set(sys.modules)))"
    ended = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ended.stdout == "[]\n"


def test_runs_are_frames_charts_and_tables(runs):
    made, _ = runs
    assert list(made.frame["policy"]) == ["escra", "escra", "static:factor=1", "static:factor=1"]
    assert len(made) == 4
    assert made[0].seed == 0
    assert list(made.means["seeds"]) == [2, 2]
    assert isinstance(made.means["mean_reserved_cores_ci95"], pd.Series)
    assert all(chart.to_dict() for chart in made.charts().values())
    page = made._repr_html_()
    assert page.count("<table>") == page.count("</table>") == 1
    assert "Mean reserved CPU" in repr(made)


def test_names_of_users_cannot_write_html(runs):
    made = answers.Table(None, made_result := runs[0].result)
    assert made.result is made_result
    shown = answers.Runs((runs[0][0],))
    run = runs[0][0]
    evil = type(run)(run.path, {**run.manifest, "policy": "<script>x</script>"})
    assert "<script>" not in answers.Runs((evil,))._repr_html_()
    assert shown.frame.shape[0] == 1


def test_stored_runs_are_compared_by_id_as_on_the_command_line(runs, twinbed):
    made, store = runs
    again = tb.compare(made[0].id, made[2], store=store)
    told = twinbed("compare", made[0].id, made[2].id, "--store", store, "--format", "json")
    assert [row["run"] for row in json.loads(told.out)["rows"]] == list(again.frame["run"])
    opened = tb.Store(store)
    assert set(opened.list()["id"]) == {run.id for run in made}
    assert repr(opened) == f"Store('{store}')"
    assert tb.Store(opened) is opened
    assert tb.compare(made[0].id, made[2], store=opened).frame.equals(again.frame)


def test_what_run_returns_is_compared_with_others_and_by_parts(runs):
    made, _ = runs
    first, rest = tb.compare(made[0]), made[1:]
    assert list(tb.compare(first, rest).frame["run"]) == list(made.frame["run"])
    with pytest.raises(tb.ScenarioError, match="runs is 3; expected a text or a Run or a list"):
        tb.compare(first, 3)


def test_a_scenario_may_be_given_by_its_keys_and_numpys_numbers(tmp_path):
    keys = {
        "name": "mine",
        "cluster": {
            "servers": {"v100": {"count": 1, "gpus": 2}},
            "synthetic": {"count": 3, "per_hour": 60.0},
            "fairness": False,
        },
        "policies": ["fifo"],
        "seeds": [0],
    }
    vary = {"cluster.synthetic.count": np.arange(2, 4), "cluster.settings.tiresias.knob": np.array([2.5])}
    swept = tb.sweep(keys, vary, settings={"cluster.servers.v100.gpus": np.int64(8)}, store=tmp_path, jobs=1)
    assert swept.frame["finished"].tolist() == [2, 3]
    with pytest.raises(tb.ScenarioError, match="nam"):
        tb.run({"nam": "x"}, store=tmp_path)
    with pytest.raises(
        tb.ScenarioError, match="scenario is 3; expected a text or a path or a dict or a Scenario"
    ):
        tb.run(3, store=tmp_path)


def test_runs_are_compared_by_lists_and_columns_of_ids(runs):
    made, store = runs
    ids = [run.id for run in made]
    wanted = list(made.frame["run"])
    assert list(tb.compare(ids, store=store).frame["run"]) == wanted
    assert list(tb.compare([made[0], *ids[1:]], store=store).frame["run"]) == wanted
    assert set(tb.compare(tb.Store(store).list()["id"], store=store).frame["run"]) == set(wanted)


def test_arguments_may_be_numpys_and_pandas(trace_path, tmp_path):
    ranked = tb.recommend("text_bag", workers=np.array([1, 2]), top=np.int64(2), progress=np.bool_(False))
    assert len(ranked.frame) == 2
    (run,) = tb.whatif(trace_path, pd.Series(["static"]), jobs=np.int64(1), store=tmp_path)
    assert run.policy == "static"


def test_the_keys_of_a_scenario_may_hold_paths_tuples_and_arrays(trace_path, tmp_path):
    keys = {"name": "mine", "trace": {"source": trace_path}, "policies": ("static",), "seeds": np.arange(2)}
    assert [run.seed for run in tb.run(keys, store=tmp_path, jobs=1)] == [0, 1]
    assert keys["policies"] == ("static",)


SERVERS, DRAWN = {"v100": {"count": 1}}, {"count": 2, "per_hour": 60.0, "gpus": [1]}
SMALL = {
    "name": "mine",
    "cluster": {"servers": SERVERS, "fairness": False, "synthetic": DRAWN},
    "policies": ["fifo"],
    "seeds": [0],
}


@pytest.mark.parametrize(
    ("asks", "problem"),
    [
        (lambda: tb.run(SMALL, backend="real"), "backend 'real': expected twin or testbed"),
        (lambda: tb.sweep(SMALL, seeds=[]), "seeds"),
        (lambda: tb.sweep(SMALL, seeds=[-1]), "seeds"),
        (lambda: tb.sweep(SMALL, seeds=[1.5]), "seeds"),
        (lambda: tb.sweep(SMALL, seeds=[1, 1]), "seeds"),
        (lambda: tb.sweep(SMALL, seeds=5), "seeds"),
        (lambda: tb.sweep(SMALL, seeds=[0.5]), r"seeds is \[0.5\]; expected a list of whole numbers or None"),
        (lambda: tb.compare([3]), r"runs is \[3\]; expected a text or a Run or a list of texts or Runs"),
        (lambda: tb.sweep(SMALL, {"cluster.round_s": 60}), "cluster.round_s: give a sequence of values"),
        (lambda: tb.sweep(SMALL, {"title": "abc"}), "title: give a sequence of values"),
        (lambda: tb.recommend("text_bag", by="price"), "by 'price': expected cost or time"),
        (lambda: tb.recommend("text_bag", top=0), "top is 0"),
        (
            lambda: tb.sweep(SMALL, until=5),
            r"until is 5; expected a text or None, such as 'ci\(METRIC\) < 5%'",
        ),
        (
            lambda: tb.sweep(SMALL, shard=3),
            r"shard is 3; expected a text or a pair of numbers, such as '1/2'",
        ),
        (lambda: tb.sweep(SMALL, shard=(3, 2)), "--shard 3/2: expected I/N with I from 1 to N"),
        (lambda: tb.sweep(SMALL, points=5), "points is 5; expected a text or a path or None"),
        (lambda: tb.sweep(SMALL, 5), r"vary is 5; expected a dict or a list, such as \{'KEY'"),
        (lambda: tb.run(SMALL, settings=[5]), r"settings is \[5\]; expected a dict or a list"),
        (lambda: tb.run(SMALL, engine=3), "engine is 3; expected a text"),
        (lambda: tb.run(SMALL, jobs="2"), "jobs is '2'; expected a whole number or None"),
        (lambda: tb.run(SMALL, store=3), "store is 3; expected a text or a path or a RunStore or None"),
        (lambda: tb.Store(3), "location is 3; expected a text or a path or a RunStore or None"),
        (lambda: tb.whatif(5), "trace is 5; expected a text or a path"),
        (lambda: tb.whatif("x", [5]), r"policies is \[5\]; expected a list"),
        (lambda: tb.whatif("x", start_s="5s"), "start_s is '5s'; expected a number or None"),
        (lambda: tb.recommend("text_bag", deadline_s="6h"), "deadline_s is '6h'; expected a number"),
        (lambda: tb.recommend("text_bag", workers=4), "workers is 4; expected a list or None"),
        (
            lambda: tb.recommend("text_bag", workers=[1.5]),
            r"workers is \[1.5\]; expected a list of whole numbers or None",
        ),
        (lambda: tb.recommend("text_bag", workers=[]), "numbers of workers must be 1 or more"),
        (lambda: tb.recommend("text_bag", measurements="none.duckdb"), "none.duckdb: no such file"),
        (lambda: tb.recommend("text_bag", running=["a"]), r"running is \['a'\]; expected a dict or None"),
        (lambda: tb.advise("x", seeds="2"), "seeds is '2'; expected a whole number"),
        (lambda: tb.advise("x", hosts=3), r"hosts is 3; expected a pair of numbers or None, such as \(HOSTS"),
        (lambda: tb.advise(3), "traces is 3; expected a text or a path or a function"),
        (lambda: tb.record(5), "command is 5; expected a text or a list or a Request"),
    ],
)
def test_what_python_allows_and_makes_no_sense_is_one_line(asks, problem, tmp_path, monkeypatch):
    monkeypatch.setenv("TWINBED_STORE", str(tmp_path))
    with pytest.raises(tb.TwinbedError, match=problem):
        asks()


def test_one_text_stands_for_a_list_of_one_and_seeds_may_be_numpys(tmp_path):
    swept = tb.sweep(
        SMALL,
        "cluster.round_s=60,120",
        seeds=np.arange(2),
        settings="cluster.restart_s=5",
        store=tmp_path,
        jobs=1,
    )
    assert swept.frame["seed"].tolist() == [0, 1, 0, 1]


def test_a_shard_may_be_a_pair(tmp_path):
    swept = tb.sweep(SMALL, {"cluster.round_s": [60, 120]}, shard=(1, 2), store=tmp_path, jobs=1)
    assert swept.swept.plan.shard.name == "-1of2"
    assert len(swept.frame) == 1


def test_a_text_that_varies_may_have_commas(trace_path):
    assert api._varied({"policies": [["static:factor=1"], ["escra"]], "title": ["a, b", "c"]}) == [
        'policies=[["static:factor=1"], ["escra"]]',
        'title=["a, b", "c"]',
    ]


def test_a_sweep_has_a_row_for_each_run(trace_path, tmp_path):
    from lab.containers.input.whatif import whatif_scenario

    scenario = whatif_scenario(trace_path, ["static"])
    swept = tb.sweep(scenario, {"static.factor": [1, 1.2]}, seeds=[0, 1], store=tmp_path, jobs=1)
    assert len(swept.frame) == 4
    assert "static.factor" in swept.frame
    assert "<table>" in swept._repr_html_()
    assert all(chart.to_dict() for chart in swept.charts().values())
    assert "Trade-off between the two figures" in swept.charts()
    from_texts = tb.sweep(scenario, ["static.factor=1,1.2"], seeds=[0, 1], store=tmp_path, resume=True)
    assert from_texts.frame["run"].tolist() == swept.frame["run"].tolist()


def test_advice_and_recommendations_are_tables(trace_path):
    advised = tb.advise(trace_path, policies=["limits"], seeds=1)
    assert len(advised.frame) == 3
    assert len(advised.histories) == 1
    read = tb.advise(lambda: advised.histories[0], policies=["limits"], seeds=1)
    assert read.frame.equals(advised.frame)
    ranked = tb.recommend("images_cnn", types=["n1-standard-4"], workers=[1, 2], method="analytic")
    assert {"configuration", "time_h", "cost_usd"} <= set(ranked.frame)
    assert ranked.answer.next_step
    assert ranked.charts()["Time and cost"].to_dict()


@pytest.mark.root
@pytest.mark.usefixtures("cgroups")
def test_a_command_is_recorded_and_replayed(tmp_path):
    path = tmp_path / "job.parquet"
    recorded = tb.record("sh -c 'sleep 0.5; exit 3'", path, user="root", logs=tmp_path)
    assert recorded.answer.exit_codes == (3,)
    assert list(recorded.frame["container"]) == ["sh"]
    assert recorded.frame["duration_s"][0] >= 0.5
    assert len(tb.whatif(path, ["static"], store=tmp_path / "store")) == 1


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: tb.whatif("no_such_trace"), "no such file"),
        (lambda: tb.run("no_such_scenario"), "no_such_scenario"),
        (lambda: tb.record([]), "nothing to record"),
        (lambda: tb.record("echo 'x"), "No closing quotation"),
        (lambda: tb.advise("ddp_training", seeds=0), "seeds is 0; a rehearsal needs at least one"),
        (lambda: tb.recommend("text_bag", search=True, backend="aws"), "expected testbed, twin, gcloud"),
        (lambda: tb.record("true", "/no/such/folder/x.parquet"), "choose another"),
        (lambda: tb.advise(), "at least one trace"),
        (lambda: tb.advise("ddp_training", price={"cpu_core_hour": -1}), "--price: cpu_core_hour"),
        (lambda: tb.run("cluster", jobs=-1), "jobs is -1; it must be a whole number from 1"),
        (lambda: tb.sweep("cluster", jobs=0), "jobs is 0; it must be"),
        (lambda: tb.recommend("text_bag", cap_usd=3), "are for --search; add it"),
        (lambda: tb.recommend("text_bag", method="spotdnn"), "needs --loss and --deadline"),
        (lambda: tb.recommend("text_bag", loss=1.0), "are for --method spotdnn"),
        (lambda: tb.compare("nothing", store="/nonexistent/store"), "nothing"),
    ],
)
def test_bad_input_is_one_line(call, said):
    with pytest.raises(tb.TwinbedError, match=said) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_every_function_says_its_types_and_what_it_does():
    for function in api.FUNCTIONS:
        assert inspect.getdoc(function)
        signature = inspect.signature(function)
        assert signature.return_annotation is not signature.empty
        assert all(spec.annotation is not spec.empty for spec in signature.parameters.values())
