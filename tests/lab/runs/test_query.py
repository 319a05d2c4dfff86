"""SQL over the runs of a store."""

import pyarrow as pa
import pytest

from tests.lab.runs.test_run_store import manifest, tables
from twinbed import StoreError


def test_queries_see_all_runs_with_their_id(store):
    store.publish(manifest("mine-a-1"), tables(5))
    store.publish(manifest("mine-b-1"), tables(7))
    found = store.query(
        "SELECT run, count(*) AS n, any_value(container) AS c FROM periods GROUP BY run ORDER BY run"
    ).frame
    assert found.to_numpy().tolist() == [["mine-a-1", 5, "c0"], ["mine-b-1", 7, "c0"]]
    joined = store.query("SELECT policy, value FROM summary JOIN runs ON runs.id = summary.run").frame
    assert len(joined) == 2
    with pytest.raises(StoreError, match=r"^query: ") as caught:
        store.query("SELECT nothing FROM nowhere")
    assert "\n" not in str(caught.value)


def test_a_query_for_a_table_that_no_run_has_is_refused(store):
    store.publish(manifest(), tables())
    with pytest.raises(StoreError, match="requests"):
        store.query("SELECT * FROM requests")


def test_a_query_that_names_no_table_means_all(store):
    store.publish(manifest(), tables())
    assert store.query("SHOW TABLES").frame["name"].tolist() == sorted([*tables(), "runs"])


def test_whole_tables_that_have_nothing_in_common_are_named(store):
    for column in ("one", "other"):
        store.publish(manifest(f"mine-{column}-1"), tables() | {"periods": pa.table({column: [1]})})
    with pytest.raises(StoreError, match=r"^query: .*periods: tables of runs have no column in common$"):
        store.query("SELECT * FROM periods")
