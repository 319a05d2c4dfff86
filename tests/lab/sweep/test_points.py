"""The points and seeds of a sweep, and rules about metrics."""

import math

import pytest

from lab.ask import scenario
from lab.ask.scenario import build, with_overrides
from lab.sweep.plan import Shard, SweepPlan
from lab.sweep.points import points, seeds
from lab.sweep.rules import Limit, Until, metric_named
from twinbed import ScenarioError


@pytest.fixture
def trace():
    return build({"name": "t", "trace": {"source": "x"}, "policies": ["escra", "static"]})


def test_vary_and_the_rows_of_a_file_are_combined(dice, tmp_path):
    table = tmp_path / "points.csv"
    table.write_text("\ufeffdice.throws\n5\n7\n")  # as a spreadsheet writes it
    made = points(dice, ["title=a,b"], table)
    assert [dict(point.values) for point in made] == [
        {"dice.throws": throws, "title": title} for throws in (5, 7) for title in ("a", "b")
    ]
    assert [point.scenario.dice.throws for point in made] == [5, 5, 7, 7]


@pytest.mark.parametrize("text", ["[fair],[loaded]", "[[fair],[loaded]]"])
def test_lists_are_values_with_brackets_around_all_or_without(dice, text):
    made = points(dice, [f"policies={text}"], None)
    assert [point.scenario.policies for point in made] == [["fair"], ["loaded"]]


def test_a_scenarios_own_vary_is_part_of_the_product(dice):
    varied = build({"name": "throws", "dice": {}, "vary": {"dice.throws": [1, 2]}})
    assert [dict(point.values) for point in points(varied, ["title=a"], None)] == [
        {"dice.throws": 1, "title": "a"},
        {"dice.throws": 2, "title": "a"},
    ]


@pytest.mark.parametrize(
    ("vary", "problem"),
    [
        ("dice.throws", "expected KEY=VALUE"),
        ("dice.throws=", "expected KEY=VALUE"),
        ("dice.throws=1,1", "a value is given twice"),
        ("dice.throw=1,2", "throw"),
        ("dice.throws=1,-2", "dice.throws"),
        ("seeds=[[0],[1]]", "give them with --seeds"),
    ],
)
def test_a_wrong_vary_is_named(dice, vary, problem):
    with pytest.raises(ScenarioError, match=problem):
        points(dice, [vary], None)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no rows"),
        ("dice.throws\n1,2\n", "line 2"),
        ("dice.throws,title\n1\n", "line 2"),
        ("nil\n1\n", "nil"),
        ("dice.throws,dice.throws\n1,2\n", "line 1: a key is given twice"),
    ],
)
def test_a_wrong_file_of_points_is_named_with_its_line(dice, tmp_path, text, problem):
    table = tmp_path / "points.csv"
    table.write_text(text)
    with pytest.raises(ScenarioError, match=problem):
        points(dice, [], table)


def test_an_unknown_key_is_named_with_the_option_or_the_line_that_has_it(dice, tmp_path):
    with pytest.raises(ScenarioError, match=r"^--vary: with nosuch=1 \(vary\): nosuch: unknown key"):
        points(dice, ["nosuch=1,2"], None)
    (tmp_path / "points.csv").write_text("dice.throws,nosuch\n1,2\n")
    with pytest.raises(ScenarioError, match=r"points\.csv: line 2: nosuch: unknown key"):
        points(dice, [], tmp_path / "points.csv")


def test_a_key_cannot_be_varied_twice(dice, tmp_path):
    (tmp_path / "points.csv").write_text("dice.throws\n1\n")
    with pytest.raises(ScenarioError, match=r"line 2: dice\.throws is also in --vary"):
        points(dice, ["dice.throws=1,2"], tmp_path / "points.csv")
    with pytest.raises(ScenarioError, match="given twice"):
        points(dice, ["dice.throws=1", "dice.throws=2"], None)


def test_a_point_is_there_once_or_its_runs_would_count_twice(dice, tmp_path):
    table = tmp_path / "points.csv"
    table.write_text("dice.throws,title\n5,a\n7,a\n5,a\n")
    with pytest.raises(ScenarioError, match=r"line 4: the point dice\.throws=5 title=a is given twice"):
        points(dice, [], table)
    with pytest.raises(ScenarioError, match=r"the point machine\.restart_s=1\.0 is given twice"):
        points(build({"name": "t", "trace": {"source": "x"}}), ["machine.restart_s=1,1.0"], None)
    varied = build({"name": "throws", "dice": {}, "vary": {"dice.throws": [5, 5]}})
    with pytest.raises(ScenarioError, match=r"throws: the point dice\.throws=5 is given twice"):
        points(varied, [], None)


@pytest.mark.parametrize(("text", "made"), [("0:3", [0, 1, 2]), (":2", [0, 1]), ("7", [7]), ("1,5", [1, 5])])
def test_seeds_are_a_range_or_a_list(text, made):
    assert list(seeds(text)) == made


@pytest.mark.parametrize(
    "text",
    [
        "",
        "3:1",
        "a:b",
        "-1",
        "1,1",
        "0:99999999",
        "0:100001",
        "0:1000000000000000000000",
        "9223372036854775808",
    ],
)
def test_wrong_seeds_are_refused(text):
    with pytest.raises(ScenarioError, match="--seeds"):
        seeds(text)


def test_cells_that_ask_the_same_share_their_runs(trace):
    plan = SweepPlan("t", points(trace, ["escra.kappa=0.5,1"], None), [0, 1])
    assert [(cell.point, cell.policy, cell.owner) for cell in plan.cells] == [
        (0, "escra", 0),
        (0, "static", 1),
        (1, "escra", 2),
        (1, "static", 1),
    ]
    assert plan.owned == {0: [0, 1], 1: [2]}
    assert list(plan.units()) == [(0, 0), (1, 0), (0, 1), (1, 1)]


def test_shards_divide_the_units_and_share_the_sweeps_name(dice):
    made = points(dice, ["dice.throws=1,2,3"], None)
    whole = SweepPlan("t", made, range(5))
    shards = [SweepPlan("t", made, range(5), Shard.parse(f"{part}/4")) for part in (1, 2, 3, 4)]
    assert sorted(unit for shard in shards for unit in shard.units()) == sorted(whole.units())
    assert {shard.id for shard in shards} == {whole.id}
    assert SweepPlan("t", points(dice, ["dice.throws=1,2"], None), range(5)).id != whole.id


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/b", "1/0", "²/3"])
def test_a_shard_that_does_not_exist_is_refused(text):
    with pytest.raises(ScenarioError, match="--shard"):
        Shard.parse(text)


def test_a_sweep_that_is_too_large_is_refused(dice, monkeypatch):
    monkeypatch.setattr("lab.sweep.points.MOST_RUNS", 9)
    with pytest.raises(ScenarioError, match="10 runs; a sweep has at most 9"):
        SweepPlan("t", points(dice, [], None), range(5))


def test_too_many_points_are_refused_before_one_is_checked(dice, monkeypatch, tmp_path):
    (tmp_path / "points.csv").write_text("dice.throws\n" + "5\n" * 200_001)
    monkeypatch.setattr("lab.sweep.points.changed", None)
    with pytest.raises(ScenarioError, match="200,001 runs; a sweep has at most 200,000"):
        points(dice, [], tmp_path / "points.csv")
    with pytest.raises(ScenarioError, match="400,002 runs"):
        points(dice, ["title=a,b"], tmp_path / "points.csv")


def test_each_point_of_a_file_is_checked_twice_at_most(dice, monkeypatch, tmp_path):
    (tmp_path / "points.csv").write_text("dice.throws\n" + "".join(f"{number}\n" for number in range(1, 31)))
    varied = with_overrides(dice, ["vary={title: [a, b]}"])
    checked, own = [], scenario._validated
    monkeypatch.setattr(scenario, "_validated", lambda raw, where: checked.append(raw) or own(raw, where))
    made = points(varied, [], tmp_path / "points.csv")
    # Once as a line of the file, and once as a combination of the scenario's own values.
    assert (len(made), len(checked)) == (60, 30 + 60)


def test_a_cell_holds_a_hash_of_its_question_so_that_many_need_little_memory(trace):
    plan = SweepPlan("t", points(trace, ["escra.kappa=0.5,1"], None), [0])
    assert {len(cell.asked) for cell in plan.cells} == {64}


def test_a_metric_is_found_by_a_part_of_its_key(trace):
    kind = SweepPlan("t", points(trace, [], None), [0]).kind
    assert metric_named(kind, "latency_p99_s", "x").key == "latency_p99_s"
    assert metric_named(kind, "reserved_mib", "x").key == "mean_reserved_mib"
    # A quantile without a name is one of latency.
    assert {metric_named(kind, text, "x").key for text in ("p99", "p99_s")} == {"latency_p99_s"}
    with pytest.raises(ScenarioError, match="several metrics fit; give one of"):
        metric_named(kind, "slack_p99", "x")
    with pytest.raises(ScenarioError, match="no such metric; give one of late"):
        metric_named(kind, "latencies_p99", "x")


def test_a_stop_rule_compares_half_the_interval_with_the_mean(dice):
    rule = Until.parse("ci(mean_pips) < 10%", SweepPlan("t", points(dice, [], None), [0]).kind)
    assert (rule.metric, rule.share) == ("mean_pips", 0.1)
    # Five values with standard deviation 1: half-width 2.776 * 1 / sqrt(5) = 1.24.
    spread = [-1.0, 1.0, 1.0, -1.0, 0.0]
    assert not rule.met([12.0 + value for value in spread])
    assert rule.met([13.0 + value for value in spread])
    assert not rule.met([3.0] * 4)


@pytest.mark.parametrize(
    "text", ["p99 < 5%", "ci(mean_pips)", "ci(mean_pips) < x", "ci(nil) < 5%", "ci(mean_pips) < 1.2.3"]
)
def test_a_wrong_stop_rule_is_refused(dice, text):
    with pytest.raises(ScenarioError, match="--until"):
        Until.parse(text, SweepPlan("t", points(dice, [], None), [0]).kind)


def test_a_limit_says_by_how_much_it_is_exceeded(dice):
    kind = SweepPlan("t", points(dice, [], None), [0]).kind
    most, least = Limit.parse("mean_pips <= 4", kind), Limit.parse("pips>=3e0", kind)
    assert (most.excess(5.0), most.excess(4.0), least.excess(2.0)) == (1.0, 0.0, 1.0)
    assert most.excess(math.nan) == math.inf
    assert (most.text, least.text) == ("mean_pips <= 4", "mean_pips >= 3")
    with pytest.raises(ScenarioError, match="--subject-to"):
        Limit.parse("mean_pips = 4", kind)
