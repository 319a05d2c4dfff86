"""A compile-like batch job: writes a C project of many files of unequal size and builds it with make -j2.

For: being recorded (compile_batch.yaml): generating, parallel compiling, one link that optimises
across files, running the result; several rounds. Not for: the program's result. Needs gcc and make.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import tempfile
from pathlib import Path

MAKEFILE = """\
objects := $(patsubst %.c,%.o,$(wildcard *.c))
program: $(objects)
\tgcc -O2 -flto -flto-partition=one -o $@ $^
hot_%.o: hot_%.c
\tgcc -O2 -flto -c -o $@ $<
%.o: %.c
\tgcc -O2 -c -o $@ $<
"""


def function(rng: random.Random, name: str) -> str:
    """C source of one function: nested loops over an array with arithmetic that a compiler has to chew on."""
    lines = [f"unsigned {name}(unsigned *a, unsigned n) {{", "  unsigned s = n;"]
    for block in range(rng.randint(3, 9)):
        bound, step = rng.randint(8, 64), rng.randint(1, 3)
        lines.append(f"  for (unsigned i = {block}; i < {bound}; i += {step}) {{")
        lines += [
            f"    a[(i * {rng.randint(3, 97)}u + s) % 256] {rng.choice(['+=', '^=', '-='])} "
            f"(s >> {rng.randint(1, 7)}) * {rng.randint(3, 9999)}u + a[(i + {rng.randint(1, 255)}u) % 256];"
            for _ in range(rng.randint(2, 10))
        ]
        lines.append(f"    if (a[i % 256] & {1 << rng.randint(0, 9)}u) s += a[i % 256]; else s ^= i;")
        lines.append("  }")
    return "\n".join([*lines, "  return s;", "}"])


def write_project(folder: Path, units: int, rng: random.Random) -> None:
    """`units` C files of 5 to 60 functions each, a main that calls each file's entry, and a Makefile."""
    for unit in range(units):
        # Sizes as in real projects: many small files, a few large ones.
        count = min(60, 5 + int(rng.paretovariate(0.9) * 5))
        names = [f"f_{unit}_{index}" for index in range(count)]
        calls = "\n".join(f"  s += {name}(a, s);" for name in names)
        entry = f"unsigned entry_{unit}(unsigned *a) {{\n  unsigned s = {unit};\n{calls}\n  return s;\n}}"
        source = "\n".join([*(function(rng, name) for name in names), entry])
        # One file in six is optimised across files, by the link: on one core, with all of it in memory.
        (folder / f"{'unit' if unit % 6 else 'hot'}_{unit:03}.c").write_text(source + "\n")
    declarations = "\n".join(f"unsigned entry_{unit}(unsigned *);" for unit in range(units))
    body = "\n".join(f"    s += entry_{unit}(a);" for unit in range(units))
    loop = f"  for (int round = 0; round < 300; round++) {{\n{body}\n  }}"
    main = f"int main(void) {{\n  static unsigned a[256];\n  unsigned s = 0;\n{loop}\n  return s == 1;\n}}"
    (folder / "main.c").write_text(f"{declarations}\n{main}\n")
    (folder / "Makefile").write_text(MAKEFILE)


def main() -> None:
    """Generates, builds and runs the projects one after the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4, help="projects to build")
    parser.add_argument("--units", type=int, default=60, help="C files per project")
    parser.add_argument("--jobs", type=int, default=2, help="compilers that run at once")
    arguments = parser.parse_args()
    for number in range(arguments.rounds):
        with tempfile.TemporaryDirectory() as folder:
            write_project(Path(folder), arguments.units, random.Random(number))
            subprocess.run(["make", "--silent", f"-j{arguments.jobs}"], cwd=folder, check=True)
            subprocess.run([Path(folder) / "program"], check=True)


if __name__ == "__main__":
    main()
