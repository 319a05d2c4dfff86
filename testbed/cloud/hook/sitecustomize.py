"""Loaded by every Python of a profiled job, as it starts: notes when its optimizer steps, and what it trains.

For: scripts that know nothing of twinbed; nothing in them changes. Not for: reading what is noted
(testbed.cloud.steps). PyTorch's own hooks are used, installed when and if the job imports it: a step's end is
the end of `Optimizer.step` of the first optimizer that steps; the model is the first module in training that
is called and has parameters; the batch is the first dimension of the first tensor that it is given.

Written to $TWINBED_STEPS: `<rank>.steps`, int64 nanoseconds of CLOCK_MONOTONIC one after the other, and
`<rank>.json`. The site's own sitecustomize, which this one hides, is run after it.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_FOLDER = os.environ.get("TWINBED_STEPS")
_HERE = os.path.dirname(os.path.abspath(__file__))


class _Job:
    """What is noted of this process's job."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, os.environ.get("RANK", "0"))
        self._file = -1
        self._optimizer: object = None

    def stepped(self, optimizer: object, _args: Any, _kwargs: Any) -> None:
        """After each step of any optimizer."""
        if self._optimizer is None:
            self._optimizer = optimizer
            self._file = os.open(
                self._path + ".steps", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644
            )
        if optimizer is self._optimizer:
            os.write(self._file, time.monotonic_ns().to_bytes(8, "little"))

    def watch_models(self, module_of_torch: Any) -> None:
        """Until the first call of a model in training."""

        def called(module: Any, args: tuple[Any, ...]) -> None:
            shapes = [tuple(each.shape) for each in args if hasattr(each, "shape")]
            parameters = [each for each in module.parameters() if each.requires_grad]
            if not module.training or not parameters or not shapes or not shapes[0]:
                return
            handle.remove()
            leaves = [type(each).__name__ for each in module.modules() if not list(each.children())]
            model = {
                "batch": shapes[0][0],
                "parameters": sum(each.numel() for each in parameters),
                "parameter_bytes": sum(each.numel() * each.element_size() for each in parameters),
                "layers": leaves,
            }
            with open(self._path + ".json.part", "w") as file:
                json.dump(model, file)
            os.replace(self._path + ".json.part", self._path + ".json")

        handle = module_of_torch.register_module_forward_pre_hook(called)

    def watch_optimizers(self, module_of_torch: Any) -> None:
        """From now on."""
        module_of_torch.register_optimizer_step_post_hook(self.stepped)


class _Afterwards(importlib.abc.MetaPathFinder):
    """Calls a function once a module has been loaded."""

    def __init__(self, functions: dict[str, Callable[[Any], None]]) -> None:
        self._functions = functions

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Of a module that is waited for; of others nothing."""
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
    others = [each for each in sys.path if os.path.abspath(each) != _HERE]
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
