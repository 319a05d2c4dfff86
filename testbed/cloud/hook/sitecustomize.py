"""Record the optimizer steps, the model and the noise of the gradients of a profiled job. Every Python
process of the job loads this module at its start.

For: scripts that do not use twinbed and are not changed. Not for: reading the records (testbed.cloud.steps).
It installs PyTorch's own hooks if the job imports PyTorch. A step ends when `Optimizer.step` of the first
optimizer that steps returns. The model is the first module with parameters that is called in training mode.
The batch is the first dimension of the model's first input tensor; the sizes of a sample's input and output
are the other dimensions of this tensor and of the first output tensor.

It writes to $TWINBED_STEPS: `<rank>.steps` holds int64 nanoseconds of CLOCK_MONOTONIC, `<rank>.json` the
model. With $TWINBED_NOISE_STEPS, `<rank>.noise` holds two float64 for each of that many steps: the squared
norm of this process's gradient, and that of the mean over the processes, which the optimizer gets. A single
process writes the mean squared norm of its last two gradients and the squared norm of their mean. As in
AdaptDL, Adam's gradients are divided by √v̂ + ε, and the gradients of its first five steps do not count.
Elements with a small v̂ do not count either, because elements that hardly had a gradient before would
outweigh all others. Steps of several backward passes do not count. A job that changes its gradients before
the step, for example by clipping, would be measured wrongly. With $TWINBED_GATE, a process waits after its
first step until this file exists. The site's own sitecustomize, which this one hides, runs after this one.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import struct
import sys
import time
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from math import prod
from types import ModuleType
from typing import Any

_FOLDER = os.environ.get("TWINBED_STEPS")
_GATE = os.environ.get("TWINBED_GATE")
_GATE_TICK_S = 0.001
"""Time between two checks of the gate, s."""
_NOISE_STEPS = int(os.environ.get("TWINBED_NOISE_STEPS", "0"))
_ADAM_STEPS = 5
"""Number of Adam's steps after which its second moments scale gradients."""
_LEAST_ROOT = 0.1
"""Least ratio of √v̂ to its root mean square in the tensor for an element to count; our reading."""
_HERE = os.path.dirname(os.path.abspath(__file__))


class _Job:
    """The records of this process's job."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, os.environ.get("RANK", "0"))
        self._file = -1
        self._optimizer: object = None
        self._model: dict[str, Any] = {"optimiser": "", "output_size": 0}

    def stepped(self, optimizer: object, _args: Any, _kwargs: Any) -> None:
        """Record a step; called after each step of any optimizer."""
        first = self._optimizer is None
        if first:
            self._optimizer = optimizer
            self._file = os.open(
                self._path + ".steps", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644
            )
            self._tell(optimiser=type(optimizer).__name__)
            if _NOISE_STEPS:
                _Noise(optimizer, self._path + ".noise")
        if optimizer is self._optimizer:
            os.write(self._file, time.monotonic_ns().to_bytes(8, "little"))
        while first and _GATE and not os.path.exists(_GATE):
            time.sleep(_GATE_TICK_S)

    def watch_models(self, module_of_torch: Any) -> None:
        """Record the model at its first call in training mode."""

        def called(module: Any, _args: tuple[Any, ...]) -> None:
            # Only a hook after the call sees keyword arguments. Until then, calls inside are no model's.
            trains = module.training and any(tensor.requires_grad for tensor in module.parameters())
            if trains and not ended and module not in without_tensors:
                ended.append(module.register_forward_hook(given, with_kwargs=True))

        def given(module: Any, args: tuple[Any, ...], named: dict[str, Any], output: Any) -> None:
            ended.pop().remove()
            tensors = [value for value in (*args, *named.values()) if getattr(value, "shape", ())]
            if not tensors:
                without_tensors.add(module)
                return
            handle.remove()
            shape = tuple(tensors[0].shape)
            parameters = [tensor for tensor in module.parameters() if tensor.requires_grad]
            leaves = [type(part).__name__ for part in module.modules() if not list(part.children())]
            fixed = [tensor for tensor in module.parameters() if not tensor.requires_grad]
            fixed += [tensor for tensor in module.buffers() if tensor.is_floating_point()]
            self._tell(
                batch=shape[0],
                parameters=sum(tensor.numel() for tensor in parameters),
                gradient_bytes=[tensor.numel() * tensor.element_size() for tensor in parameters],
                layers=leaves,
                non_trainable=sum(tensor.numel() for tensor in fixed),
                input_size=prod(shape[1:]),
                input_bytes=prod(shape[1:]) * tensors[0].element_size(),
            )
            first = output[0] if isinstance(output, (tuple, list)) else output
            if hasattr(first, "shape"):
                self._tell(output_size=prod(tuple(first.shape)[1:]))

        ended: list[Any] = []
        without_tensors: set[Any] = set()
        handle = module_of_torch.register_module_forward_pre_hook(called)

    def _tell(self, **facts: Any) -> None:
        """Write the facts about the model known so far."""
        self._model |= facts
        if "batch" in self._model:
            with open(self._path + ".json.part", "w") as file:
                json.dump(self._model, file)
            os.replace(self._path + ".json.part", self._path + ".json")

    def watch_optimizers(self, module_of_torch: Any) -> None:
        """Record the steps of all optimizers from now on."""
        module_of_torch.register_optimizer_step_post_hook(self.stepped)


class _Noise:
    """The norms of the gradients of one optimizer's next steps."""

    def __init__(self, optimizer: Any, path: str) -> None:
        self._alone = int(os.environ.get("WORLD_SIZE", "1")) == 1
        self._optimizer, self._left = optimizer, _NOISE_STEPS
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        self._own: dict[Any, Any] = {}
        self._before: dict[Any, Any] = {}
        self._passes = 0
        tensors = [tensor for group in optimizer.param_groups for tensor in group["params"]]
        # The gradient of this process alone; the optimizer's gradient was averaged over all processes.
        self._hooks = [
            tensor.register_hook(functools.partial(self._given, tensor))
            for tensor in tensors
            if tensor.requires_grad
        ]
        self._hooks.append(optimizer.register_step_pre_hook(self._stepping))

    def _given(self, tensor: Any, gradient: Any) -> None:
        self._passes += tensor in self._own
        self._own[tensor] = gradient.detach().clone()

    def _stepping(self, *_: Any) -> None:
        own, passes, before = self._own, self._passes, self._before
        self._own, self._passes = {}, 0
        self._before = own if self._alone else {}
        states = self._optimizer.state.values()
        young = any("exp_avg_sq" in one and float(one["step"]) < _ADAM_STEPS for one in states)
        if passes or young or (self._alone and before.keys() != own.keys()):
            return
        scales = {
            tensor: self._scale(group, tensor)
            for group in self._optimizer.param_groups
            for tensor in group["params"]
            if tensor in own
        }
        if self._alone:
            mean = {tensor: (own[tensor] + before[tensor]) / 2 for tensor in own}
            local = (_squared(own, scales) + _squared(before, scales)) / 2
        else:
            mean = {tensor: tensor.grad.detach() for tensor in own}
            local = _squared(own, scales)
        os.write(self._file, struct.pack("<2d", local, _squared(mean, scales)))
        self._left -= 1
        if not self._left:
            for hook in self._hooks:
                hook.remove()
            self._before = {}
            os.close(self._file)

    def _scale(self, group: Any, tensor: Any) -> Any:
        """Return the factor by which a gradient is multiplied."""
        state = self._optimizer.state.get(tensor, {})
        if "exp_avg_sq" not in state:
            return 1.0
        root = (state["exp_avg_sq"] / (1 - group["betas"][1] ** float(state["step"]))).sqrt()
        return (root > _LEAST_ROOT * root.square().mean().sqrt()) / (root + group["eps"])


def _squared(gradients: dict[Any, Any], scales: dict[Any, Any]) -> float:
    return sum(float((gradient * scales[tensor]).square().sum()) for tensor, gradient in gradients.items())


class _Afterwards(importlib.abc.MetaPathFinder):
    """Calls a function after a module has been loaded. functions: module name → function."""

    def __init__(self, functions: dict[str, Callable[[Any], None]]) -> None:
        self._functions = functions

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a module for which there is a function, else None."""
        if name not in self._functions:
            return None
        function = self._functions.pop(name)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            function(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _run_the_site_s_own() -> None:
    others = [folder for folder in sys.path if os.path.abspath(folder) != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if "TWINBED_ADDRESS_MASTER" in os.environ:
    os.environ.setdefault("MASTER_ADDR", os.environ["TWINBED_ADDRESS_MASTER"])
if _FOLDER:
    _job = _Job(_FOLDER)
    sys.meta_path.insert(
        0,
        _Afterwards(
            {
                "torch.nn.modules.module": _job.watch_models,
                "torch.optim.optimizer": _job.watch_optimizers,
            }
        ),
    )
_run_the_site_s_own()
