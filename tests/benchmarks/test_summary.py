"""docs/benchmarks.md shows the results that are in benchmarks/results."""

import json
import re
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))

from summary import PAGE, RESULTS, make_table, update_tables

PAGE_TEXT = PAGE.read_text(encoding="utf-8")
RESULT_FILES = {path.stem: json.loads(path.read_text("utf-8")) for path in RESULTS.glob("*.json")}


def test_the_tables_of_the_page_are_up_to_date() -> None:
    assert update_tables(PAGE_TEXT, RESULT_FILES) == PAGE_TEXT, "run python benchmarks/summary.py"


def test_no_table_of_the_page_is_empty() -> None:
    names = re.findall(r"<!-- table: (\S+) -->", PAGE_TEXT)
    assert names
    for name in names:
        assert len(make_table(name, RESULT_FILES).splitlines()) > 2, name
