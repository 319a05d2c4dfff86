"""A cluster scenario through the public verbs."""

from __future__ import annotations

import json

import pytest
import yaml

SMALL = {
    "name": "small",
    "question": "Who waits?",
    "cluster": {
        "servers": {"v100": {"count": 1, "gpus": 4}, "k80": {"count": 1, "gpus": 4, "speed": 0.2}},
        "synthetic": {"count": 12, "per_hour": 6.0, "shortest_s": 600.0, "longest_s": 7200.0},
    },
}
SMALL["cluster"]["synthetic"]["gpus"] = [1, 2, 4]


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(SMALL))
    return path


def rows(result) -> dict[str, dict]:
    assert result.code == 0, result.err
    return {row["label"]: row for row in json.loads(result.out)["rows"]}


def test_it_runs_and_compares_and_reports(small, twinbed, tmp_path):
    ran = rows(twinbed("run", small, "--format", "json"))
    assert set(ran) == {"fifo", "tiresias", "gavel"}
    assert all(row["finished"] == 12 for row in ran.values())
    assert all(0 < row["utilisation"] <= 1 for row in ran.values())
    assert all(row["jct_p50_s"] <= row["jct_p99_s"] <= row["makespan_s"] for row in ran.values())
    ids = [row["id"] for row in json.loads(twinbed("runs", "list", "--format", "json").out)["rows"]]
    assert "JCT mean" in twinbed("compare", *ids).out
    page = tmp_path / "page.html"
    assert twinbed("report", *ids, "--html", page).code == 0
    text = page.read_text()
    assert "The queue over time" in text
    assert "Who ran where" in text
    counted = json.loads(twinbed("runs", "query", "SELECT count(*) AS n FROM jobs", "--format", "json").out)
    assert counted["rows"] == [{"n": 36}]


def test_a_note_says_that_waits_grow_with_the_arrivals_where_the_load_is_too_high(small, twinbed):
    more = ("--set", "cluster.synthetic.count=120", "--set", "policies=[fifo]", "--set", "seeds=[0]")
    said = " ".join(twinbed("run", small, *more, "--set", "cluster.synthetic.per_hour=12").out.split())
    assert "fifo: not steady, the queue grew by " in said
    assert "of 120 jobs; means of JCT and waits grow with the time for which jobs arrive" in said
    assert "not steady" not in twinbed("run", small, *more, "--set", "cluster.synthetic.per_hour=0.5").out
    swept = twinbed("sweep", small, *more, "--vary", "cluster.synthetic.per_hour=0.5,12", "--format", "json")
    calm, full = (row["queue_growth_share"] for row in json.loads(swept.out)["rows"])
    assert calm < 0.1 < full


def test_a_run_has_the_use_of_each_type(small, twinbed):
    ran = rows(twinbed("run", small, "--set", "cluster.servers.k80.price_usd_h=0.5", "--format", "json"))
    query = (
        "SELECT run, sum(busy_gpu_h) / sum(up_gpu_h) AS used, sum(cost_usd) AS usd FROM types GROUP BY run"
    )
    told = json.loads(twinbed("runs", "query", query, "--format", "json").out)["rows"]
    assert len(told) == len(ran) == 3
    assert sorted(row["used"] for row in told) == pytest.approx(
        sorted(row["utilisation"] for row in ran.values())
    )
    assert sorted(row["usd"] for row in told) == pytest.approx(
        sorted(row["cost_usd"] for row in ran.values())
    )


def test_the_same_question_has_the_same_answer(small, twinbed):
    first, second = (rows(twinbed("run", small, "--format", "json")) for _ in range(2))
    assert first == second


@pytest.mark.parametrize(
    ("change", "key", "better"),
    [
        ("cluster.servers.v100.count=3", "jct_mean_s", True),
        ("cluster.servers.v100.count=0", "jct_mean_s", False),
        ("cluster.restart_s=300", "lost_gpu_h", False),
        ("cluster.faults={per_server_day: 20, repair_s: 3600}", "lost_gpu_h", False),
    ],
)
def test_what_if(small, twinbed, change, key, better):
    base = rows(twinbed("run", small, "--set", "policies=[tiresias]", "--format", "json"))["tiresias"]
    changed = twinbed("run", small, "--set", "policies=[tiresias]", "--set", change, "--format", "json")
    other = next(iter(rows(changed).values()))
    assert (other[key] < base[key]) if better else (other[key] > base[key])


def test_quotas_of_queues_bind_under_yarn(small, twinbed):
    options = ("--set", "policies=[yarn]", "--set", "cluster.synthetic.gpus=[1]", "--format", "json")
    free = rows(twinbed("run", small, *options))["yarn"]
    quota = "cluster.queues={a: {share: 0.5, most: 0.125}, b: {share: 0.5, most: 0.125}}"
    bound = rows(twinbed("run", small, *options, "--set", quota))["yarn"]
    assert bound["first_wait_mean_s"] > free["first_wait_mean_s"]


def test_deadlines_are_counted_and_heeded(small, twinbed):
    options = ("--set", "policies=[gavel-cost, fifo]", "--set", "cluster.deadlines=[1.2, 2, 10]")
    both = rows(twinbed("run", small, *options, "--format", "json"))
    assert all(0 <= row["in_time_share"] <= 1 for row in both.values())


def test_jobs_of_a_log_beside_the_scenario(small, twinbed, tmp_path):
    (tmp_path / "jobs.csv").write_text("submit_s,duration_s,gpus,queue\n0,100,4,a\n0,100,4,b\n")
    document = yaml.safe_load(small.read_text())
    del document["cluster"]["synthetic"]
    document["cluster"] |= {"log": {"path": "jobs.csv", "format": "csv"}, "restart_s": 0.0, "fairness": False}
    document |= {"policies": ["fifo-fastest"]}
    small.write_text(yaml.safe_dump(document))
    row = rows(twinbed("run", small, "--format", "json"))["fifo-fastest"]
    # One job runs on the four V100 for 100 s, the other on the K80 for 100 / 0.2 s.
    assert row["jct_mean_s"] == pytest.approx(300)
    assert row["rho_mean"] is None


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("cluster.synthetic.gpus=[64]", "asks for 64 GPUs and can have 4 at most"),
        ("cluster.log={path: none.csv, format: csv}", "give one of synthetic, log, measured"),
        ("cluster.models={a: {tpu: 1}}", "there are no servers of this type"),
        (
            "cluster.models={a: {v100: 0, k80: 0}}",
            "cluster.models.a: job 0 (from 0, by submission) can run on none",
        ),
        ("cluster.settings={tiresias: {knop: 1}}", "tiresias.knop: there is no such key"),
        ("cluster.settings={tiresias: {knob: abc}}", "tiresias.knob: 'abc' is not a number"),
        ("cluster.settings={pollux: {population: 2.5}}", "pollux.population: 2.5 is not a whole number"),
        ("cluster.queues={a: {share: 0.8}, b: {share: 0.8}}", "more than 1 together"),
        ("cluster.restart_s=360", "restart_s must be below round_s"),
        ("cluster.synthetic.shortest_s=1e6", "below shortest_s, 1e+06"),
        ("cluster.watched.first=12", "cluster.watched.first: there are only 12 jobs"),
        ("cluster.watched={first: 5, last: 5}", "last must be above first"),
        ("cluster.servers.v100.count=-1", "greater than or equal to 0"),
        ("policies=[escra]", "is for scenarios with"),
        ("policies=['tiresias:knob=0']", "no parameters in its name; set cluster.settings.tiresias.knob"),
        ("calibration=some.toml", "some.toml"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(small, twinbed, change, problem):
    assert problem in twinbed("run", small, "--set", change).refused


def test_jobs_of_a_sparse_queue_do_not_wait_at_all(small, twinbed, tmp_path):
    (tmp_path / "log.csv").write_text("submit_s,duration_s,gpus\n0,600.3,1\n1234.7,70.1,1\n4000.1,0.9,1\n")
    ran = twinbed("run", small, "--set", "cluster.synthetic=null", "--format", "json",
                  "--set", "cluster.log={path: %s, format: csv}" % (tmp_path / "log.csv"),
                  "--set", "policies=[fifo, las]", "--set", "cluster.settings.gavel.least_between_s=0",
                  "--set", "cluster.servers.k80.count=0")  # fmt: skip
    assert {row["waiting_mean_s"] for row in rows(ran).values()} == {0.0}


def test_servers_without_a_price_have_no_cost(small, twinbed):
    ask = ("run", small, "--set", "policies=[fifo]", "--format", "json")
    assert rows(twinbed(*ask))["fifo"].get("cost_usd") is None
    assert rows(twinbed(*ask, "--set", "cluster.servers.v100.price_usd_h=2"))["fifo"]["cost_usd"] > 0


def test_a_run_that_outlasts_its_faults_says_so(small, twinbed):
    ask = ("run", small, "--set", "policies=[fifo]", "--set")
    short = twinbed(*ask, "cluster.faults={per_server_day: 1, end_s: 3600}").out
    assert "No server fails after 0.0417 days (cluster.faults.end_s); the run takes" in " ".join(
        short.split()
    )
    assert "No server fails" not in twinbed(*ask, "cluster.faults={per_server_day: 1}").out


def test_the_shipped_scenario_is_read():
    from lab.ask.scenario import expand, load

    assert len(expand(load("cluster"))) == 6


def test_jobs_with_a_goodput_grow_under_pollux_and_are_done_sooner(twinbed, tmp_path):
    model = {"alpha_c": 0.19, "beta_c": 0.025, "alpha_n": 0.75, "alpha_r": 0.13, "noise": 530.0}
    model |= {"batch": 8, "most_batch": 512, "most_local": 16}
    cluster = {
        "servers": {"t4": {"count": 4, "gpus": 4}},
        "models": {"yolov3": {"t4": 1.0}, "plain": {"t4": 1.0}},
        "goodput": {"yolov3": model},
        "synthetic": {"count": 12, "per_hour": 6.0, "shortest_s": 600.0, "longest_s": 7200.0, "gpus": [1, 2]},
        "settings": {"pollux": {"generations": 20}},
        "fairness": False,
    }
    path = tmp_path / "elastic.yaml"
    path.write_text(yaml.safe_dump({"name": "elastic", "policies": ["fifo", "pollux"], "cluster": cluster}))
    ran = rows(twinbed("run", path, "--format", "json"))
    assert ran["pollux"]["finished"] == 12
    assert ran["pollux"]["jct_mean_s"] < ran["fifo"]["jct_mean_s"]
    wrong = {**cluster, "goodput": {"yolov3": {**model, "most_batch": 4}}}
    path.write_text(yaml.safe_dump({"name": "elastic", "policies": ["pollux"], "cluster": wrong}))
    refused = twinbed("run", path)
    assert refused.code == 2
    assert "most_batch must not be below batch" in refused.err


def test_a_policy_without_what_it_is_about_says_so(small, twinbed):
    def notes(*changes: str) -> set[str]:
        sets = (
            part
            for change in ("policies=[gandiva, pollux, gavel-cost]", "cluster.synthetic.count=3", *changes)
            for part in ("--set", change)
        )
        said = json.loads(twinbed("run", small, *sets, "--format", "json").out)["notes"]
        return {note.partition(":")[0] for note in said if "because" in note}

    assert notes() == {"gandiva", "pollux", "gavel-cost"}
    assert notes("cluster.pair_speed=0.65", "cluster.servers.v100.price_usd_h=2") == {"pollux"}


def test_the_real_waits_of_a_log_stand_beside_ours(small, twinbed, tmp_path):
    jobs = ((number, 0, wait, 600, 1, *[-1] * 13) for number, wait in enumerate((0, 1800, 60_000)))
    (tmp_path / "log.swf").write_text("".join(" ".join(map(str, job)) + "\n" for job in jobs))
    log = f"cluster.log={{path: {tmp_path / 'log.swf'}, format: swf}}"
    changes = ("cluster.synthetic=null", "cluster.watched.last=2", log)
    ran = twinbed("run", small, *(part for one in changes for part in ("--set", one)), "--format", "json")
    assert "In the log the watched jobs waited 900 s in the mean" in json.loads(ran.out)["notes"]
