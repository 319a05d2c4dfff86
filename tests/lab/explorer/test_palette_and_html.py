"""One look per policy, and HTML that marks the best and escapes what others wrote."""

import math
from dataclasses import replace

from lab.charts.palette import Shown, shown, title
from lab.containers.run.savings import signed
from lab.explorer import html
from lab.runs.metric import Metric
from tests.lab.sample_runs import publish


def test_a_policy_looks_the_same_whatever_stands_beside_it(stored):
    runs = stored[1]
    looks = {each.run.policy: (each.color, each.dash) for each in shown(runs)}
    for run in runs:
        (alone,) = shown([run])
        assert (alone.color, alone.dash) == looks[run.policy]
    assert len(set(looks.values())) == len(runs)


def test_the_same_policy_with_other_settings_looks_different(stored):
    run = stored[1][3]
    other = replace(run, manifest={**run.manifest, "policy": "static:factor=2", "id": "other"})
    first, second = shown([run, other])
    assert first.title == "Static"
    assert second.title == "Static · factor=2"
    assert first.color != second.color


def test_runs_that_differ_in_the_seed_have_titles_of_their_own(stored):
    run = stored[1][0]
    again = replace(run, manifest={**run.manifest, "seed": 5, "id": "again"})
    assert [each.title for each in shown([run, again])] == ["Escra · seed 0", "Escra · seed 5"]


def test_titles_read_like_names():
    assert [title(text) for text in ("vpa", "escra", "static:factor=1.5")] == [
        "VPA",
        "Escra",
        "Static · factor=1.5",
    ]


def test_the_table_has_a_line_per_metric_and_marks_the_best(stored):
    text = html.table(shown(stored[1]))
    defined = {key for run in stored[1] for key, value in run.metrics.items() if not math.isnan(value)}
    assert text.count("<tr") == 1 + len(defined)
    assert "CPU slack p50 (cores)" in text
    assert 'class="tb-best"' in text


def test_what_reads_the_same_is_not_marked_as_better(stored):
    run = stored[1][0]
    twins = [
        Shown(run, "A", "#000", (1, 0)),
        Shown(replace(run, manifest={**run.manifest, "id": "x"}), "B", "#000", (1, 0)),
    ]
    assert 'class="tb-best"' not in html.table(twins)


def test_a_lower_bound_is_shown_as_one_and_never_marked_as_the_best(store):
    metrics = {"latency_p50_s": 0.001, "latency_p99_s": 40.0}
    bound = publish(store, "vpa", metrics=metrics, censored=tuple(metrics), statuses=("ok", "pending"))
    looks = shown([publish(store, metrics={"latency_p99_s": 0.02}, statuses=("ok",)), bound])
    assert "&gt; 40 s" in html.service_cards(looks)
    line = next(line for line in html.table(looks).split("<tr") if "Latency p50" in line)
    assert "&gt; 0.0010" in line
    assert 'class="tb-best"' not in line


def test_long_durations_are_in_hours_and_short_ones_in_milliseconds(store):
    metrics = [Metric(key, key, "s", 3, "lower", "") for key in ("latency_p50_s", "latency_p99_s")]
    look = shown([publish(store, metrics={"latency_p50_s": 0.0123456, "latency_p99_s": 15_180.0})])
    text = html.table(look, metrics)
    assert "latency_p50_s (ms)" in text
    assert ">12<" in text
    assert "latency_p99_s (h)" in text
    assert ">4.22<" in text


def test_a_figure_that_judges_nothing_has_no_best(store):
    metrics = [Metric("latency_p50_s", "p50", "1", 3, "neither", "")]
    looks = shown(
        [
            publish(store, policy, metrics={"latency_p50_s": value})
            for policy, value in (("vpa", 1.0), ("escra", 2.0))
        ]
    )
    assert 'class="tb-best"' not in html.table(looks, metrics)


def test_the_cards_compare_with_static(stored):
    text = html.cards(shown(stored[1]))
    assert text.count("against Static") == 3
    assert text.count('tb-card"') == 4


def test_a_change_of_nothing_has_no_sign():
    assert [signed(change) for change in (-0.004, 0.0, -0.474, 0.2)] == ["0 %", "0 %", "−47 %", "+20 %"]


def test_titles_cannot_bring_markup(stored):
    evil = Shown(stored[1][0], "<script>alert(1)</script>", "#000", (1, 0))
    for text in (html.cards([evil]), html.table([evil]), html.heading(evil, "<b>")):
        assert "<script" not in text
        assert "<b>" not in text


def test_notes_are_shown_literally():
    assert html.markdown("a *b* [c](d) $e$") == r"a \*b\* \[c\]\(d\) \$e\$"
