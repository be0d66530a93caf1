"""What can be wrong with a configuration, each with its place.

Never seen by a client of the gateway.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong in a file.

    Attributes:
        file: name of the file as the operator gave it.
        line: counted from 1; 0 if the problem has no line (a missing file).
        path: the key, dotted, as in `pools.chat.workers[0].url`; empty for the document itself.
        found: the value as it stands there; empty if something is missing.
        expected: what would be right, as a sentence fragment.
    """

    file: str
    line: int
    path: str
    found: str
    expected: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        key = f"  {self.path}" if self.path else ""
        value = f" = {self.found}" if self.found else ""
        return f"{place}{key}{value}: {self.expected}"
