"""The training of a network, watched from its calls: which rows it sees when, and which loss they have."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from control.jobs import Objective
from control.predictor import training, tried_network
from control.predictor.examples import FEWEST_ROWS, best
from control.predictor.networks import RECIPES, Kind, Network, Norm, Recipe, as_arrays, from_arrays
from control.predictor.training import Schedule, train
from control.predictor.tried_network import TriedNetwork, train_network
from tests.made_up_jobs import examples
from twinbed import ScenarioError

LOSSES = {
    Kind.COST: lambda out, goal: torch.where(
        (out - goal).abs() < 1, (out - goal) ** 2 / 2, (out - goal).abs() - 0.5
    ),
    Kind.TIME: lambda out, goal: out - goal * torch.log(out + 1e-8),
    Kind.TOP_COST: lambda out, goal: functional.softplus(out) - goal * out,
    Kind.TOP_TIME: lambda out, goal: functional.softplus(out) - goal * out,
}
"""Each row's loss: Huber with δ = 1, Poisson, and binary cross-entropy of a logit."""


COLUMNS = ([0, 4], [1, 5], [2, 3, 6, 7], list(range(8, 15)))
"""Columns of a job's series by branch."""


class Call:
    """A call of a network: the positions of its rows, what it returned, and whether it was being trained."""

    def __init__(self, network, places, out):
        self.training, self.places, self.out = network.training, places, out
        self.threads = torch.get_num_threads()


@pytest.fixture
def watched(monkeypatch):
    """A function that trains a network. It returns the trained network, the network before, and the calls."""

    def run(kind, rows, schedule, seed=1):
        before, calls, static = [], [], None

        class Watched(Network):
            def __init__(self, statics, kind):
                super().__init__(statics, kind)
                before.append(from_arrays(kind, statics, as_arrays(self)))

            def forward(self, static_, series, job):
                out = super().forward(static_, series, job)
                same = (static_[:, None, :] == static[None, :, :]).all(dim=2)
                calls.append(Call(self, same.int().argmax(dim=1).numpy(), out.detach()))
                return out

        encoder = training.Encoder.fit(rows)
        static = torch.as_tensor(encoder.encode(rows).static, dtype=torch.float32)
        monkeypatch.setattr(training, "Network", Watched)
        trained = train(kind, rows, seed, schedule=schedule)
        monkeypatch.undo()
        return trained, before[0], calls

    return run


def goals(kind, rows):
    value = rows.objective(kind.by)
    return torch.as_tensor(best(value, rows.job) if kind.classifies else value / value.mean()).float()


def loss_of(kind, calls, goal):
    """The mean loss over all rows of some calls."""
    losses = [LOSSES[kind](call.out, goal[call.places]) for call in calls]
    return float(torch.cat(losses).mean())


def skewed(jobs=2):
    """Rows of which one takes and costs much more than all others."""
    rows = examples(jobs)
    rows.time_s[5] *= 30
    rows.cost_usd[5] *= 30
    return rows


@pytest.mark.parametrize("kind", list(Kind))
def test_the_losses_of_an_epoch_are_the_means_of_the_thesis_s_loss_over_its_rows(kind, watched):
    rows = skewed()
    trained, _, calls = watched(kind, rows, Schedule(epochs=2, held_out=0.25))
    # 48 rows: 12 are held out, 36 are trained on, in batches of 32 and 4.
    assert [(call.training, len(call.places)) for call in calls] == [(True, 32), (True, 4), (False, 12)] * 2
    goal = goals(kind, rows)
    assert trained.losses == tuple(
        (
            pytest.approx(loss_of(kind, calls[first : first + 2], goal), rel=1e-4),
            pytest.approx(loss_of(kind, calls[first + 2 : first + 3], goal), rel=1e-4),
        )
        for first in (0, 3)
    )
    assert trained.unit == (1.0 if kind.classifies else pytest.approx(rows.objective(kind.by).mean()))


def test_held_out_rows_are_never_trained_on_and_all_others_once_an_epoch_in_a_new_order(watched):
    _, _, calls = watched(Kind.TIME, skewed(), Schedule(epochs=2, held_out=0.25))
    first, second = (np.concatenate([call.places for call in calls[at : at + 2]]) for at in (0, 3))
    held_out = calls[2].places
    assert sorted([*first, *held_out]) == list(range(48))
    assert sorted(second) == sorted(first)
    assert second.tolist() != first.tolist()
    assert calls[5].places.tolist() == held_out.tolist()
    assert sorted(held_out) != list(range(12))


@pytest.mark.parametrize(
    ("count", "held_out", "batches", "held"),
    [
        (48, 0.3, [32, 2], 14),
        (48, 0.32, [33], 15),  # a single last row joins
        (48, 0.001, [32, 15], 1),
        (10, 0.9, [1], 9),
    ],
)
def test_batches_are_of_32_rows_and_a_single_last_row_joins_the_one_before(
    count, held_out, batches, held, watched
):
    rows = skewed().take(np.arange(count))
    _, _, calls = watched(Kind.COST, rows, Schedule(epochs=1, held_out=held_out))
    assert [len(call.places) for call in calls] == [*batches, held]


@pytest.mark.parametrize("kind", list(Kind))
def test_an_epoch_is_a_step_of_adam_for_each_batch(kind, watched):
    rows = skewed()
    trained, copy, calls = watched(kind, rows, Schedule(epochs=1, batch=8, held_out=0.25))
    encoded, goal = trained.encoder.encode(rows), goals(kind, rows)
    static, series = (
        torch.as_tensor(values, dtype=torch.float32) for values in (encoded.static, encoded.series)
    )
    rate = {Kind.TIME: 8e-4}.get(kind, 1e-4)
    adam = torch.optim.Adam(copy.parameters(), lr=rate, betas=(0.5, 0.999))
    copy.train()
    for call in (call for call in calls if call.training):
        places = torch.as_tensor(call.places)
        adam.zero_grad()
        out = copy(static[places], series, torch.as_tensor(rows.job[call.places]))
        LOSSES[kind](out, goal[places]).mean().backward()
        adam.step()
    untrained = from_arrays(kind, len(trained.encoder.columns), as_arrays(copy))
    expected = untrained(static, series, torch.as_tensor(rows.job)).detach().double().numpy()
    expected = 1 / (1 + np.exp(-expected)) if kind.classifies else expected * rows.objective(kind.by).mean()
    np.testing.assert_allclose(trained.predict(rows), expected, rtol=1e-3)


def quick(monkeypatch, kind, rate):
    """Train this kind at another rate."""
    monkeypatch.setitem(RECIPES, kind, Recipe(rate, Norm.NONE))


@pytest.mark.parametrize("patience", [1, 3])
def test_training_ends_after_epochs_without_a_smaller_loss_and_the_best_network_is_kept(
    patience, watched, monkeypatch
):
    rows = examples(2)
    quick(monkeypatch, Kind.TIME, 0.05)  # so quick that the loss soon rises
    trained, _, calls = watched(Kind.TIME, rows, Schedule(epochs=300, held_out=0.25, patience=patience))
    held_out = [loss for _, loss in trained.losses]
    assert len(held_out) == np.argmin(held_out) + 1 + patience
    assert len(held_out) < 300
    # A loss that is no minimum, followed by one, starts the count again.
    assert patience == 1 or (np.diff(held_out)[: np.argmin(held_out)] > 0).any()
    places = calls[-1].places
    out = torch.as_tensor(trained.predict(rows) / trained.unit)[places]
    loss = LOSSES[Kind.TIME](out, goals(Kind.TIME, rows)[places]).mean()
    assert float(loss) == pytest.approx(min(held_out), rel=1e-4)


def test_a_network_whose_loss_is_no_number_is_refused(monkeypatch):
    quick(monkeypatch, Kind.COST, float("inf"))
    with pytest.raises(ScenarioError, match="cost did not learn"):
        train(Kind.COST, examples(2), 1, schedule=Schedule(epochs=2))


def test_training_uses_one_thread_and_leaves_the_process_s_threads_and_random_numbers_alone(watched):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        torch.manual_seed(7)
        expected = torch.rand(3)
        torch.manual_seed(7)
        _, _, calls = watched(Kind.COST, examples(1), Schedule(epochs=1))
        assert {call.threads for call in calls} == {1}
        assert torch.get_num_threads() == 2
        assert torch.equal(torch.rand(3), expected)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("kind", list(Kind))
def test_every_parameter_of_a_network_acts_and_only_a_row_s_own_job_does(kind):
    torch.manual_seed(0)
    network = Network(7, kind)
    network.eval()
    static, series = torch.randn(5, 7), torch.randn(3, 20, 15)
    job = torch.tensor([0, 2, 1, 1, 0])
    out = network(static, series, job)
    assert out.shape == (5,)
    (out * torch.arange(5)).sum().backward()
    assert all((parameter.grad != 0).any() for parameter in network.parameters())
    for row in range(5):
        alone = network(static[row : row + 1], series[job[row]][None], torch.tensor([0]))
        torch.testing.assert_close(alone, out[row : row + 1])
    # The order of a series counts, and so does each of its points and columns.
    assert not torch.allclose(network(static, series.flip(1), job), out)
    watched_series = series.clone().requires_grad_()
    network(static, watched_series, job).sum().backward()
    assert (watched_series.grad != 0).all()


def test_the_branches_of_a_network_are_two_way_lstms_of_its_series():
    torch.manual_seed(0)
    network, static = Network(7, Kind.TIME).double(), torch.randn(5, 7, dtype=torch.float64)
    series, job = torch.randn(3, 20, 15, dtype=torch.float64), torch.tensor([0, 2, 1, 1, 0])
    network.eval()
    last = []
    # CPU, memory and network of master and workers, then the order of layers.
    for branch, columns in zip(network.branches.values(), COLUMNS, strict=True):
        _, (state, _) = branch(series[:, :, columns])
        last += [state[0], state[1]]
    joined = torch.cat((network.static(static), torch.cat(last, dim=1)[job]), dim=1)
    expected = functional.softplus(network.head(joined).squeeze(-1))
    found = network(static, series, job)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    weights = list(network.parameters())
    for own, other in zip(
        torch.autograd.grad(found.sum(), weights),
        torch.autograd.grad(expected.sum(), weights),
        strict=True,
    ):
        torch.testing.assert_close(own, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", list(Kind))
def test_values_are_positive_and_logits_may_be_negative(kind):
    network = Network(3, kind)
    network.eval()
    with torch.no_grad():
        network.head[-1].bias.fill_(-2.0)
        network.head[-1].weight.zero_()
        out = network(torch.zeros(4, 3), torch.zeros(1, 20, 15), torch.zeros(4, dtype=torch.int64))
    assert out.tolist() == pytest.approx([-2.0 if kind.classifies else np.log1p(np.exp(-2.0))] * 4)


def test_a_network_that_says_nothing_says_a_thousand_millionth():
    rows = examples(1)
    tried = train_network(Objective.COST, rows, 1, schedule=Schedule(epochs=1))
    with torch.no_grad():
        tried.trained.network.head[-1].bias.fill_(-1e4)
    assert tried.predict(rows).tolist() == [1e-9] * 24
    assert tried.by is Objective.COST


class Constant:
    """A network that says 2.0, or what the rows' number decides."""

    def __init__(self, kind, rows):
        self.kind, self.rows = kind, rows

    def predict(self, asked):
        return np.zeros(len(asked)) if len(asked) == 24 else np.full(len(asked), 2.0)


@pytest.mark.parametrize("by", list(Objective))
def test_the_errors_of_a_network_are_those_of_networks_that_had_not_seen_the_rows(by, monkeypatch):
    rows, made = examples(2), []

    def told(kind, learned, seed, *, schedule):
        made.append((kind, seed, schedule, np.bincount(learned.job, minlength=2).tolist()))
        return Constant(kind, learned)

    monkeypatch.setattr(tried_network, "train", told)
    schedule = Schedule(epochs=7)
    tried = train_network(by, rows, 5, schedule=schedule)
    kind = Kind.COST if by is Objective.COST else Kind.TIME
    assert {one[:3] for one in made} == {(kind, 5, schedule)}
    seen = [one[3] for one in made]
    assert seen[:2] == [[0, 24], [24, 0]]  # each job left out
    assert [sum(counts) for counts in seen[2:]] == [38, 38, 38, 39, 39, 48]  # fifths left out, and all rows
    value = rows.objective(by)
    # Jobs of 24 rows were predicted to take 0, which counts as 1e-9.
    np.testing.assert_allclose(tried.job_errors, np.sort(np.abs(np.log(1e-9 / value))))
    np.testing.assert_allclose(tried.row_errors, np.sort(np.abs(np.log(2.0 / value))))
    assert tried.trained.rows is rows
    assert train_network(by, rows, 5, schedule=schedule).row_errors.tolist() == tried.row_errors.tolist()


def test_the_rows_that_are_left_out_are_the_same_for_the_same_seed(monkeypatch):
    rows, folds = examples(2), []

    def told(kind, learned, seed, *, schedule):
        folds.append(learned.time_s.tolist())
        return Constant(kind, learned)

    monkeypatch.setattr(tried_network, "train", told)
    for seed in (5, 5, 6):
        train_network(Objective.TIME, rows, seed)
    assert folds[:8] == folds[8:16]
    assert folds[8:16] != folds[16:]


def test_too_few_rows_are_counted_before_any_is_left_out():
    rows = examples(1)
    for count in (1, 9, 10, 12):
        with pytest.raises(ScenarioError, match=f"{count} rows to learn from; at least 13 are needed"):
            train_network(Objective.TIME, rows.take(np.arange(count)), 1)
    with pytest.raises(ScenarioError, match=r"row 4 .*cost is nan"):
        train_network(Objective.COST, replace(rows, cost_usd=np.where(np.arange(24) == 2, np.nan, 1.0)), 1)


def test_thirteen_rows_of_a_job_are_enough_and_a_job_with_nearly_all_rows_is_named(monkeypatch):
    def told(kind, learned, seed, *, schedule):
        learned.check_known(Objective.TIME, FEWEST_ROWS)
        return Constant(kind, learned)

    monkeypatch.setattr(tried_network, "train", told)
    rows = examples(2)
    assert len(train_network(Objective.TIME, rows.take(np.arange(13)), 1).row_errors) == 13
    (few,) = np.nonzero((rows.job == 0) | (np.arange(len(rows)) >= len(rows) - 9))
    with pytest.raises(ScenarioError, match="24 of 33 rows are of job job-0; at least 10 of other jobs"):
        train_network(Objective.TIME, rows.take(few), 1)


def test_a_tried_network_knows_the_jobs_of_its_rows_only(monkeypatch):
    monkeypatch.setattr(
        tried_network, "train", lambda kind, learned, seed, *, schedule: Constant(kind, learned)
    )
    rows = examples(3)
    tried = train_network(Objective.TIME, rows.take(rows.job != 1), 1)
    assert isinstance(tried, TriedNetwork)
    assert tried.jobs == ("job-0", "job-2")
