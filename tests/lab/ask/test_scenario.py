import dataclasses
import gzip

import pytest

from lab.ask.scenario import build, expand, load, with_overrides
from lab.containers.input.sections import MachineOverrides, Price, machine_of
from twin.containers.model import Machine
from twinbed import ScenarioError

MINIMAL = {"name": "mine", "trace": {"source": "x.parquet"}}


def problem(text, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ScenarioError) as caught:
        load(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message.removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty file"),
        ("- 1", "expected keys and values of a scenario; twinbed whatif takes traces"),
        ("name: [a", "line 1: not YAML"),
        ("name: a\nname: b", "line 2: key 'name' is given twice"),
        ("name: a\ntrace: {source: x, fromat: csv}", "trace.fromat: unknown key; did you mean 'format'?"),
        ("name: a\ntrace: {source: x}\npolcies: [escra]", "polcies: unknown key; did you mean 'policies'?"),
        (
            "name: a\ntrace: {source: x}\nperiod_s: fast",
            "period_s: Input should be a valid number, not 'fast'",
        ),
        ("name: a\ntrace: x.parquet", "trace: expected keys with values below it, not 'x.parquet'"),
        ("name: a\ntrace: {source: x}\nperiod_s: 5", "period_s: Input should be less than or equal to 1"),
        ("name: a\ntrace: {source: x}\nseeds: [true]", "seeds.0: Input should be a valid integer"),
        (
            "name: a\ntrace: {source: x}\nbudget: {cpu_cores: -1, memory_bytes: 5}",
            "budget.cpu_cores: Input should be greater than 0, not -1",
        ),
        ("name: a\ntrace: {source: x}\nbudget_factor: .nan", "budget_factor: nan is not a finite number"),
        ("name: a\ntrace: {source: x}\nthreads: {c: -1}", "threads: Input should be greater than 0, not -1"),
        ("name: a\ntrace: {source: x}\npolicies: [escrow]", "policies.0: "),
        ("name: a\ntrace: {source: x}\npolicies: ['escra:kapa=1']", "policies.0: "),
        ("name: a\ntrace: {source: x}\npolicies: ['static:factor=-1']", "policies.0: "),
        ("name: a", "give one of trace, workload, services"),
        ("trace: {source: x}", "name: missing"),
        (
            "name: a/b\ntrace: {source: x}",
            "name: expected a letter or digit, and then at most 63 more of letters, digits, '_', '.', '-'",
        ),
        (
            "name: a\nworkload: {containers: [{name: c, steps: [{duration_s: 1, cpu_cores: -2}]}]}",
            "workload.containers.0.steps.0.cpu_cores: ",
        ),
    ],
)
def test_a_wrong_file_is_refused_in_one_line_with_file_and_key(text, said, tmp_path):
    assert problem(text, tmp_path).startswith(said)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ScenarioError, match=r"gone\.yaml: No such file"):
        load(tmp_path / "gone.yaml")


def test_a_file_that_is_not_text_is_refused(tmp_path):
    path = tmp_path / "binary.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ScenarioError, match="not UTF-8"):
        load(path)


def test_a_trace_beside_the_file_is_found_from_anywhere(tmp_path):
    (tmp_path / "x.parquet").touch()
    (tmp_path / "mine.yaml").write_text("name: a\ntrace: {source: x.parquet}")
    assert load(tmp_path / "mine.yaml").trace.source == str(tmp_path / "x.parquet")


def test_numbers_in_scientific_notation_are_numbers(tmp_path):
    (tmp_path / "mine.yaml").write_text("name: a\ntrace: {source: x}\nmachine: {restart_s: 1e-3}")
    assert load(tmp_path / "mine.yaml").machine.restart_s == 0.001


def test_a_machine_can_be_overridden_in_every_field():
    assert set(MachineOverrides.model_fields) == {each.name for each in dataclasses.fields(Machine)}


def test_expand_gives_one_spec_per_policy_and_seed_with_the_machine_resolved():
    scenario = build(
        MINIMAL | {"policies": ["escra", "static"], "seeds": [1, 2], "machine": {"restart_s": 9.0}}
    )
    specs = expand(scenario)
    assert [(spec.policy.name, spec.seed) for spec in specs] == [
        ("escra", 1),
        ("escra", 2),
        ("static", 1),
        ("static", 2),
    ]
    assert {machine_of(spec).restart_s for spec in specs} == {9.0}
    assert machine_of(specs[0]).oom_grant_delay_s > 0
    assert len({spec.label for spec in specs}) == 4


def test_the_resolved_spec_writes_defaults_out_and_leaves_titles_aside():
    plain, titled = (expand(build(MINIMAL | extra))[0].resolved() for extra in ({}, {"title": "T"}))
    assert plain == titled
    assert plain["budget_factor"] == 1.5
    assert plain["machine"]["burst_s"] == 0.0


class TestOverrides:
    scenario = build(MINIMAL | {"policies": ["escra", "static:factor=2", "static"]})

    def test_reach_every_policy_of_a_name(self):
        changed = with_overrides(self.scenario, ["escra.kappa=0.5"])
        assert changed.policies == ["escra:kappa=0.5", "static:factor=2", "static"]

    def test_reach_dotted_keys(self):
        changed = with_overrides(
            self.scenario,
            ["machine.telemetry_delay_s=1e-2", "seeds=[3, 4]", "budget.cpu_cores=3", "budget.memory_bytes=9"],
        )
        assert changed.machine.telemetry_delay_s == 0.01
        assert changed.seeds == [3, 4]
        assert changed.budget.cpu_cores == 3

    def test_leave_the_original_alone(self):
        before = self.scenario.model_dump()
        with_overrides(self.scenario, ["budget_factor=2", "escra.kappa=0.1"])
        assert self.scenario.model_dump() == before

    @pytest.mark.parametrize(
        ("assignment", "said"),
        [
            ("budget_fctor=2", "did you mean 'budget_factor'"),
            ("budget_factor=-2", "budget_factor: Input should be greater than 0"),
            ("machine.restart=1", "did you mean 'restart_s'"),
            ("kappa=0.5", "unknown key; did you mean 'escra.kappa'?"),
            ("kapppa=0.5", "kapppa: unknown key; known are name, title"),
            ("escra.kapa=1", "kapa"),
            ("escra.kappa=99", "kappa"),
            ("vpa.x=1", "no policy vpa"),
            ("kappa", "expected KEY=VALUE"),
            ("name.first=1", "name has no keys inside"),
            ("seeds=[1", "not YAML"),
        ],
    )
    def test_that_are_wrong_are_named(self, assignment, said):
        with pytest.raises(ScenarioError, match=r"^--set") as caught:
            with_overrides(self.scenario, [assignment])
        assert said in str(caught.value)
        assert "\n" not in str(caught.value)


def test_the_default_price_reproduces_the_listed_machine_prices(public_data):
    price = Price()
    with gzip.open(public_data("prices_gcp_history") / "gcp_price_changes.csv.gz", "rt") as rows:
        listed = {}
        for row in rows:
            date, machine, region, usd_hour, _ = row.rstrip("\n").split(",")
            if region == "us-central1" and date <= price.as_of.isoformat():
                listed[machine] = float(usd_hour)
    for machine, cores, gib in (
        ("n1-standard-4", 4, 15),
        ("n1-highcpu-16", 16, 14.4),
        ("n1-highmem-8", 8, 52),
    ):
        made = cores * price.cpu_core_hour + gib * price.memory_gib_hour
        assert made == pytest.approx(listed[machine], abs=1e-6)
