"""Answers queries over the runs of a listing with DuckDB.

For: RunStore.query. Not for: which runs are healthy (lab.runs.store).
"""

from __future__ import annotations

from collections.abc import Callable

import duckdb
import pandas as pd

from lab import kinds
from lab.runs import index

MISTAKES = (duckdb.ParserException, duckdb.CatalogException)
"""DuckDB's errors for a query that is wrong regardless of the runs."""


def tables_of(sql: str) -> set[str]:
    """Return the tables of runs that a query needs. Raise duckdb.Error if it cannot be parsed."""
    every = set(kinds.tables())
    with duckdb.connect() as connection:
        try:
            named = connection.get_table_names(sql)
        except duckdb.InvalidInputException:
            # The text has several statements.
            return every
    # Some statements, such as SHOW TABLES, name none and mean all.
    return every & named if named else every


def answered(
    sql: str,
    listing: pd.DataFrame,
    file_of: Callable[[str, str], str],
    prepare: Callable[[duckdb.DuckDBPyConnection], None],
) -> pd.DataFrame:
    """Return the answer. Raise duckdb.Error.

    listing: rows of healthy runs, as in lab.runs.index. file_of(run, table): path or URL of a table,
    NAME.HASH, for DuckDB. prepare: lets a new connection reach these files.
    """
    with duckdb.connect() as connection:
        prepare(connection)
        for name in sorted(tables_of(sql)):
            files = [
                file_of(run_id, stored)
                for run_id, tables in zip(listing["id"], listing["tables"], strict=True)
                for stored in tables.split()
                if stored.startswith(f"{name}.")
            ]
            if files:
                quoted = ", ".join("'" + file.replace("'", "''") + "'" for file in files)
                _check_alike(name, quoted, len(files), connection)
                connection.execute(
                    f"CREATE VIEW {name} AS SELECT parse_path(filename)[-2] AS run, * EXCLUDE (filename) "
                    f"FROM read_parquet([{quoted}], filename = true, union_by_name = true)"
                )
        connection.register("runs", index.shown(listing).drop(columns="problem"))
        if not connection.extract_statements(sql):
            raise duckdb.ParserException("there is no statement; try SELECT * FROM runs")
        return connection.execute(sql).df()


def _check_alike(name: str, quoted: str, count: int, connection: duckdb.DuckDBPyConnection) -> None:
    """Raise duckdb.BinderException if the files share no column. Runs may lack some columns, but not all."""
    shared = connection.execute(
        f"SELECT name FROM parquet_schema([{quoted}]) WHERE num_children IS NULL GROUP BY name "
        f"HAVING count(DISTINCT file_name) = {count}"
    )
    if shared.fetchone() is None:
        raise duckdb.BinderException(f"{name}: tables of runs have no column in common")
