"""The child that makes an advice: what it answers, and what it says in one line."""

import io
import json
import shutil
import zipfile

import pytest
import yaml

from lab.containers.advise.histories import read
from lab.containers.advise.model import Advice
from lab.explorer import advise_chooser
from lab.explorer.advise_job import AdviceRequest, histories
from lab.explorer.advise_results import packed
from lab.explorer.job import Job
from lab.explorer.uploads import accept, lend
from tests.lab.explorer.histories import STEP_S, STEPS, shop
from tests.patience import PATIENCE_S
from traces.prometheus import kept
from traces.readers import openmetrics


@pytest.fixture(scope="module")
def answered():
    folder = lend(accept("shop.om", shop().encode()))
    status = Job(
        AdviceRequest(source="shop.om", risk=0.02, hosts=2, host_cores=4.0, folder=str(folder))
    ).wait(PATIENCE_S)
    assert status.phase == "done", status.message
    assert not folder.exists()
    return status


@pytest.mark.slow
def test_the_answer_has_the_advice_the_history_and_every_form(answered):
    advice = Advice.model_validate(answered.answer["advice"])
    (row,) = advice.rows
    assert (row.name, row.replicas, advice.made.risk) == ("shop/web/app", 2, 0.02)
    assert row.current.cpu_limit_cores == 2.0
    assert (
        answered.answer["asked"] == AdviceRequest(source="shop.om", risk=0.02, hosts=2, host_cores=4.0).asked
    )
    assert (advice.made.hosts, advice.made.host_cores) == (2, 4.0)
    drawn = answered.answer["histories"]
    assert len(drawn["at_s"]) == len(drawn["cores"][0]) == STEPS
    assert "shop/web/app" in answered.answer["page"]
    files = answered.answer["files"]
    assert set(files) == {"kubernetes", "vpa", "helm", "compose", "docker", "systemd"}
    (patch,) = files["kubernetes"].values()
    assert yaml.safe_load(patch)["metadata"] == {"name": "web", "namespace": "shop"}


@pytest.mark.slow
def test_what_cannot_be_advised_on_is_one_line():
    status = Job(AdviceRequest(url="http://localhost:9", since="long")).wait(PATIENCE_S)
    assert status.phase == "failed"
    assert "how far back long: expected a number" in status.message
    assert "\n" not in status.message


def test_a_long_history_is_thinned_to_its_largest_use(tmp_path, monkeypatch):
    monkeypatch.setattr("lab.explorer.advise_job._POINTS", 50)
    (tmp_path / "shop.om").write_text(shop())
    told = read(str(tmp_path / "shop.om"))
    drawn = histories(told)
    assert len(drawn["at_s"]) == 48
    assert drawn["at_s"][-1] == STEPS * STEP_S
    assert max(drawn["cores"][0]) == pytest.approx(told.usage.peak_cores()[0], rel=1e-4)


def test_an_imported_history_is_uploaded_with_the_file_beside_it(tmp_path):
    (tmp_path / "shop.om").write_text(shop())
    path = tmp_path / "shop.parquet"
    kept.write(openmetrics.history(tmp_path / "shop.om"), path)
    given = [accept(file.name, file.read_bytes()) for file in (kept.beside(path), path)]
    folder = lend(*given)
    try:
        told = read(str(folder / advise_chooser.main_of(given).name))
    finally:
        shutil.rmtree(folder)
    assert told.usage.current.cpu_limit.tolist() == [2.0]


def test_a_request_is_what_its_line_says():
    request = AdviceRequest(url="http://x", selector='a="b"', risk=0.01, hosts=2, host_cores=0.5)
    assert AdviceRequest.from_json(request.to_json()) == request
    assert json.loads(request.to_json())["since"] == "7d"


def test_one_file_is_offered_as_it_is_and_several_as_one_archive():
    name, make = packed("docker", {"docker-update.sh": "x\n"})
    assert (name, make()) == ("docker-update.sh", b"x\n")
    name, make = packed("systemd", {"web.service.d/50-twinbed.conf": "[Service]\n"})
    assert name == "systemd.zip"
    assert zipfile.ZipFile(io.BytesIO(make())).read("web.service.d/50-twinbed.conf") == b"[Service]\n"
