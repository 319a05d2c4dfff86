"""Measure training steps of language models on this machine's GPU.

For: gpu_steps.csv, which the page compares with predictions from other people's runs:
`python -m studies.cloud.gpu_steps PART FILE [SECONDS]`. Not for: predicting (twin.cloud.steptime). The part
`mpt` has the shapes of MPT's small models. The part `others` was measured after the law was settled. All
train in mixed precision with AdamW in 32 bits, as MosaicML's llm-foundry does. Attention is PyTorch's fused
one, and nothing is compiled. Sources: Brown et al. 2020 (GPT-3) table 2.1 and Radford et al. 2019 (GPT-2)
table 2 for shapes; llm-foundry's benchmarks for the recipe.
"""

from __future__ import annotations

import csv
import gc
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import median

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

VOCABULARY, HEAD = 50257, 128
SHAPES = {
    "125m": (12, 768),
    "350m": (24, 1024),
    "760m": (24, 1536),
    "1b": (24, 2048),
    "3b": (32, 2560),
    "gpt2-large": (36, 1280),
    "gpt2-xl": (48, 1600),
    "wide": (8, 3072),
    "wider": (10, 4096),
}
"""Name → number of layers and width. A head has 128 units, or 64 if the width is no multiple of 256 or is
below 1536."""
WARM, TIMED = 3, 9
"""Number of steps before the measurement, and of measured ones."""


@dataclass(frozen=True)
class Step:
    """A measured configuration on one GPU.

    model: name. parameters: number of parameters. layers, width: number and width of layers. sequence: tokens
    of a sequence. micro_batch: sequences of a micro-batch. accumulation: micro-batches of a step. recompute:
    whether activations are computed again. gpu: the driver's name of the GPU. step_s: median time of a step,
    s; empty if the memory did not suffice. spread: largest over smallest time of a step. memory_bytes: most
    memory that was allocated, bytes.
    """

    model: str
    parameters: int
    layers: int
    width: int
    sequence: int
    micro_batch: int
    accumulation: int
    recompute: bool
    gpu: str
    step_s: float | str
    spread: float | str
    memory_bytes: int


class Block(nn.Module):
    """A layer: attention and a perceptron of four times the width, each after a norm, without biases."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = width // (HEAD if width >= 1536 and width % 256 == 0 else HEAD // 2)
        self.norms = nn.ModuleList(nn.LayerNorm(width, bias=False) for _ in range(2))
        self.attend = nn.Linear(width, 3 * width, bias=False)
        self.project = nn.Linear(width, width, bias=False)
        self.widen = nn.Linear(width, 4 * width, bias=False)
        self.narrow = nn.Linear(4 * width, width, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the layer's output. tokens and output: [batch, sequence, width]."""
        batch, sequence, width = tokens.shape
        parts = self.attend(self.norms[0](tokens)).view(batch, sequence, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        tokens = tokens + self.project(mixed.transpose(1, 2).reshape(batch, sequence, width))
        widened: Tensor = functional.gelu(self.widen(self.norms[1](tokens)))
        return torch.add(tokens, self.narrow(widened))


class Model(nn.Module):
    """A GPT whose output shares the matrix of the words."""

    def __init__(self, layers: int, width: int, sequence: int, recompute: bool) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(sequence, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm = nn.LayerNorm(width, bias=False)
        self.recompute = recompute

    def forward(self, words: Tensor) -> Tensor:
        """Return the loss. words: [batch, sequence]."""
        tokens = self.words(words) + self.places.weight
        for block in self.blocks:
            tokens = checkpoint(block, tokens, use_reentrant=False) if self.recompute else block(tokens)
        logits = functional.linear(self.norm(tokens), self.words.weight)
        return functional.cross_entropy(logits[:, :-1].flatten(0, 1), words[:, 1:].flatten())


Configuration = tuple[str, int, int, int, bool]
"""Name, sequence, micro-batch, accumulation and recomputation."""


def configurations(part: str) -> Iterator[Configuration]:
    """Yield the configurations of a part, `mpt` or `others`."""
    if part == "others":
        for batch, accumulation in ((1, 1), (1, 4), (3, 1), (6, 1), (6, 4), (12, 1), (24, 1)):
            yield "gpt2-large", 1024, batch, accumulation, False
            yield "wide", 4096, batch, accumulation, False
            yield "gpt2-xl", 1024, batch, accumulation, False
            yield "wider", 4096, batch, accumulation, batch > 1
        return
    for name in ("125m", "350m", "760m", "1b", "3b"):
        for batch in (1, 2, 4, 8, 16, 32):
            yield name, 2048, batch, 1, False
    for name in ("1b", "3b"):
        for batch in (2, 8, 32):
            yield name, 2048, batch, 1, True
    for sequence, batch in ((512, 4), (512, 32), (8192, 1), (8192, 4), (32768, 1)):
        yield "1b", sequence, batch, 1, False


def measured(asked: Configuration) -> Step:
    """Train WARM + TIMED steps on random words and return the measurement."""
    name, sequence, micro_batch, accumulation, recompute = asked
    layers, width = SHAPES[name]
    device = torch.device("cuda")
    torch.cuda.reset_peak_memory_stats()
    torch.manual_seed(7)
    with device:
        model = Model(layers, width, sequence, recompute)
    for weight in model.parameters():
        if weight.ndim > 1:
            nn.init.normal_(weight, std=0.02)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    words = torch.randint(VOCABULARY, (micro_batch, sequence), device=device)
    times: list[float] = []
    try:
        for _ in range(WARM + TIMED):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(accumulation):
                with torch.autocast("cuda", torch.bfloat16):
                    loss = model(words)
                loss.backward()
            optimiser.step()
            optimiser.zero_grad()
            torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
    except torch.OutOfMemoryError:
        times = []
    own = times[WARM:]
    return Step(
        model=name,
        parameters=sum(weight.numel() for weight in model.parameters()),
        layers=layers,
        width=width,
        sequence=sequence,
        micro_batch=micro_batch,
        accumulation=accumulation,
        recompute=recompute,
        gpu=torch.cuda.get_device_name(),
        step_s=round(median(own), 6) if own else "",
        spread=round(max(own) / min(own), 4) if own else "",
        memory_bytes=torch.cuda.max_memory_allocated(),
    )


def main(part: str, path: str, seconds: float) -> None:
    """Write the measurements of a part to `path` as CSV. Start none after `seconds`."""
    began, full = time.monotonic(), set()
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, [field.name for field in fields(Step)])
        table.writeheader()
        for asked in configurations(part):
            kind = (*asked[:2], asked[-1])
            if time.monotonic() - began > seconds:
                break
            if kind in full:
                continue
            row = measured(asked)
            if row.step_s == "":
                full.add(kind)
            table.writerow(asdict(row))
            file.flush()
            print(*asdict(row).values(), flush=True)
            gc.collect()
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]) if len(sys.argv) > 3 else 600.0)
