"""The page of an advice: whole, by itself, and without anything that a name could smuggle in."""

import re

import numpy as np

from lab.containers.advise.advising import Wanted, advise
from lab.containers.advise.histories import of_cluster
from lab.containers.advise.page import document
from lab.containers.calibrate.values import load_calibration
from tests.lab.containers.advise.histories import MIB, alone, history, trace

NAME = "<script>alert(1)</script>&\"'"


def test_the_page_has_the_table_the_drawings_and_only_text_of_names():
    own = trace(np.full((2, 200), 0.3), np.full((2, 200), 50.0 * MIB), names=[NAME, "web"])
    told = of_cluster("test", history(own, alone(NAME, "web"), cpu_request_cores=[1.0, 1.0]))
    page = document(advise([told], Wanted(seeds=(0,)), load_calibration().machine()), [told])
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert page.count('<img src="data:image/svg+xml;base64,') == 2
    assert not re.search(r"(src|href)=\"https?:", page)
    assert "No limit: one of" in page
