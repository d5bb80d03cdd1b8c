"""Folders by the XDG base directory specification."""

from __future__ import annotations

import os
import pwd

from fairtrial.middleware.core import places


def test_the_variable_counts_when_it_is_absolute() -> None:
    assert places.state_folder({"XDG_STATE_HOME": "/s", "HOME": "/h"}) == "/s/fairtrial"
    assert places.state_folder({"XDG_STATE_HOME": "s", "HOME": "/h"}) == "/h/.local/state/fairtrial"
    assert places.state_folder({"HOME": "/h"}) == "/h/.local/state/fairtrial"
    assert places.config_folder({"XDG_CONFIG_HOME": "/c"}) == "/c/fairtrial"
    assert places.config_folder({"HOME": "/h"}) == "/h/.config/fairtrial"


def test_an_empty_home_is_the_users_own_not_the_root_of_the_file_system() -> None:
    own = pwd.getpwuid(os.getuid()).pw_dir
    for environ in ({}, {"HOME": ""}):
        assert places.state_folder(environ) == f"{own}/.local/state/fairtrial"
