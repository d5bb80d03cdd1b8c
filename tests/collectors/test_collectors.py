"""The table of collectors."""

from importlib import import_module

import pytest

from fairtrial.collectors import COLLECTORS
from fairtrial.middleware.core.records import FAMILIES


@pytest.mark.parametrize("name", sorted(COLLECTORS))
def test_every_collector_of_the_table_is_there_and_names_families_that_exist(name: str) -> None:
    entry = COLLECTORS[name]
    module, _, target = entry.target.partition(":")
    assert isinstance(getattr(import_module(module), target), type)
    assert set(entry.families) <= set(FAMILIES)
    assert entry.privileges
    assert entry.cost
