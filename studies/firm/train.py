"""Trains Firm: the classifier of culprits, and the actor.

For: learning. Not for: the worlds (world.py), the comparison (page.py), nor the meaning of the numbers
(control.allocator.firm_agent, firm_culprits). It needs torch and scikit-learn (`pip install twinbed[cloud]`).

Source: Qiu et al., "FIRM", OSDI 2020, and its public code: an incremental linear support vector machine, and
DDPG with the learning rates, batch, discount, update rate, buffer, layers and warm-up below. Ours differ in
this, each for a reason:

- An action is one of three, so the critic gets the action as an input (one-hot), and the actor climbs the
  critic's mean over the three by the actor's probabilities. An actor that climbs a critic between the
  actions, where nothing was ever tried, ends in a corner.
- Exploration is a random action with probability ε, which falls from 1 to LEAST_RANDOM. The source's noise of
  σ 0.2 on outputs from -1 to 1 never changes the action of a confident actor.
- Rewards are lower by 5, which shifts all values equally, so the critic learns the differences.
- An application goes on after an episode, so the last state's value is estimated like any other's.
- Every container of an application is a learner with the same actor and its own reward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from control.allocator.firm import FirmSettings
from control.allocator.firm_agent import DIRECTION, INPUTS, Actor, Layers, Window
from control.allocator.firm_culprits import Separator
from control.allocator.model import Floats
from lab.containers.calibrate.values import load_calibration
from studies.firm.world import Played, World, drawn, play, reward

ACTOR_RATE, CRITIC_RATE, BATCH, DISCOUNT, FOLLOW = 3e-4, 3e-3, 64, 0.9, 1e-3
BUFFER, HIDDEN, WARM_UP = 100_000, (40, 40), 70
LEAST_RANDOM = 0.1
EPISODES = 320
TRANSITIONS_OF_STEP = 2
"""Number of new transitions for each batch of learning: a step of a run makes one for every container."""
FACTORS = (0.5, 2.0)
"""Range of first limits, in profiled peaks, so that episodes begin short of CPU and with too much."""
EPISODES_OF_WORLD = 4
"""Number of episodes in a world. Our choice, because drawing a world takes as long as an episode."""
SLOWEST_S = 2.0
"""SLO above which a world is not used: its services cannot serve the load with all of their CPUs."""
THROTTLED = 0.1
"""Share of a window's periods from which a throttled container is a culprit: our choice of a label."""
SAMPLED_WORLDS, FIRST_SAMPLED = 60, 100_000
FIRST_TRAINED = 200_000
STEP_CORES = FirmSettings().step_cores


class Random:
    """A rule that tries actions: a random one with probability `share`, else the actor's."""

    def __init__(self, rng: np.random.Generator, share: float, actor: Actor | None) -> None:
        self._rng, self._share, self._actor = rng, share, actor
        self.actions: list[NDArray[np.int64]] = []

    def __call__(self, window: Window) -> Floats:
        """Return the limits wanted, and note the actions."""
        action = self._rng.integers(3, size=len(window.slots))
        if self._actor is not None:
            known = self._rng.random(len(action)) >= self._share
            action = np.where(known, self._actor.actions(window.state), action)
        self.actions.append(action)
        return window.limit_cores + DIRECTION[action] * STEP_CORES


def worlds(first: int) -> Iterator[World]:
    """Yield the worlds of the seeds from `first` on that can keep an SLO."""
    calibration = load_calibration(None)
    for seed in range(first, first + 100_000):
        world = drawn(seed, calibration)
        if world.slo_s <= SLOWEST_S:
            yield world


def separator() -> tuple[Separator, str]:
    """Return the classifier, and a sentence on how well it finds culprits."""
    from sklearn.linear_model import SGDClassifier

    rows: list[tuple[float, float, float]] = []
    rng = np.random.default_rng(1)
    for world in islice(worlds(FIRST_SAMPLED), SAMPLED_WORLDS):
        rows += play(world, Random(rng, 1.0, None), factor=rng.uniform(*FACTORS), sample=True).samples
    table = np.array(rows)
    inputs, label = np.column_stack([table[:, 0], np.log(table[:, 1])]), table[:, 2] >= THROTTLED
    mean, scale = inputs.mean(axis=0), inputs.std(axis=0)
    cut = len(table) * 4 // 5
    # Weights balance the classes. Few containers are throttled, so the answer "never" would mostly be right.
    weight = np.where(label, 0.5 / label[:cut].mean(), 0.5 / (1.0 - label[:cut].mean()))
    machine = SGDClassifier(loss="hinge", penalty="l2", random_state=1, average=True)
    for rows_of in np.array_split(rng.permutation(cut), max(cut // 1000, 1)):
        part = (inputs[rows_of] - mean) / scale
        machine.partial_fit(part, label[rows_of], classes=[False, True], sample_weight=weight[rows_of])
    slope = machine.coef_[0] / scale
    line = [round(float(value), 4) for value in (*slope, machine.intercept_[0] - slope @ mean)]
    said, test = inputs[cut:] @ np.array(line[:2]) + line[2] > 0.0, label[cut:]
    return Separator(*line), (
        f"Of {len(table):,} windows of containers, {label.mean():.1%} are those of culprits. In the last "
        f"fifth, which was not used for learning, the classifier finds {said[test].mean():.0%} of them and "
        f"wrongly names {said[~test].mean():.0%} of the others."
    )


def transitions(played: Played, actions: Sequence[NDArray[np.int64]]) -> Floats:
    """Return the transitions of containers that were there in two windows in a row, float64[n, ·].

    Containers that were no culprits of a missed SLO are left out: the rule decides only for culprits.
    """
    parts = []
    for before, after, action in zip(played.windows[:-1], played.windows[1:], actions[:-1], strict=True):
        asked = before.culprit | ~before.violated
        _, here, there = np.intersect1d(before.slots, after.slots, return_indices=True)
        here, there = here[asked[here]], there[asked[here]]
        one_hot = np.eye(3)[action[here]]
        gained = reward(after)[there, None] - 5.0
        parts.append(np.hstack([before.state[here], one_hot, gained, after.state[there]]))
    return np.concatenate(parts) if parts else np.empty((0, 2 * INPUTS + 4))


class Learner:
    """DDPG over three actions: an actor and a critic, and slow copies of both."""

    def __init__(self, seed: int) -> None:
        import torch
        from torch import nn

        torch.manual_seed(seed)
        torch.set_num_threads(1)

        def network(inputs: int, outputs: int) -> Any:
            first, second = HIDDEN
            return nn.Sequential(
                nn.Linear(inputs, first),
                nn.ReLU(),
                nn.Linear(first, second),
                nn.ReLU(),
                nn.Linear(second, outputs),
            )

        self._torch = torch
        self.actor, self.slow_actor = network(INPUTS, 3), network(INPUTS, 3)
        self.critic, self._slow_critic = network(INPUTS + 3, 1), network(INPUTS + 3, 1)
        self.slow_actor.load_state_dict(self.actor.state_dict())
        self._slow_critic.load_state_dict(self.critic.state_dict())
        self._quick = [*self.actor.parameters(), *self.critic.parameters()]
        self._slow = [*self.slow_actor.parameters(), *self._slow_critic.parameters()]
        self._actor_steps = torch.optim.Adam(self.actor.parameters(), lr=ACTOR_RATE, fused=True)
        self._critic_steps = torch.optim.Adam(self.critic.parameters(), lr=CRITIC_RATE, fused=True)

    def values(self, critic: Any, state: Any) -> Any:
        """Return a critic's value of each action, [n, 3]."""
        eye = self._torch.eye(3).repeat(len(state), 1)
        return critic(self._torch.cat([state.repeat_interleave(3, 0), eye], 1)).reshape(-1, 3)

    def step(self, batch: NDArray[np.float32]) -> None:
        """Learn from a batch of transitions."""
        torch = self._torch
        rows = torch.from_numpy(batch)
        state, chosen, gained, after = torch.split(rows, [INPUTS, 3, 1, INPUTS], dim=1)
        with torch.no_grad():
            best = self.slow_actor(after).argmax(1, keepdim=True)
            aim = gained + DISCOUNT * self.values(self._slow_critic, after).gather(1, best)
        loss = torch.nn.functional.mse_loss(self.critic(torch.cat([state, chosen], 1)), aim)
        self._critic_steps.zero_grad()
        loss.backward()
        self._critic_steps.step()
        with torch.no_grad():
            value = self.values(self.critic, state)
        gain = -(torch.softmax(self.actor(state), 1) * value).sum(1).mean()
        self._actor_steps.zero_grad()
        gain.backward()
        self._actor_steps.step()
        with torch.no_grad():
            torch._foreach_lerp_(self._slow, self._quick, FOLLOW)

    def layers(self) -> Layers:
        """Return the slow actor as plain numbers, to four decimals."""
        linear = [part for part in self.slow_actor if isinstance(part, self._torch.nn.Linear)]
        return tuple(
            (
                [[round(float(number), 4) for number in row] for row in part.weight.detach().tolist()],
                [round(float(number), 4) for number in part.bias.detach().tolist()],
            )
            for part in linear
        )


def train(line: Separator, told: Callable[..., None], seed: int = 1) -> Layers:
    """Return a trained actor. line: the classifier. told: function called after each episode; it may
    raise."""
    rng, learner = np.random.default_rng(seed), Learner(seed)
    drawn_worlds = worlds(FIRST_TRAINED)
    # Rows: state, one-hot action, reward and next state. New rows replace the oldest.
    memory, count = np.zeros((BUFFER, 2 * INPUTS + 4), np.float32), 0
    for episode in range(EPISODES):
        if episode % EPISODES_OF_WORLD == 0:
            world = next(drawn_worlds)
        share = max(LEAST_RANDOM, 1.0 - episode / EPISODES)
        rule = Random(rng, share, Actor(learner.layers(), STEP_CORES))
        rows = transitions(play(world, rule, line, factor=rng.uniform(*FACTORS)), rule.actions)
        memory[(count + np.arange(len(rows))) % BUFFER] = rows
        count += len(rows)
        for _ in range(len(rows) // TRANSITIONS_OF_STEP if count > WARM_UP else 0):
            learner.step(memory[rng.integers(min(count, BUFFER), size=BATCH)])
        told()
    return learner.layers()
