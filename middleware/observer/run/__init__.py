"""The parts of the observer of `fairtrial run`, each with a state of its own; `middleware/app.py` joins them.

doors.py      the records of a connection, to the tracker of its door
notes.py      what the relay noted
watching.py   collectors, and what a harness deletes
inside.py     the control API, opened late
beginning.py  how a trial begins in the store, or is taken over
parting.py    whether the command ran several trials, and their end
complaints.py what did not go as it should, for the end of the run
"""
