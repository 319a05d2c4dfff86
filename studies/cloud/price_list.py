"""Makes the catalogue that ships, traces/catalogue/prices.parquet, from the open price sets.

For: `python -m studies prices`. Not for: reading it (traces.catalogue). The same data give the same bytes.
Sources: prices of Google from Cyclenerd/google-cloud-pricing-cost-calculator, of AWS and Azure from
coroot/cloud-pricing (both Apache-2.0); sizes of AWS's and Azure's types from Spare Cores (CC-BY-SA-4.0).
Left out: types whose size no source has, types with a part of a GPU, and spot prices of Google's GPU machines
below a quarter of on-demand in regions where upstream does not list the type, which lack the GPU's part;
prices of Azure that are far below those of other regions.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from studies.harness import Asked
from traces.catalogue import table
from traces.catalogue.catalogue import PRICES
from traces.readers import prices

NOTICE = PRICES.with_name("NOTICE")
FIRST_DAY = "2023-02-20"
"""Day of coroot's first snapshot. The least price of all snapshots counts from this day on."""
LEAST_SHARE = 1 / 3
"""Least on-demand price of Azure that is believed, as a share of its type's median over regions. Lower prices
are errors upstream: some v6 types cost an eighth in one region."""
_GOOGLE = "Cyclenerd/google-cloud-pricing-cost-calculator pricing.yml (Apache-2.0)"
_COROOT = "coroot/cloud-pricing (Apache-2.0)"
_SIZES = "sizes: Spare Cores (CC-BY-SA-4.0)"
_SHARES = {"f1-micro": 0.2, "g1-small": 0.5, "e2-micro": 0.25, "e2-small": 0.5, "e2-medium": 1.0}
"""Sustained CPU time of Google's shared-core types, in vCPUs (Google's page on machine families)."""
_GOOGLE_GPUS = {
    "a100": "NVIDIA A100 40GB",
    "a100-80gb": "NVIDIA A100 80GB",
    "h100-80gb": "NVIDIA H100",
    "h100-80gb-mega": "NVIDIA H100",
    "l4": "NVIDIA L4",
    "rtx6000": "NVIDIA RTX Pro 6000",
}
"""Columns of Google's table of types, which count accelerators."""
_AZURE_GPUS = {
    r"NC\d+r?$": "NVIDIA K80",
    r"NC\d+r?s_v2$": "NVIDIA P100",
    r"NC\d+r?s_v3$": "NVIDIA V100 16GB",
    r"ND\d+r?s$": "NVIDIA P40",
    r"ND40rs_v2$": "NVIDIA V100 32GB",
    r"NV\d+(s_v[23])?$": "NVIDIA M60",
    r"_T4_v3$": "NVIDIA T4",
    r"NV(36|72)adm?s_A10_v5$": "NVIDIA A10",
    r"(NC\d+ads|ND96amsr)_A100_v4$": "NVIDIA A100 80GB",
    r"ND96asr_v4$": "NVIDIA A100 40GB",
    r"_H100_v5$": "NVIDIA H100",
    r"_H200_v5$": "NVIDIA H200",
}
"""GPU models of Azure's types by their names (Microsoft's naming conventions). Other types with GPUs have a
part of a GPU, or an unknown model."""
_NOT_NVIDIA = {"V520": "AMD V520", "HL-205": "Habana HL-205"}
_SIZED = ("A100", "V100")
"""GPU models that exist with several sizes of memory."""
_FULL_RATE = ("n1", "n2", "n2d", "c2", "c2d", "t2d")
"""Google's families with 2 Gbit/s per vCPU from 10 to 32 (Google's page on network bandwidth); E2 has up to
16."""


def make(asked: Asked) -> int:
    """Write the table (asked.store, default: the one that ships) and print its size."""
    path = asked.store or PRICES
    frame = built(asked.public_data())
    table.write(path, frame, NOTICE.read_text(encoding="utf-8"))
    # An impossible row must fail here, before its first use.
    table.listings(table.read(path))
    types = frame.groupby("provider")["name"].nunique().to_dict()
    print(f"{path}: {len(frame)} prices in {path.stat().st_size} bytes; types: {types}")
    return 0


def built(data: Path) -> pd.DataFrame:
    """Return the table from the folder of public data sets. Raises TraceError for what cannot be read."""
    google, others = data / "prices_gcp_history", data / "prices_aws_azure_2023_2024"
    specs = pd.read_csv(data / "sparecores_benchmarks" / "server_specs.csv.gz")
    frames = [
        _google(google),
        *(
            _priced(prices.read(others / name), provider, sizes)
            for name, provider, sizes in (
                ("aws_on_demand_min.csv.gz", "aws", _aws(specs)),
                ("aws_spot_changes_accelerators.csv.gz", "aws", _aws(specs)),
                ("aws_spot_changes_cpu.csv.gz", "aws", _aws(specs)),
                ("azure_prices_min_last.csv.gz", "azure", _azure(specs)),
            )
        ),
    ]
    last = pd.read_csv(others / "azure_prices_min_last.csv.gz")
    day = dict(
        zip(zip(last["instance_type"], last["region"], strict=True), last["spot_last_change"], strict=True)
    )
    frame = pd.concat(frames, ignore_index=True)
    changed = (frame["provider"] == "azure") & (frame["market"] == "spot")
    keys = zip(frame.loc[changed, "name"], frame.loc[changed, "region"], strict=True)
    frame.loc[changed, "as_of"] = [day[key] for key in keys]
    frame["as_of"] = pd.to_datetime(frame["as_of"]).dt.date
    frame = frame[~_slips(frame)]
    frame["currency"], frame["cpu_speed"] = "USD", np.nan
    return frame[list(table.COLUMNS)]


def _slips(frame: pd.DataFrame) -> NDArray[np.bool_]:
    """Return the rows of Azure whose type and region have a price that is an error upstream."""
    key = ["name", "region"]
    listed = frame[(frame["provider"] == "azure") & (frame["market"] == "on-demand")]
    median = listed.groupby("name")["price_per_h"].transform("median")
    slips = listed.loc[listed["price_per_h"] < LEAST_SHARE * median, key]
    return pd.MultiIndex.from_frame(frame[key]).isin(pd.MultiIndex.from_frame(slips))


def _long(changes: prices.PriceChanges) -> pd.DataFrame:
    """Return one row per price above zero that differs from the one before it, by market."""
    columns = {"name": changes.name, "region": changes.region, "as_of": changes.day.astype("datetime64[s]")}
    parts = []
    for market, price in (("on-demand", changes.on_demand_usd_h), ("spot", changes.spot_usd_h)):
        part = pd.DataFrame({**columns, "market": market, "price_per_h": price})
        part = part[part["price_per_h"] > 0].sort_values(["name", "region", "as_of"], kind="stable")
        before = part.groupby(["name", "region"])["price_per_h"].shift()
        parts.append(part[part["price_per_h"] != before])
    return pd.concat(parts)


def _priced(changes: prices.PriceChanges, provider: str, sizes: pd.DataFrame) -> pd.DataFrame:
    """Return rows of coroot's prices of types whose sizes are known."""
    dated = not np.isnat(changes.day).all()
    frame = _long(changes).merge(sizes, on="name")
    said = "one price a region" if dated else "least of 2023-02-20 to 2024-08-09"
    kept = frame if dated else frame.assign(as_of=pd.Timestamp(FIRST_DAY))
    return kept.assign(
        provider=provider,
        sold=True,
        source=np.where(
            kept["market"] == "spot",
            f"{_COROOT}, spot, one price a region; {_SIZES}",
            f"{_COROOT}, {said}; {_SIZES}",
        ),
    )


def _google(folder: Path) -> pd.DataFrame:
    types = pd.read_csv(folder / "gcp_machine_types.csv").rename(
        columns={"machine_type": "name", "memory_gb": "memory_gib"}
    )
    counts = types[list(_GOOGLE_GPUS)].fillna(0.0)
    types["gpus"] = counts.sum(axis=1)
    types["gpu_model"] = counts.idxmax(axis=1).map(_GOOGLE_GPUS).where(types["gpus"] > 0, "")
    types["vcpus"] = types["name"].map(_SHARES).fillna(types["vcpus"])
    types["family"] = types["name"].str.rsplit("-", n=1).str[0]
    kind = types["name"].str.split("-").str[0]
    rate = np.where(kind == "e2", np.minimum(2 * types["vcpus"], 16), np.clip(2 * types["vcpus"], 10, 32))
    assumed = (kind.isin(_FULL_RATE) | (kind == "e2")) & (types["vcpus"] >= 2)
    types["network_bps"] = np.where(assumed, rate * 1e9, np.nan)
    types["disk_gib"] = np.nan
    # The size of a type is unknown if no column counts its accelerators.
    known = (types["gpus"] > 0) | ~kind.isin(("a2", "a3", "a4", "a4x", "g2", "g4"))
    types = types[known & (types["gpus"] % 1 == 0) & types["vcpus"].notna() & types["memory_gib"].notna()]
    frame = _long(prices.read(folder / "gcp_price_changes.csv.gz")).merge(
        types[["name", "vcpus", "memory_gib", "gpus", "gpu_model", "family", "network_bps", "disk_gib"]]
    )
    zones = pd.read_csv(folder / "gcp_machine_type_zones.csv.gz")
    there = set(zip(zones["machine_type"], zones["zone"].str.rsplit("-", n=1).str[0], strict=True))
    listed = np.array([pair in there for pair in zip(frame["name"], frame["region"], strict=True)])
    dearest = frame[frame["market"] == "on-demand"].groupby(["name", "region"])["price_per_h"].max()
    on_demand = dearest.reindex(pd.MultiIndex.from_frame(frame[["name", "region"]])).to_numpy()
    low = (frame["market"] == "spot") & (frame["price_per_h"] < prices.LEAST_SPOT_SHARE * on_demand)
    frame = frame.assign(
        provider="gcp",
        source=_GOOGLE + np.where(frame["network_bps"].notna(), "; network: assumption", ""),
        # Upstream lists no zone of the region with the others.
        sold=listed | (frame["gpus"] == 0),
    )
    return frame[~(low & (frame["gpus"] > 0) & ~listed)]


def _sizes(specs: pd.DataFrame, vendor: str) -> pd.DataFrame:
    own = specs[specs["vendor"] == vendor].rename(columns={"server": "name", "gpu_count": "gpus"})
    own = own[own["gpus"] % 1 == 0]
    return own.assign(
        memory_gib=own["memory_mb"] / 1024,
        network_bps=own["network_gbps"] * 1e9,
        disk_gib=own["storage_gb"].where(own["storage_gb"] > 0) * 1e9 / 2**30,
        family=own["family"].fillna(""),
    )[[*_OF_SIZE, "gpu_memory_total_mb"]]


_OF_SIZE = ["name", "vcpus", "memory_gib", "gpus", "gpu_model", "family", "network_bps", "disk_gib"]


def _aws(specs: pd.DataFrame) -> pd.DataFrame:
    own = _sizes(specs, "aws")
    each_gb = (own["gpu_memory_total_mb"] / own["gpus"] / 1024).round()
    own["gpu_model"] = [
        "" if not count else _NOT_NVIDIA.get(model) or f"NVIDIA {model}" + f" {gb:.0f}GB" * (model in _SIZED)
        for count, model, gb in zip(own["gpus"], own["gpu_model"], each_gb, strict=True)
    ]
    return own[_OF_SIZE]


def _azure(specs: pd.DataFrame) -> pd.DataFrame:
    own = _sizes(specs, "azure")

    def model(name: str, count: float) -> str | None:
        if not count:
            return ""
        return next((gpu for form, gpu in _AZURE_GPUS.items() if re.search(form, name)), None)

    own["gpu_model"] = [model(*pair) for pair in zip(own["name"], own["gpus"], strict=True)]
    return own[own["gpu_model"].notna()][_OF_SIZE]
