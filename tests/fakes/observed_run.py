"""`fairtrial run` with the stand-in observer: the real relay process, only the other end of the feed is ours."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from fairtrial.middleware.core.errors import UsageError
from fairtrial.middleware.relay import runopts, supervise

if __name__ == "__main__":
    observer = (
        os.environ.get("FAKE_OBSERVER_PYTHON", sys.executable),
        "-P",
        str(Path(__file__).with_name("observer.py")),
    )
    try:
        options = runopts.parse(sys.argv[1:])
    except UsageError as error:
        sys.exit(f"fairtrial run: {error}")
    supervise.run(options, observer_command=observer)
