"""Folders by the XDG base directory specification."""

from __future__ import annotations

from fairtrial.middleware.core import places


def test_the_variable_counts_when_it_is_absolute() -> None:
    assert places.state_folder({"XDG_STATE_HOME": "/s", "HOME": "/h"}) == "/s/fairtrial"
    assert places.state_folder({"XDG_STATE_HOME": "s", "HOME": "/h"}) == "/h/.local/state/fairtrial"
    assert places.state_folder({"HOME": "/h"}) == "/h/.local/state/fairtrial"
    assert places.config_folder({"XDG_CONFIG_HOME": "/c"}) == "/c/fairtrial"
    assert places.config_folder({"HOME": "/h"}) == "/h/.config/fairtrial"
