"""What a run was made from: the names of that in its environment. It imports no report."""

from __future__ import annotations

EXPERIMENT_FILE = "Experiment file"
"""The name in a run's environment of the file that it was swept from."""
COMMAND = "Command"
"""The name in a run's environment of the shell command that made it, where no file did."""
RESULTS = "Results folder"
"""The name of the folder that its runs are kept in, where that is not `results`."""
OPTIONS = "Options"
"""The name of further options of the command that swept a file, as a shell takes them."""
