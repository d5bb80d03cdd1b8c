"""fairtrial: every failure of an agent gets a fair trial.

This folder is the name plate on the door. The code lives in the rooms `middleware/`, `collectors/` and `exporters/`
beside it; the links in this folder make a checkout import as the wheel does: `from fairtrial.middleware.core.records
import …`. Read ARCHITECTURE.md first. Nothing is imported here: the relay process counts its start in milliseconds.
"""

__version__ = "0.1.0"
