"""What is kept in memory comes from what ships: a browser may send any text as its choice."""

import pytest

from lab.explorer import cached, cloud_question
from tests.lab.sample_traces import usage_trace
from traces import parquet
from twinbed import TwinbedError


@pytest.mark.parametrize("read", [cached.recording, cached.application, cloud_question.title])
@pytest.mark.parametrize("name", ["mine.parquet", "mine.yaml"])
def test_a_choice_cannot_name_another_file_of_this_machine(read, name, tmp_path):
    parquet.write(usage_trace(periods=10), tmp_path / "mine.parquet")
    (tmp_path / "mine.yaml").write_text("name: mine\n")
    with pytest.raises(TwinbedError, match="there is no"):
        read(str(tmp_path / name))
