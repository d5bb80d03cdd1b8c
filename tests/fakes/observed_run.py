"""`fairtrial run` with the stand-in observer: the real relay process, only the other end of the feed is ours."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from fairtrial.middleware.relay import supervise

if __name__ == "__main__":
    interpreter = os.environ.get("FAKE_OBSERVER_PYTHON", sys.executable)
    supervise.main(sys.argv[1:], observer_command=(interpreter, "-P", str(Path(__file__).with_name("observer.py"))))
